//! The opening handshake (RFC 6455, section 4): parsing a request and building the response. Pure.

use base64::{Engine, engine::general_purpose::STANDARD};
use sha1::{Digest, Sha1};

/// The most bytes that a request's line and headers may take.
pub const MAX_REQUEST: usize = 16 << 10;
/// The most headers that a request may have.
const MAX_HEADERS: usize = 96;
/// The GUID that the key is hashed with (RFC 6455, 1.3).
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The length of a key: 16 bytes in base64.
const KEY_BYTES: usize = 24;

/// A request that may be upgraded.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Where the bytes after the request start.
    pub end: usize,
    /// The value of the response's `Sec-WebSocket-Accept` header.
    pub accept: [u8; 28],
    /// All `Cookie` headers, except those that aren't UTF-8.
    pub cookies: Vec<&'a str>,
    /// The first `Authorization` header that is UTF-8.
    pub authorization: Option<&'a str>,
    /// The `Origin` header: the web page that sends the request, if a browser does. Empty if it isn't UTF-8 or if there
    /// are several.
    pub origin: Option<&'a str>,
    /// The `Host` header.
    pub host: &'a str,
    /// Whether the query contains `format=msgpack`.
    pub uses_message_pack: bool,
}

/// Why a request is refused; each reason has its HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 400: not HTTP/1.1, no usable key, no or several hosts, or a body.
    BadRequest,
    /// 403: the token is a cookie, and the web page that sends the request is of another site.
    ForeignOrigin,
    /// 405: the method is not GET.
    MethodNotAllowed,
    /// 408: the request took too long.
    RequestTimeout,
    /// 431: more bytes or headers than a request may have.
    TooLarge,
    /// 426: not a WebSocket upgrade, or another version than 13.
    UpgradeRequired,
    /// 503: the server has no room for the connection, or is stopping.
    ServiceUnavailable,
}

impl Refusal {
    /// The whole HTTP response, after which the connection is closed.
    pub fn response(self) -> String {
        let (status, extra) = match self {
            Self::BadRequest => ("400 Bad Request", ""),
            Self::ForeignOrigin => ("403 Forbidden", ""),
            Self::MethodNotAllowed => ("405 Method Not Allowed", "Allow: GET\r\n"),
            Self::RequestTimeout => ("408 Request Timeout", ""),
            Self::TooLarge => ("431 Request Header Fields Too Large", ""),
            Self::UpgradeRequired => ("426 Upgrade Required", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"),
            Self::ServiceUnavailable => ("503 Service Unavailable", "Retry-After: 1\r\n"),
        };
        let body = &status[4..];
        let length = body.len() + 1;
        format!(
            "HTTP/1.1 {status}\r\n{extra}Connection: close\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}\n"
        )
    }
}

/// Parses a request. Returns `None` if `bytes` end within it.
///
/// # Errors
/// A [`Refusal`] if the request can't be upgraded.
pub fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let end = match request.parse(bytes) {
        Ok(httparse::Status::Complete(end)) if end <= MAX_REQUEST => end,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooLarge),
        Err(_) => return Err(Refusal::BadRequest),
    };
    // Proxies read what is lenient here in different ways, so a request that isn't strict could be two of them.
    if request.version != Some(1) || has_bare_line_feed(&bytes[..end]) {
        return Err(Refusal::BadRequest);
    }
    if request.method != Some("GET") {
        return Err(Refusal::MethodNotAllowed);
    }
    let mut upgrade = Upgrade::default();
    for header in request.headers.iter() {
        upgrade.header(header.name, header.value);
    }
    let query = request.path.and_then(|path| path.split_once('?')).map_or("", |(_, query)| query);
    upgrade.finish(end, query.contains("format=msgpack")).map(Some)
}

/// The headers that matter for the upgrade, as read so far.
#[derive(Default)]
struct Upgrade<'a> {
    is_websocket: bool,
    is_upgrade: bool,
    version: Option<&'a [u8]>,
    key: Option<&'a [u8]>,
    has_two_keys: bool,
    cookies: Vec<&'a str>,
    authorization: Option<&'a str>,
    origin: Option<&'a str>,
    hosts: usize,
    host: &'a str,
    has_body: bool,
}

impl<'a> Upgrade<'a> {
    fn header(&mut self, name: &str, value: &'a [u8]) {
        let is = |expected: &str| name.eq_ignore_ascii_case(expected);
        if is("upgrade") {
            self.is_websocket |= has_token(value, b"websocket");
        } else if is("connection") {
            self.is_upgrade |= has_token(value, b"upgrade");
        } else if is("sec-websocket-version") {
            self.version = Some(value.trim_ascii());
        } else if is("sec-websocket-key") {
            self.has_two_keys |= self.key.replace(value.trim_ascii()).is_some();
        } else if is("cookie") {
            self.cookies.extend(std::str::from_utf8(value));
        } else if is("authorization") && self.authorization.is_none() {
            self.authorization = std::str::from_utf8(value).ok();
        } else if is("origin") {
            // Neither of two is to be trusted, and the empty text is not an origin.
            self.origin = Some(if self.origin.is_none() { std::str::from_utf8(value).unwrap_or("") } else { "" });
        } else if is("host") {
            self.hosts += 1;
            self.host = std::str::from_utf8(value).unwrap_or("");
        } else if is("transfer-encoding") {
            self.has_body = true;
        } else if is("content-length") {
            self.has_body |= value != b"0";
        }
    }

    fn finish(self, end: usize, uses_message_pack: bool) -> Result<Request<'a>, Refusal> {
        if self.hosts != 1 || self.has_body {
            return Err(Refusal::BadRequest);
        }
        if !self.is_websocket || !self.is_upgrade || self.version != Some(b"13") {
            return Err(Refusal::UpgradeRequired);
        }
        let key = self.key.filter(|key| is_key(key) && !self.has_two_keys).ok_or(Refusal::BadRequest)?;
        let Self { cookies, authorization, origin, host, .. } = self;
        Ok(Request { end, accept: accept(key), cookies, authorization, origin, host, uses_message_pack })
    }
}

/// Whether a line ends with a line feed alone.
fn has_bare_line_feed(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', head).any(|at| at == 0 || head[at - 1] != b'\r')
}

/// Whether a comma-separated header contains `token`, ignoring case.
fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

/// Whether a key is 16 bytes in base64.
fn is_key(key: &[u8]) -> bool {
    let mut decoded = [0; 18];
    key.len() == KEY_BYTES && STANDARD.decode_slice(key, &mut decoded) == Ok(16)
}

/// Computes the `Sec-WebSocket-Accept` value of a key (RFC 6455, 4.2.2).
fn accept(key: &[u8]) -> [u8; 28] {
    let digest = Sha1::new().chain_update(key).chain_update(MAGIC).finalize();
    let mut accept = [0; 28];
    let length = STANDARD.encode_slice(digest, &mut accept);
    debug_assert_eq!(length, Ok(28));
    accept
}

/// Appends the response that completes the upgrade.
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

    const GOOD: &str = "GET /wse?format=msgpack&x=1 HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: a=b\r\ncookie: c=d\r\n\
        Authorization: Bearer x\r\n\r\n";

    fn parse(text: &str) -> Result<Option<Request<'_>>, Refusal> {
        super::parse(text.as_bytes())
    }

    #[test]
    fn a_valid_request_is_parsed() {
        let request = parse(GOOD).unwrap().unwrap();
        // The example of RFC 6455, 1.3.
        assert_eq!(&request.accept, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!((request.end, request.cookies.as_slice()), (GOOD.len(), &["a=b", "c=d"][..]));
        assert_eq!((request.authorization, request.uses_message_pack), (Some("Bearer x"), true));
    }

    #[test]
    fn an_incomplete_request_is_awaited_up_to_16_kib() {
        for cut in 0..GOOD.len() {
            assert_eq!(parse(&GOOD[..cut]), Ok(None), "cut at {cut}");
        }
        let long = GOOD.replace("Host: a", &format!("Host: {}", "a".repeat(MAX_REQUEST)));
        assert_eq!(parse(&long), Err(Refusal::TooLarge));
        assert_eq!(parse(&long[..MAX_REQUEST]), Err(Refusal::TooLarge));
        let many = GOOD.replace("Host: a", "a: b\r\n".repeat(MAX_HEADERS).trim_end());
        assert_eq!(parse(&many), Err(Refusal::TooLarge));
    }

    #[test]
    fn a_refused_upgrade_gets_the_reason() {
        for (from, to, refusal) in [
            ("GET", "POST", Refusal::MethodNotAllowed),
            ("HTTP/1.1", "SMTP/1.1", Refusal::BadRequest),
            ("WebSocket", "h2c", Refusal::UpgradeRequired),
            ("keep-alive, Upgrade", "keep-alive", Refusal::UpgradeRequired),
            ("Version: 13", "Version: 8", Refusal::UpgradeRequired),
            ("dGhlIHNhbXBsZSBub25jZQ==", "short", Refusal::BadRequest),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZ!==", Refusal::BadRequest),
            ("Sec-WebSocket-Key", "X-Key", Refusal::BadRequest),
            ("Host: a", "Host: a\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", Refusal::BadRequest),
        ] {
            assert_eq!(parse(&GOOD.replace(from, to)), Err(refusal), "{to}");
        }
    }

    #[test]
    fn a_request_that_proxies_read_in_different_ways_is_refused() {
        for (from, to) in [
            ("HTTP/1.1", "HTTP/1.0"),
            ("Host: a\r\n", ""),
            ("Host: a", "Host: a\r\nHost: a"),
            ("Host: a", "Host: a\r\nTransfer-Encoding: chunked"),
            ("Host: a", "Host: a\r\nContent-Length: 5"),
            ("Host: a", "Host: a\r\nContent-Length: +0"),
            ("Host: a\r\n", "Host: a\n"),
            ("HTTP/1.1\r\n", "HTTP/1.1\n"),
            ("Bearer x\r\n\r\n", "Bearer x\r\n\n"),
            ("GET", "\nGET"),
        ] {
            assert_eq!(parse(&GOOD.replacen(from, to, 1)), Err(Refusal::BadRequest), "{to:?}");
        }
        assert!(parse(&GOOD.replace("Host: a", "Host: a\r\nContent-Length: 0")).unwrap().is_some());
    }

    #[test]
    fn two_origins_are_none() {
        let origin = |headers: &str| {
            let text = GOOD.replace("Host: a", &format!("Host: a{headers}"));
            parse(&text).unwrap().unwrap().origin.map(str::to_owned)
        };
        assert_eq!(origin(""), None);
        assert_eq!(origin("\r\nOrigin: https://a").as_deref(), Some("https://a"));
        assert_eq!(origin("\r\nOrigin: https://a\r\norigin: https://a").as_deref(), Some(""));
    }

    #[test]
    fn only_the_query_selects_message_pack() {
        let path = GOOD.replace("/wse?format=msgpack&x=1", "/format=msgpack");
        assert!(!parse(&path).unwrap().unwrap().uses_message_pack);
    }

    #[test]
    fn refusals_are_complete_responses() {
        let text = Refusal::UpgradeRequired.response();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 426 ") && head.contains("Sec-WebSocket-Version: 13"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    }
}
