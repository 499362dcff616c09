//! Secrets reach a section by ladder's environment: `{{env.NAME}}` in a header or in the address of a service. So neither
//! a plan nor a bundle has them.

use bench_format::websocket::WireWebsocket;

const OPEN: &str = "{{env.";
const CLOSE: &str = "}}";

/// A variable that the environment doesn't have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ladder's environment has no {name}; set it")]
pub struct MissingVariable {
    /// Place in the section.
    pub place: String,
    /// Name of the variable.
    pub name: String,
}

/// The section with the values of its variables, which `environment` knows.
///
/// # Errors
/// The first [`MissingVariable`].
pub fn filled(
    section: &WireWebsocket,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<WireWebsocket, MissingVariable> {
    let mut section = section.clone();
    for (name, value) in &mut section.connect.headers {
        *value = fill(value, format!("connect.headers.{name}"), &environment)?;
    }
    for (name, service) in &mut section.services {
        service.url = fill(&service.url, format!("services.{name}.url"), &environment)?;
        for (index, url) in service.more_urls.iter_mut().enumerate() {
            *url = fill(url, format!("services.{name}.more_urls[{index}]"), &environment)?;
        }
        if let Some(counters) = &mut service.counters {
            counters.url = fill(&counters.url, format!("services.{name}.counters.url"), &environment)?;
        }
    }
    Ok(section)
}

fn fill(text: &str, place: String, environment: &impl Fn(&str) -> Option<String>) -> Result<String, MissingVariable> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN)
        && let Some((name, after)) = after.split_once(CLOSE)
    {
        let Some(value) = environment(name) else { return Err(MissingVariable { place, name: name.into() }) };
        result += before;
        result += &value;
        rest = after;
    }
    Ok(result + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_takes_its_secret_from_the_environment() {
        let mut section = WireWebsocket::default();
        let header = "Bearer {{env.CHAT_TOKEN}} {{connection}}".to_owned();
        section.connect.headers.insert("Authorization".into(), header);
        let environment = |name: &str| (name == "CHAT_TOKEN").then(|| "s3cret".to_owned());
        let filled_section = filled(&section, environment).unwrap();
        assert_eq!(filled_section.connect.headers["Authorization"], "Bearer s3cret {{connection}}");
        let missing = filled(&section, |_| None).unwrap_err();
        assert_eq!(missing.place, "connect.headers.Authorization");
        assert_eq!(missing.to_string(), "ladder's environment has no CHAT_TOKEN; set it");
    }
}
