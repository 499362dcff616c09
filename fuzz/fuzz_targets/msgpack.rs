//! MessagePack: the type of a valid value is the one that a parser finds, a prefix of a valid value isn't valid, and
//! an encoded value is valid unless it is nested too deeply.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use wse_engine::msgpack;

fuzz_target!(|bytes: &[u8]| {
    if let Some(found) = msgpack::check(bytes) {
        if let Some(range) = &found {
            std::str::from_utf8(&bytes[range.clone()]).expect("a type is text");
        }
        for cut in 0..bytes.len() {
            assert!(msgpack::check(&bytes[..cut]).is_none(), "a prefix of a value is not a value");
        }
    }
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let packed = rmp_serde::to_vec_named(&value).expect("a JSON value can be packed");
        let depth = depth(&value);
        let checked = msgpack::check(&packed);
        assert_eq!(checked.is_some(), depth <= msgpack::MAX_DEPTH, "depth {depth}");
        let found = checked.flatten().map(|range| packed[range].to_vec());
        let expected = value.get("t").or_else(|| value.get("type")).and_then(Value::as_str);
        if depth <= msgpack::MAX_DEPTH {
            assert_eq!(found.as_deref(), expected.map(str::as_bytes));
        }
    }
});

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
