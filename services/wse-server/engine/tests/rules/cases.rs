//! The cases of each section: the frames to send and all expected replies.

use wse_engine::{
    frame::Opcode::{self, Binary, Close, Continuation, Ping, Pong, Text},
    receive::client_frame,
};

use crate::client::Received;

/// The frames that a client sends, and the server's replies up to the end of the connection.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) replies: Vec<Received>,
}

pub(crate) fn frame(fin: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    client_frame(fin, opcode, [0x0A, 0xF3, 0x00, 0x5C], payload)
}

fn whole(opcode: Opcode, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(true, opcode, payload.as_ref())
}

fn part(opcode: Opcode, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(false, opcode, payload.as_ref())
}

/// A text frame with this first byte.
fn first_byte(byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = whole(Text, payload);
    bytes[0] = byte;
    bytes
}

pub(crate) fn text_reply(text: impl AsRef<str>) -> Received {
    Received::Text(text.as_ref().to_owned())
}

pub(crate) fn echo_of(opcode: Opcode, payload: &[u8]) -> Received {
    match opcode {
        Text => text_reply(std::str::from_utf8(payload).unwrap()),
        _ => Received::Binary(payload.to_vec()),
    }
}

fn pong(payload: impl AsRef<[u8]>) -> Received {
    Received::Pong(payload.as_ref().to_vec())
}

fn close_reply(code: u16) -> Received {
    Received::Close(Some(code), String::new())
}

/// Adds a close handshake by the client to a case.
pub(crate) fn with_close(mut case: Case) -> Case {
    case.frames.push(whole(Close, 1000_u16.to_be_bytes()));
    case.replies.push(close_reply(1000));
    case
}

fn good(name: impl Into<String>, frames: Vec<Vec<u8>>, replies: Vec<Received>) -> Case {
    with_close(Case { name: name.into(), frames, replies })
}

/// A case that the server ends with a Close frame. Frames after the violation get no reply.
fn bad(name: impl Into<String>, code: u16, mut frames: Vec<Vec<u8>>, mut replies: Vec<Received>) -> Case {
    frames.push(whole(Ping, "after"));
    replies.push(close_reply(code));
    Case { name: name.into(), frames, replies }
}

/// A case for the tables of texts: the text that must be echoed, or `None` if it must be refused.
pub(crate) fn text(name: impl Into<String>, frames: Vec<Vec<u8>>, valid: Option<&str>) -> Case {
    match valid {
        Some(text) => good(name, frames, vec![text_reply(text)]),
        None => bad(name, 1007, frames, vec![]),
    }
}

pub(crate) fn framing() -> Vec<Case> {
    let of = |opcode: Opcode, length: usize, byte: u8| {
        let payload = vec![byte; length];
        let reply = echo_of(opcode, &payload);
        good(format!("1: {opcode:?} of {length}"), vec![whole(opcode, payload)], vec![reply])
    };
    let lengths = [0, 125, 126, 127, 128, 65_535, 65_536];
    lengths.into_iter().flat_map(|length| [of(Text, length, b'*'), of(Binary, length, 0xFE)]).collect()
}

pub(crate) fn pings() -> Vec<Case> {
    let ping = |name: &str, payload: &[u8]| good(name, vec![whole(Ping, payload)], vec![pong(payload)]);
    let many = |count: usize| (0..count).map(|index| format!("payload-{index}"));
    vec![
        ping("2.1: nothing", b""),
        ping("2.2: text", b"Hello, world!"),
        ping("2.3: bytes", b"\x00\xFF\xFE\xFD\xFC\xFB\x00\xFF"),
        ping("2.4 and 2.6: the longest", &[0xFE; 125]),
        bad("2.5: too long", 1002, vec![whole(Ping, [0xFE; 126])], vec![]),
        good("2.7: an unsolicited pong", vec![whole(Pong, "")], vec![]),
        good("2.8: with a payload", vec![whole(Pong, "unsolicited")], vec![]),
        good("2.9: and a ping", vec![whole(Pong, "unsolicited"), whole(Ping, "ping")], vec![pong("ping")]),
        good(
            "2.10 and 2.11: ten pings",
            many(10).map(|text| whole(Ping, text)).collect(),
            many(10).map(pong).collect(),
        ),
    ]
}

pub(crate) fn reserved_bits() -> Vec<Case> {
    let mut cases = Vec::new();
    for bits in 1..8_u8 {
        for (opcode, payload) in [(Text, "Hello"), (Binary, "\0\0"), (Ping, "Hello"), (Close, "")] {
            let wrong = first_byte(0x80 | bits << 4 | opcode as u8, payload.as_bytes());
            let frames = vec![whole(Text, "fine"), wrong];
            cases.push(bad(format!("3: bits {bits} on {opcode:?}"), 1002, frames, vec![text_reply("fine")]));
        }
    }
    cases
}

pub(crate) fn reserved_opcodes() -> Vec<Case> {
    let mut cases = Vec::new();
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15_u8] {
        for payload in ["", "reserved opcode payload"] {
            let frames = vec![whole(Text, "fine"), first_byte(0x80 | opcode, payload.as_bytes())];
            cases.push(bad(format!("4: opcode {opcode}, {payload:?}"), 1002, frames, vec![text_reply("fine")]));
        }
    }
    cases
}

pub(crate) fn fragmentation() -> Vec<Case> {
    let two = || vec![part(Text, "fragment1"), whole(Continuation, "fragment2")];
    let joined = || text_reply("fragment1fragment2");
    let (five, pings) = (|index: usize| format!("fragment{index}"), ["pongme 1!", "pongme 2!"]);
    vec![
        bad("5.1: a ping in parts", 1002, vec![part(Ping, "one"), whole(Continuation, "two")], vec![]),
        bad("5.2: a pong in parts", 1002, vec![part(Pong, "one"), whole(Continuation, "two")], vec![]),
        good("5.3 to 5.5: two parts", two(), vec![joined()]),
        good(
            "5.6 to 5.8: a ping between",
            vec![part(Text, "fragment1"), whole(Ping, "ping"), whole(Continuation, "fragment2")],
            vec![pong("ping"), joined()],
        ),
        bad("5.9 to 5.11: a last part of nothing", 1002, vec![whole(Continuation, "x"), whole(Text, "y")], vec![]),
        bad("5.12 to 5.14: a part of nothing", 1002, vec![part(Continuation, "x"), whole(Text, "y")], vec![]),
        bad(
            "5.15: a part after the last",
            1002,
            [two(), vec![part(Continuation, "x"), part(Text, "y"), whole(Continuation, "z")]].concat(),
            vec![joined()],
        ),
        bad(
            "5.16: twice",
            1002,
            [vec![part(Continuation, "x")], two(), vec![part(Continuation, "x")]].concat(),
            vec![],
        ),
        bad("5.17: twice, whole", 1002, [vec![whole(Continuation, "x")], two()].concat(), vec![]),
        bad("5.18: a new text within a text", 1002, vec![part(Text, "one"), whole(Text, "two")], vec![]),
        bad("5.18: bytes within a text", 1002, vec![part(Text, "one"), whole(Binary, "two")], vec![]),
        good(
            "5.19 and 5.20: five parts and two pings",
            vec![
                part(Text, five(1)),
                part(Continuation, five(2)),
                whole(Ping, pings[0]),
                part(Continuation, five(3)),
                part(Continuation, five(4)),
                whole(Ping, pings[1]),
                whole(Continuation, five(5)),
            ],
            vec![pong(pings[0]), pong(pings[1]), text_reply((1..=5).map(five).collect::<String>())],
        ),
        good(
            "empty parts",
            vec![part(Text, ""), part(Continuation, ""), whole(Continuation, "")],
            vec![text_reply("")],
        ),
    ]
}

pub(crate) fn close_cases() -> Vec<Case> {
    let close = |payload: &[u8]| whole(Close, payload);
    let with = |code: u16, reason: &str| [&code.to_be_bytes(), reason.as_bytes()].concat();
    let normal = || close(&with(1000, ""));
    let close_case =
        |name: &str, frames: Vec<Vec<u8>>, replies: Vec<Received>| Case { name: name.into(), frames, replies };
    let mut cases = vec![
        close_case(
            "7.1.1: after a text",
            vec![whole(Text, "Hello"), normal()],
            vec![text_reply("Hello"), close_reply(1000)],
        ),
        close_case("7.1.2: twice", vec![normal(), normal()], vec![close_reply(1000)]),
        close_case("7.1.3: a ping after it", vec![normal(), whole(Ping, "x")], vec![close_reply(1000)]),
        close_case("7.1.4: a text after it", vec![normal(), whole(Text, "x")], vec![close_reply(1000)]),
        close_case(
            "7.1.5: in the middle of a text",
            vec![part(Text, "fragment1"), normal(), whole(Continuation, "fragment2")],
            vec![close_reply(1000)],
        ),
        close_case(
            "7.1.6: after 256 KiB",
            vec![whole(Text, "BAsd7&jh23".repeat(26_214)), whole(Text, "Hello"), normal(), whole(Ping, "")],
            vec![text_reply("BAsd7&jh23".repeat(26_214)), text_reply("Hello"), close_reply(1000)],
        ),
        close_case("7.3.1: without a code", vec![close(b"")], vec![Received::Close(None, String::new())]),
        close_case("7.3.2: half a code", vec![close(b"a")], vec![close_reply(1002)]),
        close_case("7.3.3: a code", vec![normal()], vec![close_reply(1000)]),
        close_case("7.3.4: and a reason", vec![close(&with(1000, "Hello, world!"))], vec![close_reply(1000)]),
        close_case("7.3.5: the longest reason", vec![close(&with(1000, &"*".repeat(123)))], vec![close_reply(1000)]),
        close_case("7.3.6: too long", vec![close(&with(1000, &"*".repeat(124)))], vec![close_reply(1002)]),
        close_case(
            "7.5.1: a reason that is not text",
            vec![close(b"\x03\xE8\xCE\xBA\xED\xA0\x80")],
            vec![close_reply(1007)],
        ),
    ];
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        cases.push(close_case(&format!("7.7: {code}"), vec![close(&with(code, ""))], vec![close_reply(code)]));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        cases.push(close_case(&format!("7.9 and 7.13: {code}"), vec![close(&with(code, ""))], vec![close_reply(1002)]));
    }
    cases
}
