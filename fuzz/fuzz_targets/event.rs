//! Events: a completed event still has every given value, in JSON and in MessagePack, with sorted keys.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use uuid::Uuid;
use wse_engine::{events::Event, format::Format};

const NOW_MILLIS: u64 = 1_795_217_600_933;

fuzz_target!(|bytes: &[u8]| {
    let Ok(given) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return };
    let event = Event::new(given.clone().into_iter().collect());
    let _ = (event.id(), event.level());
    let json = event.completed(NOW_MILLIS, Uuid::nil(), 7, Format::Json).expect("a JSON value can be written");
    let completed: Map<String, Value> = serde_json::from_slice(&json).expect("what was written can be read");
    let mut expected = Map::new();
    expected.insert("id".to_owned(), json!(Uuid::nil().to_string()));
    expected.insert("seq".to_owned(), json!(7));
    expected.insert("ts".to_owned(), json!("2026-11-20T23:33:20.933Z"));
    expected.extend(given);
    expected.insert("c".to_owned(), completed["c"].clone());
    expected.insert("v".to_owned(), json!(1));
    assert!(["U", "S", "WSE"].contains(&completed["c"].as_str().expect("a category is text")));
    // The tree writes its keys sorted. Texts are compared, because parsing a float again may give the adjacent value.
    assert_eq!(String::from_utf8(json).as_deref(), Ok(Value::Object(expected.clone()).to_string().as_str()));
    let packed = event.completed(NOW_MILLIS, Uuid::nil(), 7, Format::MessagePack).expect("so can it be packed");
    let packed = packed.strip_prefix(b"M:").expect("it has its prefix");
    assert_eq!(rmp_serde::to_vec_named(&expected).expect("so can the tree"), packed);
});
