//! Checks MessagePack without building a tree, and finds the type of a map on the way. Pure.
//!
//! The check never reads beyond its input, never recurses deeper than [`MAX_DEPTH`], and allocates nothing.

use std::ops::Range;

/// The deepest nesting of containers.
pub const MAX_DEPTH: usize = 64;
/// The depth that is left for the keys and values of a map that is the whole message.
const INSIDE_THE_MAP: usize = MAX_DEPTH - 1;

/// Checks that `bytes` are exactly one MessagePack value. Returns the range of its type if it is a map with one: the
/// string under `t`, else under `type`.
///
/// Returns `None` if `bytes` are not one MessagePack value.
pub fn check(bytes: &[u8]) -> Option<Option<Range<usize>>> {
    let mut reader = Reader { bytes, at: 0 };
    let found = match reader.token()? {
        Token::Map(length) => reader.top_level_map(length)?,
        token => {
            reader.skip(token, MAX_DEPTH)?;
            None
        }
    };
    (reader.at == bytes.len()).then_some(found)
}

/// The meaning of a marker byte.
enum Token {
    /// A scalar, which has been passed.
    Scalar,
    /// A string, which has been passed; its range.
    Text(Range<usize>),
    /// An array of this many values, which follow.
    Array(usize),
    /// A map of this many pairs, which follow.
    Map(usize),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn top_level_map(&mut self, pairs: usize) -> Option<Option<Range<usize>>> {
        let (mut short, mut long) = (None, None);
        for _ in 0..pairs {
            let key = self.token()?;
            let slot = match &key {
                Token::Text(name) if &self.bytes[name.clone()] == b"t" => Some(&mut short),
                Token::Text(name) if &self.bytes[name.clone()] == b"type" => Some(&mut long),
                _ => None,
            };
            self.skip(key, INSIDE_THE_MAP)?;
            let value = self.token()?;
            if let Some(slot) = slot {
                *slot = Some(if let Token::Text(name) = &value { Some(name.clone()) } else { None });
            }
            self.skip(value, INSIDE_THE_MAP)?;
        }
        Some(short.or(long).flatten())
    }

    /// Passes the content of `token`, at most `depth` levels of containers.
    fn skip(&mut self, token: Token, depth: usize) -> Option<()> {
        let values = match token {
            Token::Scalar | Token::Text(_) => return Some(()),
            Token::Array(length) => length,
            Token::Map(pairs) => pairs.checked_mul(2)?,
        };
        let depth = depth.checked_sub(1)?;
        // A value takes at least one byte: a length beyond the rest of the input is refused before any work is done for
        // it.
        if values > self.bytes.len() - self.at {
            return None;
        }
        for _ in 0..values {
            let token = self.token()?;
            self.skip(token, depth)?;
        }
        Some(())
    }

    /// Reads one marker and, for a scalar or a string, passes its content.
    fn token(&mut self) -> Option<Token> {
        let marker = *self.bytes.get(self.at)?;
        self.at += 1;
        match marker {
            0x00..=0x7F | 0xE0..=0xFF | 0xC0 | 0xC2 | 0xC3 => Some(Token::Scalar),
            0x80..=0x8F => Some(Token::Map(usize::from(marker & 0x0F))),
            0x90..=0x9F => Some(Token::Array(usize::from(marker & 0x0F))),
            0xA0..=0xBF => self.text(usize::from(marker & 0x1F)),
            0xC1 => None,
            0xC4 => self.sized(1, 0),
            0xC5 => self.sized(2, 0),
            0xC6 => self.sized(4, 0),
            0xC7 => self.sized(1, 1),
            0xC8 => self.sized(2, 1),
            0xC9 => self.sized(4, 1),
            0xCC | 0xD0 => self.pass(1),
            0xCD | 0xD1 => self.pass(2),
            0xCA | 0xCE | 0xD2 => self.pass(4),
            0xCB | 0xCF | 0xD3 => self.pass(8),
            0xD4..=0xD8 => self.pass(1 + (1 << (marker - 0xD4))),
            0xD9 => self.length(1).and_then(|length| self.text(length)),
            0xDA => self.length(2).and_then(|length| self.text(length)),
            0xDB => self.length(4).and_then(|length| self.text(length)),
            0xDC => self.length(2).map(Token::Array),
            0xDD => self.length(4).map(Token::Array),
            0xDE => self.length(2).map(Token::Map),
            0xDF => self.length(4).map(Token::Map),
        }
    }

    fn take(&mut self, count: usize) -> Option<Range<usize>> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len())?;
        let taken = self.at..end;
        self.at = end;
        Some(taken)
    }

    fn pass(&mut self, count: usize) -> Option<Token> {
        self.take(count).map(|_| Token::Scalar)
    }

    fn text(&mut self, count: usize) -> Option<Token> {
        let range = self.take(count)?;
        simdutf8::basic::from_utf8(&self.bytes[range.clone()]).ok()?;
        Some(Token::Text(range))
    }

    fn sized(&mut self, length_bytes: usize, extra: usize) -> Option<Token> {
        let length = self.length(length_bytes)?;
        self.pass(length.checked_add(extra)?)
    }

    fn length(&mut self, length_bytes: usize) -> Option<usize> {
        let range = self.take(length_bytes)?;
        Some(self.bytes[range].iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn packed(value: &Value) -> Vec<u8> {
        rmp_serde::to_vec_named(value).unwrap()
    }

    fn type_of(bytes: &[u8]) -> Option<String> {
        check(bytes).unwrap().map(|range| String::from_utf8(bytes[range].to_vec()).unwrap())
    }

    #[test]
    fn the_type_of_a_map_is_found() {
        let long = "x".repeat(40);
        assert_eq!(type_of(&packed(&json!({"p": {"t": "inner"}, "t": "trade"}))).as_deref(), Some("trade"));
        assert_eq!(type_of(&packed(&json!({"type": long, "p": [1, -5, 2.5, null, true]}))), Some(long));
        assert_eq!(type_of(&packed(&json!({"t": 5, "type": "x"}))), None);
        assert_eq!(type_of(&packed(&json!([1, 2]))), None);
    }

    #[test]
    fn a_value_nested_too_deeply_is_refused_before_the_stack_overflows() {
        let nested = |depth: usize| [vec![0x91; depth], vec![0xC0]].concat();
        assert!(check(&nested(MAX_DEPTH)).is_some());
        assert!(check(&nested(MAX_DEPTH + 1)).is_none());
        assert!(check(&nested(1_000_000)).is_none());
    }

    #[test]
    fn the_outermost_map_counts_as_a_level() {
        let nested = |depth: usize| [vec![0x81, 0xA1, b'p'], vec![0x91; depth - 1], vec![0xC0]].concat();
        assert!(check(&nested(MAX_DEPTH)).is_some());
        assert!(check(&nested(MAX_DEPTH + 1)).is_none());
        let in_key = |depth: usize| [vec![0x81], vec![0x91; depth - 1], vec![0xC0, 0xC0]].concat();
        assert!(check(&in_key(MAX_DEPTH)).is_some());
        assert!(check(&in_key(MAX_DEPTH + 1)).is_none());
    }

    #[test]
    fn a_false_length_allocates_no_memory() {
        for lie in [
            &[0xDD, 0xFF, 0xFF, 0xFF, 0xFF][..],
            &[0xDF, 0xFF, 0xFF, 0xFF, 0xFF, 0xC0],
            &[0xC6, 0xFF, 0xFF, 0xFF, 0xFF],
            &[0xDB, 0xFF, 0xFF, 0xFF, 0xFF, b'x'],
            &[0xC9, 0xFF, 0xFF, 0xFF, 0xFF, 0],
        ] {
            assert!(check(lie).is_none(), "{lie:x?}");
        }
    }

    #[test]
    fn trailing_bytes_the_reserved_marker_and_bad_text_are_refused() {
        for bad in [&[0xC0, 0xC0][..], &[0xC1], &[0xA1, 0xFF], &[]] {
            assert!(check(bad).is_none(), "{bad:x?}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_of_a_value_is_never_a_value(numbers in prop::collection::vec(any::<i64>(), 1..20), cut in any::<prop::sample::Index>()) {
            let whole = packed(&json!({"t": "n", "p": numbers}));
            prop_assert!(check(&whole).is_some());
            prop_assert!(check(&whole[..cut.index(whole.len())]).is_none());
        }
    }
}
