//! An event of the application on its way to a client: its envelope is completed, then it is encoded as JSON or
//! MessagePack. Pure.
//!
//! An event's keys are sorted at every level, like everything that the reference builds as a tree. An implementation of
//! [`Value`] sorts the members inside it with [`sort_members`].

use std::{borrow::Cow, fmt};

use serde::{Serialize, Serializer, ser::SerializeMap};
use uuid::Uuid;

use crate::{
    clock::Timestamp,
    envelope,
    format::{COMPRESSED, Format, MESSAGE_PACK},
    priority::Level,
};

/// The value of an event's member. It can be encoded, and inspected where the envelope depends on it.
pub trait Value: Serialize {
    /// The text; `None` if the value isn't a string.
    fn as_text(&self) -> Option<Cow<'_, str>>;
    /// The number; `None` if the value isn't an integer that fits into an `i64`.
    fn as_integer(&self) -> Option<i64>;
}

impl Value for serde_json::Value {
    fn as_text(&self) -> Option<Cow<'_, str>> {
        self.as_str().map(Cow::Borrowed)
    }

    fn as_integer(&self) -> Option<i64> {
        self.as_i64()
    }
}

/// Sorts members by the bytes of their names. Of two members with the same name the later one stays.
pub fn sort_members<N: AsRef<str>, V>(members: &mut Vec<(N, V)>) {
    // The sort is stable, and the reversal puts the last of several equal names first.
    members.reverse();
    members.sort_by(|one, other| one.0.as_ref().cmp(other.0.as_ref()));
    members.dedup_by(|later, earlier| later.0.as_ref() == earlier.0.as_ref());
}

/// Why an event could not be encoded: the encoder's message.
#[derive(Debug, thiserror::Error)]
#[error("the event can't be written: {0}")]
pub struct EncodeError(String);

impl EncodeError {
    fn of(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// An event as the application provides it, with its members sorted by name.
#[derive(Debug)]
pub struct Event<N, V> {
    members: Vec<(N, V)>,
}

/// What completes an event's envelope. The members are `None` where the event has its own; `c` and `v` are always set
/// by the engine.
#[derive(Debug)]
pub(crate) struct Completion {
    category: &'static str,
    id: Option<Uuid>,
    sequence: Option<u64>,
    now_millis: Option<u64>,
}

impl<N: AsRef<str>, V: Value> Event<N, V> {
    /// Makes an event of these members, which may be in any order.
    pub fn new(mut members: Vec<(N, V)>) -> Self {
        sort_members(&mut members);
        Self { members }
    }

    fn get(&self, name: &str) -> Option<&V> {
        let found = self.members.binary_search_by(|(member, _)| member.as_ref().cmp(name));
        found.ok().map(|index| &self.members[index].1)
    }

    /// The id by which duplicates are recognised: the member `id`, if it is text.
    pub fn id(&self) -> Option<Cow<'_, str>> {
        self.get("id")?.as_text()
    }

    /// The priority: the member `pri` if it is an integer, else the default level.
    pub fn level(&self) -> Level {
        self.get("pri").and_then(Value::as_integer).map(Level::of).unwrap_or_default()
    }

    /// Determines what the envelope lacks. `id` and `next` are called only if the event has no `id` or no `seq`, so a
    /// sequence number is used only when it is needed.
    pub(crate) fn completion(
        &self,
        now_millis: u64,
        id: impl FnOnce() -> Uuid,
        next: impl FnOnce() -> u64,
    ) -> Completion {
        let kind = self.get("t").and_then(Value::as_text);
        Completion {
            category: envelope::category(kind.as_deref().unwrap_or_default()),
            id: self.get("id").is_none().then(id),
            sequence: self.get("seq").is_none().then(next),
            now_millis: self.get("ts").is_none().then_some(now_millis),
        }
    }

    /// Encodes the completed event, with the prefix of its format.
    ///
    /// # Errors
    /// [`EncodeError`] if a value can't be encoded.
    pub(crate) fn encode(&self, completion: &Completion, format: Format) -> Result<Vec<u8>, EncodeError> {
        let envelope = Envelope { event: self, completion };
        match format {
            Format::Json => serde_json::to_vec(&envelope).map_err(EncodeError::of),
            Format::MessagePack => {
                let mut out = MESSAGE_PACK.to_vec();
                rmp_serde::encode::write_named(&mut out, &envelope).map_err(EncodeError::of)?;
                Ok(out)
            }
        }
    }

    /// Encodes the event as a connection without encryption gets it, with the given completion. For tests of
    /// implementations of [`Value`].
    ///
    /// # Errors
    /// [`EncodeError`] if a value can't be encoded.
    pub fn completed(&self, now_millis: u64, id: Uuid, sequence: u64, format: Format) -> Result<Vec<u8>, EncodeError> {
        self.encode(&self.completion(now_millis, || id, || sequence), format)
    }
}

/// Returns `json`, or `C:` and its zlib stream if it is longer than `threshold` bytes; a threshold of 0 switches
/// compression off. As in the reference, the stream is sent even if it is longer than the text: clients of other
/// implementations may rely on the threshold.
pub(crate) fn compressed(json: Vec<u8>, threshold: usize) -> Vec<u8> {
    if threshold == 0 || json.len() <= threshold {
        return json;
    }
    let out = crate::format::encode_compressed(&json);
    debug_assert!(out.starts_with(COMPRESSED));
    out
}

/// The value of a member that the engine adds to an event.
enum AddedValue<'a> {
    Text(&'a str),
    Id(Uuid),
    Number(u64),
    Time(u64),
}

impl Serialize for AddedValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Id(id) => serializer.serialize_str(id.hyphenated().encode_lower(&mut Uuid::encode_buffer())),
            Self::Number(number) => serializer.serialize_u64(*number),
            Self::Time(millis) => serializer.collect_str(&Timestamp(*millis)),
        }
    }
}

/// An event together with its completion, serialised as one map.
struct Envelope<'a, N, V> {
    event: &'a Event<N, V>,
    completion: &'a Completion,
}

impl<N: AsRef<str>, V: Value> Serialize for Envelope<'_, N, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Completion { category, id, sequence, now_millis } = *self.completion;
        // Sorted by name, as the members are.
        let added = [
            Some(("c", AddedValue::Text(category))),
            id.map(|id| ("id", AddedValue::Id(id))),
            sequence.map(|sequence| ("seq", AddedValue::Number(sequence))),
            now_millis.map(|millis| ("ts", AddedValue::Time(millis))),
            Some(("v", AddedValue::Number(1))),
        ];
        let is_present = |name: &&str| self.event.get(name).is_some();
        let replaced = ["c", "v"].iter().filter(|name| is_present(name)).count();
        let length = self.event.members.len() + added.iter().flatten().count() - replaced;
        let mut map = serializer.serialize_map(Some(length))?;
        let mut added = added.into_iter().flatten().peekable();
        for (name, value) in &self.event.members {
            let name = name.as_ref();
            while let Some((ours, value)) = added.next_if(|(ours, _)| *ours < name) {
                map.serialize_entry(ours, &value)?;
            }
            match added.next_if(|(ours, _)| *ours == name) {
                Some((ours, value)) => map.serialize_entry(ours, &value)?,
                None => map.serialize_entry(name, value)?,
            }
        }
        for (ours, value) in added {
            map.serialize_entry(ours, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;

    const NOW: u64 = 1_795_217_600_933;

    fn event(json: &Json) -> Event<String, Json> {
        Event::new(json.as_object().unwrap().clone().into_iter().collect())
    }

    fn completed(json: &Json) -> String {
        String::from_utf8(event(json).completed(NOW, Uuid::from_u128(5), 7, Format::Json).unwrap()).unwrap()
    }

    #[test]
    fn an_event_is_completed_as_the_reference_does_it() {
        let given = json!({"t": "user_update", "p": {"a": 1}, "id": "e1"});
        let captured =
            r#"{"c":"U","id":"e1","p":{"a":1},"seq":7,"t":"user_update","ts":"2026-11-20T23:33:20.933Z","v":1}"#;
        assert_eq!(completed(&given), captured);
        let bare =
            r#"{"c":"U","id":"00000000-0000-0000-0000-000000000005","seq":7,"ts":"2026-11-20T23:33:20.933Z","v":1}"#;
        assert_eq!(completed(&json!({})), bare);
    }

    #[test]
    fn given_fields_stay_except_category_and_version() {
        let given =
            json!({"v": 9, "c": "X", "t": "book_snapshot", "id": null, "seq": "mine", "ts": 7, "zz": [], "a": 1});
        let expected = r#"{"a":1,"c":"S","id":null,"seq":"mine","t":"book_snapshot","ts":7,"v":1,"zz":[]}"#;
        assert_eq!(completed(&given), expected);
        assert!(completed(&json!({"t": "error"})).starts_with(r#"{"c":"WSE""#));
        assert!(completed(&json!({"t": 5})).starts_with(r#"{"c":"U""#));
    }

    #[test]
    fn a_sequence_number_is_used_only_if_the_event_has_none() {
        let taken = std::cell::Cell::new(0);
        let next = || taken.replace(taken.get() + 1);
        event(&json!({"seq": 5})).completion(NOW, Uuid::nil, next);
        assert_eq!(taken.get(), 0);
        event(&json!({})).completion(NOW, Uuid::nil, next);
        assert_eq!(taken.get(), 1);
    }

    #[test]
    fn only_text_is_an_id_and_only_an_integer_a_priority() {
        assert_eq!(event(&json!({"id": "a"})).id().as_deref(), Some("a"));
        assert_eq!(event(&json!({"id": 5})).id(), None);
        for (given, level) in [
            (json!(10), Level::Critical),
            (json!(1), Level::Background),
            (json!("10"), Level::Normal),
            (json!(10.0), Level::Normal),
        ] {
            assert_eq!(event(&json!({"pri": given})).level(), level);
        }
        assert_eq!(event(&json!({})).level(), Level::Normal);
    }

    #[test]
    fn of_two_members_with_one_name_the_later_stays() {
        let mut members = vec![("b", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)];
        sort_members(&mut members);
        assert_eq!(members, [("a", 4), ("b", 5)]);
    }

    #[test]
    fn packed_events_have_the_same_members_in_the_same_order() {
        let given = json!({"t": "user_update", "p": {"a": 2}, "id": "m1"});
        let packed = event(&given).completed(NOW, Uuid::nil(), 2, Format::MessagePack).unwrap();
        // Captured from the reference, except for the time.
        let expected = [
            &b"M:\x87\xA1c\xA1U\xA2id\xA2m1\xA1p\x81\xA1a\x02\xA3seq\x02\xA1t\xABuser_update\xA2ts\xB8"[..],
            b"2026-11-20T23:33:20.933Z\xA1v\x01",
        ]
        .concat();
        assert_eq!(packed, expected);
    }

    #[test]
    fn only_events_above_the_threshold_are_compressed() {
        let json = vec![b'x'; 100];
        assert_eq!(compressed(json.clone(), 0), json);
        assert_eq!(compressed(json.clone(), 100), json);
        assert_eq!(&compressed(json, 99)[..4], b"C:x\x01");
    }

    proptest! {
        #[test]
        fn every_given_field_is_in_both_formats(
            names in prop::collection::vec("[a-dipstv\"\\\\\u{1}é]{0,2}|id|seq|ts", 0..12),
            numbers in prop::collection::vec(any::<i64>(), 12),
        ) {
            let given: Json = names.into_iter().zip(numbers.into_iter().map(Json::from)).collect::<serde_json::Map<_, _>>().into();
            let mut expected = json!({"id": Uuid::nil().to_string(), "seq": 7, "ts": Timestamp(NOW).to_string()});
            let tree = expected.as_object_mut().unwrap();
            tree.extend(given.as_object().unwrap().clone());
            tree.extend([("c".to_owned(), json!("U")), ("v".to_owned(), json!(1))]);
            let event = event(&given);
            let text = event.completed(NOW, Uuid::nil(), 7, Format::Json).unwrap();
            // `serde_json` sorts the keys of a tree.
            prop_assert_eq!(String::from_utf8(text).unwrap(), expected.to_string());
            let packed = event.completed(NOW, Uuid::nil(), 7, Format::MessagePack).unwrap();
            prop_assert_eq!(rmp_serde::from_slice::<Json>(&packed[2..]).unwrap(), expected);
        }
    }
}
