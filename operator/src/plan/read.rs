//! Parses the text of a plan file into a [`WirePlan`], or into the mistakes in its structure.
//!
//! A parser stops at its first error. In that case each ladder is parsed again separately, so that one pass reports the
//! mistakes of all ladders.

use std::{fs, path::Path};

use bench_format::plan::{WireLadder, WirePlan};
use serde_json::Value;

use super::{Mistake, Mistakes};
use crate::{spelling::closest, websocket};

/// Reads a plan file. What it extends is filled in.
///
/// # Errors
/// When the file can't be read, or with every mistake in its structure that can be separated.
pub fn read(path: &Path) -> Result<WirePlan, Mistakes> {
    let text = fs::read_to_string(path).map_err(|error| {
        let message = format!("failed to read the plan: {error}; give a name in plans/ or a path");
        Mistakes(vec![Mistake { file: path.into(), place: String::new(), message }])
    })?;
    let mut wire = parse(&text, path)?;
    if let Some(section) = &mut wire.websocket {
        let folder = path.parent().unwrap_or(Path::new("."));
        websocket::extend(section, folder).map_err(|message| {
            Mistakes(vec![Mistake { file: path.into(), place: "websocket.extends".into(), message }])
        })?;
    }
    Ok(wire)
}

/// Parses a plan; `path` appears in messages.
///
/// # Errors
/// Every mistake in the structure that can be separated.
pub fn parse(text: &str, path: &Path) -> Result<WirePlan, Mistakes> {
    // Without strict booleans, YAML keys such as `n:` and `on:` would be read as booleans.
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let error = match serde_saphyr::from_str_with_options::<WirePlan>(text, options.clone()) {
        Ok(plan) => return Ok(plan),
        Err(error) => error,
    };
    let mut mistakes = serde_saphyr::from_str_with_options::<Value>(text, options)
        .map(|value| mistakes_of_parts(value, path))
        .unwrap_or_default();
    if mistakes.is_empty() {
        let (place, message) = located(&error);
        mistakes.push(Mistake { file: path.into(), place, message: with_suggestion(&message) });
    }
    Err(Mistakes(mistakes))
}

/// Parses the plan without its ladders, then each ladder, and collects the mistakes of all of them.
fn mistakes_of_parts(mut value: Value, path: &Path) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut note = |place: String, error: serde_json::Error| {
        mistakes.push(Mistake { file: path.into(), place, message: with_suggestion(&error.to_string()) });
    };
    let ladders = match value.get_mut("ladders") {
        Some(Value::Array(ladders)) => std::mem::take(ladders),
        _ => Vec::new(),
    };
    if let Err(error) = serde_json::from_value::<WirePlan>(value) {
        note(String::new(), error);
    }
    for (index, ladder) in ladders.into_iter().enumerate() {
        if let Err(error) = serde_json::from_value::<WireLadder>(ladder) {
            note(format!("ladders[{index}]"), error);
        }
    }
    mistakes
}

fn located(error: &serde_saphyr::Error) -> (String, String) {
    let place = error.location().map(|at| format!("line {}, column {}", at.line(), at.column())).unwrap_or_default();
    let text = error.to_string();
    let message = text.lines().next().unwrap_or_default().to_owned();
    (place, message)
}

/// Adds `did you mean …` to serde's ``unknown field `a`, expected one of `b`, `c` ``.
fn with_suggestion(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match (message.contains("unknown "), quoted.split_first()) {
        (true, Some((wrong, known))) => match closest(wrong, known.iter().copied()) {
            Some(right) => format!("{message}; did you mean `{right}`?"),
            None => message.to_owned(),
        },
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "schema: 1\nname: n\nwhy: w\nseed: 1\nservices: [a]\nwindow_seconds: 1\n";

    fn messages(text: &str) -> Vec<String> {
        parse(text, Path::new("p.yaml")).unwrap_err().0.iter().map(Mistake::to_string).collect()
    }

    #[test]
    fn a_mistyped_field_is_named_with_the_one_that_was_meant() {
        let text = format!("{HEAD}ladders: [{{workload: w, teirs: [1], load: {{model: closed}}}}]");
        let [message] = messages(&text).try_into().unwrap();
        assert!(message.starts_with("p.yaml: ladders[0]: unknown field `teirs`"), "{message}");
        assert!(message.ends_with("did you mean `tiers`?"), "{message}");
    }

    #[test]
    fn mistakes_in_two_ladders_are_reported_at_once() {
        let text = format!(
            "{HEAD}ladders: [{{workload: w, tiers: [1], load: {{model: clsed}}}}, {{workload: w, tiers: [1]}}]"
        );
        let messages = messages(&text);
        assert!(messages[0].contains("ladders[0]") && messages[0].contains("did you mean `closed`?"), "{messages:?}");
        assert!(messages[1].contains("ladders[1]: missing field `load`"), "{messages:?}");
    }

    #[test]
    fn broken_yaml_is_named_by_line() {
        let [message] = messages("schema: 1\nname: [").try_into().unwrap();
        assert!(message.contains("p.yaml: line "), "{message}");
    }

    #[test]
    fn a_name_that_yaml_could_take_for_a_boolean_stays_a_name() {
        let text = format!("{HEAD}ladders: []").replace("name: n", "name: no");
        assert_eq!(parse(&text, Path::new("p.yaml")).unwrap().name, "no");
    }

    #[test]
    fn a_missing_file_is_an_error_that_names_the_argument() {
        let error = read(Path::new("/nowhere/p.yaml")).unwrap_err();
        assert!(error.to_string().contains("give a name in plans/ or a path"), "{error}");
    }
}
