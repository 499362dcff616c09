//! Classifying messages by format: JSON, MessagePack, compressed text or other data, with the protocol's prefixes.
//! Pure.

use std::{io, ops::Range};

use flate2::{Compression, Decompress, FlushDecompress, Status, write::ZlibEncoder};

use crate::{json, msgpack};

/// The prefix of a binary frame that holds zlib-compressed text.
pub const COMPRESSED: &[u8; 2] = b"C:";
/// The prefix of a binary frame that holds MessagePack.
pub const MESSAGE_PACK: &[u8; 2] = b"M:";
/// The prefix of a binary frame that is encrypted from end to end.
pub const ENCRYPTED: &[u8; 2] = b"E:";
/// How much the output grows at a time while inflating, in bytes.
const INFLATE_STEP: usize = 16 << 10;

/// The format in which a connection gets its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// JSON text, compressed if it is long.
    #[default]
    Json,
    /// MessagePack, if the client asked for it.
    MessagePack,
}

/// The classification of a text message. Ranges count from the start of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// The client's application-level ping.
    Ping {
        /// The JSON object, after the legacy prefix.
        object: Range<usize>,
    },
    /// The client's first message, `client_hello`.
    ClientHello {
        /// The JSON object, after the legacy prefix.
        object: Range<usize>,
    },
    /// The client's reply to a ping of the server; there is nothing to do.
    Pong,
    /// A JSON object for the application.
    Json {
        /// The object, after the legacy prefix.
        object: Range<usize>,
        /// The object's type, if it has one.
        message_type: Option<Range<usize>>,
    },
    /// Text that is not a JSON object.
    Raw,
}

/// The length of the legacy prefix in front of the object (`WSE{`, `S{`, `U{`), in bytes; `None` if there is no object.
#[inline]
fn prefix_bytes(text: &[u8]) -> Option<usize> {
    match text {
        [b'{', ..] => Some(0),
        [b'U' | b'S', b'{', ..] => Some(1),
        [b'W', b'S', b'E', b'{', ..] => Some(3),
        _ => None,
    }
}

/// Classifies `text`, which must be UTF-8.
#[inline]
pub fn classify(text: &[u8]) -> Text {
    let Some(prefix) = prefix_bytes(text) else { return Text::Raw };
    let object = prefix..text.len();
    let found = json::find_type(&text[prefix..]).map(|range| range.start + prefix..range.end + prefix);
    match found.as_ref().map(|range| &text[range.clone()]) {
        Some(b"ping") => Text::Ping { object },
        Some(b"client_hello") => Text::ClientHello { object },
        Some(b"pong" | b"PONG") => Text::Pong,
        _ => Text::Json { object, message_type: found },
    }
}

/// Classifies `text`, which must be UTF-8, as either JSON or not, without recognising messages to the service itself.
pub fn classify_private(text: &[u8]) -> Text {
    let Some(prefix) = prefix_bytes(text) else { return Text::Raw };
    let found = json::find_type(&text[prefix..]).map(|range| range.start + prefix..range.end + prefix);
    Text::Json { object: prefix..text.len(), message_type: found }
}

/// The classification of a binary frame. Ranges count from the start of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binary {
    /// Compressed text: the part after the prefix has to be inflated.
    Compressed,
    /// Valid MessagePack, with or without its prefix.
    MessagePack {
        /// The value, after its prefix if it has one.
        value: Range<usize>,
        /// The value's type, if it is a map with one.
        message_type: Option<Range<usize>>,
    },
    /// Any other binary data, encrypted data included.
    Other,
}

/// Classifies the payload of a binary frame. Without a prefix it counts as MessagePack only on a connection that asked
/// for MessagePack.
pub fn classify_binary(bytes: &[u8], is_message_pack_connection: bool) -> Binary {
    if bytes.starts_with(COMPRESSED) {
        return Binary::Compressed;
    }
    // A bare value can't be mistaken for a prefix: its first byte would be the number 77 and more would follow, which
    // is not a single value.
    let start = if bytes.starts_with(MESSAGE_PACK) { MESSAGE_PACK.len() } else { 0 };
    if start == 0 && !is_message_pack_connection {
        return Binary::Other;
    }
    match msgpack::check(&bytes[start..]) {
        Some(found) => Binary::MessagePack {
            value: start..bytes.len(),
            message_type: found.map(|range| range.start + start..range.end + start),
        },
        None => Binary::Other,
    }
}

/// Why compressed bytes could not be inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// The bytes aren't a zlib stream, aren't a whole one, or something follows it.
    #[error("not a zlib stream")]
    Invalid,
    /// The output would be larger than the limit.
    #[error("inflates beyond the limit")]
    TooBig,
}

/// Inflates whole zlib streams, one after the other, and reuses the same window.
pub struct Inflater {
    stream: Decompress,
}

impl Default for Inflater {
    fn default() -> Self {
        Self { stream: Decompress::new(true) }
    }
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Inflater")
    }
}

impl Inflater {
    /// Appends the inflated bytes to `out`, at most `limit` of them. Memory grows with the actual output, never with an
    /// announced size. After an error `out` is as long as before.
    ///
    /// # Errors
    /// [`InflateError::Invalid`] if the bytes aren't exactly one zlib stream, [`InflateError::TooBig`] if it inflates
    /// to more than `limit` bytes.
    pub fn inflate(&mut self, compressed: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), InflateError> {
        let start = out.len();
        let result = self.inflate_from(compressed, out, start, limit);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn inflate_from(
        &mut self,
        compressed: &[u8],
        out: &mut Vec<u8>,
        start: usize,
        limit: usize,
    ) -> Result<(), InflateError> {
        self.stream.reset(true);
        loop {
            let (read, inflated) = (self.stream.total_in() as usize, out.len() - start);
            // One byte more than the limit, so that a stream of exactly the limit can still reach its end.
            let room = (limit + 1 - inflated).min(INFLATE_STEP);
            out.reserve(room);
            let status = self.stream.decompress_vec(&compressed[read..], out, FlushDecompress::None);
            let status = status.map_err(|_| InflateError::Invalid)?;
            if out.len() - start > limit {
                return Err(InflateError::TooBig);
            }
            let is_stuck = self.stream.total_in() as usize == read && out.len() - start == inflated;
            match status {
                Status::StreamEnd if self.stream.total_in() as usize == compressed.len() => return Ok(()),
                Status::StreamEnd => return Err(InflateError::Invalid),
                _ if is_stuck => return Err(InflateError::Invalid),
                _ => {}
            }
        }
    }
}

/// Encodes text as `C:` and a zlib stream, at level 1 as in the reference.
pub fn encode_compressed(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(COMPRESSED.to_vec(), Compression::fast());
    let written = io::Write::write_all(&mut encoder, text).and_then(|()| encoder.finish());
    written.expect("writing to memory can't fail")
}

/// Encodes a JSON text as `M:` and MessagePack; maps keep their keys as names.
///
/// # Errors
/// [`serde_json::Error`] if the text is not valid JSON.
pub fn encode_msgpack(text: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let value: serde_json::Value = serde_json::from_slice(text)?;
    let mut bytes = MESSAGE_PACK.to_vec();
    rmp_serde::encode::write_named(&mut bytes, &value)
        .expect("a JSON value can be packed, and memory can be written to");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>, InflateError> {
        let mut out = Vec::new();
        Inflater::default().inflate(bytes, &mut out, limit).map(|()| out)
    }

    #[test]
    fn text_is_classified_with_and_without_prefix() {
        let object = |text: &str, prefix: usize| prefix..text.len();
        let ping = r#"WSE{"p":{"timestamp":1},"t":"ping"}"#;
        assert_eq!(classify(ping.as_bytes()), Text::Ping { object: object(ping, 3) });
        let hello = r#"{"c":"WSE","t":"client_hello"}"#;
        assert_eq!(classify(hello.as_bytes()), Text::ClientHello { object: object(hello, 0) });
        assert_eq!(classify(br#"{"t":"PONG"}"#), Text::Pong);
        let trade = r#"U{"t":"trade","p":{}}"#;
        let expected = Text::Json { object: object(trade, 1), message_type: Some(7..12) };
        assert_eq!(classify(trade.as_bytes()), expected);
        for raw in ["hello", "[1,2]", "", "X{}", "WS{}", " {}", "PING:1"] {
            assert_eq!(classify(raw.as_bytes()), Text::Raw, "{raw}");
        }
    }

    #[test]
    fn a_private_reading_is_never_attributed_to_the_service() {
        let ping = r#"WSE{"t":"ping"}"#;
        let expected = Text::Json { object: 3..ping.len(), message_type: Some(9..13) };
        assert_eq!(classify_private(ping.as_bytes()), expected);
        assert_eq!(classify_private(b"hello"), Text::Raw);
        assert_eq!(classify_private(b""), Text::Raw);
    }

    #[test]
    fn a_type_that_only_looks_like_ping_reaches_the_application() {
        assert!(matches!(classify(br#"{"t":"PING"}"#), Text::Json { .. }));
        assert!(matches!(classify(br#"{"p":{"t":"ping"}}"#), Text::Json { message_type: None, .. }));
    }

    #[test]
    fn message_pack_is_detected_by_its_prefix_or_its_connection() {
        let bare = [0x81, 0xA1, b't', 0xA1, b'x'];
        let prefixed = [MESSAGE_PACK.as_slice(), &bare].concat();
        let found = |value: Range<usize>, name: Range<usize>| Binary::MessagePack { value, message_type: Some(name) };
        assert_eq!(classify_binary(&bare, true), found(0..5, 4..5));
        assert_eq!(classify_binary(&bare, false), Binary::Other);
        assert_eq!(classify_binary(&prefixed, false), found(2..7, 6..7));
        assert_eq!(classify_binary(&prefixed, true), found(2..7, 6..7));
        assert_eq!(classify_binary(b"M:\xC1", true), Binary::Other);
    }

    #[test]
    fn compressed_text_is_inflated_to_the_same() {
        let text = br#"{"t":"trade","p":{"a":1}}"#.repeat(2000);
        let compressed = encode_compressed(&text);
        assert!(compressed.starts_with(COMPRESSED));
        assert_eq!(inflate(&compressed[2..], text.len()), Ok(text));
    }

    #[test]
    fn a_bomb_is_refused_without_being_inflated() {
        let bomb = encode_compressed(&vec![0; 16 << 20]);
        let mut out = Vec::new();
        assert_eq!(Inflater::default().inflate(&bomb[2..], &mut out, 1 << 20), Err(InflateError::TooBig));
        assert!(out.is_empty() && out.capacity() < 4 << 20, "{}", out.capacity());
    }

    #[test]
    fn exactly_the_limit_fits_and_one_byte_more_does_not() {
        let compressed = encode_compressed(&[7; 40_000]);
        assert_eq!(inflate(&compressed[2..], 40_000).map(|out| out.len()), Ok(40_000));
        assert_eq!(inflate(&compressed[2..], 39_999), Err(InflateError::TooBig));
    }

    #[test]
    fn a_truncated_stream_or_one_with_trailing_bytes_is_invalid_and_the_next_one_works() {
        let compressed = encode_compressed(b"hello hello hello");
        let stream = &compressed[2..];
        let mut inflater = Inflater::default();
        let mut out = Vec::new();
        let with_trailing_bytes = [stream, b"x"].concat();
        for bad in [&stream[..stream.len() - 1], &with_trailing_bytes, b"", b"no zlib"] {
            assert_eq!(inflater.inflate(bad, &mut out, 1000), Err(InflateError::Invalid), "{bad:x?}");
        }
        assert_eq!(inflater.inflate(stream, &mut out, 1000), Ok(()));
        assert_eq!(out, b"hello hello hello");
    }

    #[test]
    fn packed_json_is_valid_message_pack() {
        let packed = encode_msgpack(br#"{"t":"trade","p":[1,2.5,null]}"#).unwrap();
        assert!(matches!(classify_binary(&packed, false), Binary::MessagePack { message_type: Some(_), .. }));
    }
}
