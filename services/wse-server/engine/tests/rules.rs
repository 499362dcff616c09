//! The rules of RFC 6455, tested in echo mode: what sections 1 to 7, 9 and 10 of the public case list of the Autobahn
//! test suite check, written as tables of this project. Sections 12 and 13 are about compression, which isn't
//! negotiated.
//!
//! Each case is sent whole, frame by frame and byte by byte, because a reply must not depend on how TCP splits the
//! bytes.

#[path = "rules/cases.rs"]
mod cases;
mod client;
#[path = "rules/utf8.rs"]
mod utf8;

use std::net::SocketAddr;

use cases::{Case, echo_of, frame, text_reply, with_close};
use client::{Client, Received, start, until};
use wse_engine::{Config, Delivery, Server, frame::Opcode};

const MEBIBYTE: usize = 1 << 20;

fn echo() -> Server {
    start(Config { delivery: Delivery::Echo, max_message_size: 16 * MEBIBYTE, shards: Some(2), ..Config::default() })
}

/// How the bytes of a case are split into writes.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Nowhere,
    Frames,
    Bytes,
}

impl Case {
    fn play(&self, address: SocketAddr, cut: Cut) {
        let mut client = Client::open_with(address, "/", "");
        let whole = self.frames.concat();
        let parts: Vec<&[u8]> = match cut {
            Cut::Nowhere => vec![&whole],
            Cut::Frames => self.frames.iter().map(Vec::as_slice).collect(),
            Cut::Bytes => whole.chunks(1).collect(),
        };
        // The server may close the connection before it has received everything. Its replies still count.
        let _all = parts.into_iter().all(|part| client.try_write(part));
        for (index, expected) in self.replies.iter().chain([&Received::Eof]).enumerate() {
            let received = client.receive();
            assert_eq!(&received, expected, "{}, cut {cut:?}: reply {index} of {:?}", self.name, self.replies);
        }
    }
}

fn play(cases: &[Case]) {
    let server = echo();
    for case in cases {
        case.play(server.address(), Cut::Nowhere);
        case.play(server.address(), Cut::Frames);
        if case.frames.iter().map(Vec::len).sum::<usize>() < 2000 {
            case.play(server.address(), Cut::Bytes);
        }
    }
    // All connections are closed, and every message was answered.
    until("leaving", || server.stats().connections.open == 0);
    let stats = server.stats();
    assert!(!cases.is_empty() && stats.messages.received == stats.messages.consumed, "{stats:?}");
}

#[test]
fn section_1_messages_of_every_length_are_echoed() {
    play(&cases::framing());
}

#[test]
fn section_2_pings_are_answered_in_order_and_pongs_are_not() {
    play(&cases::pings());
}

#[test]
fn section_3_reserved_bits_end_the_connection() {
    play(&cases::reserved_bits());
}

#[test]
fn section_4_reserved_opcodes_end_the_connection() {
    play(&cases::reserved_opcodes());
}

#[test]
fn section_5_fragments_are_joined_and_only_in_order() {
    play(&cases::fragmentation());
}

#[test]
fn section_6_text_is_utf8_and_nothing_else() {
    play(&utf8::cases());
}

#[test]
fn section_6_4_invalid_text_ends_the_connection_at_once() {
    let server = echo();
    for wrong in [&b"\xF4\x90\x80\x80"[..], b"\xED\xA0\x80", b"\xFF"] {
        let valid = "κόσμε".as_bytes();
        let whole = [valid, wrong, b"edited"].concat();
        // Split into fragments. A ping between them shows that the server accepted the first.
        let mut client = Client::open_with(server.address(), "/", "");
        client.frame(false, Opcode::Text, valid);
        client.frame(true, Opcode::Ping, b"still here?");
        assert_eq!(client.receive(), Received::Pong(b"still here?".to_vec()));
        client.frame(false, Opcode::Continuation, wrong);
        assert_eq!(client.close_code(), Some(1007));
        // Within a frame whose rest is never sent.
        let bytes = frame(true, Opcode::Text, &whole);
        let mut client = Client::open_with(server.address(), "/", "");
        client.write(&bytes[..bytes.len() - b"edited".len()]);
        assert_eq!(client.close_code(), Some(1007));
        // Within a fragment, in a character that began in the previous fragment.
        let mut client = Client::open_with(server.address(), "/", "");
        client.frame(false, Opcode::Text, b"\xCE");
        let bytes = frame(true, Opcode::Continuation, b"no continuation");
        client.write(&bytes[..8]);
        assert_eq!(client.close_code(), Some(1007));
    }
}

#[test]
fn section_7_close_frames_are_answered_and_later_frames_ignored() {
    play(&cases::close_cases());
}

#[test]
fn section_9_messages_of_up_to_16_mebibytes_are_echoed() {
    let server = echo();
    for (opcode, byte) in [(Opcode::Text, b'*'), (Opcode::Binary, 0xFE)] {
        for length in [64 << 10, 256 << 10, MEBIBYTE, 4 * MEBIBYTE, 8 * MEBIBYTE, 16 * MEBIBYTE] {
            let payload = vec![byte; length];
            let mut client = Client::open_with(server.address(), "/", "");
            client.frame(true, opcode, &payload);
            assert!(client.receive() == echo_of(opcode, &payload), "{opcode:?} of {length}");
        }
    }
    let mut client = Client::open_with(server.address(), "/", "");
    client.try_write(&frame(true, Opcode::Binary, &vec![0; 16 * MEBIBYTE + 1])[..100]);
    assert_eq!(client.close_code(), Some(1009));
}

#[test]
fn section_9_4_mebibytes_in_parts_of_any_size_are_echoed() {
    let server = echo();
    let payload: Vec<u8> = (0..4 * MEBIBYTE).map(|index| b'a' + (index % 23) as u8).collect();
    for (opcode, part) in
        [(Opcode::Text, 64), (Opcode::Binary, 4096), (Opcode::Text, 65_536), (Opcode::Binary, MEBIBYTE)]
    {
        let mut client = Client::open_with(server.address(), "/", "");
        let mut rest = payload.chunks(part).peekable();
        let mut opcode_of_part = opcode;
        let mut bytes = Vec::new();
        while let Some(chunk) = rest.next() {
            bytes.extend(frame(rest.peek().is_none(), opcode_of_part, chunk));
            opcode_of_part = Opcode::Continuation;
        }
        client.write(&bytes);
        assert!(client.receive() == echo_of(opcode, &payload), "parts of {part}");
    }
    // In one frame that is written in small pieces.
    for (opcode, piece) in [(Opcode::Text, 1024), (Opcode::Binary, 64)] {
        let mut client = Client::open_with(server.address(), "/", "");
        frame(true, opcode, &payload[..MEBIBYTE]).chunks(piece).for_each(|piece| client.write(piece));
        assert!(client.receive() == echo_of(opcode, &payload[..MEBIBYTE]), "pieces of {piece}");
    }
}

#[test]
fn section_9_7_a_thousand_round_trips_of_each_size() {
    let server = echo();
    for opcode in [Opcode::Text, Opcode::Binary] {
        for length in [0, 16, 64, 256, 1024, 4096, 16_384, 65_536] {
            let payload = vec![b'x'; length];
            let mut client = Client::open_with(server.address(), "/", "");
            for round in 0..1000 {
                client.frame(true, opcode, &payload);
                assert!(client.receive() == echo_of(opcode, &payload), "{length} bytes, round {round}");
            }
        }
    }
}

#[test]
fn section_10_a_message_fragmented_by_the_client_is_echoed() {
    let text = "*".repeat(65_536);
    let parts = text.as_bytes().chunks(1300).count();
    let frames = text.as_bytes().chunks(1300).enumerate().map(|(index, part)| {
        frame(index + 1 == parts, if index == 0 { Opcode::Text } else { Opcode::Continuation }, part)
    });
    play(&[with_close(Case { name: "10.1".into(), frames: frames.collect(), replies: vec![text_reply(&text)] })]);
}

#[test]
fn an_echo_server_ignores_the_application_protocol() {
    let server = echo();
    let mut client = Client::open_with(server.address(), "/?format=msgpack", "");
    for text in [r#"{"t":"ping","p":{"timestamp":1}}"#, r#"WSE{"t":"client_hello"}"#, r#"{"t":"pong"}"#] {
        client.send_text(text);
        assert_eq!(client.receive(), text_reply(text));
    }
    for bytes in [&b"C:no zlib"[..], b"M:\x81\xA1t\xA4ping", b"\x81\xA1t\xA4ping"] {
        client.send_binary(bytes);
        assert_eq!(client.receive(), Received::Binary(bytes.to_vec()));
    }
    // The last reply may arrive before the shard publishes the counters of its round.
    until("counting", || server.stats().messages.received == 6);
    let messages = server.stats().messages;
    assert_eq!((messages.consumed, messages.delivered), (6, 0));
}
