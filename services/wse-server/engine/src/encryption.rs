//! End-to-end encryption: how a client and the server agree on a key, and frames sealed with it.
//!
//! The cryptography is in [`wse_utilities::crypto`]; this module applies it to the protocol.

use std::{hint::black_box, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use wse_utilities::crypto::{self, CryptoError, Key, OVERHEAD_BYTES, PUBLIC_BYTES};

use crate::{
    format::ENCRYPTED,
    frame::{self, Opcode},
};

/// How many bytes encryption adds to a message.
pub(crate) const ADDED_BYTES: usize = ENCRYPTED.len() + OVERHEAD_BYTES;
/// The length of a public key in base64. A longer text is refused without decoding it.
const LONGEST_TEXT: usize = PUBLIC_BYTES.div_ceil(3) * 4;

/// Why a key exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The text is too long or isn't base64.
    #[error("the public key is not the base64 of {PUBLIC_BYTES} bytes")]
    Base64,
    /// The bytes are no public key, or the system has no randomness for a key of the server's.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The exchange failed too often on this connection.
    #[error("too many attempts: connect again")]
    TooManyAttempts,
    /// The connection already has a key, from an exchange with another public key.
    #[error("this connection already has a key from an exchange with another public key")]
    KeyChanged,
}

/// The outcome of a connection's key exchange. It is dropped with the connection, and the key with it.
pub(crate) struct Secured {
    pub(crate) key: Arc<Key>,
    /// The server's public key in base64, as it was sent to the client.
    pub(crate) public: String,
    /// The client's public key, to recognise a repeated `client_hello`.
    peer: [u8; PUBLIC_BYTES],
}

impl std::fmt::Debug for Secured {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secured")
    }
}

/// Decodes a client's public key.
fn decode_peer_key(text: &str) -> Result<[u8; PUBLIC_BYTES], ExchangeError> {
    if text.len() > LONGEST_TEXT {
        return Err(ExchangeError::Base64);
    }
    let bytes = STANDARD.decode(text).map_err(|_| ExchangeError::Base64)?;
    let wrong_length = CryptoError::PeerKey(bytes.len());
    bytes.try_into().map_err(|_| wrong_length.into())
}

/// Answers a client's public key with a key pair that is made for this connection alone.
///
/// # Errors
/// [`ExchangeError::Base64`] or [`ExchangeError::Crypto`] if `peer` is not a public key, [`ExchangeError::Crypto`] if
/// the system has no randomness.
pub(crate) fn exchange(peer: &str) -> Result<Secured, ExchangeError> {
    let peer = decode_peer_key(peer)?;
    let (mut private, public) = crypto::generate()?;
    let shared = crypto::derive(&private, &peer);
    private.fill(0);
    // The read keeps the compiler from removing the zeroing.
    black_box(&private);
    let mut shared = shared?;
    let key = Key::new(&shared);
    shared.fill(0);
    black_box(&shared);
    Ok(Secured { key: Arc::new(key?), public: STANDARD.encode(public), peer })
}

impl Secured {
    /// Checks a repeated `client_hello`. The same key is accepted, because the first reply may have been lost.
    ///
    /// # Errors
    /// [`ExchangeError::KeyChanged`] if the key is another one, [`ExchangeError::Base64`] or [`ExchangeError::Crypto`] if it
    /// is not a public key.
    pub(crate) fn check_repeated(&self, peer: &str) -> Result<(), ExchangeError> {
        if decode_peer_key(peer)? == self.peer { Ok(()) } else { Err(ExchangeError::KeyChanged) }
    }
}

/// Appends a message as a binary frame that only the owner of `key` can read. After an error `out` is unchanged.
///
/// # Errors
/// [`CryptoError`] if the system has no randomness.
pub(crate) fn put_sealed(out: &mut Vec<u8>, key: &Key, payload: &[u8]) -> Result<(), CryptoError> {
    let start = out.len();
    frame::put_header(out, Opcode::Binary, ADDED_BYTES + payload.len());
    out.extend_from_slice(ENCRYPTED);
    key.seal_onto(payload, out).inspect_err(|_| out.truncate(start))
}

/// Builds a message as a binary frame that only the owner of `key` can read.
///
/// # Errors
/// [`CryptoError`] if the system has no randomness.
pub(crate) fn sealed_frame(key: &Key, payload: &[u8]) -> Result<Bytes, CryptoError> {
    let mut out = Vec::with_capacity(frame::MAXIMAL_HEADER + ADDED_BYTES + payload.len());
    put_sealed(&mut out, key, payload)?;
    Ok(out.into())
}

/// Decrypts the payload of a binary frame that starts with the `E:` prefix.
///
/// # Errors
/// [`CryptoError`] if it was sealed with another key, was changed, or is too short.
pub(crate) fn open(key: &Key, payload: &[u8]) -> Result<Vec<u8>, CryptoError> {
    key.open(payload.get(ENCRYPTED.len()..).unwrap_or_default())
}

/// Both sides of an exchange, for fuzzing: the server accepts or refuses any text as a public key, and opens a payload
/// only if it was sealed with the agreed key. Returns whether `peer` was accepted.
#[doc(hidden)]
pub fn accepts(peer: &str, payload: &[u8]) -> bool {
    match exchange(peer) {
        Ok(secured) => {
            assert!(open(&secured.key, payload).is_err(), "only the two parties know the key");
            assert_eq!(secured.check_repeated(peer), Ok(()));
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
    fn both_sides_derive_the_same_key() {
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
    fn an_invalid_key_is_refused_with_a_reason() {
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
    fn the_same_public_key_may_be_sent_again_and_another_may_not() {
        let (first, second) = (client().1, client().1);
        let secured = exchange(&first).unwrap();
        assert_eq!(secured.check_repeated(&first), Ok(()));
        assert_eq!(secured.check_repeated(&second), Err(ExchangeError::KeyChanged));
        assert_eq!(secured.check_repeated("!"), Err(ExchangeError::Base64));
    }

    #[test]
    fn messages_encrypted_for_another_connection_are_not_opened() {
        let [one, other] = [(); 2].map(|()| exchange(&client().1).unwrap());
        let sealed = [ENCRYPTED, &other.key.seal(b"x").unwrap()[..]].concat();
        assert_eq!(open(&one.key, &sealed), Err(CryptoError::Forged));
        assert_eq!(open(&one.key, b"E:"), Err(CryptoError::Short(0)));
        assert_eq!(open(&one.key, b""), Err(CryptoError::Short(0)));
    }

    #[test]
    fn debug_output_contains_no_key() {
        let secured = exchange(&client().1).unwrap();
        assert_eq!(format!("{secured:?} {:?}", secured.key), "Secured Key");
    }
}
