//! The golden messages (`services/testdata/wse-messages.json`). The engine interprets clients' messages as the file
//! says, and its own packing and compression produce what the reference produces.

mod client;

use std::{collections::BTreeSet, fs, path::Path};

use client::{Client, config, drain, start};
use serde::Deserialize;
use serde_json::Value;
use wse_engine::{
    Kind,
    format::{Inflater, encode_compressed, encode_msgpack},
};

#[derive(Deserialize)]
struct Golden {
    messages: Vec<Message>,
}

/// One message, in the form that `services/README.md` describes.
#[derive(Deserialize)]
struct Message {
    name: String,
    from: String,
    opcode: String,
    query: Option<String>,
    hex: String,
    decoded: Value,
    means: String,
    client_timestamp: Option<i64>,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let digits = self.hex.as_bytes().chunks(2);
        digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    fn send(&self, client: &mut Client) {
        let bytes = self.bytes();
        match self.opcode.as_str() {
            "text" => client.send_text(std::str::from_utf8(&bytes).unwrap()),
            _ => client.send_binary(&bytes),
        }
    }
}

fn messages(from: &str) -> Vec<Message> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wse-messages.json");
    let golden: Golden = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    golden.messages.into_iter().filter(|message| message.from == from).collect()
}

/// How an application interprets a message: its kind as in `docs/PROTOCOL.md`, and its value.
fn decoded_as(kind: Kind, data: &[u8]) -> (&'static str, Value) {
    let json = |data| serde_json::from_slice::<Value>(data);
    match kind {
        Kind::Json => json(data).map_or(("raw", Value::Null), |value| ("msg", value)),
        Kind::Raw => ("raw", json(data).unwrap_or_default()),
        Kind::MessagePack => ("msg", rmp_serde::from_slice(data).unwrap()),
        _ => ("bin", Value::Null),
    }
}

#[test]
fn each_client_message_has_the_meaning_in_the_file() {
    let server = start(config());
    let mut kinds = BTreeSet::new();
    for message in messages("client") {
        let mut client = Client::open(server.address(), &format!("/wse{}", message.query.as_deref().unwrap_or("")));
        client.text();
        message.send(&mut client);
        // The application doesn't see a consumed message: the first that it gets is the one behind it.
        client.send_text(r#"{"t":"behind"}"#);
        let name = &message.name;
        let consumed = matches!(message.means.as_str(), "ping" | "pong" | "hello");
        let drained = drain(&server, if consumed { 1 } else { 2 });
        if consumed {
            assert_eq!(drained[0].message_type.as_deref(), Some("behind"), "{name} was not consumed");
            check_reply(&message, &mut client);
        } else {
            let decoded = if message.means == "bin" { Value::Null } else { message.decoded };
            let (means, value) = decoded_as(drained[0].kind, &drained[0].data);
            assert_eq!((means, value), (message.means.as_str(), decoded), "{name}");
        }
        kinds.insert(message.means);
    }
    assert!(kinds.iter().map(String::as_str).eq(["bin", "hello", "msg", "ping", "pong", "raw"]), "{kinds:?}");
}

/// Checks the reply to a consumed message, if it has one.
fn check_reply(message: &Message, client: &mut Client) {
    let expected = match message.means.as_str() {
        "ping" => ("PONG", "client_timestamp", message.client_timestamp),
        "hello" => ("server_hello", "protocol_version", Some(1)),
        _ => return,
    };
    let reply: Value = serde_json::from_str(&client.text()).unwrap();
    let (kind, field, value) = expected;
    assert_eq!((&reply["t"], &reply["p"][field]), (&kind.into(), &value.into()), "{}", message.name);
}

#[test]
fn the_engine_packs_the_same_bytes_as_the_reference() {
    let server = messages("server");
    let event = server.iter().find(|message| message.name == "event_msgpack").unwrap();
    assert_eq!(encode_msgpack(event.decoded.to_string().as_bytes()).unwrap(), event.bytes());
}

#[test]
fn compressed_messages_of_the_reference_and_ours_inflate_to_the_same() {
    let server = messages("server");
    let event = server.iter().find(|message| message.name == "event_compressed").unwrap();
    for bytes in [event.bytes(), encode_compressed(event.decoded.to_string().as_bytes())] {
        let mut text = Vec::new();
        Inflater::default().inflate(bytes.strip_prefix(b"C:").unwrap(), &mut text, 1 << 20).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), event.decoded);
    }
}
