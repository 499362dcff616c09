//! Finds the type of a JSON object without building a tree. Pure.
//!
//! For well-formed JSON the result is that of a parser. Malformed JSON may yield any type or none; the application
//! notices when it parses the text. Three methods are tried, cheapest first: the type is the first member, the type is
//! the last member, or the text is scanned while depth and strings are tracked.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// How many bytes are compared one by one before a vector search begins.
const NEAR: usize = 16;
/// How far before the end a type may start, in bytes, to be found without a scan.
const LONGEST_AT_BACK: usize = 64;

/// The range in `text` of the top-level value of `t`, else of `type`, if it is a string without escapes.
///
/// `text` must start with `{`. A key counts only in its usual spelling: `"\u0074"` is not found. Of equal keys either
/// the first or the last counts.
/// last counts.
#[inline]
pub fn find_type(text: &[u8]) -> Option<Range<usize>> {
    if let Some(found) = type_at_front(text) {
        return Some(found);
    }
    if let Some(found) = type_at_back(text) {
        return Some(found);
    }
    walk(text)
}

/// Recognises `{"t":"…"` at the start.
#[inline]
fn type_at_front(text: &[u8]) -> Option<Range<usize>> {
    text.strip_prefix(b"{\"t\":\"").and_then(string_end).map(|length| 6..6 + length)
}

/// Recognises `,"t":"…"}` at the very end.
///
/// In well-formed JSON these bytes can be nothing else. The last brace closes the object, so the quote before it ends a
/// string. That string begins at the next quote to the left, because none of its bytes is a quote or a backslash. The
/// quote after `t` follows neither a backslash nor the start of a string, so it ends the key. The quote before `t`
/// follows a comma, so it is not escaped and begins the key. The object that the last brace closes is the top-level
/// one.
#[inline]
fn type_at_back(text: &[u8]) -> Option<Range<usize>> {
    let end = text.len().checked_sub(2)?;
    if &text[end..] != b"\"}" {
        return None;
    }
    // Types are short: in a payload that ends in a long string, the start of the string isn't searched for.
    let nearest = end.saturating_sub(LONGEST_AT_BACK);
    let start = text[nearest..end].iter().rposition(|byte| matches!(byte, b'"' | b'\\'))? + nearest + 1;
    text[..start].ends_with(b",\"t\":\"").then_some(start..end)
}

/// The length of a string after its opening quote; `None` if it has escapes or doesn't end.
#[inline]
fn string_end(rest: &[u8]) -> Option<usize> {
    let length = next_delimiter(rest)?;
    (rest[length] == b'"').then_some(length)
}

/// The distance to the next quote or backslash.
#[inline]
fn next_delimiter(rest: &[u8]) -> Option<usize> {
    // Keys and most values are short: a loop is faster than the start of a vector search.
    let is_delimiter = |byte: &u8| matches!(byte, b'"' | b'\\');
    let (near, far) = rest.split_at(rest.len().min(NEAR));
    near.iter().position(is_delimiter).or_else(|| memchr2(b'"', b'\\', far).map(|at| at + NEAR))
}

/// Scans the whole object and tracks its depth.
fn walk(text: &[u8]) -> Option<Range<usize>> {
    let mut fallback = None;
    for member in Members::of(text) {
        let value = member.value.filter(|value| is_plain(&text[value.clone()]));
        match &text[member.key] {
            b"t" => return value,
            b"type" => fallback = value,
            _ => {}
        }
    }
    fallback
}

/// The top-level keys that a colon follows directly, each with its value if that is a string.
pub(crate) fn top_level_keys(text: &[u8]) -> impl Iterator<Item = (Range<usize>, Option<Range<usize>>)> {
    Members::of(text).filter(|member| member.colon == member.key.end + 1).map(|member| (member.key, member.value))
}

struct Member {
    key: Range<usize>,
    colon: usize,
    /// The range of the value, if it is a string.
    value: Option<Range<usize>>,
}

/// An iterator over the members of an object; it ends early if the text is not JSON.
struct Members<'a> {
    walker: Walker<'a>,
    is_finished: bool,
}

impl<'a> Members<'a> {
    fn of(text: &'a [u8]) -> Self {
        Self { walker: Walker { text, at: 1 }, is_finished: false }
    }

    fn member(&mut self) -> Option<Member> {
        let walker = &mut self.walker;
        walker.skip_space();
        if walker.peek()? != b'"' {
            // Either the closing brace, or the text is not JSON.
            return None;
        }
        let key = walker.string()?;
        walker.skip_space();
        let colon = walker.at;
        if walker.next()? != b':' {
            return None;
        }
        walker.skip_space();
        let value = if walker.peek()? == b'"' {
            Some(walker.string()?)
        } else {
            // The key is still reported if its value breaks off.
            self.is_finished |= walker.skip_value().is_none();
            None
        };
        walker.skip_space();
        self.is_finished |= walker.next() != Some(b',');
        Some(Member { key, colon, value })
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    fn next(&mut self) -> Option<Member> {
        if self.is_finished {
            return None;
        }
        self.member()
    }
}

fn is_plain(value: &[u8]) -> bool {
    memchr(b'\\', value).is_none()
}

struct Walker<'a> {
    text: &'a [u8],
    at: usize,
}

impl Walker<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes a string, whose opening quote is next. Returns the range of its content.
    fn string(&mut self) -> Option<Range<usize>> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            at += next_delimiter(self.text.get(at..)?)?;
            if self.text[at] == b'"' {
                self.at = at + 1;
                return Some(start..at);
            }
            at += 2;
        }
    }

    /// Passes a value that is not a string, up to the comma or brace after it.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            let rest = self.text.get(self.at..)?;
            self.at += rest.iter().position(|byte| IS_STRUCTURE[usize::from(*byte)])?;
            match self.text[self.at] {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b',' if depth > 0 => {}
                _ if depth == 0 => return Some(()),
                _ => depth -= 1,
            }
            self.at += 1;
        }
    }
}

/// The bytes that matter when a value is skipped.
static IS_STRUCTURE: [bool; 256] = {
    let mut table = [false; 256];
    let structure = b"\"{}[],";
    let mut index = 0;
    while index < structure.len() {
        table[structure[index] as usize] = true;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn found(text: &str) -> Option<&str> {
        find_type(text.as_bytes()).map(|range| &text[range])
    }

    #[test]
    fn the_type_is_found_first_last_and_between() {
        for text in [
            r#"{"t":"trade","p":{"t":"x"}}"#,
            r#"{"p":{"t":"x","q":["}",{"t":1}]},"t":"trade"}"#,
            r#"{"c":"U","t":"trade","p":{}}"#,
            "{ \"p\" : \"\\\"t\\\":\\\"x\" ,\n\"t\" :\t\"trade\" }",
            r#"{"type":"trade","payload":{"k":1}}"#,
            r#"{"type":"x","t":"trade","p":1.5e3}"#,
        ] {
            assert_eq!(found(text), Some("trade"), "{text}");
        }
    }

    #[test]
    fn a_type_inside_the_payload_is_not_the_type() {
        for text in
            [r#"{"p":{"t":"x"}}"#, r#"{"p":[{"t":"x"}]}"#, r#"{"p":"{\"t\":\"x\"}"}"#, r#"{"p":{"a":1,"t":"x"}}"#]
        {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn a_type_that_is_not_a_string_or_has_escapes_is_none() {
        for text in [r#"{"t":1,"type":"x"}"#, r#"{"t":"a\"b"}"#, r#"{"p":1,"t":"a\\"}"#, r#"{"t":null}"#, "{}"] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn malformed_text_never_panics() {
        for text in
            ["{", "{\"", "{\"t", "{\"t\"", "{\"t\":", "{\"t\":\"", "{\"a\\", "{\"a\":[", "{\"a\":\"\\", "{}}", "\"}"]
        {
            let _ = found(text);
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            strings().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((strings(), inner), 0..6)
                    .prop_map(|members| Value::from(Map::from_iter(members))),
            ]
        })
    }

    /// Strings that resemble what the scan searches for.
    fn strings() -> impl Strategy<Value = String> {
        prop_oneof![
            3 => prop::sample::select(vec!["t", "type", "p", "\"t\":\"x\"", "\\", "\"", ",\"t\":\"", "{", "}", "\"}", "tt"])
                .prop_map(String::from),
            1 => any::<String>(),
        ]
    }

    /// The type that a parser finds.
    pub(super) fn expected(value: &Value) -> Option<String> {
        let value = value.get("t").or_else(|| value.get("type"))?.as_str()?;
        let encoded = Value::from(value).to_string();
        (!encoded.contains('\\')).then(|| value.to_owned())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn the_scan_agrees_with_a_parser(
            members in prop::collection::vec((strings(), json()), 0..8),
            rotation in any::<prop::sample::Index>(),
            pretty in any::<bool>(),
        ) {
            let object = Map::from_iter(members);
            // `serde_json` sorts keys, but the result must not depend on their order.
            let mut members: Vec<(String, Value)> = object.clone().into_iter().collect();
            if !members.is_empty() {
                let length = members.len();
                members.rotate_left(rotation.index(length));
            }
            let (space, newline) = if pretty { (" ", "\n") } else { ("", "") };
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{newline}{}{space}:{space}{value}{space}", Value::from(key.as_str())))
                .collect();
            let text = format!("{{{}{newline}}}", members.join(","));
            prop_assert_eq!(found(&text).map(String::from), expected(&Value::from(object)), "{}", text);
        }
    }
}
