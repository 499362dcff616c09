//! Conditions on messages, compiled. Pure.

use bench_format::websocket::When;
use memchr::memmem::Finder;
use regex::bytes::Regex;

use crate::{hex, mistakes::Mistakes, pointer::Pointer};

/// A compiled condition; all of its parts must hold.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// In the order of their cost.
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Equals(Box<[u8]>),
    StartsWith(Box<[u8]>),
    Contains(Box<Finder<'static>>),
    Regex(Regex),
    Json(Pointer, Box<str>),
}

impl Condition {
    /// Compiles a condition; its mistakes are added under `place`.
    pub fn compile(when: &When, place: &str, mistakes: &mut Mistakes) -> Self {
        let mut parts = Vec::new();
        let bytes = |text: &String| text.as_bytes().into();
        parts.extend(when.equals.as_ref().map(bytes).map(Part::Equals));
        parts.extend(when.starts_with.as_ref().map(bytes).map(Part::StartsWith));
        if let Some(digits) = &when.hex {
            match hex::decode(digits) {
                Ok(bytes) => parts.push(Part::StartsWith(bytes.into())),
                Err(error) => mistakes.add(format!("{place}.hex"), error),
            }
        }
        parts.extend(when.contains.as_ref().map(|text| Part::Contains(Box::new(Finder::new(text).into_owned()))));
        if let Some(pattern) = &when.regex {
            parts.extend(regex(pattern, &format!("{place}.regex"), mistakes).map(Part::Regex));
        }
        for (pointer, value) in &when.json {
            match Pointer::parse(pointer) {
                Ok(pointer) => parts.push(Part::Json(pointer, value.as_str().into())),
                Err(error) => mistakes.add(format!("{place}.json"), error),
            }
        }
        Self { parts }
    }

    /// Compiles a condition that must not hold for every message.
    pub fn compile_narrow(when: &When, place: &str, mistakes: &mut Mistakes) -> Self {
        if *when == When::default() {
            mistakes.add(place, "holds for every message; set equals, starts_with, contains, regex, hex or json");
        }
        Self::compile(when, place, mistakes)
    }

    /// Whether it holds for a message.
    #[inline]
    pub fn holds(&self, message: &[u8]) -> bool {
        self.parts.iter().all(|part| match part {
            Part::Equals(bytes) => message == &bytes[..],
            Part::StartsWith(bytes) => message.starts_with(bytes),
            Part::Contains(finder) => finder.find(message).is_some(),
            Part::Regex(regex) => regex.is_match(message),
            Part::Json(pointer, value) => pointer.find(message).is_some_and(|found| found.is(value)),
        })
    }
}

/// Compiles a regular expression over bytes.
pub(crate) fn regex(pattern: &str, place: &str, mistakes: &mut Mistakes) -> Option<Regex> {
    // The last line of the error says what is wrong; those before it draw an arrow below the pattern.
    let last_line = |error: regex::Error| error.to_string().lines().last().unwrap_or_default().to_owned();
    Regex::new(pattern)
        .map_err(|error| mistakes.add(place, format!("{pattern:?} is no regular expression: {}", last_line(error))))
        .ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn condition(when: &When) -> Condition {
        let mut mistakes = Mistakes::default();
        let condition = Condition::compile(when, "when", &mut mistakes);
        assert_eq!(mistakes.count(), 0);
        condition
    }

    fn some(text: &str) -> Option<String> {
        Some(text.into())
    }

    #[test]
    fn each_part_holds_for_its_messages_only() {
        let json = [("/type".to_owned(), "next".to_owned()), ("/id".to_owned(), "7".to_owned())].into();
        for (when, yes, no) in [
            (When { equals: some("2"), ..When::default() }, &b"2"[..], &b"2probe"[..]),
            (When { starts_with: some("43"), ..When::default() }, b"430[]", b"42[]"),
            (When { contains: some("pong"), ..When::default() }, b"a pong b", b"a ping b"),
            (When { regex: some("^a[0-9]+$"), ..When::default() }, b"a17", b"a17b"),
            (When { regex: some(r"(?s-u)^\x20\x02.[^\x00]"), ..When::default() }, b"\x20\x02\0\x05", b"\x20\x02\0\0"),
            (When { hex: some("20 02"), ..When::default() }, b"\x20\x02\xff", b"\x20"),
            (When { json, ..When::default() }, br#"{"id":7,"type":"next"}"#, br#"{"id":7,"type":"error"}"#),
        ] {
            let condition = condition(&when);
            assert!(condition.holds(yes) && !condition.holds(no), "{when:?}");
        }
    }

    #[test]
    fn all_parts_must_hold() {
        let both = condition(&When { starts_with: some("a"), contains: some("b"), ..When::default() });
        assert!(both.holds(b"ab") && !both.holds(b"a") && !both.holds(b"b"));
        assert!(condition(&When::default()).holds(b""), "without parts it holds for any message");
    }

    #[test]
    fn mistakes_are_listed_with_their_places() {
        let json = [("id".to_owned(), "1".to_owned())].into();
        let mut mistakes = Mistakes::default();
        Condition::compile(&When { regex: some("a("), hex: some("1"), json, ..When::default() }, "w", &mut mistakes);
        Condition::compile_narrow(&When::default(), "n", &mut mistakes);
        let places: Vec<_> = mistakes.into_list().into_iter().map(|(place, _)| place).collect();
        assert_eq!(places, ["w.hex", "w.regex", "w.json", "n"]);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let json = [("/a/0".to_owned(), "1".to_owned())].into();
            condition(&When { json, ..When::default() }).holds(&bytes);
            condition(&When { regex: some("a.*b"), ..When::default() }).holds(&bytes);
        }
    }
}
