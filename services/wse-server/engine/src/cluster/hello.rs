//! The hello: the first frame of each side, with version, name and capabilities. Pure.

use bytes::{BufMut, Bytes};

use super::frame::{self, Frame, HEAD, Kind, LENGTH};

const MAGIC: &[u8; 4] = b"WSE\0";
const VERSION: u16 = 1;
/// The size of a nonce, in bytes.
pub(super) const NONCE_BYTES: usize = 32;
/// The longest name of an instance, in bytes.
const LONGEST_ID: usize = 256;
/// The largest frame that is accepted before the sender is known, in bytes.
pub(super) const LONGEST: usize = 1024;

/// Capability: sends its subscriptions and gets only what it has subscribed to.
pub(super) const ROUTING: u32 = 1;
/// Capability: reads payloads in zstd.
pub(super) const COMPRESSION: u32 = 2;
/// Capability: exchanges the presence of users.
pub(super) const PRESENCE: u32 = 4;
/// Capability: reads stamps after payloads.
pub(super) const RECOVERY: u32 = 8;
/// Capability, an extension of this implementation: counts what it sends and receives, see [`super::numbering`].
pub(super) const NUMBERS: u32 = 1 << 16;
/// Capability, an extension of this implementation: sends texts as subscribers get them, completed and stamped.
pub(super) const STAMPS: u32 = 1 << 17;

/// An extension of this implementation: the dialler is refused, because there is a link already. Without this bit the
/// dialler would learn of it only after it had replaced its other link by the new one.
pub(super) const REFUSED: u32 = 1 << 18;
/// An extension of this implementation: the sender has the cluster's secret. A nonce follows the capabilities.
const SECRET: u32 = 1 << 19;

/// The content of a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The sender's name, unique for as long as the instance lives.
    pub(super) instance: String,
    /// What the sender supports, as bits. A link uses what both sides support.
    pub(super) capabilities: u32,
    /// Random bytes for the proofs of this connection, if the sender has a secret, see [`super::secret`].
    pub(super) nonce: Option<[u8; NONCE_BYTES]>,
}

/// Why a first frame is not a valid hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HelloError {
    #[error("the first frame is not a hello: check that this is the cluster port of a WSE instance")]
    Other,
    #[error("the peer uses version {0} of the cluster protocol, this instance version {VERSION}")]
    Version(u16),
    #[error("the peer's name is empty, too long, or not printable ASCII")]
    Name,
}

impl Hello {
    pub(super) fn encode(&self) -> Bytes {
        let mut payload = Vec::with_capacity(96);
        self.put(&mut payload);
        frame::encode(Kind::Hello, 0, b"", &payload)
    }

    /// Appends the payload.
    pub(super) fn put(&self, payload: &mut Vec<u8>) {
        debug_assert!(self.instance.len() <= LONGEST_ID);
        payload.put_slice(MAGIC);
        payload.put_u16_le(VERSION);
        payload.put_u16_le(self.instance.len() as u16);
        payload.put_slice(self.instance.as_bytes());
        payload.put_u32_le(self.capabilities | if self.nonce.is_some() { SECRET } else { 0 });
        payload.put_slice(self.nonce.as_ref().map_or(&[], |nonce| nonce));
    }

    pub(super) fn parse(frame: &Frame<'_>) -> Result<Self, HelloError> {
        if frame.kind != Kind::Hello.byte() {
            return Err(HelloError::Other);
        }
        let rest = frame.payload.strip_prefix(MAGIC).ok_or(HelloError::Other)?;
        let (version, rest) = rest.split_first_chunk().ok_or(HelloError::Other)?;
        let version = u16::from_le_bytes(*version);
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let (length, rest) = rest.split_first_chunk().ok_or(HelloError::Other)?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (id, rest) = rest.split_at_checked(length).ok_or(HelloError::Other)?;
        let (capabilities, rest) = rest.split_first_chunk().ok_or(HelloError::Other)?;
        let capabilities = u32::from_le_bytes(*capabilities);
        let nonce = match capabilities & SECRET {
            0 => None,
            _ => Some(*rest.first_chunk().ok_or(HelloError::Other)?),
        };
        let instance = std::str::from_utf8(id).map_err(|_| HelloError::Name)?;
        // The name is logged, and compared with that of this instance.
        if instance.is_empty() || length > LONGEST_ID || !instance.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(HelloError::Name);
        }
        Ok(Self { instance: instance.into(), capabilities: capabilities & !SECRET, nonce })
    }
}

/// The length of a first frame, from its first four bytes.
///
/// # Errors
/// [`HelloError::Other`] if it is outside the allowed range.
pub(super) fn length(bytes: [u8; LENGTH]) -> Result<usize, HelloError> {
    let length = u32::from_be_bytes(bytes) as usize;
    (HEAD..=LONGEST).contains(&length).then_some(length).ok_or(HelloError::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello { instance: "01a1fb4e-9c64-7130-bbd0-c0313ad1ae02".into(), capabilities: 15, nonce: None }
    }

    fn parse(bytes: &[u8]) -> Result<Hello, HelloError> {
        Hello::parse(&frame::parse(bytes).unwrap().unwrap().0)
    }

    #[test]
    fn a_hello_has_the_size_in_the_protocol_and_is_read_back() {
        let bytes = hello().encode();
        assert_eq!(bytes.len(), LENGTH + 56);
        assert_eq!(length(*bytes.first_chunk().unwrap()), Ok(56));
        assert_eq!(parse(&bytes), Ok(hello()));
        let with_nonce = Hello { nonce: Some([7; NONCE_BYTES]), ..hello() };
        assert_eq!(with_nonce.encode().len(), LENGTH + 56 + NONCE_BYTES);
        assert_eq!(parse(&with_nonce.encode()), Ok(with_nonce));
    }

    #[test]
    fn another_version_another_frame_and_invalid_names_are_refused() {
        let bytes = hello().encode();
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = byte;
            parse(&bytes)
        };
        assert_eq!(changed(16, 2), Err(HelloError::Version(2)));
        assert_eq!(changed(4, 1), Err(HelloError::Other));
        assert_eq!(changed(12, b'w'), Err(HelloError::Other));
        assert_eq!(changed(18, 200), Err(HelloError::Other));
        assert_eq!(changed(20, b'\n'), Err(HelloError::Name));
        assert_eq!(changed(20, 0xFF), Err(HelloError::Name));
        assert_eq!(changed(18, 0), Err(HelloError::Name));
        assert_eq!(length(*b"GET "), Err(HelloError::Other));
    }

    #[test]
    fn a_truncated_hello_is_refused() {
        let whole = Hello { nonce: Some([7; NONCE_BYTES]), ..hello() }.encode();
        let payload = &whole[12..];
        for length in 0..payload.len() {
            assert!(parse(&frame::encode(Kind::Hello, 0, b"", &payload[..length])).is_err(), "{length}");
        }
    }
}
