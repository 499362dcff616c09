//! The client side of WSE: token, handshake, replies (`docs/PROTOCOL.md`, "WSE").

use std::{
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{EncodingKey, Header, encode};
use loadgen_core::workload::{Admission, Delivery, Opcode, Outbox, Received, Workload};
use memchr::memmem::{self, Finder};
use serde::{Deserialize, Serialize};

use crate::{
    digits::number,
    payload::{FIRST_SEQUENCE, Format, MOST_MESSAGES, Ping, WseMessages},
    tick,
};

/// The first message, sent as soon as a connection is ready; its reply isn't awaited.
const HELLO: &[u8] = concat!(
    r#"{"p":{"client_version":"wse-bench/"#,
    env!("CARGO_PKG_VERSION"),
    r#"","protocol_version":1},"t":"client_hello"}"#
)
.as_bytes();
/// Keeps an idle connection open: the service counts it as activity, and consumes it itself.
const KEEPALIVE: &[u8] = br#"{"p":{},"t":"pong"}"#;
/// Validity of a token, in seconds: longer than any test.
const TOKEN_SECONDS: u64 = 86_400;

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing but being open.
    Open,
    /// Pings, each answered by the service itself.
    Ping,
    /// Trade updates for the service's application.
    Trade {
        /// Encoding of the messages.
        format: Format,
        /// Nominal size of the messages, in bytes.
        size_bytes: usize,
        /// Number of different messages; more than one only in JSON.
        shapes: u32,
    },
    /// Receiving what the service publishes.
    Receive,
}

/// The credentials for a service, and the addresses to connect from.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The service's secret, which signs the token.
    pub secret: String,
    /// Addresses of this machine to connect from, each until its ports are used up. When empty, the kernel chooses.
    pub source_addresses: Vec<IpAddr>,
}

/// A WSE client: the workload that the load generator runs.
pub struct Wse {
    token: String,
    purpose: Use,
    echo: Finder<'static>,
    source_addresses: Vec<IpAddr>,
}

impl Wse {
    /// Creates a client with a new token, signed with the service's secret.
    ///
    /// # Errors
    /// When the token can't be signed.
    pub fn new(secret: &str, purpose: Use) -> anyhow::Result<Self> {
        let echo = Finder::new(br#""client_timestamp":"#);
        Ok(Self { token: token(secret)?, purpose, echo, source_addresses: Vec::new() })
    }

    /// The same client, connecting from these addresses; when empty, the kernel chooses.
    pub fn starting_from(self, source_addresses: &[IpAddr]) -> Self {
        Self { source_addresses: source_addresses.to_owned(), ..self }
    }

    /// A client whose token is well-formed but signed with another secret, so that the service must refuse it.
    ///
    /// # Errors
    /// When the token can't be signed.
    pub fn forged(purpose: Use) -> anyhow::Result<Self> {
        Self::new("a secret that no service was ever given", purpose)
    }

    /// What a message that arrived before the connection was ready says about it.
    pub fn admission(&self, opcode: Opcode, payload: &[u8]) -> Admission {
        if opcode != Opcode::Text {
            return Admission::Waiting;
        }
        match serde_json::from_slice::<Envelope>(without_prefix(payload)) {
            Ok(Envelope { t, p }) if t == "server_ready" => Admission::Ready { connection_id: p.details.connection_id },
            Ok(Envelope { t, p }) if t == "error" => Admission::Refused(p.code.to_lowercase()),
            _ => Admission::Waiting,
        }
    }
}

#[derive(Serialize)]
struct Claims {
    sub: &'static str,
    iss: &'static str,
    aud: &'static str,
    iat: u64,
    exp: u64,
}

/// A token of HS256, with the issuer and audience `wse-bench` that bench servers expect.
fn token(secret: &str) -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let claims = Claims { sub: "bench-user", iss: "wse-bench", aud: "wse-bench", iat: now, exp: now + TOKEN_SECONDS };
    Ok(encode(&Header::default(), &claims, &EncodingKey::from_secret(secret.as_bytes()))?)
}

impl Workload for Wse {
    type Connection = ();
    type Messages = WseMessages;

    fn path(&self) -> String {
        match self.purpose {
            Use::Trade { format: Format::Msgpack, .. } => "/wse?format=msgpack&protocol_version=1".into(),
            _ => "/wse?compression=false&protocol_version=1".into(),
        }
    }

    fn headers(&self) -> Vec<(String, String)> {
        vec![("Cookie".into(), format!("access_token={}", self.token))]
    }

    fn source_addresses(&self) -> &[IpAddr] {
        &self.source_addresses
    }

    fn admit(&self, (): &mut (), opcode: Opcode, payload: &[u8], _outbox: &mut Outbox) -> Admission {
        self.admission(opcode, payload)
    }

    fn first_message(&self) -> Option<&[u8]> {
        Some(HELLO)
    }

    fn keepalive(&self) -> Option<(Opcode, &[u8])> {
        Some((Opcode::Text, KEEPALIVE))
    }

    fn messages(&self) -> WseMessages {
        match self.purpose {
            Use::Trade { size_bytes, shapes: shapes @ 2.., .. } => WseMessages::varied(size_bytes, shapes),
            Use::Trade { format, size_bytes, .. } => WseMessages::trade(format, size_bytes),
            Use::Open | Use::Ping | Use::Receive => WseMessages::Ping(Ping::default()),
        }
    }

    fn first_sequence(&self) -> u64 {
        FIRST_SEQUENCE
    }

    fn most_messages(&self) -> u64 {
        MOST_MESSAGES
    }

    fn expects_replies(&self) -> bool {
        self.purpose == Use::Ping
    }

    fn application_sums(&self) -> bool {
        matches!(self.purpose, Use::Trade { .. })
    }

    #[inline]
    fn classify(&self, opcode: Opcode, payload: &[u8]) -> Received {
        if opcode != Opcode::Text || !is_pong(payload) {
            return Received::Other;
        }
        match self.echo.find(payload).and_then(|at| number(&payload[at + self.echo.needle().len()..])) {
            Some(sequence) => Received::Reply { sequence },
            None => Received::Wrong,
        }
    }

    #[inline]
    fn delivery(&self, payload: &[u8]) -> Delivery {
        tick::delivery(payload)
    }
}

/// The fields that are read of a message before the connection is ready.
#[derive(Deserialize)]
struct Envelope {
    t: String,
    #[serde(default)]
    p: Body,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    details: Details,
    code: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    connection_id: String,
}

/// The message without the category that older servers put before the brace.
pub(crate) fn without_prefix(payload: &[u8]) -> &[u8] {
    [&b"WSE"[..], b"S", b"U"].into_iter().find_map(|prefix| payload.strip_prefix(prefix)).unwrap_or(payload)
}

fn is_pong(payload: &[u8]) -> bool {
    memmem::find(payload, br#""t":"PONG""#).is_some() || memmem::find(payload, br#""t":"pong""#).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "bench-secret-key-for-testing-only";

    fn wse(purpose: Use) -> Wse {
        Wse::new(SECRET, purpose).unwrap()
    }

    #[test]
    fn a_server_ready_lets_us_in_with_the_connections_id() {
        let ready = r#"{"c":"WSE","id":"x","p":{"details":{"connection_id":"c-1","version":1},"message":"m"},"seq":1,"t":"server_ready","v":1}"#;
        let expected = Admission::Ready { connection_id: "c-1".into() };
        assert_eq!(wse(Use::Open).admission(Opcode::Text, ready.as_bytes()), expected);
        assert_eq!(wse(Use::Open).admission(Opcode::Text, format!("WSE{ready}").as_bytes()), expected);
    }

    #[test]
    fn an_error_before_that_is_a_refusal_with_its_code() {
        let error = br#"{"c":"WSE","t":"error","p":{"code":"AUTH_FAILED","message":"m"},"v":1}"#;
        assert_eq!(wse(Use::Open).admission(Opcode::Text, error), Admission::Refused("auth_failed".into()));
    }

    #[test]
    fn anything_else_is_waited_out() {
        let ping = br#"{"c":"WSE","t":"ping","p":{"server_time":"x"}}"#;
        assert_eq!(wse(Use::Open).admission(Opcode::Text, ping), Admission::Waiting);
        assert_eq!(wse(Use::Open).admission(Opcode::Binary, b"\x00"), Admission::Waiting);
    }

    #[test]
    fn a_pong_answers_the_ping_whose_number_it_echoes() {
        let classify = |text: &str| wse(Use::Ping).classify(Opcode::Text, text.as_bytes());
        let reply = Received::Reply { sequence: 100_000_042 };
        let pong =
            r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":100000042,"server_timestamp":5,"latency":0},"v":1}"#;
        assert_eq!(classify(pong), reply);
        assert_eq!(classify(r#"WSE{"t":"PONG","p":{"client_timestamp":100000042},"v":2}"#), reply);
        assert_eq!(classify(r#"{"c":"WSE","t":"PONG","p":{"latency":0},"v":1}"#), Received::Wrong);
        assert_eq!(classify(r#"{"c":"WSE","t":"server_hello","p":{},"v":1}"#), Received::Other);
    }

    #[test]
    fn the_token_is_signed_and_names_the_user() {
        let mut validation = jsonwebtoken::Validation::default();
        validation.set_audience(&["wse-bench"]);
        validation.set_issuer(&["wse-bench"]);
        let key = jsonwebtoken::DecodingKey::from_secret(SECRET.as_bytes());
        let claims = jsonwebtoken::decode::<serde_json::Value>(token(SECRET).unwrap(), &key, &validation).unwrap();
        assert_eq!(claims.claims["sub"], "bench-user");
    }

    #[test]
    fn only_msgpack_asks_for_msgpack() {
        let path = |format| wse(Use::Trade { format, size_bytes: 175, shapes: 1 }).path();
        assert!(path(Format::Msgpack).contains("format=msgpack"));
        assert!(!path(Format::Json).contains("format=msgpack"));
    }
}
