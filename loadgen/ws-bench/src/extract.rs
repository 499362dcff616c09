//! Takes a value out of a message: by a JSON pointer, a regular expression, or the bytes at a place. Pure.

use std::borrow::Cow;

use bench_format::websocket::{BytesAt, Extract};
use regex::bytes::Regex;

use crate::{
    condition::regex,
    mistakes::Mistakes,
    number::decode,
    pointer::{Pointer, Scalar},
};

/// Where a value stands in a message.
#[derive(Clone, Debug)]
pub enum Extractor {
    /// The value at a JSON pointer.
    Json(Pointer),
    /// The first group of the first match.
    Regex(Regex),
    /// The number at a place.
    Bytes(BytesAt),
}

/// A value that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extracted<'a> {
    /// An integer from 0, as JSON or bytes have it.
    Number(u64),
    /// Any other value as text.
    Text(Cow<'a, [u8]>),
}

impl Extractor {
    /// Compiles an extract; its mistakes are added under `place`.
    pub fn compile(extract: &Extract, place: &str, mistakes: &mut Mistakes) -> Option<Self> {
        match (&extract.json, &extract.regex, &extract.bytes) {
            (Some(pointer), None, None) => Pointer::parse(pointer)
                .map_err(|error| mistakes.add(format!("{place}.json"), error))
                .map(Self::Json)
                .ok(),
            (None, Some(pattern), None) => {
                let place = format!("{place}.regex");
                let regex = regex(pattern, &place, mistakes)?;
                if regex.captures_len() < 2 {
                    mistakes.add(place, format!("{pattern:?} has no group; put the value in parentheses"));
                }
                Some(Self::Regex(regex))
            }
            (None, None, Some(bytes)) => Some(Self::Bytes(*bytes)),
            _ => {
                mistakes.add(place, "set exactly one of json, regex and bytes");
                None
            }
        }
    }

    /// The value in a message; `None` if there is none.
    pub fn find<'a>(&self, message: &'a [u8]) -> Option<Extracted<'a>> {
        match self {
            Self::Json(pointer) => Some(match pointer.find(message)? {
                Scalar::Unsigned(number) => Extracted::Number(number),
                Scalar::Text(Cow::Borrowed(text)) => Extracted::Text(Cow::Borrowed(text.as_bytes())),
                other => Extracted::Text(Cow::Owned(other.text().into_owned().into_bytes())),
            }),
            Self::Regex(regex) => {
                let group = regex.captures(message)?.get(1)?;
                Some(Extracted::Text(Cow::Borrowed(group.as_bytes())))
            }
            Self::Bytes(BytesAt { offset, format }) => {
                let field = message.get(usize::try_from(*offset).ok()?..)?;
                decode(*format, field).map(|(number, _)| Extracted::Number(number))
            }
        }
    }
}

impl Extracted<'_> {
    /// The value as text.
    pub fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string().into_bytes()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use bench_format::websocket::NumberFormat;
    use proptest::prelude::*;

    use super::*;

    fn extractor(extract: &Extract) -> Extractor {
        Extractor::compile(extract, "value", &mut Mistakes::default()).unwrap()
    }

    fn json(pointer: &str) -> Extractor {
        extractor(&Extract { json: Some(pointer.into()), ..Extract::default() })
    }

    fn at(offset: u32, format: NumberFormat) -> Extractor {
        extractor(&Extract { bytes: Some(BytesAt { offset, format }), ..Extract::default() })
    }

    #[test]
    fn a_value_is_found_in_each_way() {
        let text = |text: &'static str| Some(Extracted::Text(Cow::Borrowed(text.as_bytes())));
        let message = br#"{"id":"7","n":7,"f":-1.5,"list":[1]}"#;
        assert_eq!(json("/id").find(message), text("7"));
        assert_eq!(json("/n").find(message), Some(Extracted::Number(7)));
        assert_eq!(json("/f").find(message), text("-1.5"));
        assert_eq!(json("/list").find(message), None);
        let regex = extractor(&Extract { regex: Some("^43([0-9]+)".into()), ..Extract::default() });
        assert_eq!(regex.find(b"4317[{}]"), text("17"));
        assert_eq!(regex.find(b"42[]"), None);
        assert_eq!(at(2, NumberFormat::U16be).find(b"\x40\x02\x01\x02"), Some(Extracted::Number(258)));
        assert_eq!(at(2, NumberFormat::U16be).find(b"\x40\x02\x01"), None);
        assert_eq!(at(u32::MAX, NumberFormat::U8).find(b""), None);
    }

    #[test]
    fn mistakes_name_their_place() {
        let mut mistakes = Mistakes::default();
        Extractor::compile(&Extract::default(), "reply.value", &mut mistakes);
        Extractor::compile(&Extract { regex: Some("a".into()), ..Extract::default() }, "x", &mut mistakes);
        let list = mistakes.into_list();
        assert_eq!(list[0].0, "reply.value");
        assert!(list[1].0 == "x.regex" && list[1].1.contains("parentheses"), "{list:?}");
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), offset: u32) {
            at(offset, NumberFormat::Varint).find(&bytes);
            at(offset % 40, NumberFormat::U64le).find(&bytes);
            json("/a").find(&bytes);
        }
    }
}
