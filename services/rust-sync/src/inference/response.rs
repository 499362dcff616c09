//! Parser of an HTTP/1.1 response with a `Content-Length`. It does no I/O.

use std::ops::Range;

/// Largest response in bytes, head and body. A regular one has about 150 bytes.
pub const MAXIMAL_BYTES: usize = 32 << 10;
const MAXIMAL_HEADERS: usize = 64;

/// A complete response, without its body, which stays in the parsed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code.
    pub status: u16,
    /// Position of the body in the parsed bytes.
    pub body: Range<usize>,
    /// Whether the connection may be used for another request.
    pub keeps_alive: bool,
}

/// Parses a response; `None` if it is incomplete.
///
/// # Errors
/// When the bytes are not HTTP/1, the length is missing or ambiguous, or the response exceeds [`MAXIMAL_BYTES`]. The
/// error is a human-readable message.
pub fn parse(bytes: &[u8]) -> Result<Option<Response>, String> {
    let mut headers = [httparse::EMPTY_HEADER; MAXIMAL_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let start = match response.parse(bytes) {
        Ok(httparse::Status::Complete(start)) => start,
        Ok(httparse::Status::Partial) if bytes.len() < MAXIMAL_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(too_long()),
        Err(error) => return Err(format!("the inference's answer is no HTTP: {error}")),
    };
    let (mut length, mut keeps_alive) = (None, response.version == Some(1));
    for header in response.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let value = parse_length(header.value).ok_or("the inference's answer has a bad Content-Length")?;
            if length.replace(value).is_some_and(|previous| previous != value) {
                return Err("the inference's answer has two lengths".into());
            }
        } else if is("transfer-encoding") {
            return Err("the inference's answer has a Transfer-Encoding: only Content-Length is understood".into());
        } else if is("connection") {
            keeps_alive &= !header
                .value
                .to_ascii_lowercase()
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii() == b"close");
        }
    }
    let length = length.ok_or("the inference's answer has no Content-Length")?;
    let end = start.checked_add(length).filter(|end| *end <= MAXIMAL_BYTES).ok_or_else(too_long)?;
    let status = response.code.expect("a complete answer has a status");
    Ok((bytes.len() >= end).then_some(Response { status, body: start..end, keeps_alive }))
}

fn too_long() -> String {
    format!("the inference's answer is longer than {MAXIMAL_BYTES} bytes")
}

fn parse_length(value: &[u8]) -> Option<usize> {
    let digits = value.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_waited_for_until_it_is_whole() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: x\r\n\r\n{}";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), Ok(None), "cut at {cut}");
        }
        let body = whole.len() - 2..whole.len();
        assert_eq!(parse(whole), Ok(Some(Response { status: 200, body, keeps_alive: true })));
    }

    #[test]
    fn a_closing_connection_is_not_pinged_again() {
        for (text, keeps_alive) in [
            ("HTTP/1.1 503 x\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", true),
            ("HTTP/1.1 503 x\r\nConnection: x, Close\r\ncontent-length: 0\r\n\r\n", false),
            ("HTTP/1.0 503 x\r\ncontent-length: 0\r\n\r\n", false),
        ] {
            let response = parse(text.as_bytes()).unwrap().unwrap();
            assert_eq!((response.status, response.keeps_alive), (503, keeps_alive), "{text}");
        }
    }

    #[test]
    fn ambiguous_lengths_are_refused() {
        for text in [
            "SMTP ready\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 32768\r\n\r\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(&[b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'a'; MAXIMAL_BYTES]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn a_verdict_is_not_changed_by_later_trials(
            status in 200_u16..600,
            body in proptest::collection::vec(any::<u8>(), 0..300),
            behind in proptest::collection::vec(any::<u8>(), 0..30),
        ) {
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
            let whole = [head.as_bytes(), &body].concat();
            let expected = Ok(Some(Response { status, body: head.len()..whole.len(), keeps_alive: true }));
            prop_assert_eq!(&parse(&whole), &expected);
            prop_assert_eq!(&parse(&[whole, behind].concat()), &expected);
        }

        #[test]
        fn no_bytes_lead_to_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let http = [b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes].concat();
            for bytes in [bytes, http] {
                if let Ok(Some(response)) = parse(&bytes) {
                    prop_assert!(response.body.end <= bytes.len());
                }
            }
        }
    }
}
