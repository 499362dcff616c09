//! Valid and invalid UTF-8 texts, whole and in parts: the sequences of Markus Kuhn's stress test and of RFC 3629.

use wse_engine::frame::Opcode::{Continuation, Text};

use crate::cases::{Case, frame, text};

/// The Greek word of the public case list, with characters of two and three bytes.
const WORD: &str = "κόσμε";

/// Invalid sequences by reason.
const WRONG: &[(&str, &[&[u8]])] = &[
    ("continuation alone", &[b"\x80", b"\xBF", b"\x80\xBF\x80\xBF\x80\xBF"]),
    ("start alone", &[b"\xC3 \xC4 ", b"\xE1 \xE2 ", b"\xF1 \xF2 ", b"\xF8 ", b"\xFC "]),
    ("cut short", &[b"\xDF", b"\xE0\xA0", b"\xEF\xBF", b"\xF0\x90\x80", b"\xF4\x8F\xBF"]),
    ("impossible", &[b"\xFE", b"\xFF", b"\xFE\xFE\xFF\xFF", b"\xC0", b"\xC1\xBF"]),
    (
        "overlong",
        &[b"\xC0\xAF", b"\xE0\x80\xAF", b"\xE0\x9F\xBF", b"\xF0\x80\x80\xAF", b"\xF0\x8F\xBF\xBF", b"\xC0\x80"],
    ),
    ("five and six bytes", &[b"\xF8\x88\x80\x80\x80", b"\xFC\x84\x80\x80\x80\x80", b"\xFD\xBF\xBF\xBF\xBF\xBF"]),
    ("beyond the last", &[b"\xF4\x90\x80\x80", b"\xF7\xBF\xBF\xBF"]),
    ("a surrogate", &[b"\xED\xA0\x80", b"\xED\xAD\xBF", b"\xED\xAE\x80", b"\xED\xB0\x80", b"\xED\xBF\xBF"]),
    ("two surrogates", &[b"\xED\xA0\x80\xED\xB0\x80", b"\xED\xAF\xBF\xED\xBF\xBF"]),
];

/// The first and the last character of each encoded length, those around the surrogates, and noncharacters, which may
/// be encoded.
const RIGHT: &[char] = &[
    '\0',
    '\u{7F}',
    '\u{80}',
    '\u{7FF}',
    '\u{800}',
    '\u{D7FF}',
    '\u{E000}',
    '\u{FFFD}',
    '\u{FFFE}',
    '\u{FFFF}',
    '\u{10000}',
    '\u{1FFFE}',
    '\u{24B62}',
    '\u{8FFFF}',
    '\u{10FFFE}',
    '\u{10FFFF}',
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        text("6.1: empty parts", vec![frame(false, Text, b""), frame(true, Continuation, b"")], Some("")),
        text(
            "6.1: an empty part at the end",
            vec![frame(false, Text, b""), frame(false, Continuation, b"middle"), frame(true, Continuation, b"")],
            Some("middle"),
        ),
    ];
    for character in RIGHT {
        let valid = format!("hello{character}world");
        cases.push(text(format!("6: {character:?}"), vec![frame(true, Text, valid.as_bytes())], Some(&valid)));
        cases.push(text(format!("6: {character:?}, byte by byte"), bytewise(valid.as_bytes()), Some(&valid)));
    }
    for cut in 1..=WORD.len() {
        let start = &WORD.as_bytes()[..cut];
        let valid = std::str::from_utf8(start).ok();
        cases.push(text(format!("6.6: the first {cut} bytes"), vec![frame(true, Text, start)], valid));
        let parts = vec![frame(false, Text, start), frame(true, Continuation, &WORD.as_bytes()[cut..])];
        cases.push(text(format!("6.2: cut after {cut} bytes"), parts, Some(WORD)));
    }
    for (why, sequences) in WRONG {
        for wrong in *sequences {
            let whole = [WORD.as_bytes(), wrong].concat();
            cases.push(text(format!("6.3: {why} {wrong:X?}"), vec![frame(true, Text, &whole)], None));
            cases.push(text(format!("6.3: {why} {wrong:X?} in parts"), bytewise(&whole), None));
        }
    }
    cases
}

/// One frame for each byte.
fn bytewise(bytes: &[u8]) -> Vec<Vec<u8>> {
    let opcode = |index| if index == 0 { Text } else { Continuation };
    bytes.iter().enumerate().map(|(index, byte)| frame(index + 1 == bytes.len(), opcode(index), &[*byte])).collect()
}
