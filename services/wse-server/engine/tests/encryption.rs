//! End-to-end encryption. Keys are exchanged once per connection. The application's messages are encrypted, the
//! protocol's own messages are not.

mod client;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use client::{Client, Drained, Received, assert_balanced, config, drain, start, until};
use serde_json::{Value, json};
use wse_engine::{Config, Kind, Server, events::Event};
use wse_utilities::crypto::{self, Key};

/// A client with its own key pair.
struct Private {
    client: Client,
    id: String,
    private: [u8; 32],
    public: String,
    key: Option<Key>,
}

impl Private {
    /// A client that has received `server_ready` and has not exchanged keys.
    fn new(server: &Server, query: &str) -> Self {
        let mut client = Client::open(server.address(), &format!("/wse?encryption=true{query}"));
        let greeting: Value = serde_json::from_str(&client.text()).unwrap();
        let id = greeting["p"]["details"]["connection_id"].as_str().unwrap().to_owned();
        let (private, public) = crypto::generate().unwrap();
        Self { client, id, private, public: STANDARD.encode(public), key: None }
    }

    fn hello(&mut self, key: &str) -> Value {
        let features = json!({"encryption": true, "compression": true});
        let p = json!({"client_version": "test", "protocol_version": 1, "features": features, "encryption_public_key": key});
        self.client.send_text(&json!({"t": "client_hello", "p": p}).to_string());
        serde_json::from_str(&self.client.text()).unwrap()
    }

    /// A client that has exchanged keys.
    fn agreed(server: &Server, query: &str) -> Self {
        let mut it = Self::new(server, query);
        let public = it.public.clone();
        let hello = it.hello(&public);
        assert_eq!(
            (&hello["t"], &hello["p"]["features"]["encryption"]),
            (&json!("server_hello"), &json!(true)),
            "{hello}"
        );
        let peer = STANDARD.decode(hello["p"]["encryption_public_key"].as_str().unwrap()).unwrap();
        it.key = Some(Key::new(&crypto::derive(&it.private, &peer).unwrap()).unwrap());
        it
    }

    fn send(&mut self, plain: &[u8]) {
        let sealed = self.key.as_ref().unwrap().seal(plain).unwrap();
        self.client.send_binary(&[b"E:", &sealed[..]].concat());
    }

    /// The next message, decrypted. It must be encrypted.
    fn receive(&mut self) -> Vec<u8> {
        match self.client.receive() {
            Received::Binary(bytes) => {
                assert_eq!(&bytes[..2], b"E:");
                self.key.as_ref().unwrap().open(&bytes[2..]).unwrap()
            }
            other => panic!("{other:?} instead of an encrypted message"),
        }
    }
}

fn send_event(server: &Server, connection: &str, event: &Value) -> usize {
    let members = event.as_object().unwrap().clone().into_iter().collect();
    server.send_event(connection, &Event::new(members), 1024).unwrap()
}

fn dropped(server: &Server) -> u64 {
    server.stats().messages.dropped.get("undecryptable").copied().unwrap_or(0)
}

#[test]
fn an_encrypted_message_reaches_the_application_and_is_never_handled_by_the_engine() {
    let server = start(config());
    let mut client = Private::agreed(&server, "");
    for (plain, kind, data, message_type) in [
        (&br#"{"t":"order","p":1}"#[..], Kind::Json, &br#"{"t":"order","p":1}"#[..], Some("order")),
        (br#"U{"t":"order"}"#, Kind::Json, br#"{"t":"order"}"#, Some("order")),
        (br#"{"t":"ping","p":{"timestamp":1}}"#, Kind::Json, br#"{"t":"ping","p":{"timestamp":1}}"#, Some("ping")),
        (br#"WSE{"t":"client_hello","p":{}}"#, Kind::Json, br#"{"t":"client_hello","p":{}}"#, Some("client_hello")),
        (br#"{"t":"PONG"}"#, Kind::Json, br#"{"t":"PONG"}"#, Some("PONG")),
        (b"hello", Kind::Raw, b"hello", None),
        (b"[1]", Kind::Raw, b"[1]", None),
        (b"", Kind::Raw, b"", None),
        (b"M:\x81\xA1t\xA1x", Kind::MessagePack, b"\x81\xA1t\xA1x", Some("x")),
        (b"\xFF\xFE", Kind::Binary, b"\xFF\xFE", None),
    ] {
        client.send(plain);
        let drained = drain(&server, 1).remove(0);
        let Drained { kind: got, data: got_data, message_type: got_type, .. } = drained;
        assert_eq!((got, &got_data[..], got_type.as_deref()), (kind, data, message_type), "{plain:?}");
    }
    // None of the messages was answered: the first reply belongs to this unencrypted ping.
    client.client.send_text(r#"{"t":"ping","p":{"timestamp":5}}"#);
    assert!(client.client.text().starts_with(r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":5,"#));
    assert_balanced(&server);
}

#[test]
fn undecryptable_messages_are_dropped_and_counted() {
    let server = start(config());
    let mut client = Private::agreed(&server, "");
    let pending_handshake = Key::new(&[9; 32]).unwrap().seal(br#"{"t":"forged"}"#).unwrap();
    for bad in [&b"E:"[..], b"E:short", &[b"E:", &pending_handshake[..]].concat()] {
        client.client.send_binary(bad);
    }
    client.send(br#"{"t":"good"}"#);
    let drained = drain(&server, 1);
    assert_eq!((drained.len(), drained[0].message_type.as_deref()), (1, Some("good")));
    until("counting", || dropped(&server) == 3);
    assert_balanced(&server);
    let books = server.connection_books().connections;
    assert_eq!((books[0].received, books[0].consumed, books[0].dropped), (5, 1, 3));
}

#[test]
fn without_a_key_the_encryption_prefix_is_ignored() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    client.send_binary(b"E:anything");
    let drained = drain(&server, 1);
    assert_eq!((drained[0].kind, &drained[0].data[..]), (Kind::Binary, &b"E:anything"[..]));
}

#[test]
fn application_messages_are_encrypted_except_raw_ones() {
    let server = start(Config { shards: Some(1), ..config() });
    let mut client = Private::agreed(&server, "");
    let (mut open, open_id) = Client::ready(server.address());
    let size = send_event(&server, &client.id, &json!({"t": "x", "p": "y".repeat(3000)}));
    let plain = client.receive();
    assert_eq!(plain.len() + 30, size, "never compressed");
    assert_eq!(serde_json::from_slice::<Value>(&plain).unwrap()["t"], "x");
    assert!(send_event(&server, &open_id, &json!({"t": "x"})) > 0);
    assert!(matches!(open.receive(), Received::Binary(bytes) if bytes.starts_with(b"{")));
    server.broadcast_all(r#"{"t":"all","p":1}"#);
    server.broadcast_all("plain");
    server.broadcast_all_bytes(b"raw");
    for expected in [&br#"{"c":"U","t":"all","p":1}"#[..], b"plain", b"raw"] {
        assert_eq!(client.receive(), expected);
    }
    assert_eq!(open.text(), r#"{"c":"U","t":"all","p":1}"#);
    assert_eq!(open.text(), "plain");
    assert_eq!(open.receive(), Received::Binary(b"raw".to_vec()));
    assert!(server.send_text(&client.id, "as it is") && server.send_bytes(&client.id, b"as it is"));
    assert_eq!(client.client.receive(), Received::Text("as it is".to_owned()));
    assert_eq!(client.client.receive(), Received::Binary(b"as it is".to_vec()));
}

#[test]
fn publications_are_encrypted_for_each_subscriber_with_a_key() {
    let server = start(Config { shards: Some(1), ..config() });
    let (mut listener, mut member) = (Private::agreed(&server, ""), Private::agreed(&server, ""));
    let (mut open, open_id) = Client::ready(server.address());
    server.subscribe(&listener.id, &["news"], None).unwrap();
    server.subscribe(&open_id, &["news"], None).unwrap();
    server.subscribe(&member.id, &["news"], Some("workers")).unwrap();
    for number in 0..100 {
        server.broadcast("news", &format!(r#"{{"c":"U","t":"n","p":{number}}}"#));
    }
    for number in 0..100 {
        let expected = format!(r#"{{"c":"U","t":"n","p":{number}}}"#);
        assert_eq!(listener.receive(), expected.as_bytes());
        assert_eq!(member.receive(), expected.as_bytes());
        assert_eq!(open.text(), expected);
    }
}

#[test]
fn replayed_messages_are_encrypted() {
    let recovery = Some(wse_engine::RecoveryConfig::default());
    let server = start(Config { recovery, ..config() });
    let mut first = Private::agreed(&server, "");
    let outcome = server.subscribe_with_recovery(&first.id, &["news"], None).unwrap();
    let missed_from = outcome["news"].map(|recovered| recovered.position);
    server.broadcast("news", r#"{"c":"U","t":"n","p":1}"#);
    let stamped = first.receive();
    assert!(stamped.starts_with(br#"{"tp":"news","#));
    drop(first);
    let mut second = Private::agreed(&server, "");
    let outcome = server.subscribe_with_recovery(&second.id, &["news"], missed_from).unwrap();
    assert_eq!(outcome["news"].map(|recovered| (recovered.recovered, recovered.count)), Some((true, 1)));
    assert_eq!(second.receive(), stamped);
}

#[test]
fn keep_alive_pings_are_not_encrypted() {
    let server = start(Config { ping_interval: std::time::Duration::from_millis(50), ..config() });
    let mut client = Private::agreed(&server, "");
    assert!(matches!(client.client.receive(), Received::Text(text) if text.starts_with(r#"{"c":"WSE","t":"ping""#)));
}

#[test]
fn a_packed_event_is_packed_before_it_is_encrypted() {
    let server = start(config());
    let mut client = Private::agreed(&server, "&format=msgpack");
    send_event(&server, &client.id, &json!({"t": "x", "p": {"a": 1}}));
    let plain = client.receive();
    assert_eq!(&plain[..2], b"M:");
    assert_eq!(rmp_serde::from_slice::<Value>(&plain[2..]).unwrap()["p"], json!({"a": 1}));
}

#[test]
fn an_invalid_key_is_refused_and_a_valid_one_may_follow() {
    let server = start(config());
    let mut client = Private::new(&server, "");
    for bad in ["", "!!!", "AAAA", &STANDARD.encode([4; 65]), &client.public.replace('=', "")] {
        let error = client.hello(bad);
        assert_eq!((&error["t"], &error["p"]["code"]), (&json!("error"), &json!("KEY_EXCHANGE_FAILED")), "{bad}");
        assert!(error["p"]["message"].as_str().unwrap().starts_with("ECDH key exchange failed: "), "{error}");
        assert_eq!(error["p"]["recoverable"], true);
        let hello: Value = serde_json::from_str(&client.client.text()).unwrap();
        assert_eq!((&hello["t"], &hello["p"]["features"]["encryption"]), (&json!("server_hello"), &json!(false)));
        assert!(hello["p"].get("encryption_public_key").is_none());
    }
    // Messages are unencrypted until keys are exchanged.
    send_event(&server, &client.id, &json!({"t": "x"}));
    assert!(matches!(client.client.receive(), Received::Binary(bytes) if bytes.starts_with(b"{")));
    let public = client.public.clone();
    assert_eq!(client.hello(&public)["p"]["features"]["encryption"], true);
}

#[test]
fn a_client_that_keeps_failing_the_key_exchange_gets_no_further_attempt() {
    let server = start(config());
    let mut client = Private::new(&server, "");
    let public = client.public.clone();
    for _ in 0..8 {
        assert_eq!(client.hello("AAAA")["p"]["code"], "KEY_EXCHANGE_FAILED");
        client.client.text();
    }
    let message = client.hello(&public)["p"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("too many attempts"), "{message}");
    // It is treated as a client without encryption, which is not a violation.
    client.client.text();
    client.client.send_binary(b"E:anything");
    assert_eq!(drain(&server, 1)[0].kind, Kind::Binary);
}

#[test]
fn a_repeated_client_hello_gets_the_same_key_and_one_with_another_key_is_refused() {
    let server = start(config());
    let mut client = Private::agreed(&server, "");
    let public = client.public.clone();
    let again = client.hello(&public);
    let peer = STANDARD.decode(again["p"]["encryption_public_key"].as_str().unwrap()).unwrap();
    client.key = Some(Key::new(&crypto::derive(&client.private, &peer).unwrap()).unwrap());
    let other = STANDARD.encode(crypto::generate().unwrap().1);
    assert_eq!(client.hello(&other)["p"]["code"], "KEY_EXCHANGE_FAILED");
    client.client.text();
    client.send(br#"{"t":"still"}"#);
    assert_eq!(drain(&server, 1)[0].message_type.as_deref(), Some("still"));
}

#[test]
fn a_key_is_removed_with_its_connection() {
    let server = start(Config { shards: Some(1), ..config() });
    drop(Private::agreed(&server, ""));
    until("leaving", || server.connection_count() == 0);
    // The new connection most likely gets the slot of the closed one.
    let (mut client, id) = Client::ready(server.address());
    send_event(&server, &id, &json!({"t": "x"}));
    assert!(matches!(client.receive(), Received::Binary(bytes) if bytes.starts_with(b"{")));
    server.broadcast_all("all");
    assert_eq!(client.text(), "all");
}
