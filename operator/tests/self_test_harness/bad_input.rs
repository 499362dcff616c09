//! Bad input against real processes: a service must keep running, its books must balance, and other clients must be
//! served.
//!
//! The self-test services come first. A suite that reports faults of the honest service is wrong, and so is one that
//! misses a fault of the gullible service.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use bench_format::service::ServiceStats;
use flate2::{Compression, write::ZlibEncoder};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use crate::raw_client::{ConnectionEnd, RawClient, RunningService, frame, text, upgrade_request};

/// The public secret of the published benchmarks.
const SECRET: &str = "bench-secret-key-for-testing-only";
/// Limit of a service's memory under bad input, in bytes; a fully inflated zlib bomb would exceed it.
const MEMORY: u64 = 256 << 20;

fn token(secret: &str, algorithm: Algorithm, seconds_left: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let claims =
        json!({ "sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": now + seconds_left, "iat": now });
    encode(&Header::new(algorithm), &claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
}

fn good_token() -> String {
    token(SECRET, Algorithm::HS256, 3600)
}

/// Frames that RFC 6455 forbids, with the close code that the server must use.
fn violations() -> Vec<(&'static str, Vec<u8>, u16)> {
    let announces_two_mebibytes = b"\x82\xff\0\0\0\0\0\x20\0\0\0\0\0\0".to_vec();
    vec![
        // A server that accepted the frame would respond to it.
        ("an unmasked frame", [b"\x81\x0c".as_slice(), br#"{"t":"ping"}"#].concat(), 1002),
        ("a reserved bit", frame(0xc1, b"x"), 1002),
        ("a reserved opcode", frame(0x83, b"x"), 1002),
        ("a ping in fragments", frame(0x09, b"x"), 1002),
        ("a ping of 126 bytes", frame(0x89, &[b'x'; 126]), 1002),
        ("a continuation of nothing", frame(0x80, b"x"), 1002),
        ("a message inside a message", [frame(0x01, b"x"), frame(0x81, b"x")].concat(), 1002),
        ("text that is not UTF-8", frame(0x81, b"\xff\xfe"), 1007),
        ("a code point cut off at the end", [frame(0x01, b"\xe2\x82"), frame(0x80, b"")].concat(), 1007),
        ("a message of 2 MiB", announces_two_mebibytes, 1009),
        ("a close frame of one byte", frame(0x88, b"x"), 1002),
        ("a close code that must not be sent", frame(0x88, &1005_u16.to_be_bytes()), 1002),
    ]
}

/// Messages in valid frames with invalid content. The service must continue to respond, or close with a fitting code.
fn invalid_messages() -> Vec<(&'static str, Vec<u8>)> {
    let packed = |depth: usize| [b"M:".to_vec(), vec![0x91; depth], vec![0xc0]].concat();
    let keys = format!("{{{}\"t\":1}}", "\"k\":0,".repeat(100_000));
    vec![
        ("no JSON", text("hello")),
        ("empty text", text("")),
        ("an empty binary", frame(0x82, b"")),
        ("JSON cut off", text(r#"{"t":"trade","p":{"#)),
        ("an array", text("[1,2,3]")),
        ("a lone surrogate", text(r#"{"t":"trade","p":{"x":"\ud800"}}"#)),
        ("deep JSON", text(&"[".repeat(100_000))),
        ("deep JSON in an object", text(&format!("{{\"p\":{}1{},\"t\":\"x\"}}", "[".repeat(9000), "]".repeat(9000)))),
        ("a hundred thousand keys", text(&keys)),
        ("a number without end", text(&format!("{{\"t\":\"x\",\"p\":{}}}", "9".repeat(10_000)))),
        ("a type that is not a string", text(r#"{"t":{"t":"ping"}}"#)),
        ("a ping with a word for a timestamp", text(r#"{"t":"ping","p":{"timestamp":"now"}}"#)),
        ("a ping with an enormous timestamp", text(r#"{"t":"ping","p":{"timestamp":1e400}}"#)),
        ("a hello without a payload", text(r#"{"t":"client_hello"}"#)),
        ("no zlib after C:", frame(0x82, b"C:hello")),
        ("a zlib bomb", frame(0x82, &[b"C:".to_vec(), bomb()].concat())),
        ("no MessagePack after M:", frame(0x82, b"M:\xc1")),
        ("MessagePack cut off", frame(0x82, b"M:\xdf\xff\xff\xff\xff")),
        ("deep MessagePack", frame(0x82, &packed(100_000))),
        ("an encrypted frame without a key", frame(0x82, b"E:0123456789012345678901234567")),
    ]
}

/// 32 MiB of zeros, deflated.
fn bomb() -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    std::io::copy(&mut std::io::repeat(0).take(32 << 20), &mut encoder).unwrap();
    encoder.flush().unwrap();
    encoder.finish().unwrap()
}

/// Requests that are not valid upgrades.
fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let good = upgrade_request(&good_token());
    let without =
        |line: &str| good.lines().filter(|l| !l.starts_with(line)).map(|l| format!("{l}\r\n")).collect::<String>();
    vec![
        ("noise", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n".to_vec()),
        ("a plain GET", b"GET / HTTP/1.1\r\nHost: test\r\n\r\n".to_vec()),
        ("a POST", good.replacen("GET", "POST", 1).into_bytes()),
        ("no key", without("Sec-WebSocket-Key").into_bytes()),
        ("another version", good.replace("Version: 13", "Version: 8").into_bytes()),
        (
            "a head of 200 KiB",
            good.replace("Host: test", &format!("Host: test\r\nX: {}", "x".repeat(200 << 10))).into_bytes(),
        ),
    ]
}

/// The faults of a service, each with the input that caused it.
#[derive(Default)]
struct Faults(Vec<(&'static str, String)>);

impl Faults {
    fn unless(&mut self, fine: bool, input: &'static str, observed: impl std::fmt::Debug) {
        if !fine {
            self.0.push((input, format!("{observed:?}")));
        }
    }
}

/// Sends all bad input to a service and returns its faults.
fn faults_of(name: &str, environment: &BTreeMap<&str, &str>) -> Faults {
    let mut faults = Faults::default();
    let service = RunningService::start(name, environment);
    let started = &service.started;
    let token = good_token();
    let mut observer = RawClient::open(started, &token);
    for (what, bytes, code) in violations() {
        let mut client = RawClient::open(started, &token);
        client.send(&bytes);
        let end = client.end();
        faults.unless(end == ConnectionEnd::Closed(code), what, end);
        faults.unless(observer.responds_to_ping() == Ok(()), what, "others are not served");
    }
    for (what, bytes) in invalid_messages() {
        let mut client = RawClient::open(started, &token);
        client.send(&bytes);
        let is_tolerable = |end: &ConnectionEnd| matches!(end, ConnectionEnd::Closed(1002 | 1003 | 1007 | 1008 | 1009));
        let response = client.responds_to_ping();
        faults.unless(response.as_ref().is_ok() || response.as_ref().is_err_and(is_tolerable), what, response);
        faults.unless(observer.responds_to_ping() == Ok(()), what, "others are not served");
    }
    for (what, bytes) in requests() {
        let (status, _) = RawClient::request(started, &bytes);
        faults.unless(status.is_none_or(|status| (400..600).contains(&status)), what, status);
    }
    let refused = try_bad_tokens(&service, &mut faults);
    // A service may publish its counters shortly after a client has read the end of its connection.
    let counted = |stats: &ServiceStats| stats.connections.rejected.get("auth").copied().unwrap_or(0);
    let stats = service.stats_when("rejections of all bad tokens", |stats| counted(stats) >= refused);
    faults.unless(counted(&stats) == refused, "bad tokens", stats.connections.rejected);
    // The witness stays connected until here, so it was served throughout.
    faults.unless(observer.responds_to_ping() == Ok(()), "all of it", "the witness is not served");
    drop(observer);
    balances(name, &service);
    faults.unless(service.peak_memory() < MEMORY, "all of it", service.peak_memory());
    faults.unless(service.terminate(), "SIGTERM", "it did not exit with success");
    faults
}

/// The bad tokens, all of which must be refused.
fn bad_tokens() -> Vec<(&'static str, String)> {
    let unsigned = {
        let good = good_token();
        let claims = good.split('.').nth(1).unwrap().to_owned();
        // {"alg":"none","typ":"JWT"}
        format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{claims}.")
    };
    vec![
        ("a forged token", token("another secret, just as long as it", Algorithm::HS256, 3600)),
        ("an expired token", token(SECRET, Algorithm::HS256, -3600)),
        ("a token of another algorithm", token(SECRET, Algorithm::HS512, 3600)),
        ("an unsigned token", unsigned),
        ("no token", String::new()),
        ("a long token in four parts", "a.b.c.".to_owned() + &"d".repeat(8000)),
    ]
}

/// Sends the bad tokens; returns how many were refused.
fn try_bad_tokens(service: &RunningService, faults: &mut Faults) -> u64 {
    let mut refused = 0;
    for (what, bad) in bad_tokens() {
        let (status, mut client) = RawClient::request(&service.started, upgrade_request(&bad).as_bytes());
        // WSE completes the upgrade and then closes the connection.
        faults.unless(status == Some(101), what, status);
        let end = client.end();
        refused += u64::from(end == ConnectionEnd::Closed(4401));
        faults.unless(end == ConnectionEnd::Closed(4401), what, end);
    }
    refused
}

fn balances(name: &str, service: &RunningService) {
    let stats =
        service.stats_when("end of all connections", |stats| stats.connections.open == 0 && stats.messages.queued == 0);
    let messages = &stats.messages;
    let outcomes = messages.consumed + messages.delivered + messages.dropped.values().sum::<u64>();
    assert_eq!(messages.received, outcomes, "{name}: {messages:?}");
    assert_eq!(stats.application.map(|application| application.delivered), Some(messages.delivered), "{name}");
    let closed: u64 = stats.connections.closed.values().sum();
    assert_eq!(stats.connections.accepted, closed, "{name}: {:?}", stats.connections);
}

#[test]
fn the_self_test_service_withstands_bad_input() {
    let faults = faults_of("self-test-none", &BTreeMap::from([("JWT_SECRET", SECRET)]));
    assert_eq!(faults.0, []);
}

#[test]
fn a_service_that_accepts_bad_input_is_detected_in_each_case() {
    let faults = faults_of("self-test-gullible", &BTreeMap::from([("JWT_SECRET", SECRET)]));
    let served = format!("{:?}", ConnectionEnd::Served);
    let wrong = ["an unmasked frame"].into_iter().chain(bad_tokens().into_iter().map(|(what, _)| what));
    assert_eq!(faults.0, wrong.map(|what| (what, served.clone())).collect::<Vec<_>>());
}

#[test]
fn the_engine_withstands_bad_input_in_every_delivery_mode() {
    for delivery in ["batch", "dict"] {
        let faults = faults_of("wse-server", &BTreeMap::from([("DELIVERY", delivery)]));
        assert_eq!(faults.0, [], "{delivery}");
    }
}
