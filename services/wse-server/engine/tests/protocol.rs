//! Protocol violations by clients, and how the server closes the connection (RFC 6455).

mod client;

use std::time::Duration;

use client::{Client, Received, config, drain, start, text_frame, until};
use wse_engine::{Config, Kind, Server, frame::Opcode, receive::client_frame};

/// Sends `bytes` and expects a Close frame with this code, and a count under this reason.
fn ends_with(server: &Server, bytes: &[u8], code: u16, reason: &str) {
    let before = server.stats().connections.closed.get(reason).copied().unwrap_or(0);
    let (mut client, _) = Client::ready(server.address());
    client.write(bytes);
    assert_eq!(client.receive(), Received::Close(Some(code), String::new()), "{bytes:x?}");
    assert_eq!(client.receive(), Received::Eof);
    drop(client);
    until("closing", || server.stats().connections.closed.get(reason) == Some(&(before + 1)));
}

#[test]
fn broken_frames_end_the_connection_with_1002() {
    let server = start(config());
    let masked = |fin: bool, opcode: Opcode, payload: &[u8]| client_frame(fin, opcode, [1, 2, 3, 4], payload);
    let mut long_ping = masked(true, Opcode::Ping, &[0; 126]);
    long_ping[1] = 0xFE;
    for bytes in [
        b"\x81\x05hello".to_vec(),
        b"\xC1\x85maskXXXXX".to_vec(),
        b"\x83\x80mask".to_vec(),
        b"\x09\x80mask".to_vec(),
        b"\x81\xFE\x00\x05maskhello".to_vec(),
        b"\x81\xFF\x00\x00\x00\x00\x00\x00\x00\x05maskhello".to_vec(),
        long_ping,
        masked(true, Opcode::Continuation, b"of nothing"),
        [masked(false, Opcode::Text, b"a"), masked(true, Opcode::Text, b"b")].concat(),
        masked(true, Opcode::Close, &[3]),
        masked(true, Opcode::Close, &1005_u16.to_be_bytes()),
    ] {
        ends_with(&server, &bytes, 1002, "protocol");
    }
}

#[test]
fn text_that_is_not_utf_8_ends_the_connection_with_1007() {
    let server = start(config());
    let frame = |fin: bool, opcode: Opcode, payload: &[u8]| client_frame(fin, opcode, [1, 2, 3, 4], payload);
    ends_with(&server, &frame(true, Opcode::Text, b"\xFF\xFE"), 1007, "utf8");
    let torn = [frame(false, Opcode::Text, "é".as_bytes().split_at(1).0), frame(true, Opcode::Continuation, b"x")];
    ends_with(&server, &torn.concat(), 1007, "utf8");
    ends_with(&server, &frame(true, Opcode::Close, b"\x03\xE8\xFF"), 1007, "utf8");
}

#[test]
fn a_character_may_be_torn_between_fragments() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    let text = "{\"t\":\"héllo\"}";
    let (first, second) = text.as_bytes().split_at(7);
    client.frame(false, Opcode::Text, first);
    client.frame(true, Opcode::Ping, b"between");
    client.frame(false, Opcode::Continuation, b"");
    client.frame(true, Opcode::Continuation, second);
    assert_eq!(client.receive(), Received::Pong(b"between".to_vec()));
    let drained = drain(&server, 1).remove(0);
    assert_eq!((drained.data.as_slice(), drained.message_type.as_deref()), (text.as_bytes(), Some("héllo")));
}

#[test]
fn a_message_above_the_limit_is_refused_with_1009_before_it_arrives() {
    let server = start(Config { max_message_size: 1000, ..config() });
    ends_with(&server, b"\x81\xFE\x03\xE9mask", 1009, "too_big");
    let frame = |fin: bool, opcode: Opcode| client_frame(fin, opcode, [1, 2, 3, 4], &[b'x'; 501]);
    ends_with(&server, &[frame(false, Opcode::Text), frame(true, Opcode::Continuation)].concat(), 1009, "too_big");
    let bomb = wse_engine::format::encode_compressed(&[b'x'; 1001]);
    ends_with(&server, &client_frame(true, Opcode::Binary, [1, 2, 3, 4], &bomb), 1009, "too_big");
}

#[test]
fn a_client_that_keeps_sending_still_gets_the_close_reason() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    client.write(&[text_frame("hello"), b"\x81\x05hello".to_vec(), vec![b'x'; 1 << 20]].concat());
    assert_eq!(client.receive(), Received::Close(Some(1002), String::new()));
    assert_eq!(drain(&server, 1)[0].data, b"hello");
}

#[test]
fn a_close_frame_is_answered_with_its_code() {
    let server = start(config());
    for (payload, code) in [(&b""[..], None), (b"\x03\xE8bye", Some(1000)), (b"\x0F\xA0", Some(4000))] {
        let (mut client, _) = Client::ready(server.address());
        client.frame(true, Opcode::Close, payload);
        assert_eq!(client.receive(), Received::Close(code, String::new()));
        assert_eq!(client.receive(), Received::Eof);
    }
    until("closing", || server.stats().connections.closed.get("client") == Some(&3));
}

#[test]
fn messages_are_complete_however_their_bytes_arrive() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    // Sizes around every internal limit: short and long lengths, separate buffers, the end of a block.
    let sizes = [0, 1, 125, 126, 1000, 16 << 10, (16 << 10) + 1, 65_535, 65_536, 300_000, 1 << 20];
    let sent: Vec<String> = sizes.iter().map(|size| "x".repeat(*size)).collect();
    let bytes: Vec<u8> = sent.iter().flat_map(|text| text_frame(text)).collect();
    let writer = std::thread::spawn(move || {
        let mut rest = bytes.as_slice();
        let mut step = 1;
        while !rest.is_empty() {
            let (chunk, more) = rest.split_at(rest.len().min(step));
            client.write(chunk);
            rest = more;
            step = (step * 7 + 1) % 50_021;
        }
        client
    });
    let drained = drain(&server, sent.len());
    assert!(drained.iter().zip(&sent).all(|(drained, sent)| drained.data == sent.as_bytes()));
    drop(writer.join().unwrap());
}

#[test]
fn bytes_after_the_request_belong_to_the_connection() {
    let server = start(config());
    let mut client = Client::tcp(server.address());
    let bearer = format!("Authorization: Bearer {}\r\n", client::token(&client::claims(), client::SECRET));
    let eager = [client::request("/wse", &bearer).into_bytes(), text_frame("eager")].concat();
    // One byte first, so that the request arrives in parts too.
    client.write(&eager[..1]);
    client.write(&eager[1..]);
    assert!(client.http().starts_with("HTTP/1.1 101 "));
    assert!(client.text().contains("server_ready"));
    assert_eq!(drain(&server, 1)[0].data, b"eager");
}

#[test]
fn deep_message_pack_and_truncated_streams_reach_the_application_unchanged() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    let deep = [b"M:".to_vec(), vec![0x91; 100_000], vec![0xC0]].concat();
    let torn = b"C:x\x9c\xabV*".to_vec();
    for bytes in [&deep, &torn] {
        client.send_binary(bytes);
        let drained = drain(&server, 1).remove(0);
        assert_eq!((drained.kind, &drained.data), (Kind::Binary, bytes));
    }
    client.send_text("still here");
    assert_eq!(drain(&server, 1)[0].data, b"still here");
}

#[test]
fn requests_that_cannot_be_upgraded_get_an_http_response() {
    let server = start(config());
    let good = client::request("/wse", "");
    for (request, status) in [
        ("NONSENSE\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000)), 431),
        (good.replace("GET", "POST"), 405),
        (good.replace("websocket", "h2c"), 426),
        (good.replace("Version: 13", "Version: 12"), 426),
        (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "short"), 400),
    ] {
        let mut client = Client::tcp(server.address());
        client.try_write(request.as_bytes());
        let head = client.http();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    until("counting", || server.stats().connections.rejected.get("handshake") == Some(&6));
}

#[test]
fn a_request_that_is_not_completed_in_time_gets_408() {
    let server = start(Config { handshake_timeout: Duration::from_millis(100), ..config() });
    let mut client = Client::tcp(server.address());
    client.write(b"GET /wse HTTP/1.1\r\n");
    assert!(client.http().starts_with("HTTP/1.1 408 "));
    until("counting", || server.stats().connections.rejected.get("timeout") == Some(&1));
}
