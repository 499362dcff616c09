//! The part of WSE that a load generator needs: classifies messages and composes replies. Pure.
//!
//! `docs/PROTOCOL.md` is the reference. Every message that is not a ping, a pong or a hello is for the application.

use std::{
    borrow::Cow,
    io::Read,
    time::{SystemTime, UNIX_EPOCH},
};

use flate2::read::ZlibDecoder;
use serde::Deserialize;
use serde_json::json;

/// Largest message that is read, and most bytes that are inflated.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The kind of a data message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `ping`: its reply repeats the timestamp, which is 0 when the ping has no integer.
    Ping {
        /// The ping's timestamp, which the reply repeats as `client_timestamp`.
        timestamp: i64,
    },
    /// `client_hello`: the reply is `server_hello`.
    Hello,
    /// `pong` or `PONG`: no reply.
    Pong,
    /// A message for the application.
    Application {
        /// The sequence number; absent when none was found.
        sequence: Option<u64>,
        /// Whether it could not be decoded as the format that it claims.
        malformed: bool,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, alias = "type")]
    t: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Ping {
    #[serde(alias = "payload")]
    p: Option<PingPayload>,
}

#[derive(Deserialize)]
struct PingPayload {
    timestamp: Option<serde_json::Value>,
}

/// The kind of a text message.
pub fn text_kind(text: &str) -> Kind {
    let text = without_category(text);
    // serde would also accept an array, as the fields of a struct in order.
    let object = text.trim_start().starts_with('{');
    let Some(envelope) = serde_json::from_str::<Envelope<'_>>(text).ok().filter(|_| object) else {
        return Kind::Application { sequence: json_sequence(text.as_bytes()), malformed: true };
    };
    match envelope.t.as_deref() {
        Some("ping") => Kind::Ping { timestamp: ping_timestamp(text) },
        Some("client_hello") => Kind::Hello,
        Some("pong" | "PONG") => Kind::Pong,
        _ => Kind::Application { sequence: json_sequence(text.as_bytes()), malformed: false },
    }
}

/// The kind of a binary message: `M:` with MessagePack, `C:` with deflated JSON, or any other content for the
/// application.
pub fn binary_kind(data: &[u8]) -> Kind {
    if let Some(packed) = data.strip_prefix(b"M:") {
        return Kind::Application { sequence: msgpack_sequence(packed), malformed: false };
    }
    let Some(deflated) = data.strip_prefix(b"C:") else {
        return Kind::Application { sequence: msgpack_sequence(data), malformed: false };
    };
    let mut text = Vec::new();
    let inflated = ZlibDecoder::new(deflated).take(MAX_MESSAGE_BYTES as u64).read_to_end(&mut text);
    Kind::Application { sequence: json_sequence(&text), malformed: inflated.is_err() }
}

/// The text without the category that old clients put before the brace.
fn without_category(text: &str) -> &str {
    ["WSE{", "S{", "U{"]
        .iter()
        .find(|prefix| text.starts_with(**prefix))
        .map_or(text, |prefix| &text[prefix.len() - 1..])
}

fn ping_timestamp(text: &str) -> i64 {
    let ping = serde_json::from_str::<Ping>(text).ok();
    ping.and_then(|ping| ping.p?.timestamp?.as_i64()).unwrap_or(0)
}

/// The number after the first `"seq":` that digits follow.
fn json_sequence(text: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"seq\":";
    let mut rest = text;
    loop {
        let at = rest.windows(KEY.len()).position(|window| window == KEY)?;
        rest = &rest[at + KEY.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        let number = digits.fold(None, |number: Option<u64>, digit| {
            Some(number.unwrap_or(0).wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
        });
        if number.is_some() {
            return number;
        }
    }
}

/// The number after the first MessagePack string `seq` that a `uint 32` follows.
fn msgpack_sequence(data: &[u8]) -> Option<u64> {
    // A fixstr of length 3, "seq", and the marker of a big-endian uint 32.
    const KEY: &[u8] = b"\xa3seq\xce";
    let at = data.windows(KEY.len()).position(|window| window == KEY)?;
    let number = data.get(at + KEY.len()..at + KEY.len() + 4)?;
    Some(u64::from(u32::from_be_bytes(number.try_into().expect("the slice has four bytes"))))
}

/// The first message of every connection.
pub fn server_ready(id: &str) -> String {
    json!({
        "c": "WSE", "t": "server_ready", "id": id, "seq": 1, "v": 1,
        "p": {
            "message": "Connection established (self-test)",
            "details": {
                "version": 1, "connection_id": id, "user_id": "self-test",
                "features": { "compression": true, "encryption": false, "recovery": false },
            },
        },
    })
    .to_string()
}

/// The reply to `client_hello`.
pub fn server_hello(id: &str) -> String {
    json!({
        "c": "WSE", "t": "server_hello", "v": 1,
        "p": {
            "server_version": env!("CARGO_PKG_VERSION"), "protocol_version": 1, "connection_id": id,
            "features": { "compression": true, "msgpack": true, "encryption": false, "recovery": false },
            "limits": { "max_message_size": MAX_MESSAGE_BYTES },
        },
    })
    .to_string()
}

/// The reply to `ping`. Clients search for `"t":"PONG"` among the first characters, so the order of keys is fixed.
pub fn pong(timestamp: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let latency = now.saturating_sub(timestamp).max(0);
    format!(
        r#"{{"c":"WSE","t":"PONG","p":{{"client_timestamp":{timestamp},"server_timestamp":{now},"latency":{latency}}},"v":1}}"#
    )
}

/// The message to a client without a valid token, before it is closed with 4401.
pub fn authentication_failed() -> String {
    json!({ "c": "WSE", "t": "error", "v": 1, "p": { "code": "AUTH_FAILED", "message": "Authentication failed" } })
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn application(sequence: u64) -> Kind {
        Kind::Application { sequence: Some(sequence), malformed: false }
    }

    #[test]
    fn a_message_is_classified_by_its_type_at_any_position() {
        assert_eq!(text_kind(r#"{"p":{"t":"trade","timestamp":123},"t":"ping"}"#), Kind::Ping { timestamp: 123 });
        assert_eq!(text_kind(r#"{"t":"client_hello","p":{}}"#), Kind::Hello);
        assert_eq!(text_kind(r#"WSE{"t":"PONG"}"#), Kind::Pong);
        assert_eq!(text_kind(r#"{"p":{"t":"ping","seq":7},"t":"trade"}"#), application(7));
    }

    #[test]
    fn a_ping_without_an_integer_is_answered_with_zero() {
        for text in [r#"{"t":"ping"}"#, r#"{"t":"ping","p":{"timestamp":"x"}}"#, r#"{"t":"ping","p":{}}"#] {
            assert_eq!(text_kind(text), Kind::Ping { timestamp: 0 }, "{text}");
        }
    }

    #[test]
    fn text_that_is_not_json_reaches_the_application_unchanged() {
        assert_eq!(text_kind("hello"), Kind::Application { sequence: None, malformed: true });
        assert_eq!(text_kind(r#"["ping"]"#), Kind::Application { sequence: None, malformed: true });
    }

    #[test]
    fn sequence_numbers_are_found_in_json_msgpack_and_deflated_json() {
        let text = br#"{"p":{"note":"\"seq\": none","seq":100000042},"t":"trade"}"#;
        assert_eq!(json_sequence(text), Some(100_000_042));
        let mut deflated = b"C:".to_vec();
        flate2::read::ZlibEncoder::new(&text[..], flate2::Compression::fast()).read_to_end(&mut deflated).unwrap();
        assert_eq!(binary_kind(&deflated), application(100_000_042));
        let packed = [b"M:".to_vec(), vec![0x81, 0xa3], b"seq".to_vec(), vec![0xce, 0, 0, 1, 2]].concat();
        assert_eq!(binary_kind(&packed), application(258));
    }

    #[test]
    fn data_that_does_not_inflate_is_malformed_and_bounded() {
        assert_eq!(binary_kind(b"C:nonsense"), Kind::Application { sequence: None, malformed: true });
        let mut bomb = b"C:".to_vec();
        let zeros = std::io::repeat(0).take(8 << 20);
        flate2::read::ZlibEncoder::new(zeros, flate2::Compression::fast()).read_to_end(&mut bomb).unwrap();
        assert_eq!(binary_kind(&bomb), Kind::Application { sequence: None, malformed: false });
    }

    #[test]
    fn a_pong_has_the_timestamp_in_its_first_bytes() {
        let pong = pong(100_000_001);
        assert!(pong.starts_with(r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":100000001,"#), "{pong}");
        assert!(serde_json::from_str::<serde_json::Value>(&pong).is_ok());
    }
}
