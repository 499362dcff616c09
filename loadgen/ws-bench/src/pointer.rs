//! JSON pointers (RFC 6901), evaluated without building a tree: what isn't on the path is only skipped.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Deepest level that a pointer reaches; serde_json reads no deeper either.
const DEEPEST: usize = 127;

/// A pointer to a value in a JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    tokens: Vec<Box<str>>,
}

/// A value at a pointer, other than an object or an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// The text of a string, borrowed if it has no escapes.
    Text(Cow<'a, str>),
    /// A number from 0.
    Unsigned(u64),
    /// A number below 0.
    Signed(i64),
    /// A number with a fraction or an exponent, or beyond 64 bits.
    Float(f64),
    /// A truth value of JSON.
    Bool(bool),
    /// The value `null` of JSON.
    Null,
}

impl Pointer {
    /// Parses a pointer such as `/params/0/id`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self { tokens: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("{text:?} is no JSON pointer; it begins with a slash: /id"));
        };
        let tokens = rest.split('/').map(token).collect::<Result<Vec<_>, _>>()?;
        if tokens.len() > DEEPEST {
            return Err(format!("the pointer reaches {} levels deep, {DEEPEST} are possible", tokens.len()));
        }
        Ok(Self { tokens })
    }

    /// The value; `None` if the bytes aren't JSON, there is no such value, or it is an object or an array.
    pub fn find<'a>(&self, json: &'a [u8]) -> Option<Scalar<'a>> {
        let mut found = None;
        let mut document = serde_json::Deserializer::from_slice(json);
        Path { tokens: &self.tokens, found: &mut found }.deserialize(&mut document).ok()?;
        document.end().ok()?;
        found
    }
}

fn token(escaped: &str) -> Result<Box<str>, String> {
    let mut pieces = escaped.split('~');
    let mut token = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.as_bytes().first() {
            Some(b'0') => token.push('~'),
            Some(b'1') => token.push('/'),
            _ => return Err(format!("the pointer has a ~ in {escaped:?}; write ~0 for ~ and ~1 for /")),
        }
        token.push_str(&piece[1..]);
    }
    Ok(token.into())
}

impl Scalar<'_> {
    /// The text of a string, the digits of a number, `true`, `false` or `null`.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Unsigned(number) => Cow::Owned(number.to_string()),
            Self::Signed(number) => Cow::Owned(number.to_string()),
            Self::Float(number) => {
                Cow::Owned(serde_json::Number::from_f64(*number).map(|number| number.to_string()).unwrap_or_default())
            }
            Self::Bool(true) => Cow::Borrowed("true"),
            Self::Bool(false) => Cow::Borrowed("false"),
            Self::Null => Cow::Borrowed("null"),
        }
    }

    /// Whether its text is this one.
    pub fn is(&self, text: &str) -> bool {
        match self {
            Self::Text(own) => own == text,
            Self::Unsigned(number) => itoa::Buffer::new().format(*number) == text,
            _ => self.text() == text,
        }
    }
}

/// The rest of a pointer, and where the value goes.
struct Path<'p, 'a> {
    tokens: &'p [Box<str>],
    found: &'p mut Option<Scalar<'a>>,
}

impl<'a> Path<'_, 'a> {
    fn set<E>(self, value: Scalar<'a>) -> Result<(), E> {
        if self.tokens.is_empty() {
            *self.found = Some(value);
        }
        Ok(())
    }
}

impl<'a> DeserializeSeed<'a> for Path<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        // A value that stands at the same place of an object twice: the last one counts.
        *self.found = None;
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Path<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.set(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.set(u64::try_from(value).map_or(Scalar::Signed(value), Scalar::Unsigned))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.set(Scalar::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.set(Scalar::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.set(Scalar::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'a str) -> Result<(), E> {
        self.set(Scalar::Text(Cow::Borrowed(value)))
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.set(Scalar::Null)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.tokens.split_first() else {
            return IgnoredAny.visit_map(map).map(|_| ());
        };
        while let Some(is_here) = map.next_key_seed(Key(first))? {
            if is_here {
                map.next_value_seed(Path { tokens: rest, found: &mut *self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        if let Some((first, rest)) = self.tokens.split_first()
            && let Some(index) = index(first)
        {
            for _ in 0..index {
                if seq.next_element::<IgnoredAny>()?.is_none() {
                    return Ok(());
                }
            }
            seq.next_element_seed(Path { tokens: rest, found: &mut *self.found })?;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// An index into an array: digits without a leading zero.
fn index(token: &str) -> Option<usize> {
    let is_canonical = token.bytes().all(|byte| byte.is_ascii_digit()) && (token.len() == 1 || !token.starts_with('0'));
    is_canonical.then(|| token.parse().ok()).flatten()
}

/// Compares a key without copying it.
struct Key<'p>(&'p str);

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn document() -> impl Strategy<Value = Value> {
        let key = "[ab~/0-2é\\\\]{0,2}";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            "[a\"\\\\\u{1F600}\n]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// All pointers into a document.
    fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        match value {
            Value::Array(values) => {
                values.iter().enumerate().for_each(|(n, value)| pointers(value, &format!("{at}/{n}"), all));
            }
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }),
            _ => {}
        }
    }

    fn text_of(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Array(_) | Value::Object(_) => None,
            other => Some(other.to_string()),
        }
    }

    proptest! {
        #[test]
        fn a_pointer_finds_what_it_finds_in_a_tree(value in document(), other in "(/[ab0-2]{0,2}){0,3}") {
            let json = value.to_string();
            let mut all = vec![other];
            pointers(&value, "", &mut all);
            for pointer in all {
                let found = Pointer::parse(&pointer).unwrap().find(json.as_bytes()).map(|found| found.text().into_owned());
                let expected = serde_json::from_str::<Value>(&json).unwrap().pointer(&pointer).and_then(text_of);
                prop_assert_eq!(found, expected, "{} in {}", pointer, json);
            }
        }

        #[test]
        fn random_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            Pointer::parse("/a/0").unwrap().find(&bytes);
        }

        #[test]
        fn broken_json_causes_no_panic(value in document(), cut in any::<prop::sample::Index>()) {
            let json = value.to_string();
            Pointer::parse("/a/0").unwrap().find(&json.as_bytes()[..cut.index(json.len())]);
        }
    }

    #[test]
    fn a_deep_document_is_skipped_without_recursion() {
        let deep = format!(r#"{{"deep":{}{},"id":7}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Pointer::parse("/id").unwrap().find(deep.as_bytes()), Some(Scalar::Unsigned(7)));
        let into = "/0".repeat(100);
        let hundred = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(Pointer::parse(&into).unwrap().find(hundred.as_bytes()), Some(Scalar::Unsigned(1)));
        assert!(Pointer::parse(&"/0".repeat(128)).is_err());
    }

    #[test]
    fn a_document_that_is_not_complete_has_no_values() {
        let id = Pointer::parse("/id").unwrap();
        for broken in [r#"{"id":1"#, r#"{"id":1}}"#, r#"{"id":1,}"#, "", "{\"id\":1}\0"] {
            assert_eq!(id.find(broken.as_bytes()), None, "{broken}");
        }
        assert_eq!(id.find(json!({"id": 1}).to_string().as_bytes()), Some(Scalar::Unsigned(1)));
    }

    #[test]
    fn a_pointer_that_is_none_is_reported() {
        for (wrong, advice) in [("id", "begins with a slash"), ("/a~2", "write ~0"), ("/a~", "write ~0")] {
            let error = Pointer::parse(wrong).unwrap_err();
            assert!(error.contains(advice), "{error}");
        }
    }
}
