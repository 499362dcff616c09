//! Keeps secrets out of what is written down: values of variables that are named like secrets, and the user and the
//! password of URLs. Pure.
//!
//! A bundle is published, so its `run.json` has [`MASK`] in their place. A run that is resumed takes them from ladder's
//! own environment.

use bench_format::plan::WirePlan;

/// What stands in the place of a secret.
pub const MASK: &str = "***";
/// Parts of the names of variables and headers that hold secrets.
const SECRETS: [&str; 6] = ["SECRET", "PASSWORD", "TOKEN", "KEY", "AUTHORIZATION", "COOKIE"];

/// Variables whose values a `run.json` leaves out, and which ladder's environment doesn't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a run.json leaves secrets out, and to resume the run they are needed: set {} in ladder's environment to the values \
     that the run began with",
    .0.join(", ")
)]
pub struct MissingSecrets(Vec<String>);

/// Whether a variable's name says that it holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRETS.iter().any(|part| name.contains(part))
}

/// The plan without secrets.
pub fn masked_plan(plan: &WirePlan) -> WirePlan {
    let mut plan = plan.clone();
    for (name, value) in variables(&mut plan) {
        *value = masked_value(name, value);
    }
    plan
}

/// Takes the secrets that a masked plan lacks from an environment.
///
/// # Errors
/// [`MissingSecrets`] with all variables that the environment doesn't have.
pub fn restore(plan: &mut WirePlan, environment: impl Fn(&str) -> Option<String>) -> Result<(), MissingSecrets> {
    let mut missing = Vec::new();
    for (name, value) in variables(plan).filter(|(_, value)| value.contains(MASK)) {
        // Another host in the URL would be another measurement.
        match environment(name).filter(|found| masked_value(name, found) == *value) {
            Some(found) => *value = found,
            None if missing.contains(name) => {}
            None => missing.push(name.clone()),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(MissingSecrets(missing)) }
}

fn variables(plan: &mut WirePlan) -> impl Iterator<Item = (&String, &mut String)> {
    let of_ladders =
        plan.ladders.iter_mut().flat_map(|ladder| ladder.service_env.iter_mut().chain(&mut ladder.inference_env));
    let of_section = plan.websocket.iter_mut().flat_map(|section| {
        let of_services = section.services.values_mut().flat_map(|service| &mut service.env);
        of_services.chain(&mut section.connect.headers)
    });
    of_ladders.chain(of_section)
}

fn masked_value(name: &str, value: &str) -> String {
    if is_secret(name) && !value.is_empty() { MASK.into() } else { masked_urls(value) }
}

/// A command line without secrets: arguments `NAME=value`, values of flags that are named like secrets, and URLs.
pub fn masked_command(arguments: impl Iterator<Item = String>) -> String {
    let line = arguments.collect::<Vec<_>>().join(" ");
    let mut is_value = false;
    let mask = |word: &str| {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let named = is_secret(name) && !name.contains(['/', '.', ':']);
        let masked = match value {
            _ if std::mem::take(&mut is_value) => MASK.into(),
            Some(value) if named && !value.is_empty() => format!("{name}={MASK}"),
            _ => masked_urls(word),
        };
        is_value = named && value.is_none() && name.starts_with("--");
        masked
    };
    line.split(' ').map(mask).collect::<Vec<_>>().join(" ")
}

/// A text whose URLs have no user and no password.
pub fn masked_urls(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let authority = after.find(|c: char| c.is_whitespace() || "/?#,\"'".contains(c)).unwrap_or(after.len());
        let host = after[..authority].rfind('@').map(|at| &after[at + 1..]);
        masked.push_str(before);
        masked.push_str("://");
        if host.is_some() {
            masked.push_str(MASK);
            masked.push('@');
        }
        rest = host.unwrap_or(after);
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::check::fixture::minimal;

    const ENV: [(&str, &str); 6] = [
        ("JWT_SECRET", "s3cret"),
        ("DB_PASSWORD", "s3cret"),
        ("api_token", "s3cret"),
        ("TLS_KEY", "s3cret"),
        ("REDIS_URL", "redis://user:s3cret@redis:6379/0"),
        ("DELIVERY", "batch"),
    ];

    fn plan() -> WirePlan {
        let mut plan = minimal();
        let env = || ENV.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        (plan.ladders[0].service_env, plan.ladders[0].inference_env) = (env(), env());
        plan
    }

    #[test]
    fn no_secret_of_a_plan_is_written_down() {
        let masked = masked_plan(&plan());
        let text = serde_json::to_string(&masked).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(masked.ladders[0].service_env["REDIS_URL"], "redis://***@redis:6379/0");
        assert_eq!(masked.ladders[0].service_env["DELIVERY"], "batch");
    }

    #[test]
    fn a_resumed_run_takes_its_secrets_from_the_environment_or_says_which_are_missing() {
        let environment = |name: &str| ENV.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
        let mut masked = masked_plan(&plan());
        restore(&mut masked, environment).unwrap();
        assert_eq!(masked.ladders[0].service_env, plan().ladders[0].service_env);
        let mut masked = masked_plan(&plan());
        let other = |name: &str| if name == "REDIS_URL" { Some("redis://other".into()) } else { environment(name) };
        let error = restore(&mut masked, other).unwrap_err();
        assert!(error.to_string().contains("set REDIS_URL in ladder's environment"), "{error}");
        let mut masked = masked_plan(&plan());
        let MissingSecrets(missing) = restore(&mut masked, |_| None).unwrap_err();
        assert_eq!(missing, ["DB_PASSWORD", "JWT_SECRET", "REDIS_URL", "TLS_KEY", "api_token"]);
    }

    #[test]
    fn a_command_line_is_written_down_without_secrets() {
        for (line, expected) in [
            ("ladder run quick --url ws://u:p@host:1/wse", "ladder run quick --url ws://***@host:1/wse"),
            ("ladder run --report-command JWT_SECRET=x python", "ladder run --report-command JWT_SECRET=*** python"),
            ("x --secret abc --token=d e", "x --secret *** --token=*** e"),
            ("ladder run plans/tokens.yaml --only a/keys", "ladder run plans/tokens.yaml --only a/keys"),
        ] {
            assert_eq!(masked_command(line.split(' ').map(str::to_owned)), expected);
        }
    }

    #[test]
    fn urls_lose_their_user_and_password_and_nothing_else() {
        for (text, expected) in [
            ("redis://:p@ss@h:1,redis://u@h2", "redis://***@h:1,redis://***@h2"),
            ("http://host/a@b", "http://host/a@b"),
            ("no url, a@b", "no url, a@b"),
            ("://", "://"),
        ] {
            assert_eq!(masked_urls(text), expected);
        }
    }
}
