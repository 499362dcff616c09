//! Encryption from end to end: how a client and the server come to a key, and frames sealed with it.
//!
//! The cryptography is [`wse_utilities::crypto`]'s; here is what the protocol makes of it.

use std::{hint::black_box, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use wse_utilities::crypto::{self, CryptoError, Key, OVERHEAD_BYTES, PUBLIC_BYTES};

use crate::{
    format::ENCRYPTED,
    frame::{self, Opcode},
};

/// What encrypting adds to a message, in bytes.
pub(crate) const ADDED_BYTES: usize = ENCRYPTED.len() + OVERHEAD_BYTES;
/// A key in base64 is no longer; what is, isn't even looked at.
const LONGEST_TEXT: usize = PUBLIC_BYTES.div_ceil(3) * 4;

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// No base64.
    #[error("the public key is no base64 of {PUBLIC_BYTES} bytes")]
    Base64,
    /// No key, or no randomness for ours.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The client tried too often.
    #[error("too many attempts: connect again")]
    TooOften,
    /// The connection has one, of another exchange.
    #[error("a key was exchanged on this connection before")]
    Again,
}

/// What a connection has of an exchange. It has gone with the connection, and the key with it.
pub(crate) struct Secured {
    pub(crate) key: Arc<Key>,
    /// Ours, as the client was told.
    pub(crate) public: String,
    /// The client's, to know it again.
    peer: [u8; PUBLIC_BYTES],
}

impl std::fmt::Debug for Secured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secured")
    }
}

/// The bytes of a client's public key.
fn peer_of(text: &str) -> Result<[u8; PUBLIC_BYTES], ExchangeError> {
    if text.len() > LONGEST_TEXT {
        return Err(ExchangeError::Base64);
    }
    let bytes = STANDARD.decode(text).map_err(|_| ExchangeError::Base64)?;
    let unfit = CryptoError::PeerKey(bytes.len());
    bytes.try_into().map_err(|_| unfit.into())
}

/// Answers a client's public key with one of ours, made for it alone.
///
/// # Errors
/// When it is no key, or the system has no randomness.
pub(crate) fn exchange(peer: &str) -> Result<Secured, ExchangeError> {
    let peer = peer_of(peer)?;
    let (mut private, public) = crypto::generate()?;
    let shared = crypto::derive(&private, &peer);
    private.fill(0);
    // Read, so that the zeros are really written.
    black_box(&private);
    let mut shared = shared?;
    let key = Key::new(&shared);
    shared.fill(0);
    black_box(&shared);
    Ok(Secured { key: Arc::new(key?), public: STANDARD.encode(public), peer })
}

impl Secured {
    /// A hello that came again: fine with the same key, whose answer may have been lost; with another one it is too late.
    ///
    /// # Errors
    /// When the key is another one.
    pub(crate) fn again(&self, peer: &str) -> Result<(), ExchangeError> {
        if peer_of(peer)? == self.peer { Ok(()) } else { Err(ExchangeError::Again) }
    }
}

/// Appends a message as a binary frame that only the owner of `key` can read. After an error `out` is as it was.
///
/// # Errors
/// When the system has no randomness.
pub(crate) fn put_sealed(out: &mut Vec<u8>, key: &Key, payload: &[u8]) -> Result<(), CryptoError> {
    let start = out.len();
    frame::put_header(out, Opcode::Binary, ADDED_BYTES + payload.len());
    out.extend_from_slice(ENCRYPTED);
    key.seal_onto(payload, out).inspect_err(|_| out.truncate(start))
}

/// A message as a binary frame that only the owner of `key` can read.
///
/// # Errors
/// When the system has no randomness.
pub(crate) fn sealed_frame(key: &Key, payload: &[u8]) -> Result<Bytes, CryptoError> {
    let mut out = Vec::with_capacity(frame::MAXIMAL_HEADER + ADDED_BYTES + payload.len());
    put_sealed(&mut out, key, payload)?;
    Ok(out.into())
}

/// The message in a binary frame's payload, of which the prefix is known.
///
/// # Errors
/// When it was sealed with another key, changed, or is too short.
pub(crate) fn open(key: &Key, payload: &[u8]) -> Result<Vec<u8>, CryptoError> {
    key.open(payload.get(ENCRYPTED.len()..).unwrap_or_default())
}

/// Both ends of an exchange, for fuzzing: whatever a client calls its key, the server answers or refuses; and what a client
/// calls encrypted is opened only if it was.
#[doc(hidden)]
pub fn accepts(peer: &str, payload: &[u8]) -> bool {
    match exchange(peer) {
        Ok(secured) => {
            assert!(open(&secured.key, payload).is_err(), "nobody knows this key but the two");
            assert_eq!(secured.again(peer), Ok(()));
            let sealed = sealed_frame(&secured.key, payload).expect("there is randomness");
            let header = sealed.len() - payload.len() - ADDED_BYTES;
            assert_eq!(open(&secured.key, &sealed[header..]).as_deref(), Ok(payload));
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ([u8; 32], String) {
        let (private, public) = crypto::generate().unwrap();
        (private, STANDARD.encode(public))
    }

    #[test]
    fn both_ends_come_to_the_same_key() {
        let (private, public) = client();
        let secured = exchange(&public).unwrap();
        let shared = crypto::derive(&private, &STANDARD.decode(&secured.public).unwrap()).unwrap();
        let frame = sealed_frame(&secured.key, b"hello").unwrap();
        assert_eq!(&frame[..4], [0x82, 35, b'E', b':']);
        assert_eq!(crypto::open(&shared, &frame[4..]).as_deref(), Ok(&b"hello"[..]));
        let back = [ENCRYPTED, &crypto::seal(&shared, b"back").unwrap()[..]].concat();
        assert_eq!(open(&secured.key, &back).as_deref(), Ok(&b"back"[..]));
    }

    #[test]
    fn what_is_no_key_is_refused_with_a_reason() {
        let (_, public) = client();
        let bytes = STANDARD.decode(&public).unwrap();
        let long = STANDARD.encode([4; 66]);
        for (text, reason) in [
            ("!!!", ExchangeError::Base64),
            (public.trim_end_matches('='), ExchangeError::Base64),
            (&format!("{public}\n"), ExchangeError::Base64),
            (&long, CryptoError::PeerKey(66).into()),
            ("", CryptoError::PeerKey(0).into()),
            (&STANDARD.encode(&bytes[..64]), CryptoError::PeerKey(64).into()),
            (&STANDARD.encode([b'x'; 65]), CryptoError::PeerKey(65).into()),
            (&STANDARD.encode([[4].as_slice(), &[b'x'; 64]].concat()), CryptoError::PeerKey(65).into()),
        ] {
            assert_eq!(exchange(text).err(), Some(reason), "{text:?}");
        }
        assert_eq!(exchange(&"A".repeat(1 << 20)).err(), Some(ExchangeError::Base64));
    }

    #[test]
    fn the_same_hello_may_come_again_and_another_may_not() {
        let (first, second) = (client().1, client().1);
        let secured = exchange(&first).unwrap();
        assert_eq!(secured.again(&first), Ok(()));
        assert_eq!(secured.again(&second), Err(ExchangeError::Again));
        assert_eq!(secured.again("!"), Err(ExchangeError::Base64));
    }

    #[test]
    fn what_was_not_encrypted_for_this_connection_is_not_opened() {
        let [one, other] = [(); 2].map(|()| exchange(&client().1).unwrap());
        let sealed = [ENCRYPTED, &other.key.seal(b"x").unwrap()[..]].concat();
        assert_eq!(open(&one.key, &sealed), Err(CryptoError::Forged));
        assert_eq!(open(&one.key, b"E:"), Err(CryptoError::Short(0)));
        assert_eq!(open(&one.key, b""), Err(CryptoError::Short(0)));
    }

    #[test]
    fn nothing_of_a_key_shows_in_a_log() {
        let secured = exchange(&client().1).unwrap();
        assert_eq!(format!("{secured:?} {:?}", secured.key), "Secured Key");
    }
}
