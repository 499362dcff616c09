//! The behaviour of a service without a flaw.

use futures_util::{SinkExt, StreamExt};
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, get, next_json, service, stats, stats_when, upgrade};

const SECRET: &str = "a secret of the tests, long enough";

#[tokio::test(flavor = "multi_thread")]
async fn the_application_counts_and_sums_what_arrives_in_every_format() {
    let service = service(&[]).await;
    let started = service.started();
    let mut client = Client::open(&started).await;
    client.send(r#"{"p":{},"t":"client_hello"}"#).await;
    assert_eq!(client.json().await["t"], "server_hello");
    client.send_numbered(100).await;
    let packed = rmp_serde::to_vec_named(&json!({ "p": { "seq": 100_000 }, "t": "trade" })).unwrap();
    client.socket.send(Message::binary([b"M:".to_vec(), packed].concat())).await.unwrap();
    client.send("no number").await;

    let stats = stats_when(&started, |stats| stats.messages.received == 103).await;
    assert_eq!((stats.messages.consumed, stats.messages.delivered, stats.messages.malformed), (1, 102, 1));
    let application = stats.application.unwrap();
    assert_eq!((application.delivered, application.unnumbered), (102, 1));
    assert_eq!(application.sequence_sum, 5050 + 100_000);
    let book = client.book(&started);
    assert_eq!((book.received, book.consumed, book.dropped, book.open), (103, 1, 0, true));
    assert_eq!(book.application, Some(application));
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_answered_at_once_with_their_timestamp() {
    let service = service(&[]).await;
    let mut client = Client::open(&service.started()).await;
    for number in 0..10 {
        client.send(&format!(r#"{{"p":{{"client_timestamp":7,"timestamp":{number}}},"t":"ping"}}"#)).await;
        let pong = client.json().await;
        assert_eq!((&pong["t"], &pong["p"]["client_timestamp"]), (&json!("PONG"), &json!(number)));
    }
    client.socket.send(Message::Ping("hello".into())).await.unwrap();
    assert_eq!(client.socket.next().await.unwrap().unwrap(), Message::Pong("hello".into()));
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_connection_keeps_its_book_until_it_was_fetched_once() {
    let service = service(&[]).await;
    let started = service.started();
    let mut client = Client::open(&started).await;
    client.send_numbered(3).await;
    client.socket.close(None).await.unwrap();
    client.close_frame().await;
    let stats = stats_when(&started, |stats| stats.connections.open == 0).await;
    assert_eq!(stats.connections.closed["client"], 1);
    assert_eq!((client.book(&started).received, client.id.is_empty()), (3, false));
    assert_eq!(get(&started.metrics_address, "/stats/connections").1, r#"{"connections":[]}"#);
    assert_eq!(stats_when(&started, |stats| stats.messages.received == 3).await.connections.accepted, 1);
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_those_of_the_frames_after_the_upgrade() {
    let service = service(&[]).await;
    let started = service.started();
    let mut client = Client::open(&started).await;
    let ready_bytes = stats(&started).bytes.sent;
    client.send("x").await;
    client.send(&"x".repeat(200)).await;
    client.send(r#"{"t":"ping"}"#).await;
    let pong = client.json().await.to_string().len();
    let stats = stats_when(&started, |stats| stats.messages.sent == 2).await;
    assert_eq!(stats.bytes.received, (6 + 1) + (8 + 200) + (6 + 12));
    // The client's JSON sorts keys but has the same length.
    assert_eq!(stats.bytes.sent - ready_bytes, 2 + pong as u64);
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_secret_only_valid_tokens_are_admitted() {
    let service = service(&["--secret", SECRET]).await;
    let started = service.started();
    let token = |secret: &str, claims| {
        encode(&Header::default(), &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
    };
    let later = jsonwebtoken::get_current_timestamp() + 3600;
    let good = token(SECRET, json!({ "sub": "bench-user", "aud": "wse-bench", "exp": later }));
    let mut socket = upgrade(&started, Some(&good)).await.unwrap();
    assert_eq!(next_json(&mut socket).await["t"], "server_ready");

    let forged = token("another secret", json!({ "sub": "bench-user", "exp": later }));
    let expired = token(SECRET, json!({ "sub": "bench-user", "exp": 1_000_000 }));
    let nameless = token(SECRET, json!({ "sub": "", "exp": later }));
    for bad in [Some(forged), Some(expired), Some(nameless), None] {
        let mut socket = upgrade(&started, bad.as_deref()).await.unwrap();
        assert_eq!(next_json(&mut socket).await["p"]["code"], "AUTH_FAILED");
        let Some(Ok(Message::Close(Some(close)))) = socket.next().await else { panic!("no close frame") };
        assert_eq!(u16::from(close.code), 4401);
    }
    let stats = stats(&started);
    assert_eq!((stats.connections.accepted, stats.connections.rejected["auth"]), (1, 4));
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_clients_get_a_reason_and_are_counted() {
    let service = service(&[]).await;
    let started = service.started();
    // Unmasked; invalid UTF-8 under a mask of zeros; a frame with a length of 2 MiB.
    let cases: [(&[u8], u16, &str); 3] = [
        (b"\x81\x01x", 1002, "protocol"),
        (b"\x81\x81\0\0\0\0\xff", 1007, "utf8"),
        (b"\x82\xff\0\0\0\0\0\x20\0\0\0\0\0\0", 1009, "too_big"),
    ];
    for (bytes, code, reason) in cases {
        let mut client = Client::open(&started).await;
        client.socket.get_mut().write_all(bytes).await.unwrap();
        assert_eq!(client.close_frame().await.map(|frame| u16::from(frame.code)), Some(code), "{reason}");
        stats_when(&started, |stats| stats.connections.closed.get(reason) == Some(&1)).await;
    }
    let mut stream = tokio::net::TcpStream::connect(&started.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    // The library determines the response; the service must end the connection and count it.
    let _ = stream.read_to_end(&mut response).await;
    stats_when(&started, |stats| stats.connections.rejected.get("handshake") == Some(&1)).await;
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_port_has_all_paths_of_the_contract() {
    let service = service(&[]).await;
    let started = service.started();
    for path in ["/healthz", "/readyz", "/stats", "/stats/connections", "/metrics", "/recorded"] {
        assert_eq!(get(&started.metrics_address, path).0, 200, "{path}");
    }
    let metrics = get(&started.metrics_address, "/metrics").1;
    assert!(metrics.contains("service_connections_accepted_total 0\n"), "{metrics}");
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_closes_with_1001_and_refuses_new_connections() {
    let service = service(&[]).await;
    let started = service.started();
    let mut client = Client::open(&started).await;
    let stop = tokio::spawn(service.stop());
    assert_eq!(client.close_frame().await.map(|frame| u16::from(frame.code)), Some(1001));
    stop.await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(&started.address).await.is_err());
}
