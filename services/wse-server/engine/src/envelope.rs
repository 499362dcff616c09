//! The messages that the service itself sends: `server_ready`, replies, pings, errors; and the category of broadcasts.
//! Pure.
//!
//! Field order is part of the protocol: clients look for `"t":"PONG"` within the first 25 characters. What the
//! reference builds as a tree has its keys sorted.

use std::{borrow::Cow, ops::Range};

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{clock::Timestamp, config::Config, json};

/// The highest protocol version that the server supports.
const PROTOCOL_VERSION: u64 = 2;

/// The `server_ready` message: the first frame to a client that brought a valid token.
pub(crate) fn server_ready(connection: Uuid, message: Uuid, user: &str, config: &Config, now_millis: u64) -> String {
    let recovery = config.recovery.is_some();
    let now = Timestamp(now_millis);
    let user = Value::from(user);
    format!(
        r#"{{"c":"WSE","id":"{message}","p":{{"details":{{"connection_id":"{connection}","features":{{"batching":true,"circuit_breaker":true,"compression":true,"encryption":false,"priority_queue":true,"recovery":{recovery},"rust_jwt":true,"rust_transport":true}},"server_time":"{now}","user_id":{user},"version":1}},"message":"Connection established (Rust transport)"}},"seq":1,"t":"server_ready","ts":"{now}","v":1}}"#
    )
}

/// The version of end-to-end encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Version 1: the application's messages are encrypted, each on its own.
    Messages,
    /// Version 2: all data frames are encrypted, in order.
    Frames,
}

/// The reply to `client_hello`, with the server's public key in base64 and the version if keys were exchanged.
pub(crate) fn server_hello(
    hello: &ClientHello,
    connection: Uuid,
    public: Option<(&str, Encryption)>,
    config: &Config,
    now_millis: u64,
) -> String {
    let version = hello.protocol_version.min(PROTOCOL_VERSION);
    let now = Timestamp(now_millis);
    // Truncated to integers, as in the reference.
    let (capacity, refill) = (config.rate_limit.capacity as u64, config.rate_limit.refill_per_second as u64);
    let is_encrypted = public.is_some();
    let public = match public {
        None => String::new(),
        Some((public, Encryption::Messages)) => format!(r#""encryption_public_key":"{public}","#),
        Some((public, Encryption::Frames)) => {
            format!(r#""encryption_public_key":"{public}","encryption_version":2,"#)
        }
    };
    let (largest, ping_millis) = (config.max_message_size, config.ping_interval.as_millis());
    let recovery = config.recovery.is_some();
    let server_version = env!("CARGO_PKG_VERSION");
    format!(
        r#"{{"c":"WSE","p":{{"connection_id":"{connection}",{public}"features":{{"batching":true,"cluster":false,"compression":true,"encryption":{is_encrypted},"msgpack":true,"priority_queue":true,"recovery":{recovery}}},"limits":{{"max_message_size":{largest},"rate_limit_capacity":{capacity},"rate_limit_refill":{refill}}},"ping_interval":{ping_millis},"protocol_version":{version},"server_time":"{now}","server_version":"{server_version}"}},"t":"server_hello","v":1}}"#
    )
}

/// The part of a message that replies need: its payload, in JSON or MessagePack.
#[derive(Deserialize)]
struct Payload {
    #[serde(default, alias = "payload")]
    p: Value,
}

/// What a `client_hello` contains that the reply depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The version that the client supports; 1 if it names none.
    protocol_version: u64,
    /// The client's public key, if it requests encryption.
    pub key: Option<String>,
    /// The version of encryption that the client requests.
    pub encryption: Encryption,
}

impl ClientHello {
    /// Reads a JSON object. One that can't be parsed counts as an empty payload.
    pub fn parse(object: &[u8]) -> Self {
        Self::of(serde_json::from_slice(object).ok())
    }

    /// Reads a MessagePack map. One that can't be represented in JSON counts as an empty payload.
    pub fn unpack(map: &[u8]) -> Self {
        Self::of(rmp_serde::from_slice(map).ok())
    }

    fn of(message: Option<Payload>) -> Self {
        let payload = message.map_or(Value::Null, |message| message.p);
        let requests_encryption = payload["features"]["encryption"] == true;
        Self {
            protocol_version: payload["protocol_version"].as_u64().unwrap_or(1),
            encryption: match payload["encryption_version"].as_u64() {
                Some(2..) => Encryption::Frames,
                _ => Encryption::Messages,
            },
            key: payload["encryption_public_key"].as_str().filter(|_| requests_encryption).map(str::to_owned),
        }
    }
}

/// What a ping contains that the reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// The client's clock in milliseconds; 0 if the ping has no timestamp.
    pub client_timestamp: i64,
}

impl Ping {
    /// Reads a ping. The usual ones, whose payload is just a timestamp, are read without a parser.
    ///
    /// Returns `None` if the text is not JSON: then it is not a ping either.
    pub fn parse(object: &[u8]) -> Option<Self> {
        if let Some(client_timestamp) = short_ping(object) {
            return Some(Self { client_timestamp });
        }
        serde_json::from_slice(object).ok().map(Self::of)
    }

    /// Reads a ping that arrived as a MessagePack map.
    ///
    /// Returns `None` if its payload can't be represented in JSON: then the message is for the application.
    pub fn unpack(map: &[u8]) -> Option<Self> {
        rmp_serde::from_slice(map).ok().map(Self::of)
    }

    fn of(message: Payload) -> Self {
        Self { client_timestamp: message.p.get("timestamp").and_then(Value::as_i64).unwrap_or(0) }
    }

    /// Writes the reply into `buffer`. It takes 132 bytes at most.
    pub fn pong(self, now_millis: u64, buffer: &mut [u8; 160]) -> &[u8] {
        let latency = i64::try_from(now_millis).unwrap_or(i64::MAX).saturating_sub(self.client_timestamp).max(0);
        let client = self.client_timestamp;
        let mut left = &mut buffer[..];
        let written = std::io::Write::write_fmt(
            &mut left,
            format_args!(
                r#"{{"c":"WSE","t":"PONG","p":{{"client_timestamp":{client},"server_timestamp":{now_millis},"latency":{latency}}},"v":1}}"#
            ),
        );
        debug_assert!(written.is_ok());
        let length = 160 - left.len();
        &buffer[..length]
    }
}

/// The timestamp of `{"t":"ping","p":{"timestamp":123}}`, or of the same with `p` first.
fn short_ping(object: &[u8]) -> Option<i64> {
    let digits = object
        .strip_prefix(br#"{"t":"ping","p":{"timestamp":"#)
        .and_then(|rest| rest.strip_suffix(b"}}"))
        .or_else(|| object.strip_prefix(br#"{"p":{"timestamp":"#)?.strip_suffix(br#"},"t":"ping"}"#))?;
    let is_number = digits.iter().all(u8::is_ascii_digit) && matches!(digits, [b'1'..=b'9', ..]);
    // Eighteen digits always fit into an `i64`.
    if !is_number || digits.len() > 18 {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

/// The server's ping, which keeps a connection alive and shows the client that the server is alive.
pub(crate) fn server_ping(now_millis: u64) -> String {
    format!(r#"{{"c":"WSE","t":"ping","p":{{"server_time":"{}"}}}}"#, Timestamp(now_millis))
}

/// The message to a client before it is closed with 4401.
pub(crate) fn auth_error(code: &str, message: &str, now_millis: u64) -> String {
    let now = Timestamp(now_millis);
    format!(r#"{{"c":"WSE","p":{{"code":"{code}","message":"{message}","timestamp":"{now}"}},"t":"error","v":1}}"#)
}

/// The message to a client whose public key was refused. The `server_hello` without encryption follows it.
pub(crate) fn key_exchange_error(reason: &str) -> String {
    let message = Value::from(format!("ECDH key exchange failed: {reason}"));
    format!(r#"{{"c":"WSE","t":"error","p":{{"code":"KEY_EXCHANGE_FAILED","message":{message},"recoverable":true}}}}"#)
}

/// The category of a message by its type: snapshot (`S`), the service's own (`WSE`), or update (`U`).
pub(crate) fn category(message_type: &str) -> &'static str {
    match message_type {
        "server_ready"
        | "server_hello"
        | "client_hello_ack"
        | "connection_state_change"
        | "subscription_update"
        | "snapshot_complete"
        | "error"
        | "pong"
        | "PONG" => "WSE",
        other if other.contains("_snapshot") || other.starts_with("snapshot_") => "S",
        _ => "U",
    }
}

/// Inserts `"c":"…",` after the first brace of `text`, if it is an object with a top-level `"t":` and without a `"c":`.
/// Other text is returned unchanged.
pub fn with_category(text: &str) -> Cow<'_, str> {
    let Some(rest) = text.strip_prefix('{') else { return Cow::Borrowed(text) };
    if rest.starts_with("\"c\":") {
        return Cow::Borrowed(text);
    }
    let (mut found, mut has_category) = (None, false);
    for (key, value) in json::top_level_keys(text.as_bytes()) {
        match &text[key] {
            "c" => has_category = true,
            "t" if found.is_none() => found = Some(value),
            _ => {}
        }
    }
    match found {
        Some(value) if !has_category => {
            let category = value.map_or("U", |value: Range<usize>| category(&text[value]));
            Cow::Owned(format!(r#"{{"c":"{category}",{rest}"#))
        }
        _ => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pong(ping: &str, now: u64) -> Option<String> {
        let mut buffer = [0; 160];
        Some(String::from_utf8(Ping::parse(ping.as_bytes())?.pong(now, &mut buffer).to_vec()).unwrap())
    }

    fn timestamp(ping: &str) -> Option<i64> {
        Ping::parse(ping.as_bytes()).map(|ping| ping.client_timestamp)
    }

    #[test]
    fn a_ping_is_answered_in_the_exact_form_that_clients_look_for() {
        let expected =
            r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":123,"server_timestamp":1000,"latency":877},"v":1}"#;
        assert_eq!(pong(r#"{"t":"ping","p":{"timestamp":123}}"#, 1000).as_deref(), Some(expected));
    }

    #[test]
    fn the_timestamp_is_read_wherever_it_is_and_is_0_elsewhere() {
        for (ping, expected) in [
            (r#"{"p":{"timestamp":55},"t":"ping"}"#, Some(55)),
            (r#"{"c":"WSE","t":"ping","p":{"timestamp": 56 },"v":1}"#, Some(56)),
            (r#"{"t":"ping","payload":{"timestamp":57}}"#, Some(57)),
            (r#"{"t":"ping","p":{"timestamp":-5}}"#, Some(-5)),
            (r#"{"t":"ping","p":{"timestamp":007}}"#, None),
            (r#"{"t":"ping","p":{"timestamp":9223372036854775807}}"#, Some(i64::MAX)),
            (r#"{"t":"ping","p":{"timestamp":1.5}}"#, Some(0)),
            (r#"{"t":"ping","p":{"client_timestamp":5}}"#, Some(0)),
            (r#"{"t":"ping"}"#, Some(0)),
            (r#"{"t":"ping","p":"x"}"#, Some(0)),
            (r#"{"t":"ping","p":"#, None),
        ] {
            assert_eq!(timestamp(ping), expected, "{ping}");
        }
    }

    #[test]
    fn packed_pings_and_hellos_are_read_like_those_in_json() {
        let packed = |text: &str| rmp_serde::to_vec_named(&serde_json::from_str::<Value>(text).unwrap()).unwrap();
        for (ping, expected) in [
            (r#"{"p":{"timestamp":55},"t":"ping"}"#, 55),
            (r#"{"t":"ping","payload":{"timestamp":-5}}"#, -5),
            (r#"{"t":"ping","p":{"timestamp":1.5}}"#, 0),
            (r#"{"t":"ping"}"#, 0),
            (r#"{"t":"ping","p":[1]}"#, 0),
        ] {
            assert_eq!(Ping::unpack(&packed(ping)), Some(Ping { client_timestamp: expected }), "{ping}");
        }
        let hello = packed(r#"{"t":"client_hello","p":{"protocol_version":2}}"#);
        assert_eq!(
            ClientHello::unpack(&hello),
            ClientHello { protocol_version: 2, key: None, encryption: Encryption::Messages }
        );
        // {"p": bytes of length 1, "t": "ping"}: JSON has no bytes.
        assert_eq!(Ping::unpack(b"\x82\xA1p\xC4\x01x\xA1t\xA4ping"), None);
    }

    #[test]
    fn a_client_hello_has_a_key_only_if_it_requests_encryption() {
        let key = |payload: &str| ClientHello::parse(format!(r#"{{"t":"client_hello","p":{payload}}}"#).as_bytes()).key;
        let with_key = r#"{"features":{"encryption":true},"encryption_public_key":"AAA="}"#;
        assert_eq!(key(with_key).as_deref(), Some("AAA="));
        for without_key in [
            r#"{"features":{"encryption":false},"encryption_public_key":"AAA="}"#,
            r#"{"features":{"encryption":1},"encryption_public_key":"AAA="}"#,
            r#"{"features":{"encryption":true},"encryption_public_key":5}"#,
            r#"{"features":{"encryption":true}}"#,
            r#"{"features":[true],"encryption_public_key":"AAA="}"#,
            r#"{"encryption_public_key":"AAA="}"#,
            "5",
        ] {
            assert_eq!(key(without_key), None, "{without_key}");
        }
    }

    #[test]
    fn a_refused_key_is_reported_in_the_references_form() {
        let expected = r#"{"c":"WSE","t":"error","p":{"code":"KEY_EXCHANGE_FAILED","message":"ECDH key exchange failed: \"x\"","recoverable":true}}"#;
        assert_eq!(key_exchange_error("\"x\""), expected);
    }

    #[test]
    fn the_longest_pong_fits() {
        let longest = r#"{"t":"ping","p":{"timestamp":-9223372036854775808}}"#;
        assert!(pong(longest, u64::MAX).unwrap().ends_with(r#""v":1}"#));
    }

    #[test]
    fn a_client_clock_ahead_of_ours_has_no_negative_latency() {
        assert!(pong(r#"{"t":"ping","p":{"timestamp":2000}}"#, 1000).unwrap().contains(r#""latency":0}"#));
    }

    #[test]
    fn a_user_id_is_escaped_in_the_first_message() {
        let text = server_ready(Uuid::nil(), Uuid::nil(), "a\"},\"x", &Config::default(), 0);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["p"]["details"]["user_id"], "a\"},\"x");
    }

    #[test]
    fn the_server_hello_has_the_lower_version() {
        let hello = |version: &str| {
            let text = format!(r#"{{"t":"client_hello","p":{{"protocol_version":{version}}}}}"#);
            let pong = server_hello(&ClientHello::parse(text.as_bytes()), Uuid::nil(), None, &Config::default(), 0);
            serde_json::from_str::<Value>(&pong).unwrap()["p"]["protocol_version"].as_u64()
        };
        assert_eq!([hello("1"), hello("2"), hello("9"), hello("\"x\"")], [Some(1), Some(2), Some(2), Some(1)]);
    }

    #[test]
    fn broadcasts_get_the_category_of_their_type() {
        for (text, expected) in [
            (r#"{"t":"fanout_tick","p":{}}"#, r#"{"c":"U","t":"fanout_tick","p":{}}"#),
            (r#"{"p":{},"t":"user_snapshot"}"#, r#"{"c":"S","p":{},"t":"user_snapshot"}"#),
            (r#"{"t":"snapshot_x"}"#, r#"{"c":"S","t":"snapshot_x"}"#),
            (r#"{"t":"error"}"#, r#"{"c":"WSE","t":"error"}"#),
            (r#"{"t":"snapshot_complete"}"#, r#"{"c":"WSE","t":"snapshot_complete"}"#),
            (r#"{"t":5}"#, r#"{"c":"U","t":5}"#),
            (r#"{"c":"X","t":"error"}"#, r#"{"c":"X","t":"error"}"#),
            (r#"{"t":"error","c":"X"}"#, r#"{"t":"error","c":"X"}"#),
            (r#"{"t" :"error"}"#, r#"{"t" :"error"}"#),
            (r#"{"p":{"t":"error"}}"#, r#"{"p":{"t":"error"}}"#),
            (r#"{"p":{"c":1},"t":"x"}"#, r#"{"c":"U","p":{"c":1},"t":"x"}"#),
            ("plain", "plain"),
            ("{", "{"),
        ] {
            assert_eq!(with_category(text), expected);
        }
    }
}
