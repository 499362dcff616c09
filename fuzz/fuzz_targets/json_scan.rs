//! The search for a type: for well-formed objects it agrees with a parser, for any other text the result lies inside
//! it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use wse_engine::{format, json, with_category};

fuzz_target!(|text: &str| {
    let _ = format::classify(text.as_bytes());
    if !text.starts_with('{') {
        return;
    }
    let found = json::find_type(text.as_bytes()).map(|range| &text[range]);
    let categorised = with_category(text);
    assert!(categorised.ends_with(&text[1..]));
    // A key that occurs twice is ambiguous, and so is one that is written with escapes.
    let is_ambiguous = text.matches("\"t\"").count() > 1 || text.matches("\"type\"").count() > 1 || text.contains("\\u");
    let Ok(Value::Object(object)) = serde_json::from_str(text) else { return };
    serde_json::from_str::<Value>(&categorised).expect("a category leaves an object an object");
    if is_ambiguous {
        return;
    }
    let value = object.get("t").or_else(|| object.get("type")).and_then(Value::as_str);
    match (found, value) {
        (Some(found), Some(value)) => assert_eq!(found, value),
        (Some(found), None) => panic!("found {found:?}, which isn't there"),
        // Not found: it is missing, or has escapes.
        (None, Some(value)) => assert!(text.contains('\\'), "{value:?} wasn't found"),
        (None, None) => {}
    }
});
