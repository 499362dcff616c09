//! Tests of the conversion of events to envelopes, with JSON values in place of Python objects and a fixed clock.

use std::{cell::RefCell, rc::Rc};

use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::*;

/// The time of the fixed clock.
const NOW: &str = "2026-11-23T03:30:00.000000Z";

/// JSON values that can be changed in place and shared.
type Shared = Rc<RefCell<Json>>;

/// Stands in for Python: the values are JSON.
struct JsonHost;

fn shared(value: Json) -> Shared {
    Rc::new(RefCell::new(value))
}

impl Host for JsonHost {
    type Value = Shared;
    type Error = std::convert::Infallible;

    fn get(&self, map: &Shared, name: Name) -> Result<Option<Shared>, Self::Error> {
        Ok(map.borrow().get(name.as_str()).cloned().map(shared))
    }

    fn look_up(&self, map: &Shared, name: &Shared) -> Result<Option<Shared>, Self::Error> {
        Ok(name.borrow().as_str().and_then(|name| map.borrow().get(name).cloned()).map(shared))
    }

    fn put(&self, map: &Shared, name: Name, value: Shared) -> Result<(), Self::Error> {
        map.borrow_mut()[name.as_str()] = value.take();
        Ok(())
    }

    fn map(&self, fields: Vec<(Name, Shared)>) -> Result<Shared, Self::Error> {
        let fields: Map<String, Json> =
            fields.into_iter().map(|(name, value)| (name.as_str().into(), value.take())).collect();
        Ok(shared(fields.into()))
    }

    fn json(&self, value: &Shared, without: Option<Name>) -> Result<Shared, Self::Error> {
        let mut copy = value.borrow().clone();
        if let (Json::Object(map), Some(name)) = (&mut copy, without) {
            map.remove(name.as_str());
        }
        Ok(shared(copy))
    }

    fn is_null(&self, value: &Shared) -> bool {
        value.borrow().is_null()
    }

    fn is_map(&self, value: &Shared) -> bool {
        value.borrow().is_object()
    }

    fn is_integer(&self, value: &Shared) -> bool {
        value.borrow().is_i64()
    }

    fn text(&self, value: &Shared) -> Result<Shared, Self::Error> {
        let text = match &*value.borrow() {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        Ok(shared(text.into()))
    }

    fn read<R>(&self, text: &Shared, read: impl FnOnce(&str) -> R) -> Result<R, Self::Error> {
        Ok(read(text.borrow().as_str().unwrap()))
    }

    fn string(&self, text: &str) -> Shared {
        shared(text.into())
    }

    fn integer(&self, number: i64) -> Shared {
        shared(number.into())
    }

    fn new_id(&self) -> Shared {
        self.string("new")
    }

    fn now(&self) -> Instant {
        Instant::parse(NOW).unwrap()
    }
}

fn transformed_with(event: &Json, types: &Json) -> Json {
    transform(&JsonHost, &shared(event.clone()), 7, &shared(types.clone())).unwrap().take()
}

fn transformed(event: &Json) -> Json {
    transformed_with(event, &json!({}))
}

fn envelope(message_type: &str, payload: &Json, additional: &Json) -> Json {
    let mut envelope = json!({
        "c": "U", "t": message_type, "id": "new", "ts": NOW, "seq": 7, "p": payload, "v": 1, "event_version": 1
    });
    for (name, value) in additional.as_object().unwrap() {
        envelope[name] = value.clone();
    }
    envelope
}

#[test]
fn names_are_listed_in_the_order_of_their_discriminants() {
    for (index, name) in Name::ALL.into_iter().enumerate() {
        assert_eq!(name as usize, index, "{}", name.as_str());
    }
}

#[test]
fn an_envelope_is_returned_as_the_same_object_and_keeps_its_sequence_number() {
    let complete = shared(json!({"v": 1, "t": "X", "p": {}, "id": 1, "ts": null}));
    let returned = transform(&JsonHost, &complete, 7, &shared(json!({}))).unwrap();
    assert!(Rc::ptr_eq(&complete, &returned));
    assert_eq!(complete.borrow()["seq"], 7);
    transform(&JsonHost, &complete, 8, &shared(json!({}))).unwrap();
    assert_eq!(complete.borrow()["seq"], 7);
}

#[test]
fn an_envelope_that_lacks_a_field_is_an_event() {
    for missing in ENVELOPE {
        let mut event = json!({"v": 1, "t": "X", "p": {}, "id": 1, "ts": "q"});
        event.as_object_mut().unwrap().remove(missing.as_str());
        assert_eq!(transformed(&event), envelope("unknown", &event, &json!({})));
    }
}

#[test]
fn an_event_without_payload_becomes_the_payload_without_its_metadata() {
    let event = json!({"event_type": "TRADE", "a": 1, "_metadata": {"event_id": "E", "timestamp": "T", "other": 1}});
    let additional = json!({"id": "E", "ts": "T", "original_event_type": "TRADE"});
    assert_eq!(transformed(&event), envelope("trade", &json!({"event_type": "TRADE", "a": 1}), &additional));
    assert_eq!(transformed(&json!({})), envelope("unknown", &json!({}), &json!({})));
}

#[test]
fn a_payload_that_is_a_map_is_used_unchanged() {
    let payload = json!({"a": 1, "event_type": "own"});
    assert_eq!(transformed(&json!({"event_type": "a", "payload": payload})), envelope("a", &payload, &json!({})));
    let event = json!({"event_type": "a", "payload": [1]});
    assert_eq!(transformed(&event), envelope("a", &event, &json!({})));
}

#[test]
fn a_type_is_mapped_or_lower_cased_and_its_original_is_reported() {
    let types = json!({"A": "mapped", "B": 5, "same": "same", "C": null});
    for (event, message_type, original) in [
        (json!({"event_type": "A"}), "mapped", Some("A")),
        (json!({"event_type": "B"}), "5", Some("B")),
        (json!({"event_type": "C"}), "c", Some("C")),
        (json!({"event_type": "same"}), "same", None),
        (json!({"event_type": "other"}), "other", None),
        (json!({"event_type": "ÄÖ"}), "äö", Some("ÄÖ")),
        (json!({"event_type": 5}), "5", None),
        (json!({"event_type": null, "type": "A"}), "mapped", Some("A")),
        (json!({"event_type": "A", "type": "ignored"}), "mapped", Some("A")),
    ] {
        let made = transformed_with(&event, &types);
        assert_eq!(
            (made["t"].as_str(), made["original_event_type"].as_str()),
            (Some(message_type), original),
            "{event}"
        );
    }
}

#[test]
fn a_type_in_the_field_type_is_also_the_event_type_of_the_payload() {
    let made = transformed(&json!({"type": "a", "b": 1}));
    assert_eq!(made["p"], json!({"type": "a", "b": 1, "event_type": "a"}));
    assert_eq!(transformed(&json!({"type": "a", "payload": {"b": 1}}))["p"], json!({"b": 1}));
}

#[test]
fn metadata_takes_precedence_over_the_event() {
    let event = json!({
        "event_type": "a", "payload": {}, "event_id": 1, "timestamp": 2, "correlation_id": 3, "pri": 4, "trace_id": 5, "version": 6,
    });
    let additional = json!({"id": "1", "ts": "2", "cid": "3", "pri": 4, "trace_id": "5", "event_version": 6});
    assert_eq!(transformed(&event), envelope("a", &json!({}), &additional));
    let mut event = event;
    event["_metadata"] =
        json!({"event_id": "i", "timestamp": "t", "correlation_id": "c", "priority": 8, "trace_id": "r", "version": 9});
    let additional = json!({"id": "i", "ts": "t", "cid": "c", "pri": 8, "trace_id": "r", "event_version": 6});
    assert_eq!(transformed(&event), envelope("a", &json!({}), &additional));
}

#[test]
fn nulls_and_values_of_another_kind_count_as_missing() {
    let event =
        json!({"event_type": "a", "payload": {}, "event_id": null, "timestamp": null, "pri": "high", "version": "2.0"});
    assert_eq!(transformed(&event), envelope("a", &json!({}), &json!({})));
    let odd = json!({"event_type": "a", "payload": {}, "_metadata": 5});
    assert_eq!(transformed(&odd), envelope("a", &json!({}), &json!({})));
}

#[test]
fn a_timestamp_with_an_offset_gives_the_events_age() {
    let made = |time: &str| transformed(&json!({"event_type": "a", "timestamp": time}));
    assert_eq!(made("2026-11-23T03:29:58.5Z")["latency_ms"], 1500);
    assert_eq!(made("2026-11-23T04:29:59+01:00")["latency_ms"], 1000);
    assert_eq!(made("2026-11-23T04:00:00Z")["latency_ms"], 0);
    assert_eq!(made("2026-11-23T03:29:58")["latency_ms"], Json::Null);
    assert_eq!(made("2026-11-23T03:29:58")["ts"], "2026-11-23T03:29:58");
}

#[test]
fn the_category_follows_from_the_type_unless_it_is_given() {
    for (message_type, expected) in [
        ("a_snapshot", "S"),
        ("SNAPSHOT_X", "S"),
        ("x_snapshot_y", "S"),
        ("snapshot_complete", "WSE"),
        ("server_ready", "WSE"),
        ("client_hello_ack", "WSE"),
        ("connection_state_change", "WSE"),
        ("error", "WSE"),
        ("PONG", "WSE"),
        ("snapshot", "U"),
        ("snapshotx", "U"),
        ("subscription_update", "U"),
        ("", "U"),
    ] {
        assert_eq!(transformed(&json!({"event_type": message_type}))["c"], expected, "{message_type}");
    }
    assert_eq!(transformed(&json!({"event_type": "error", "c": "Z"}))["c"], "Z");
}

proptest! {
    #[test]
    fn every_envelope_is_complete_and_transforming_it_again_changes_nothing(
        names in prop::collection::vec("v|t|p|id|ts|type|event_type|payload|_metadata|c|pri|version|timestamp|x", 0..8),
        text in "\\PC{0,8}",
        number: i32,
    ) {
        let value = |index: usize| match index % 4 {
            0 => json!(text),
            1 => json!(number),
            2 => json!({"timestamp": text, "event_id": number}),
            _ => Json::Null,
        };
        let event: Map<String, Json> = names.into_iter().enumerate().map(|(index, name)| (name, value(index))).collect();
        let made = transformed(&Json::from(event));
        prop_assert!(ENVELOPE.iter().chain(&[Name::Seq]).all(|name| made.get(name.as_str()).is_some()));
        prop_assert_eq!(transformed(&made), made);
    }
}
