//! The frames on a link: the cluster protocol, version 1. Pure, and total: any bytes are a frame, the beginning of one,
//! or an error.
//!
//! A frame is four bytes of length (big endian), eight bytes of head (one of type, one of flags, two of the topic's
//! length and four of the payload's, little endian), the topic, the payload, and a stamp if the flags say so.

use bytes::{BufMut, BytesMut};

use crate::recovery::Position;

/// The largest value of a frame's length field, in bytes.
pub const LARGEST: usize = 1 << 20;
/// The size of the length field in front of a frame, in bytes.
pub const LENGTH: usize = 4;
/// The size of the head, in bytes: type, flags and lengths.
pub const HEAD: usize = 8;
/// The size of a stamp after the payload, in bytes: epoch and next offset.
const TRAILER: usize = 12;
/// Flag: the payload is a zstd frame.
pub const COMPRESSED: u8 = 0x01;
/// Flag: a stamp follows the payload.
pub const STAMPED: u8 = 0x02;
/// Flag of [`Kind::Resync`]: it continues the list of the frame before it.
pub const CONTINUED: u8 = 0x01;

/// Declares the types together with their bytes on the wire.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $byte:literal,)*) => {
        /// The type of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// The type of a byte; `None` for an unknown type, whose frames are skipped.
            pub fn of(byte: u8) -> Option<Self> {
                match byte { $($byte => Some(Self::$name),)* _ => None }
            }

            /// The byte on the wire.
            pub fn byte(self) -> u8 {
                match self { $(Self::$name => $byte,)* }
            }
        }
    };
}

kinds! {
    /// A publication to the topic.
    Message = 0x01,
    /// A ping. With [`super::numbering`], it has the count of what was sent so far.
    Ping = 0x02,
    /// The reply to a ping. With [`super::numbering`], it has the count of what has arrived so far.
    Pong = 0x03,
    /// The sender's version, name and capabilities: the first frame of each side.
    Hello = 0x04,
    /// The sender is leaving.
    Shutdown = 0x05,
    /// The sender has subscribers for the topic, a name or a pattern, from now on.
    Subscribe = 0x06,
    /// The sender has no more subscribers for the topic.
    Unsubscribe = 0x07,
    /// All topics that the sender has subscribers for, one per line.
    Resync = 0x08,
    /// The address of the sender, in the place of the topic.
    Announce = 0x09,
    /// The addresses of other instances.
    Addresses = 0x0A,
    /// A change of one user's presence.
    PresenceUpdate = 0x0B,
    /// The presence of all users.
    PresenceFull = 0x0C,
    /// The sender admits no more clients and is about to leave.
    Drain = 0x0D,
    /// The number of messages before the next one: an extension, see [`super::numbering`].
    Count = 0x20,
    /// The proof that the sender knows the cluster's secret: an extension, see `secret`.
    Proof = 0x21,
}

/// A frame, borrowed from a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The byte of its type; [`Kind::of`] resolves it.
    pub kind: u8,
    /// The flags, whose meaning depends on the type.
    pub flags: u8,
    /// The topic, or what takes its place.
    pub topic: &'a [u8],
    /// The payload as it arrived, possibly compressed.
    pub payload: &'a [u8],
    /// The stamp after the payload, if a publication has one.
    pub stamp: Option<Position>,
}

/// Why bytes are not a frame. Nothing after them can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is outside the allowed range.
    #[error("a frame of {bytes} bytes: {HEAD} to {LARGEST} are allowed")]
    Size {
        /// The value of the length field.
        bytes: usize,
    },
    /// Topic and payload are longer than the frame.
    #[error("a frame of {bytes} bytes whose parts have {parts} bytes")]
    Parts {
        /// The frame's length, without the length field.
        bytes: usize,
        /// The length of its parts.
        parts: usize,
    },
    /// The payload is marked as compressed but isn't, or it decompresses to more than [`LARGEST`] bytes.
    #[error("a payload that can't be decompressed to {LARGEST} bytes")]
    Compressed,
}

/// Parses the frame at the beginning of `buffer`. Returns it with the number of bytes that it takes; `None` if it is
/// incomplete. Bytes after the parts of a frame are skipped, and so are frames of an unknown type, because a later
/// version may add them.
///
/// # Errors
/// A [`FrameError`] as soon as the first bytes are invalid.
pub fn parse(buffer: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some((length, rest)) = buffer.split_first_chunk::<LENGTH>() else { return Ok(None) };
    let bytes = u32::from_be_bytes(*length) as usize;
    if !(HEAD..=LARGEST).contains(&bytes) {
        return Err(FrameError::Size { bytes });
    }
    let Some(([kind, flags, topic_low, topic_high, payload @ ..], _)) = rest.split_first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let topic_length = usize::from(u16::from_le_bytes([*topic_low, *topic_high]));
    let payload_length = u32::from_le_bytes(*payload) as usize;
    let is_stamped = *kind == Kind::Message.byte() && flags & STAMPED != 0;
    let parts = HEAD + topic_length + payload_length + if is_stamped { TRAILER } else { 0 };
    if parts > bytes {
        return Err(FrameError::Parts { bytes, parts });
    }
    let Some(frame) = rest.get(HEAD..bytes) else { return Ok(None) };
    let (topic, frame) = frame.split_at(topic_length);
    let (payload, trailing) = frame.split_at(payload_length);
    let stamp = trailing.first_chunk::<TRAILER>().filter(|_| is_stamped).map(stamp);
    Ok(Some((Frame { kind: *kind, flags: *flags, topic, payload, stamp }, LENGTH + bytes)))
}

/// Decodes a stamp. The wire has the offset of the next message, one more than the position.
fn stamp(trailer: &[u8; TRAILER]) -> Position {
    let [e0, e1, e2, e3, offset @ ..] = *trailer;
    Position {
        epoch: u32::from_le_bytes([e0, e1, e2, e3]),
        offset: (u64::from_le_bytes(offset) as i64).wrapping_sub(1),
    }
}

/// The size of a frame on the wire, in bytes, with its length field.
pub fn size(topic: &[u8], payload: &[u8], stamp: Option<Position>) -> usize {
    LENGTH + HEAD + topic.len() + payload.len() + stamp.map_or(0, |_| TRAILER)
}

/// Whether topic and payload fit into a frame, with a stamp.
pub fn fits(topic: &[u8], payload: &[u8]) -> bool {
    topic.len() <= usize::from(u16::MAX) && HEAD + topic.len() + payload.len() + TRAILER <= LARGEST
}

/// Appends a frame. The caller must check that it fits ([`fits`]).
pub fn put(out: &mut BytesMut, kind: Kind, flags: u8, topic: &[u8], payload: &[u8], stamp: Option<Position>) {
    debug_assert!(fits(topic, payload));
    let bytes = size(topic, payload, stamp);
    out.reserve(bytes);
    out.put_u32((bytes - LENGTH) as u32);
    out.put_u8(kind.byte());
    out.put_u8(flags | if stamp.is_some() { STAMPED } else { 0 });
    out.put_u16_le(topic.len() as u16);
    out.put_u32_le(payload.len() as u32);
    out.put_slice(topic);
    out.put_slice(payload);
    if let Some(Position { epoch, offset }) = stamp {
        out.put_u32_le(epoch);
        out.put_u64_le(offset.wrapping_add(1) as u64);
    }
}

/// Encodes one frame on its own.
pub fn encode(kind: Kind, flags: u8, topic: &[u8], payload: &[u8]) -> bytes::Bytes {
    let mut out = BytesMut::with_capacity(size(topic, payload, None));
    put(&mut out, kind, flags, topic, payload, None);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAMP: Position = Position { epoch: 0xAB, offset: 6 };

    #[test]
    fn a_publication_is_encoded_as_the_protocol_specifies() {
        let mut out = BytesMut::new();
        put(&mut out, Kind::Message, 0, b"ab", b"{}", Some(STAMP));
        let expected = b"\0\0\0\x18\x01\x02\x02\0\x02\0\0\0ab{}\xAB\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(&out[..], expected);
        assert_eq!(&encode(Kind::Subscribe, 0, b"a.*", b"")[..], b"\0\0\0\x0B\x06\0\x03\0\0\0\0\0a.*");
    }

    #[test]
    fn impossible_lengths_are_refused_before_the_frame_is_read() {
        assert_eq!(parse(&[0, 0x10, 0, 1]), Err(FrameError::Size { bytes: LARGEST + 1 }));
        assert_eq!(parse(&[0, 0, 0, 7]), Err(FrameError::Size { bytes: 7 }));
        // The first bytes of a TLS client.
        assert_eq!(parse(&[0x16, 3, 1, 2]), Err(FrameError::Size { bytes: 0x1603_0102 }));
        let too_long = b"\0\0\0\x08\x01\0\x01\0\0\0\0\0";
        assert_eq!(parse(too_long), Err(FrameError::Parts { bytes: 8, parts: 9 }));
        let without_trailer = b"\0\0\0\x08\x01\x02\0\0\0\0\0\0";
        assert_eq!(parse(without_trailer), Err(FrameError::Parts { bytes: 8, parts: 20 }));
    }

    #[test]
    fn only_a_publication_has_a_stamp_and_trailing_bytes_of_a_frame_are_skipped() {
        let (frame, used) = parse(b"\0\0\0\x0A\x08\x02\0\0\0\0\0\0xxnext").unwrap().unwrap();
        assert_eq!((frame.stamp, frame.payload, used), (None, b"".as_slice(), 14));
        assert_eq!(Kind::of(0x7F), None);
    }

    proptest! {
        #[test]
        fn written_frames_are_read_back_and_a_part_is_incomplete(
            flags in 0..2_u8, topic in prop::collection::vec(any::<u8>(), 0..80), payload in prop::collection::vec(any::<u8>(), 0..400),
            stamp in prop::option::of((any::<u32>(), any::<i64>())), cut in any::<prop::sample::Index>(),
        ) {
            let stamp = stamp.map(|(epoch, offset)| Position { epoch, offset });
            let mut out = BytesMut::new();
            put(&mut out, Kind::Message, flags, &topic, &payload, stamp);
            prop_assert_eq!(out.len(), size(&topic, &payload, stamp));
            prop_assert_eq!(parse(&out[..cut.index(out.len())]), Ok(None));
            let whole = out.len();
            out.extend_from_slice(b"more");
            let (frame, used) = parse(&out).unwrap().unwrap();
            prop_assert_eq!(used, whole);
            prop_assert_eq!((frame.kind, frame.flags & COMPRESSED), (1, flags));
            prop_assert_eq!((frame.topic, frame.payload, frame.stamp), (&topic[..], &payload[..], stamp));
        }

        #[test]
        fn any_bytes_are_a_frame_its_beginning_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some((_, used))) = parse(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
