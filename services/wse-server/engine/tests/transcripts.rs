//! Compares the engine's frames with captured frames of the reference: the same fields in the same order.

mod client;

use std::{fs, path::Path, time::Duration};

use client::{Client, Received, config, drain, start, until};
use serde_json::Value;
use wse_engine::{Config, Kind};

/// The captured frames of one case.
fn frames(case: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/reference-transcripts.json");
    let transcripts: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let cases = transcripts["cases"].as_array().unwrap();
    cases.iter().find(|known| known["case"] == case).unwrap()["frames"].as_array().unwrap().clone()
}

fn captured(case: &str, index: usize) -> String {
    frames(case)[index]["data"].as_str().unwrap().to_owned()
}

/// Replaces the parts that differ between runs: ids, times, and values that depend on the server's configuration or
/// version.
fn masked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        let length =
            rest[at..].find(|c: char| !(c.is_ascii_alphanumeric() || "-:.".contains(c))).unwrap_or(rest.len() - at);
        let word = &rest[at..at + length];
        out.push_str(match word.len() {
            36 => "<uuid>",
            24 => "<time>",
            13 => "<millis>",
            _ => word,
        });
        rest = &rest[at + length..];
    }
    out.push_str(rest);
    out
}

#[test]
fn the_first_message_has_the_reference_s_form() {
    let server = start(config());
    let mut client = Client::open(server.address(), "/wse");
    // The capture was made with recovery enabled.
    let expected = masked(&captured("server_ready", 0)).replace(r#""recovery":true"#, r#""recovery":false"#);
    assert_eq!(masked(&client.text()), expected);
}

#[test]
fn a_bearer_token_gets_the_same_first_message_as_a_cookie() {
    let server = start(config());
    let cookie = format!("Cookie: a=b; access_token={}\r\n", client::token(&client::claims(), client::SECRET));
    let mut client = Client::open_with(server.address(), "/any/path?client_version=2.0.7", &cookie);
    let expected = masked(&captured("auth_bearer", 0)).replace(r#""recovery":true"#, r#""recovery":false"#);
    assert_eq!(masked(&client.text()), expected);
}

#[test]
fn the_server_hello_has_the_reference_s_form() {
    let server = start(Config { ping_interval: Duration::from_secs(3), ..config() });
    let (mut client, id) = Client::ready(server.address());
    client.send_text(r#"WSE{"p":{"client_version":"wse-bench/0.2.0","protocol_version":1},"t":"client_hello"}"#);
    let reply = client.text();
    assert!(reply.contains(&id));
    let ours = masked(&reply).replace(env!("CARGO_PKG_VERSION"), "<version>");
    let expected = masked(&captured("server_hello", 0)).replace("2.5.1", "<version>");
    assert_eq!(ours, expected.replace(r#""recovery":true"#, r#""recovery":false"#));
}

#[test]
fn pings_are_answered_with_and_without_a_timestamp() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    client.send_text(r#"{"t":"ping","p":{"timestamp":123}}"#);
    assert_eq!(masked(&client.text()), masked(&captured("pong", 0)));
    client.send_text(r#"{"p":{"client_timestamp":5},"t":"ping"}"#);
    assert_eq!(masked(&client.text()), masked(&captured("pong_without_timestamp", 0)));
}

#[test]
fn the_keep_alive_has_the_reference_s_form() {
    let server = start(Config { ping_interval: Duration::from_millis(50), ..config() });
    let (mut client, _) = Client::ready(server.address());
    let Received::Text(ping) = client.receive() else { panic!("no text") };
    assert_eq!(masked(&ping), masked(&captured("server_ping", 0)));
}

#[test]
fn client_messages_reach_the_application_as_with_the_reference() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    let json = r#"{"t":"trade","p":{"a":1,"b":2.5,"c":[1,"x"]}}"#;
    for (sent, kind, data) in [
        (json, Kind::Json, json),
        (r#"U{"t":"trade","p":{}}"#, Kind::Json, r#"{"t":"trade","p":{}}"#),
        (r#"{"type":"trade","payload":{"k":1}}"#, Kind::Json, r#"{"type":"trade","payload":{"k":1}}"#),
        ("hello", Kind::Raw, "hello"),
        (r#"{"t":"#, Kind::Json, r#"{"t":"#),
        ("[1,2]", Kind::Raw, "[1,2]"),
    ] {
        client.send_text(sent);
        let drained = drain(&server, 1).remove(0);
        assert_eq!((drained.kind, String::from_utf8(drained.data).unwrap().as_str()), (kind, data));
        let has_type = drained.message_type.as_deref() == Some("trade");
        assert_eq!(has_type, sent.contains("trade"), "{sent}");
    }
}

#[test]
fn compressed_text_is_inflated_where_the_reference_does_not() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    // The reference's own bytes: C: and the zlib stream of {"t":"z","p":{}}.
    let compressed = b"C:x\x9c\xabV*Q\xb2R\xaaR\xd2Q*P\xb2\xaa\xae\xad\x05\x00%\\\x04\xbb";
    client.send_binary(compressed);
    client.send_binary(&[0, 1]);
    let drained = drain(&server, 2);
    assert_eq!((drained[0].kind, drained[0].message_type.as_deref()), (Kind::Json, Some("z")));
    assert_eq!((drained[1].kind, drained[1].data.as_slice()), (Kind::Binary, &[0, 1][..]));
}

#[test]
fn message_pack_arrives_with_and_without_its_prefix() {
    let server = start(config());
    let mut client = Client::open(server.address(), "/wse?format=msgpack&protocol_version=1");
    client.text();
    let packed = wse_engine::format::encode_msgpack(br#"{"t":"trade","p":{"a":1}}"#).unwrap();
    client.send_binary(&packed[2..]);
    client.send_binary(&packed);
    for drained in drain(&server, 2) {
        assert_eq!((drained.kind, drained.data.as_slice()), (Kind::MessagePack, &packed[2..]));
        assert_eq!(drained.message_type.as_deref(), Some("trade"));
    }
}

#[test]
fn application_messages_arrive_as_with_the_reference() {
    let server = start(config());
    let (mut client, id) = Client::ready(server.address());
    assert!(server.send_text(&id, r#"{"c":"WSE","t":"x","p":{}}"#));
    assert!(server.send_bytes(&id, b"abc"));
    assert_eq!(client.receive(), Received::Text(captured("send_and_send_bytes", 0)));
    assert_eq!(client.receive(), Received::Binary(b"abc".to_vec()));
    assert!(!server.send_text("01a1fb4e-9c63-74d1-9c44-3f3d0432db4f", "x") && !server.send_text("unknown", "x"));
}

#[test]
fn broadcasts_get_the_category_as_in_the_reference() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    server.broadcast_all(r#"{"t":"fanout_tick","p":{"seq":1}}"#);
    server.broadcast_all(r#"{"c":"U","t":"t2","p":{}}"#);
    server.broadcast_all("plain");
    server.broadcast_all_bytes(b"raw");
    for index in 0..3 {
        assert_eq!(client.receive(), Received::Text(captured("broadcast_all", index)));
    }
    assert_eq!(client.receive(), Received::Binary(b"raw".to_vec()));
}

#[test]
fn a_client_without_a_valid_token_gets_the_references_error() {
    let server = start(config());
    let mut expired = client::claims();
    expired["exp"] = 1.into();
    let bearer = |claims: &Value, secret: &[u8]| format!("Authorization: Bearer {}\r\n", client::token(claims, secret));
    for (case, headers) in [
        ("auth_missing", String::new()),
        ("auth_bad", bearer(&client::claims(), b"another-secret-key-of-32-bytes-or-more")),
        ("auth_expired", bearer(&expired, client::SECRET)),
    ] {
        let mut client = Client::open_with(server.address(), "/wse", &headers);
        assert_eq!(masked(&client.text()), masked(&captured(case, 0)), "{case}");
        assert_eq!(client.receive(), Received::Close(Some(4401), "Authentication failed".into()));
        assert_eq!(client.receive(), Received::Eof);
    }
    until("counting", || server.stats().connections.rejected.get("auth") == Some(&3));
    assert_eq!(server.stats().connections.accepted, 0);
    assert!(server.prometheus_text().contains("\nwse_auth_failures_total 3\n"));
}
