//! The opening handshake: the request, and the check of the service's response (RFC 6455, section 4). Pure.

use base64::{Engine, engine::general_purpose::STANDARD};
use sha1::{Digest, Sha1};

use crate::{
    deflate::{DeflateOffer, Negotiated, Unacceptable},
    schedule::splitmix64,
};

/// The GUID of the opening handshake (RFC 6455, section 1.3).
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Largest upgrade response that is read, in bytes.
const LONGEST_RESPONSE: usize = 16 << 10;

/// An upgrade request, complete except for the key.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    before_key: String,
    after_key: String,
}

impl UpgradeRequest {
    /// Creates a request from the value of the `Host` header (`host:port`), a path, and headers beyond those of RFC
    /// 6455.
    pub fn new(host: &str, path: &str, headers: &[(String, String)]) -> Self {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        Self {
            before_key: format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
            ),
            after_key: format!("\r\n{headers}\r\n"),
        }
    }

    /// The bytes of the request with this key.
    pub fn bytes(&self, key: &str) -> Vec<u8> {
        self.bytes_offering(key, None)
    }

    /// The bytes of the request with this key, which offers compression.
    pub fn bytes_offering(&self, key: &str, deflate: Option<&DeflateOffer>) -> Vec<u8> {
        let offer =
            deflate.map(|offer| format!("\r\nSec-WebSocket-Extensions: {}", offer.header())).unwrap_or_default();
        [&self.before_key, key, &offer, &self.after_key].concat().into_bytes()
    }
}

/// Creates a key: 16 random bytes in base64, new for each attempt (RFC 6455, section 4.1).
pub fn key(random: &mut u64) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&splitmix64(random).to_ne_bytes());
    bytes[8..].copy_from_slice(&splitmix64(random).to_ne_bytes());
    STANDARD.encode(bytes)
}

/// The `Sec-WebSocket-Accept` value that belongs to a key (RFC 6455, section 4.2.2).
pub fn accept(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(ACCEPT_SUFFIX);
    STANDARD.encode(hash.finalize())
}

/// The state of the service's response to the upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// The response isn't complete yet.
    Incomplete,
    /// The protocol was switched.
    Done {
        /// Number of bytes before the first frame.
        length: usize,
        /// How messages may be compressed; absent if the service didn't accept that, or it wasn't offered.
        deflate: Option<Negotiated>,
    },
    /// The protocol was not switched; the reason is a key in results.
    Failed(String),
}

/// Checks an upgrade response against the key of its request, and the subprotocols and the compression that it offered.
pub fn check_upgrade(bytes: &[u8], key: &str, subprotocols: &[String], offer: Option<&DeflateOffer>) -> Upgrade {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Err(_) => Upgrade::Failed("upgrade_malformed".into()),
        Ok(httparse::Status::Partial) if bytes.len() > LONGEST_RESPONSE => Upgrade::Failed("upgrade_too_long".into()),
        Ok(httparse::Status::Partial) => Upgrade::Incomplete,
        Ok(httparse::Status::Complete(_)) if response.code != Some(101) => {
            Upgrade::Failed(format!("http_{}", response.code.unwrap_or(0)))
        }
        Ok(httparse::Status::Complete(length)) => {
            let header = |name: &str| {
                response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|h| h.value)
            };
            let upgraded = header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
            if !upgraded || header("sec-websocket-accept") != Some(accept(key).as_bytes()) {
                return Upgrade::Failed("upgrade_not_accepted".into());
            }
            let chosen = header("sec-websocket-protocol");
            let is_offered = |name: &[u8]| subprotocols.iter().any(|offered| offered.as_bytes() == name);
            let extensions: Vec<_> = response
                .headers
                .iter()
                .filter(|header| header.name.eq_ignore_ascii_case("sec-websocket-extensions"))
                .map(|header| header.value)
                .collect();
            if (!extensions.is_empty() && offer.is_none()) || chosen.is_some_and(|name| !is_offered(name)) {
                return Upgrade::Failed("upgrade_unasked".into());
            }
            if chosen.is_none() && !subprotocols.is_empty() {
                return Upgrade::Failed("subprotocol_refused".into());
            }
            // Several headers are one list (RFC 6455, section 9.1), of more extensions than the one that was offered.
            let accepted = offer.filter(|_| !extensions.is_empty()).map(|offer| offer.accept(&extensions.join(&b',')));
            match accepted.transpose() {
                Ok(deflate) => Upgrade::Done { length, deflate },
                Err(Unacceptable(reason)) => Upgrade::Failed(reason.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn response(lines: &str) -> Vec<u8> {
        format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n").into_bytes()
    }

    fn accepted_response() -> Vec<u8> {
        response("Upgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")
    }

    #[test]
    fn the_accept_value_is_that_of_the_rfc() {
        assert_eq!(accept(KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn an_upgrade_is_recognised_only_when_its_response_is_complete() {
        let response = accepted_response();
        for length in 0..response.len() {
            assert_eq!(check_upgrade(&response[..length], KEY, &[], None), Upgrade::Incomplete, "at {length}");
        }
        let with_frame = [&response[..], &[0x81, 0]].concat();
        assert_eq!(check_upgrade(&with_frame, KEY, &[], None), Upgrade::Done { length: response.len(), deflate: None });
    }

    #[test]
    fn a_refusal_names_its_status() {
        let refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(check_upgrade(refusal, KEY, &[], None), Upgrade::Failed("http_503".into()));
    }

    #[test]
    fn the_service_must_choose_one_of_the_offered_subprotocols() {
        let with = |line: &str, offered: &[&str]| {
            let lines = format!(
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n{line}"
            );
            let offered: Vec<String> = offered.iter().map(|name| (*name).to_owned()).collect();
            check_upgrade(&response(&lines), KEY, &offered, None)
        };
        let chosen = "Sec-WebSocket-Protocol: mqtt\r\n";
        assert!(matches!(with(chosen, &["v5", "mqtt"]), Upgrade::Done { .. }));
        assert_eq!(with(chosen, &["v5"]), Upgrade::Failed("upgrade_unasked".into()));
        assert_eq!(with(chosen, &[]), Upgrade::Failed("upgrade_unasked".into()));
        assert_eq!(with("", &["mqtt"]), Upgrade::Failed("subprotocol_refused".into()));
    }

    #[test]
    fn a_wrong_accept_value_is_not_an_upgrade() {
        assert_eq!(
            check_upgrade(&accepted_response(), "AAAAAAAAAAAAAAAAAAAAAA==", &[], None),
            Upgrade::Failed("upgrade_not_accepted".into())
        );
    }

    #[test]
    fn an_extension_that_was_not_offered_is_refused() {
        let lines = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
                     Sec-WebSocket-Extensions: permessage-deflate\r\n";
        assert_eq!(check_upgrade(&response(lines), KEY, &[], None), Upgrade::Failed("upgrade_unasked".into()));
    }

    #[test]
    fn compression_is_used_if_it_was_offered_and_accepted() {
        let offer = DeflateOffer { compress_sent: true, ..DeflateOffer::default() };
        let with = |line: &str| {
            let lines = format!(
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n{line}"
            );
            check_upgrade(&response(&lines), KEY, &[], Some(&offer))
        };
        assert!(matches!(with(""), Upgrade::Done { deflate: None, .. }));
        let accepted = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
        assert!(matches!(with(accepted), Upgrade::Done { deflate: Some(_), .. }));
        for wrong in [accepted.repeat(2), accepted.replace("deflate", "other"), "Sec-WebSocket-Extensions:\r\n".into()]
        {
            assert_eq!(with(&wrong), Upgrade::Failed("upgrade_deflate".into()), "{wrong:?}");
        }
        let request = UpgradeRequest::new("host:1", "/", &[]);
        let plain = String::from_utf8(request.bytes(KEY)).unwrap();
        let line = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
        let offering = String::from_utf8(request.bytes_offering(KEY, Some(&offer))).unwrap();
        assert_eq!(offering, format!("{}{line}\r\n", &plain[..plain.len() - 2]));
    }

    #[test]
    fn keys_are_sixteen_fresh_bytes() {
        let mut random = 1;
        let keys = [key(&mut random), key(&mut random)];
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| STANDARD.decode(key).unwrap().len() == 16));
    }
}
