//! Decodes a JSON message faster when it resembles an earlier message of its type.
//!
//! Messages of one type mostly have the same keys in the same order. A [`Shape`] keeps one such message: its text, the
//! positions of its scalars (numbers, strings, `true`, `false`, `null`) in that text, and the Python objects that it
//! was decoded to. The next message is compared with the kept text. If everything between the scalars is equal, the
//! kept objects are copied and the scalars that differ are replaced. A message that differs in anything else is decoded
//! in full, so the result never depends on a guess.

use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{PyDict, PyList, PyString},
};

use crate::{
    names,
    values::{Decoder, Malformed},
};
use survey::Survey;

mod survey;

/// How many shapes are kept. A hash of the message type selects one, so this is a power of two.
const SHAPES: usize = 64;
/// Shapes are not kept of longer messages, because their text would be copied.
const MAX_TEXT_BYTES: usize = 4096;
const MAX_CONTAINERS: usize = 8;
const MAX_SCALARS: usize = 32;
/// How many messages may miss a new shape before it is replaced. This doubles with each replacement, up to
/// [`LONGEST_BACKOFF`], and starts again after a hit.
const FIRST_BACKOFF: u32 = 8;
const LONGEST_BACKOFF: u32 = 1024;

/// The shapes of recent messages, one for each hash of a message type.
pub(crate) struct Shapes {
    entries: Vec<Entry>,
}

struct Entry {
    shape: Option<Shape>,
    /// How many more messages may miss before another shape is kept. Each hit adds one, each miss takes one.
    tolerated_misses: u32,
    backoff: u32,
}

impl Default for Shapes {
    fn default() -> Self {
        let entry = || Entry { shape: None, tolerated_misses: 0, backoff: FIRST_BACKOFF };
        Self { entries: (0..SHAPES).map(|_| entry()).collect() }
    }
}

impl Shapes {
    /// Decodes a JSON message of a type, with the same result as `decoder` alone.
    pub(crate) fn json<'py>(
        &mut self,
        decoder: &mut Decoder<'_, 'py>,
        message_type: &str,
        data: &[u8],
    ) -> Result<Bound<'py, PyAny>, Malformed> {
        let entry = &mut self.entries[names::slot_of(message_type.as_bytes(), SHAPES)];
        if let Some(value) = entry.shape.as_ref().and_then(|shape| shape.decode(decoder, data)) {
            entry.backoff = FIRST_BACKOFF;
            entry.tolerated_misses = (entry.tolerated_misses + 1).min(FIRST_BACKOFF);
            return Ok(value);
        }
        let value = decoder.json(data)?;
        if entry.tolerated_misses > 0 {
            entry.tolerated_misses -= 1;
        } else {
            entry.shape = Shape::of(data, &value);
            entry.tolerated_misses = entry.backoff;
            entry.backoff = (entry.backoff * 2).min(LONGEST_BACKOFF);
        }
        Ok(value)
    }
}

/// A kept message with which others are compared.
struct Shape {
    text: Box<[u8]>,
    /// A container always stands after the one that holds it.
    containers: Vec<Container>,
    /// In the order of the text.
    scalars: Vec<Scalar>,
}

/// A dict or a list, and its position in the container that holds it. The outermost has no parent.
struct Container {
    pattern: Pattern,
    parent: Option<(usize, Location)>,
}

enum Pattern {
    Dict(Py<PyDict>),
    List(Py<PyList>),
}

/// A number, string, `true`, `false` or `null`: its position in the text, and its place in the container `holder`.
struct Scalar {
    start: usize,
    end: usize,
    holder: usize,
    location: Location,
}

enum Location {
    Key(Py<PyString>),
    Index(usize),
}

/// A scalar that differs: its index, and the start and end of its text in the new message.
type Difference = (usize, usize, usize);

impl Shape {
    /// The shape of a message and of its decoded value. `None` if the message is too large, or if its text and its
    /// value can't be matched.
    fn of(text: &[u8], value: &Bound<'_, PyAny>) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let mut survey = Survey::new(text);
        survey.value(value, None)?;
        Some(Self { text: text.into(), containers: survey.containers, scalars: survey.scalars })
    }

    fn decode<'py>(&self, decoder: &mut Decoder<'_, 'py>, data: &[u8]) -> Option<Bound<'py, PyAny>> {
        let mut buffer = [(0, 0, 0); MAX_SCALARS];
        let differences = differences(&self.text, &self.scalars, data, &mut buffer)?;
        let py = decoder.py();
        let mut made = [const { None }; MAX_CONTAINERS];
        for (index, container) in self.containers.iter().enumerate() {
            let copy = match &container.pattern {
                Pattern::Dict(dict) => dict.bind(py).copy().ok()?.into_any(),
                Pattern::List(list) => list.bind(py).get_slice(0, usize::MAX >> 1).into_any(),
            };
            if let Some((holder, location)) = &container.parent {
                put(made[*holder].as_ref()?, location, copy.clone())?;
            }
            made[index] = Some(copy);
        }
        for &(index, start, end) in differences {
            let scalar = &self.scalars[index];
            put(made[scalar.holder].as_ref()?, &scalar.location, scalar_value(decoder, &data[start..end])?)?;
        }
        made[0].take()
    }
}

/// Compares a message with a shape's text and returns the scalars that differ. `None` if anything else differs.
fn differences<'r>(
    text: &[u8],
    scalars: &[Scalar],
    data: &[u8],
    buffer: &'r mut [Difference; MAX_SCALARS],
) -> Option<&'r [Difference]> {
    let (mut known, mut at, mut found) = (0, 0, 0);
    for (index, scalar) in scalars.iter().enumerate() {
        at = match_bytes(&text[known..scalar.start], data, at)?;
        known = scalar.end;
        let token = &text[scalar.start..scalar.end];
        match match_bytes(token, data, at) {
            // A number in the new message may be longer than the known one, with the same beginning.
            Some(end) if token[0] == b'"' || !data.get(end).is_some_and(|byte| is_number_byte(*byte)) => at = end,
            _ => {
                let end = at + scalar_length(&data[at..])?;
                buffer[found] = (index, at, end);
                found += 1;
                at = end;
            }
        }
    }
    (match_bytes(&text[known..], data, at)? == data.len()).then_some(&buffer[..found])
}

/// The position in `data` after `expected`, or `None` if `data` has other bytes at `at`.
fn match_bytes(expected: &[u8], data: &[u8], at: usize) -> Option<usize> {
    let end = at + expected.len();
    (data.get(at..end)? == expected).then_some(end)
}

/// The length of the scalar at the start of `text`. `None` for containers and for strings with escapes.
fn scalar_length(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' => {
            let end = 1 + text[1..].iter().position(|byte| matches!(byte, b'"' | b'\\' | ..=0x1F))?;
            (text[end] == b'"').then_some(end + 1)
        }
        b't' | b'f' | b'n' => Some(text.iter().take_while(|byte| byte.is_ascii_lowercase()).count()),
        _ => Some(text.iter().take_while(|byte| is_number_byte(**byte)).count()).filter(|length| *length > 0),
    }
}

fn is_number_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

/// The Python value of a scalar's text; `None` if it is malformed.
fn scalar_value<'py>(decoder: &mut Decoder<'_, 'py>, token: &[u8]) -> Option<Bound<'py, PyAny>> {
    match token {
        [b'"', text @ .., b'"'] => Some(decoder.string(simdutf8::basic::from_utf8(text).ok()?)),
        // Any number of 18 digits fits in 64 bits.
        [b'1'..=b'9', rest @ ..] if rest.len() < 18 && rest.iter().all(u8::is_ascii_digit) => {
            let number = token.iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'));
            number.into_bound_py_any(decoder.py()).ok()
        }
        _ => decoder.json(token).ok(),
    }
}

fn put<'py>(holder: &Bound<'py, PyAny>, location: &Location, value: Bound<'py, PyAny>) -> Option<()> {
    match location {
        Location::Key(key) => holder.cast::<PyDict>().ok()?.set_item(key, value).ok(),
        Location::Index(index) => holder.cast::<PyList>().ok()?.set_item(*index, value).ok(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{names::Names, values::Integers};

    /// Decodes messages of one type one after another, each with the shapes of the previous ones and in full.
    fn decode_both(messages: &[&str], check: impl Fn(Result<Bound<'_, PyAny>, Malformed>, Option<Bound<'_, PyAny>>)) {
        Python::initialize();
        Python::attach(|py| {
            let (mut names, mut shapes) = (Names::default(), Shapes::default());
            for message in messages {
                let mut decoder = Decoder::new(py, &mut names, Integers::Reference);
                let full_decode = decoder.json(message.as_bytes()).ok();
                check(shapes.json(&mut decoder, "t", message.as_bytes()), full_decode);
            }
        });
    }

    fn assert_equal(messages: &[&str]) {
        decode_both(messages, |by_shape, full_decode| match (by_shape, full_decode) {
            (Ok(by_shape), Some(full_decode)) => {
                // The comparison is by `repr`, because `==` ignores the order of keys and that True, 1 and 1.0 differ.
                assert_eq!(
                    by_shape.repr().unwrap().to_string(),
                    full_decode.repr().unwrap().to_string(),
                    "{messages:?}"
                );
            }
            (by_shape, full_decode) => assert!(by_shape.is_err() && full_decode.is_none(), "{messages:?}"),
        });
    }

    #[test]
    fn a_message_like_the_last_one_is_decoded_to_its_own_value() {
        let first = r#"{"p":{"a":"x","n":1,"f":1.5,"l":["u",{"v":null}],"b":true},"t":"trade"}"#;
        for second in [
            first,
            r#"{"p":{"a":"y","n":2,"f":2.5,"l":["w",{"v":0}],"b":false},"t":"trade"}"#,
            r#"{"p":{"a":"","n":12,"f":1.55,"l":["",{"v":"null"}],"b":"true"},"t":"trade"}"#,
            r#"{"p":{"a":1,"n":"1","f":-0,"l":[1e3,{"v":18446744073709551615}],"b":1},"t":"other"}"#,
            r#"{"p":{"a":"\u00e9\n","n":1,"f":1.5,"l":["u",{"v":null}],"b":true},"t":"trade"}"#,
            r#"{"p":{"a":"é","n":1,"f":1.5,"l":["u",{"v":null}],"b":true},"t":"trade"}"#,
            r#"{"p":{"a":{},"n":1,"f":1.5,"l":["u",{"v":null}],"b":true},"t":"trade"}"#,
            r#"{"p":{"a":"x","n":1,"f":1.5,"l":["u",{"v":null}],"b":true},"t":"trade"} "#,
        ] {
            assert_equal(&[first, second, first]);
        }
    }

    #[test]
    fn a_malformed_message_stays_malformed_after_a_similar_valid_one() {
        let first = r#"{"p":{"a":"x","n":1},"t":"trade"}"#;
        for second in [
            r#"{"p":{"a":"x","n":01},"t":"trade"}"#,
            r#"{"p":{"a":"x","n":1.},"t":"trade"}"#,
            r#"{"p":{"a":"x","n":-},"t":"trade"}"#,
            r#"{"p":{"a":"x","n":1e},"t":"trade"}"#,
            r#"{"p":{"a":"x","n":tru},"t":"trade"}"#,
            r#"{"p":{"a":"x","n":},"t":"trade"}"#,
            r#"{"p":{"a":"x,"n":1},"t":"trade"}"#,
            "{\"p\":{\"a\":\"\u{1}\",\"n\":1},\"t\":\"trade\"}",
            r#"{"p":{"a":"x","n":1},"t":"trade""#,
            r#"{"p":{"a":"x","n":1},"t":"trade"}}"#,
        ] {
            assert_equal(&[first, second, first]);
        }
    }

    #[test]
    fn long_envelope_names_and_duplicate_keys_are_decoded_as_without_a_shape() {
        for message in [
            r#"{"type":"a","payload":{"type":1,"payload":2}}"#,
            r#"{"type":"a","t":"b","payload":1}"#,
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"type":1,"type":2}"#,
            r#"[1,2,[3]]"#,
            " { \"a\" : [ 1 , { } , [ ] ] } ",
            "7",
        ] {
            let other = message.replace('1', "41");
            assert_equal(&[message, &other, message]);
        }
    }

    #[test]
    fn decoded_messages_share_no_mutable_object() {
        let message = r#"{"p":{"l":[1,{"k":2}]},"t":"a"}"#;
        decode_both(&[message; 4], |decoded, _| {
            let payload = decoded.unwrap().get_item("p").unwrap();
            let list = payload.get_item("l").unwrap();
            assert_eq!(list.repr().unwrap().to_string(), "[1, {'k': 2}]");
            list.get_item(1).unwrap().set_item("k", 5).unwrap();
            list.set_item(0, 5).unwrap();
            payload.set_item("new", 5).unwrap();
        });
    }

    #[test]
    fn a_shape_that_never_fits_is_replaced_and_one_that_fits_half_the_time_stays() {
        Python::initialize();
        Python::attach(|py| {
            let (mut names, mut shapes) = (Names::default(), Shapes::default());
            let mut text = |message: &str| {
                let mut decoder = Decoder::new(py, &mut names, Integers::Reference);
                shapes.json(&mut decoder, "t", message.as_bytes()).unwrap();
                let entry = &shapes.entries[names::slot_of(b"t", SHAPES)];
                entry.shape.as_ref().map(|shape| String::from_utf8(shape.text.to_vec()).unwrap()).unwrap()
            };
            for _ in 0..100 {
                assert_eq!(text(r#"{"a":1}"#), r#"{"a":1}"#);
                assert_eq!(text(r#"{"b":1}"#), r#"{"a":1}"#);
            }
            let last = (0..100).map(|_| text(r#"{"c":1}"#)).last().unwrap();
            assert_eq!(last, r#"{"c":1}"#);
        });
    }

    /// JSON texts of a few structures with varied values, so that shapes often fit and often just miss.
    fn message() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            (0_u8..20).prop_map(|number| number.to_string()),
            any::<u64>().prop_map(|number| number.to_string()),
            any::<f64>()
                .prop_filter("JSON has finite numbers", |number| number.is_finite())
                .prop_map(|n| format!("{n:e}")),
            "[a-c\"\\\\\u{e9}\u{1f600}]{0,3}".prop_map(|text| serde_json::to_string(&text).unwrap()),
            prop_oneof![Just("true"), Just("false"), Just("null"), Just("[]"), Just("{}"), Just("01"), Just("\"")]
                .prop_map(str::to_owned),
        ];
        let structure = prop_oneof![
            Just(r#"{"p":{"a":$,"b":[$,$]},"t":$}"#),
            Just(r#"{"payload":{"a":$},"type":$}"#),
            Just(r#"{"p":[{"a":$},{"a":$}],"t":"x"}"#),
            Just("[$,$]"),
            Just("$"),
        ];
        (structure, prop::collection::vec(scalar, 3)).prop_map(|(structure, scalars)| {
            scalars.iter().fold(structure.to_owned(), |text, scalar| text.replacen('$', scalar, 1)).replace('$', "1")
        })
    }

    proptest! {
        #[test]
        fn every_message_of_a_sequence_is_decoded_to_its_own_value(messages in prop::collection::vec(message(), 1..12)) {
            assert_equal(&messages.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
