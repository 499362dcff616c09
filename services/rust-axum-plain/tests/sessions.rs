//! Runs the gateway as a process in front of an inference that the test scripts.

mod service;

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    thread,
    time::Duration,
};

use serde_json::Value;
use service::{CLOSE, Client, Gateway, Inference, PING, PONG, Reply, TEXT};

/// Golden messages that tungstenite handles differently: it accepts lengths that are not minimal, and detects that
/// fragments are too long only when the last one is complete.
const DECIDED_BY_THE_LIBRARY: [&str; 3] =
    ["length of 16 bits that fits in 7", "length of 64 bits that fits in 16", "fragments beyond 64 KiB"];
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn a_client_is_answered_as_in_the_golden_messages() {
    let golden: Value = serde_json::from_str(include_str!("../../testdata/stt-messages.json")).unwrap();
    let inference = Inference::start(|_| Reply::Answer);
    let gateway = &Gateway::start(&inference.url, &[]);
    thread::scope(|scope| {
        let messages = golden["client"].as_array().unwrap().iter();
        for message in messages.filter(|message| !DECIDED_BY_THE_LIBRARY.contains(&message["name"].as_str().unwrap())) {
            scope.spawn(move || check_message(gateway, message));
        }
    });
    gateway.stats_when(|stats| stats.connections.open == 0);
}

fn check_message(gateway: &Gateway, message: &Value) {
    let name = &message["name"];
    let mut client = if message["state"] == "started" { gateway.session() } else { gateway.connect() };
    let hex = |key: &str| {
        let text = message[key].as_str().unwrap().as_bytes();
        text.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect::<Vec<_>>()
    };
    if let Some(text) = message["text"].as_str() {
        client.send(TEXT, text.as_bytes());
    } else if message["binary"].is_string() {
        client.send(service::BINARY, &hex("binary"));
    } else if let Some(zeros) = message["zeros"].as_u64() {
        client.send(service::BINARY, &vec![0; zeros as usize]);
    } else {
        client.raw(&hex("wire"));
    }
    match message["means"].as_str().unwrap() {
        "close" => {
            let (code, reason) = client.closed();
            assert_eq!(message["code"], code, "{name}");
            assert!(message["reason"].as_str().is_none_or(|expected| expected == reason), "{name}: {reason}");
        }
        "pong" => assert_eq!(client.receive(), (PONG, hex("hex")), "{name}"),
        "frame" => assert_eq!(client.cover().newest, 1, "{name}"),
        "start" => {
            client.frames(1);
            assert_eq!(client.cover().newest, 1, "{name}");
        }
        "nothing" => {
            client.send(PING, b"still there");
            assert_eq!(client.receive(), (PONG, b"still there".to_vec()), "{name}");
        }
        other => panic!("a golden message means {other}"),
    }
}

#[test]
fn every_frame_is_covered_once_whatever_the_inference_does() {
    let script = |number| match number % 8 {
        0 => Reply::Answer,
        1 => Reply::Status(500),
        2 => Reply::Status(429),
        3 => Reply::Status(404),
        4 => Reply::Reset,
        5 => Reply::Body("not-json"),
        6 => Reply::After(NEVER),
        _ => Reply::After(Duration::from_millis(30)),
    };
    let inference = Inference::start(script);
    let settings = [("INFERENCE_TIMEOUT_MS", "150"), ("FLUSH_INTERVAL_MS", "50")];
    let gateway = Gateway::start(&inference.url, &settings);
    let mut client = gateway.session();
    let (mut sent, mut covered) = (0, 0);
    let mut kinds = vec![];
    // Batches are sent one after the other, so that the script of 8 replies runs twice.
    for _ in 0..16 {
        client.frames(5);
        sent += 5;
        while covered < sent {
            let cover = client.cover();
            assert_eq!(cover.oldest, covered + 1);
            covered = cover.newest;
            kinds.push((cover.kind, cover.message["inference_status"].clone(), cover.message["retryable"].clone()));
        }
    }
    let error = |kind: &str, status: Value, retryable: bool| (Some(kind.to_owned()), status, Value::from(retryable));
    for expected in [
        (None, Value::Null, Value::Null),
        error("http_5xx", 500.into(), true),
        error("http_429", 429.into(), true),
        error("http_5xx", 404.into(), false),
        error("connection_reset", Value::Null, true),
        error("parse_error", 200.into(), false),
        error("timeout", Value::Null, true),
    ] {
        assert!(kinds.contains(&expected), "no {expected:?} in {kinds:?}");
    }
    let stats = gateway.stats();
    assert_eq!((stats.messages.received, stats.messages.queued), (sent + 1, 0));
    assert_eq!(stats.messages.sent, kinds.len() as u64);
}

#[test]
fn a_session_has_one_request_in_flight_and_skips_ticks_meanwhile() {
    let inference = Inference::start(|_| Reply::After(Duration::from_millis(330)));
    let gateway = Gateway::start(&inference.url, &[]);
    let mut client = gateway.session();
    client.frames(3);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 1);
    client.frames(4);
    let covers = client.covers(7);
    assert_eq!((inference.most_at_once(), inference.requests()), (1, covers.len() as u64));
    assert!(gateway.stats().inference.unwrap().ticks_skipped > 0);
    assert!(gateway.metrics_port("/metrics").contains("service_inference_in_flight_per_connection_max 1\n"));
}

#[test]
fn pending_audio_is_bounded_and_the_oldest_is_dropped_and_reported_in_order() {
    let first_hangs = |number| if number == 0 { Reply::After(Duration::from_millis(700)) } else { Reply::Answer };
    let inference = Inference::start(first_hangs);
    let gateway = Gateway::start(&inference.url, &[("MAX_BUFFERED_FRAMES", "10")]);
    let mut client = gateway.session();
    client.frames(2);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 1);
    client.frames(25);
    let stats = gateway.stats_when(|stats| stats.messages.received == 28);
    assert_eq!(stats.messages.dropped["overflow"], 15);
    assert_eq!(stats.inference.unwrap().buffered_bytes, 12 * 640);
    let covers = client.covers(27);
    let spans: Vec<_> = covers.iter().map(|cover| (cover.oldest, cover.newest, cover.kind.as_deref())).collect();
    assert_eq!(spans, [(1, 2, None), (3, 17, Some("overflow")), (18, 27, None)]);
    assert_eq!(covers[1].message["stage"], "websocket_receive");
    assert_eq!(covers[1].message["gateway_buffer_frames"], 10);
    assert!(covers[1].message["oldest_age_ms"].as_f64() >= covers[1].message["newest_age_ms"].as_f64());
}

#[test]
fn a_peer_without_http_is_a_parse_error_and_an_unreachable_one_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let not_http = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        // The connection stays open, so that the bytes are the only fault.
        let mut open = vec![];
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            // Reads the request first. A connection that fails before the request is sent is a connection reset.
            let mut request = vec![0; 2 * 640];
            socket.read_exact(&mut request).unwrap();
            socket.write_all(&[b'?'; 64]).unwrap();
            open.push(socket);
        }
    });
    let unreachable = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    for (url, kind) in [(not_http, "parse_error"), (unreachable, "connection_reset")] {
        let gateway = Gateway::start(&url, &[]);
        let mut client = gateway.session();
        client.frames(2);
        let cover = client.cover();
        assert_eq!(cover.kind.as_deref(), Some(kind), "{cover:?}");
        assert_eq!(cover.message["inference_status"], Value::Null);
        assert_eq!(gateway.stats().messages.dropped[kind], 2);
    }
}

#[test]
fn a_client_that_leaves_abandons_its_request_and_its_audio() {
    let inference = Inference::start(|_| Reply::After(NEVER));
    let gateway = Gateway::start(&inference.url, &[]);
    let mut client = gateway.session();
    client.frames(2);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 1);
    client.frames(3);
    client.send(CLOSE, &1000_u16.to_be_bytes());
    assert_eq!(client.closed(), (1000, String::new()));
    let stats = gateway.stats_when(|stats| stats.connections.open == 0);
    assert_eq!((stats.messages.dropped["closed"], stats.inference.unwrap().abandoned), (5, 1));
}

#[test]
fn a_stop_sends_pending_messages_and_a_close_frame() {
    let inference = Inference::start(|_| Reply::After(Duration::from_millis(100)));
    let gateway = Gateway::start(&inference.url, &[("FLUSH_INTERVAL_MS", "30000")]);
    let mut client = gateway.session();
    let mut silent = gateway.connect();
    client.frames(7);
    gateway.stats_when(|stats| stats.messages.received == 8);
    gateway.terminate();
    assert_eq!(client.cover().newest, 7);
    assert_eq!(client.closed().0, 1001);
    assert_eq!(silent.closed().0, 1001);
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn a_stop_does_not_wait_for_an_inference_that_hangs() {
    let inference = Inference::start(|_| Reply::After(NEVER));
    let gateway = Gateway::start(&inference.url, &[("INFERENCE_TIMEOUT_MS", "600000")]);
    let mut client = gateway.session();
    client.frames(1);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 1);
    gateway.terminate();
    assert_eq!(client.closed().0, 1001);
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn http_requests_are_answered_by_the_contract() {
    let gateway = Gateway::start("http://127.0.0.1:9", &[]);
    let request = |line: &str, headers: &str| {
        gateway.http(&format!("{line} HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).to_ascii_lowercase()
    };
    let close = "Connection: close\r\n";
    let health = request("GET /health", close);
    assert!(
        health.starts_with("http/1.1 200 ") && health.ends_with(r#"{"ok":true,"runtime":"rust-axum-plain"}"#),
        "{health}"
    );
    assert!(request("GET /nothing", close).starts_with("http/1.1 404 "));
    for line in ["POST /health", "POST /ws/stt", "HEAD /health"] {
        let response = request(line, close);
        assert!(response.starts_with("http/1.1 405 ") && response.contains("allow: get\r\n"), "{line}: {response}");
    }
    let upgrade = "Upgrade: websocket\r\nConnection: upgrade, close\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    assert!(request("GET /ws/stt", close).starts_with("http/1.1 400 "));
    let version = request("GET /ws/stt", &format!("{upgrade}{key}Sec-WebSocket-Version: 8\r\n"));
    assert!(version.starts_with("http/1.1 400 "), "{version}");
    let keyless =
        request("GET /ws/stt", &format!("{upgrade}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n"));
    assert!(keyless.starts_with("http/1.1 400 "), "{keyless}");
    assert!(gateway.metrics_port("/stats/connections").starts_with("HTTP/1.1 404 "));
    assert!(gateway.metrics_port("/readyz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn no_more_connections_are_taken_than_are_allowed() {
    let gateway = Gateway::start("http://127.0.0.1:9", &[("MAX_CONNECTIONS", "1")]);
    let _first = gateway.session();
    let response = gateway.http(
        "GET /ws/stt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade, close\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert_eq!(gateway.stats().connections.rejected["full"], 1);
}

#[test]
fn a_setting_that_makes_no_sense_is_named() {
    for (name, flag) in [("INFERENCE_URL", "--inference-url"), ("FLUSH_INTERVAL_MS", "--flush-interval-ms")] {
        let output = Command::new(env!("CARGO_BIN_EXE_rust-axum-plain")).env(name, "soon").output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains(flag) && message.contains("soon"), "{message}");
    }
}

#[test]
fn frames_that_come_with_the_handshake_are_not_lost() {
    let inference = Inference::start(|_| Reply::Answer);
    let gateway = Gateway::start(&inference.url, &[]);
    let mut client: Client = gateway.connect();
    let mut burst = vec![0x81, 0x90, 0, 0, 0, 0];
    burst.extend(br#"{"type":"start"}"#);
    burst.extend([&[0x82, 0xfe, 0x02, 0x80, 0, 0, 0, 0][..], &[0; 640]].concat());
    client.raw(&burst);
    assert_eq!(client.covers(1).len(), 1);
}
