//! End-to-end encryption, version 2: all data frames of a connection are encrypted in order, in both directions.

mod client;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use client::{Client, Received, assert_balanced, config, drain, start, until};
use serde_json::{Value, json};
use wse_engine::{Config, Kind, Server, events::Event};
use wse_utilities::{
    crypto,
    duplex::{Duplex, Side},
};

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// A client that has agreed on keys.
struct Private {
    client: Client,
    id: String,
    public: String,
    keys: Duplex,
}

fn hello(public: &str) -> String {
    let features = json!({"encryption": true});
    let p = json!({"features": features, "encryption_public_key": public, "encryption_version": 2});
    json!({"t": "client_hello", "p": p}).to_string()
}

impl Private {
    fn new(server: &Server) -> Self {
        let (mut client, id) = Client::ready(server.address());
        let (private, public) = crypto::generate().unwrap();
        let text = STANDARD.encode(public);
        client.send_text(&hello(&text));
        let answer: Value = serde_json::from_str(&client.text()).unwrap();
        let said = &answer["p"];
        assert_eq!(
            (&said["features"]["encryption"], &said["encryption_version"]),
            (&json!(true), &json!(2)),
            "{answer}"
        );
        let peer = STANDARD.decode(said["encryption_public_key"].as_str().unwrap()).unwrap();
        let keys = Duplex::agree(Side::Client, &private, &public, &peer.try_into().unwrap()).unwrap();
        Self { client, id, public: text, keys }
    }

    fn sealed(&mut self, opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut message = b"E:".to_vec();
        self.keys.seal_onto([&[opcode], payload], &mut message).unwrap();
        message
    }

    fn send(&mut self, opcode: u8, payload: &[u8]) {
        let message = self.sealed(opcode, payload);
        self.client.send_binary(&message);
    }

    /// The next message, opcode first. It must be encrypted, and the next one in order.
    fn receive(&mut self) -> Vec<u8> {
        match self.client.receive() {
            Received::Binary(bytes) => self.keys.open(bytes.strip_prefix(b"E:").unwrap()).unwrap(),
            other => panic!("{other:?} instead of an encrypted message"),
        }
    }

    fn text(&mut self) -> String {
        let message = self.receive();
        assert_eq!(message[0], TEXT);
        String::from_utf8(message[1..].to_vec()).unwrap()
    }

    /// Reads until the server closes. Returns the code.
    fn closed(&mut self) -> u16 {
        loop {
            match self.client.receive() {
                Received::Close(code, _) => return code.unwrap(),
                Received::Binary(bytes) => drop(self.keys.open(&bytes[2..]).unwrap()),
                other => panic!("{other:?} in the open"),
            }
        }
    }
}

fn undecryptable(server: &Server) -> u64 {
    server.stats().messages.dropped.get("undecryptable").copied().unwrap_or(0)
}

fn send_event(server: &Server, connection: &str, event: &Value) -> usize {
    let members = event.as_object().unwrap().clone().into_iter().collect();
    server.send_event(connection, &Event::new(members), 1024).unwrap()
}

#[test]
fn encrypted_messages_keep_their_meaning_and_get_encrypted_replies() {
    let server = start(config());
    let mut client = Private::new(&server);
    for (opcode, payload, kind, data) in [
        (TEXT, &br#"{"t":"order","p":1}"#[..], Kind::Json, &br#"{"t":"order","p":1}"#[..]),
        (TEXT, b"hello", Kind::Raw, b"hello"),
        (BINARY, b"M:\x81\xA1t\xA1x", Kind::MessagePack, b"\x81\xA1t\xA1x"),
        (BINARY, b"E:inside", Kind::Binary, b"E:inside"),
        (BINARY, b"", Kind::Binary, b""),
    ] {
        client.send(opcode, payload);
        let drained = drain(&server, 1).remove(0);
        assert_eq!((drained.kind, &drained.data[..]), (kind, data), "{payload:?}");
    }
    client.send(TEXT, br#"{"t":"ping","p":{"timestamp":5}}"#);
    assert!(client.text().starts_with(r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":5,"#));
    let again = hello(&client.public);
    client.send(TEXT, again.as_bytes());
    let answer: Value = serde_json::from_str(&client.text()).unwrap();
    assert_eq!((&answer["t"], &answer["p"]["encryption_version"]), (&json!("server_hello"), &json!(2)));
    assert_balanced(&server);
}

#[test]
fn all_that_a_client_gets_is_encrypted_in_order() {
    let ping_interval = std::time::Duration::from_millis(50);
    let server = start(Config { ping_interval, ..config() });
    let mut client = Private::new(&server);
    server.subscribe(&client.id, &["news"], None).unwrap();
    let size = send_event(&server, &client.id, &json!({"t": "x", "p": "y".repeat(3000)}));
    server.broadcast_all(r#"{"t":"all","p":1}"#);
    server.broadcast("news", r#"{"c":"U","t":"n","p":1}"#);
    assert!(server.send_text(&client.id, "text") && server.send_bytes(&client.id, b"bytes"));
    let expected: [&[u8]; 4] = [br#"{"c":"U","t":"all","p":1}"#, br#"{"c":"U","t":"n","p":1}"#, b"text", b"bytes"];
    let mut found = Vec::new();
    let mut pings = 0;
    while found.len() < 5 || pings < 2 {
        let message = client.receive();
        match message.windows(10).any(|part| part == br#""t":"ping""#) {
            true => pings += 1,
            false => found.push(message),
        }
    }
    assert_eq!((found[0][0], found[0].len() + 26), (BINARY, size), "never compressed");
    assert_eq!(found[1..].iter().map(|message| &message[1..]).collect::<Vec<_>>(), expected);
    assert_eq!(found[1..].iter().map(|message| message[0]).collect::<Vec<_>>(), [TEXT, TEXT, TEXT, BINARY]);
}

#[test]
fn a_message_that_is_plain_repeated_left_out_or_forged_ends_the_connection() {
    type Evil = fn(&mut Private);
    let evils: [(&str, Evil); 6] = [
        ("plain text", |client| client.client.send_text(r#"{"t":"pay","p":666}"#)),
        ("plain bytes", |client| client.client.send_binary(b"M:\x80")),
        ("repeated", |client| {
            let message = client.sealed(TEXT, br#"{"t":"pay","p":1}"#);
            client.client.send_binary(&message);
            client.client.send_binary(&message);
        }),
        ("left out", |client| {
            client.sealed(TEXT, br#"{"t":"pay","p":1}"#);
            client.send(TEXT, br#"{"t":"pay","p":666}"#);
        }),
        ("forged", |client| {
            let mut message = client.sealed(TEXT, br#"{"t":"pay","p":1}"#);
            *message.last_mut().unwrap() ^= 1;
            client.client.send_binary(&message);
        }),
        ("no data frame", |client| client.send(9, b"")),
    ];
    for (name, evil) in evils {
        let server = start(config());
        let mut client = Private::new(&server);
        client.send(TEXT, br#"{"t":"pay","p":0}"#);
        evil(&mut client);
        assert_eq!(client.closed(), 1002, "{name}");
        let genuine = if name == "repeated" { 2 } else { 1 };
        let taken: Vec<_> = drain(&server, genuine).into_iter().map(|drained| drained.data).collect();
        let expected = [&br#"{"t":"pay","p":0}"#[..], br#"{"t":"pay","p":1}"#];
        assert_eq!(taken, expected[..genuine], "{name}");
        until("counting", || undecryptable(&server) == 1);
        assert_balanced(&server);
    }
}

#[test]
fn a_slow_client_gets_the_remaining_messages_in_the_order_of_their_counter() {
    let limits = Config { shards: Some(1), max_outbound_queue_bytes: 1 << 20, ..config() };
    let server = start(limits);
    let mut client = Private::new(&server);
    let text = "x".repeat(20_000);
    let mut sent = 0;
    // Until messages had to be dropped: the rest waits, and what is important overtakes it.
    while server.stats().messages.send_dropped.get("slow_consumer").is_none_or(|dropped| *dropped < 10) {
        let priority = [1, 5, 10][sent % 3];
        send_event(&server, &client.id, &json!({"t": "x", "p": text, "pri": priority}));
        sent += 1;
    }
    let mut events = 0;
    until("draining", || {
        // Dropped, too, where the shard was so late that only what is more important waits: then there is room later.
        server.send_text(&client.id, "last");
        events += 1;
        client.receive()[1..] == *b"last"
    });
    assert!(events > 10 && events < sent, "{events} of {sent}");
}
