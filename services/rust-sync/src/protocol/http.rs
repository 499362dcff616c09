//! HTTP before the WebSocket: the request and its response (RFC 6455, section 4). It does no I/O.

use base64::{Engine, engine::general_purpose::STANDARD};
use sha1::{Digest, Sha1};

/// Largest request line and headers together, in bytes.
pub const MAXIMAL_REQUEST: usize = 16 << 10;
const MAXIMAL_HEADERS: usize = 96;
/// The GUID with which the key is hashed (RFC 6455, 1.3).
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Length of a key, which is 16 bytes in base64.
const KEY_CHARACTERS: usize = 24;

/// A request that succeeds.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// `GET /ws/stt`: a valid upgrade request.
    Upgrade {
        /// Length of the request in bytes; WebSocket bytes start here.
        end: usize,
        /// The value of `Sec-WebSocket-Accept` in the response.
        accept: [u8; 28],
    },
    /// `GET /health`, the health check on the client port.
    Health,
}

/// The HTTP status with which a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 400: not HTTP, too long, or without a valid key.
    BadRequest,
    /// 404: an unknown path.
    NotFound,
    /// 405: a method other than GET.
    MethodNotAllowed,
    /// 408: the request was not complete in time.
    RequestTimeout,
    /// 426: not a WebSocket upgrade, or an unsupported version.
    UpgradeRequired,
    /// 503: too many connections, or the gateway is stopping.
    ServiceUnavailable,
}

impl Status {
    /// The complete response, after which the connection is closed.
    pub fn response(self) -> Vec<u8> {
        let (status, extra) = match self {
            Self::BadRequest => ("400 Bad Request", ""),
            Self::NotFound => ("404 Not Found", ""),
            Self::MethodNotAllowed => ("405 Method Not Allowed", "Allow: GET\r\n"),
            Self::RequestTimeout => ("408 Request Timeout", ""),
            Self::UpgradeRequired => ("426 Upgrade Required", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"),
            Self::ServiceUnavailable => ("503 Service Unavailable", "Retry-After: 1\r\n"),
        };
        answer(status, extra, "text/plain", &format!("{}\n", &status[4..]))
    }
}

/// The complete response to [`Request::Health`], after which the connection is closed.
pub fn health() -> Vec<u8> {
    answer("200 OK", "", "application/json", r#"{"ok":true,"runtime":"rust-sync"}"#)
}

/// Builds a complete HTTP response with `Connection: close`. `extra` holds further header lines.
pub fn answer(status: &str, extra: &str, content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{extra}Connection: close\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Parses a request; `None` if it is incomplete.
///
/// # Errors
/// When the request must be refused; the error is the status of the response.
pub fn parse(bytes: &[u8]) -> Result<Option<Request>, Status> {
    let mut headers = [httparse::EMPTY_HEADER; MAXIMAL_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let end = match request.parse(bytes) {
        Ok(httparse::Status::Complete(end)) if end <= MAXIMAL_REQUEST => end,
        Ok(httparse::Status::Partial) if bytes.len() < MAXIMAL_REQUEST => return Ok(None),
        _ => return Err(Status::BadRequest),
    };
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    if !matches!(path, "/ws/stt" | "/health") {
        return Err(Status::NotFound);
    }
    if request.method != Some("GET") {
        return Err(Status::MethodNotAllowed);
    }
    if path == "/health" {
        return Ok(Some(Request::Health));
    }
    let mut upgrade = Upgrade::default();
    request.headers.iter().for_each(|header| upgrade.header(header.name, header.value));
    upgrade.accept().map(|accept| Some(Request::Upgrade { end, accept }))
}

/// The upgrade headers that were parsed so far.
#[derive(Default)]
struct Upgrade<'a> {
    is_websocket: bool,
    is_upgrade: bool,
    version: Option<&'a [u8]>,
    key: Option<&'a [u8]>,
    has_two_keys: bool,
}

impl<'a> Upgrade<'a> {
    fn header(&mut self, name: &str, value: &'a [u8]) {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("upgrade") {
            self.is_websocket |= has_token(value, b"websocket");
        } else if is("connection") {
            self.is_upgrade |= has_token(value, b"upgrade");
        } else if is("sec-websocket-version") {
            self.version = Some(value.trim_ascii());
        } else if is("sec-websocket-key") {
            self.has_two_keys |= self.key.replace(value.trim_ascii()).is_some();
        }
    }

    fn accept(self) -> Result<[u8; 28], Status> {
        if !self.is_websocket || !self.is_upgrade || self.version != Some(b"13") {
            return Err(Status::UpgradeRequired);
        }
        let key = self.key.filter(|key| is_key(key) && !self.has_two_keys).ok_or(Status::BadRequest)?;
        let digest = Sha1::new().chain_update(key).chain_update(MAGIC).finalize();
        let mut accept = [0; 28];
        let length = STANDARD.encode_slice(digest, &mut accept);
        debug_assert_eq!(length, Ok(28));
        Ok(accept)
    }
}

/// Whether a comma-separated header contains `token`, in any case.
fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn is_key(key: &[u8]) -> bool {
    let mut decoded = [0; 18];
    key.len() == KEY_CHARACTERS && STANDARD.decode_slice(key, &mut decoded) == Ok(16)
}

/// Appends the response that completes the WebSocket handshake (status 101).
pub fn put_upgrade(out: &mut Vec<u8>, accept: &[u8; 28]) {
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
    );
    out.extend_from_slice(accept);
    out.extend_from_slice(b"\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "GET /ws/stt?x=1 HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    #[test]
    fn a_good_request_is_understood_once_it_is_whole() {
        // The example of RFC 6455, 1.3.
        let accept = *b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        assert_eq!(parse(GOOD.as_bytes()), Ok(Some(Request::Upgrade { end: GOOD.len(), accept })));
        for cut in 0..GOOD.len() {
            assert_eq!(parse(&GOOD.as_bytes()[..cut]), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn an_unanswerable_request_gets_an_error_with_the_reason() {
        for (from, to, status) in [
            ("GET", "POST", Status::MethodNotAllowed),
            ("/ws/stt", "/ws", Status::NotFound),
            ("GET /ws/stt", "POST /other", Status::NotFound),
            ("HTTP/1.1", "SMTP/1.1", Status::BadRequest),
            ("WebSocket", "h2c", Status::UpgradeRequired),
            ("keep-alive, Upgrade", "keep-alive", Status::UpgradeRequired),
            ("Version: 13", "Version: 8", Status::UpgradeRequired),
            ("dGhlIHNhbXBsZSBub25jZQ==", "short", Status::BadRequest),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZ!==", Status::BadRequest),
            ("Sec-WebSocket-Key", "X-Key", Status::BadRequest),
            ("Host: a", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", Status::BadRequest),
            ("Host: a", &format!("Host: {}", "a".repeat(MAXIMAL_REQUEST)), Status::BadRequest),
        ] {
            assert_eq!(parse(GOOD.replacen(from, to, 1).as_bytes()), Err(status), "{to:.40}");
        }
        assert_eq!(parse(b"GET /health HTTP/1.1\r\n\r\n"), Ok(Some(Request::Health)));
    }

    #[test]
    fn responses_have_their_length() {
        for bytes in [health(), Status::UpgradeRequired.response()] {
            let text = String::from_utf8(bytes).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("Content-Length: {}\r\n", body.len()))
                    || head.ends_with(&format!("Content-Length: {}", body.len())),
                "{head}"
            );
        }
    }
}
