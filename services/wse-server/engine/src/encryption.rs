//! End-to-end encryption: how a client and the server agree on a key, and frames sealed with it.
//!
//! The cryptography is in [`wse_utilities::crypto`] and [`wse_utilities::duplex`]; this module applies it to the
//! protocol. Version 1 encrypts the application's messages, each on its own, on the thread that sends it. Version 2
//! encrypts all data frames in the order in which they are written, so only the shard can do it.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use wse_utilities::{
    crypto::{self, CryptoError, Key, OVERHEAD_BYTES, PRIVATE_BYTES, PUBLIC_BYTES},
    duplex::{self, Duplex, Side},
};

use crate::{
    envelope::Encryption,
    format::ENCRYPTED,
    frame::{self, Opcode},
    receive::DataKind,
};

/// How many bytes version 1 adds to a message.
pub(crate) const ADDED_BYTES: usize = ENCRYPTED.len() + OVERHEAD_BYTES;
/// How many bytes version 2 adds to a message: also its opcode, which is encrypted with it.
pub(crate) const ADDED_BYTES_2: usize = ENCRYPTED.len() + duplex::OVERHEAD_BYTES + 1;
/// The length of a public key in base64. A longer text is refused without decoding it.
const LONGEST_TEXT: usize = PUBLIC_BYTES.div_ceil(3) * 4;

/// Why a key exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The text is too long or isn't base64.
    #[error("the public key is not the base64 of {PUBLIC_BYTES} bytes")]
    Base64,
    /// The bytes are not a public key, or the system has no randomness for a key of the server's.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The exchange failed too often on this connection.
    #[error("too many attempts: connect again")]
    TooManyAttempts,
    /// The connection already has a key, from an exchange with another public key.
    #[error("this connection already has a key from an exchange with another public key")]
    KeyChanged,
    /// Version 2 can't begin while unencrypted messages wait for the client.
    #[error("messages wait for this client: read them, and send the hello again")]
    Behind,
}

/// What a connection's messages are encrypted with, by the version that its client asked for.
pub(crate) enum Session {
    /// Version 1: one key, which the sending threads use too.
    Messages(Arc<Key>),
    /// Version 2: two keys with counters, for all data frames.
    Frames(Box<Duplex>),
}

/// The outcome of a connection's key exchange. It is dropped with the connection, and the key with it.
pub(crate) struct Secured {
    pub(crate) session: Session,
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
pub(crate) fn exchange(peer: &str, version: Encryption) -> Result<Secured, ExchangeError> {
    let peer = decode_peer_key(peer)?;
    let (mut private, public) = crypto::generate()?;
    let session = session(version, &private, &public, &peer);
    crypto::erase(&mut private);
    Ok(Secured { session: session?, public: STANDARD.encode(public), peer })
}

fn session(
    version: Encryption,
    private: &[u8; PRIVATE_BYTES],
    public: &[u8; PUBLIC_BYTES],
    peer: &[u8; PUBLIC_BYTES],
) -> Result<Session, CryptoError> {
    if version == Encryption::Frames {
        return Ok(Session::Frames(Box::new(Duplex::agree(Side::Server, private, public, peer)?)));
    }
    let mut shared = crypto::derive(private, peer)?;
    let key = Key::new(&shared);
    crypto::erase(&mut shared);
    Ok(Session::Messages(Arc::new(key?)))
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

    pub(crate) fn version(&self) -> Encryption {
        match self.session {
            Session::Messages(_) => Encryption::Messages,
            Session::Frames(_) => Encryption::Frames,
        }
    }
}

/// Appends framed messages of the server, each data frame encrypted by version 2; control frames stay as they are.
///
/// # Errors
/// [`CryptoError`] from the library. The counter may have moved on, so the connection is of no further use.
pub(crate) fn put_frames(out: &mut Vec<u8>, duplex: &mut Duplex, framed: &[u8]) -> Result<(), CryptoError> {
    for (first, payload) in frame::messages(framed) {
        match frame::opcode(first).filter(|opcode| !opcode.is_control()) {
            None => {
                frame::put_first(out, first, payload.len());
                out.extend_from_slice(payload);
            }
            Some(opcode) => {
                frame::put_header(out, Opcode::Binary, ADDED_BYTES_2 + payload.len());
                out.extend_from_slice(ENCRYPTED);
                duplex.seal_onto([&[opcode as u8], payload], out)?;
            }
        }
    }
    Ok(())
}

/// Decrypts a data frame of a client by version 2. Returns its kind and its payload, which begins at the second byte.
/// `None` if it isn't the client's next message.
pub(crate) fn open_frame(duplex: &mut Duplex, payload: &[u8]) -> Option<(DataKind, Vec<u8>)> {
    let plain = duplex.open(payload.strip_prefix(ENCRYPTED)?).ok()?;
    let kind = match *plain.first()? {
        opcode if opcode == Opcode::Text as u8 => DataKind::Text,
        opcode if opcode == Opcode::Binary as u8 => DataKind::Binary,
        _ => return None,
    };
    Some((kind, plain))
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
    let mut out = Vec::with_capacity(frame::MAX_HEADER + ADDED_BYTES + payload.len());
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
    let Ok(secured) = exchange(peer, Encryption::Messages) else { return false };
    assert_eq!(secured.check_repeated(peer), Ok(()));
    if let Session::Messages(key) = &secured.session {
        assert!(open(key, payload).is_err(), "only the two sides know this key");
        let sealed = sealed_frame(key, payload).expect("there is randomness");
        let header = sealed.len() - payload.len() - ADDED_BYTES;
        assert_eq!(open(key, &sealed[header..]).as_deref(), Ok(payload));
    }
    true
}

/// Both sides of a connection with encryption of version 2, for fuzzing: `payload` doesn't open as the client's next
/// message, and one that the client made of it opens once. `frames` are encrypted without a panic, regardless of what is in them.
#[doc(hidden)]
pub fn frames(payload: &[u8], frames: &[u8]) {
    let (private, public) = crypto::generate().expect("there is randomness");
    let secured = exchange(&STANDARD.encode(public), Encryption::Frames).expect("the key is valid");
    let peer = STANDARD.decode(&secured.public).ok().and_then(|peer| peer.try_into().ok()).expect("it is a public key");
    let mut client = Duplex::agree(Side::Client, &private, &public, &peer).expect("the keys are valid");
    let Session::Frames(mut server) = secured.session else { unreachable!("version 2 was asked for") };
    assert_eq!(open_frame(&mut server, payload), None, "only the two sides know the keys");
    let mut message = ENCRYPTED.to_vec();
    client.seal_onto([&[Opcode::Text as u8], payload], &mut message).expect("it is short enough");
    let opened = open_frame(&mut server, &message).expect("it is the next message");
    assert_eq!((opened.0, &opened.1[1..]), (DataKind::Text, payload));
    assert_eq!(open_frame(&mut server, &message), None, "it was here before");
    let mut sealed = Vec::new();
    put_frames(&mut sealed, &mut server, frames).expect("they are short enough");
    let opened = frame::messages(&sealed).filter_map(|(_, payload)| client.open(payload.strip_prefix(ENCRYPTED)?).ok());
    let is_data = |first: &u8| frame::opcode(*first).is_some_and(|opcode| !opcode.is_control());
    let sent = frame::messages(frames).filter(|(first, _)| is_data(first)).map(|(_, payload)| payload);
    assert!(opened.map(|plain| plain[1..].to_vec()).eq(sent.map(<[u8]>::to_vec)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ([u8; 32], String) {
        let (private, public) = crypto::generate().unwrap();
        (private, STANDARD.encode(public))
    }

    fn key(secured: &Secured) -> Arc<Key> {
        match &secured.session {
            Session::Messages(key) => Arc::clone(key),
            Session::Frames(_) => panic!("version 2"),
        }
    }

    #[test]
    fn in_version_2_data_frames_are_encrypted_with_their_opcode_and_control_frames_are_not() {
        let (private, public) = crypto::generate().unwrap();
        let secured = exchange(&STANDARD.encode(public), Encryption::Frames).unwrap();
        let peer = STANDARD.decode(&secured.public).unwrap().try_into().unwrap();
        let mut client = Duplex::agree(Side::Client, &private, &public, &peer).unwrap();
        let Session::Frames(mut server) = secured.session else { panic!("version 1") };
        let mut framed = Vec::new();
        frame::put(&mut framed, Opcode::Text, &[b'x'; 300]);
        frame::put(&mut framed, Opcode::Pong, b"pong");
        frame::put(&mut framed, Opcode::Binary, b"bytes");
        frame::put_close(&mut framed, 1000, "bye");
        let mut sealed = Vec::new();
        put_frames(&mut sealed, &mut server, &framed).unwrap();
        let found: Vec<(u8, Vec<u8>)> = frame::messages(&sealed)
            .map(|(first, payload)| match payload.strip_prefix(ENCRYPTED) {
                Some(sealed) => (first, client.open(sealed).unwrap()),
                None => (first, payload.to_vec()),
            })
            .collect();
        let text = [&[1], &[b'x'; 300][..]].concat();
        let close = [&1000_u16.to_be_bytes()[..], b"bye"].concat();
        assert_eq!(found, [(0x82, text), (0x8A, b"pong".to_vec()), (0x82, b"\x02bytes".to_vec()), (0x88, close)]);
        let mut message = ENCRYPTED.to_vec();
        client.seal_onto([&[Opcode::Text as u8], b"hello"], &mut message).unwrap();
        assert_eq!(open_frame(&mut server, &message), Some((DataKind::Text, b"\x01hello".to_vec())));
        assert_eq!(open_frame(&mut server, &message), None, "it was here before");
        let mut message = ENCRYPTED.to_vec();
        client.seal_onto([&[Opcode::Ping as u8], b""], &mut message).unwrap();
        assert_eq!(open_frame(&mut server, &message), None, "no data frame");
    }

    #[test]
    fn both_sides_derive_the_same_key() {
        let (private, public) = client();
        let secured = exchange(&public, Encryption::Messages).unwrap();
        let shared = crypto::derive(&private, &STANDARD.decode(&secured.public).unwrap()).unwrap();
        let frame = sealed_frame(&key(&secured), b"hello").unwrap();
        assert_eq!(&frame[..4], [0x82, 35, b'E', b':']);
        assert_eq!(crypto::open(&shared, &frame[4..]).as_deref(), Ok(&b"hello"[..]));
        let back = [ENCRYPTED, &crypto::seal(&shared, b"back").unwrap()[..]].concat();
        assert_eq!(open(&key(&secured), &back).as_deref(), Ok(&b"back"[..]));
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
            assert_eq!(exchange(text, Encryption::Messages).err(), Some(reason), "{text:?}");
        }
        assert_eq!(exchange(&"A".repeat(1 << 20), Encryption::Messages).err(), Some(ExchangeError::Base64));
    }

    #[test]
    fn the_same_public_key_may_be_sent_again_and_another_may_not() {
        let (first, second) = (client().1, client().1);
        let secured = exchange(&first, Encryption::Messages).unwrap();
        assert_eq!(secured.check_repeated(&first), Ok(()));
        assert_eq!(secured.check_repeated(&second), Err(ExchangeError::KeyChanged));
        assert_eq!(secured.check_repeated("!"), Err(ExchangeError::Base64));
    }

    #[test]
    fn messages_encrypted_for_another_connection_are_not_opened() {
        let [one, other] = [(); 2].map(|()| exchange(&client().1, Encryption::Messages).unwrap());
        let sealed = [ENCRYPTED, &key(&other).seal(b"x").unwrap()[..]].concat();
        assert_eq!(open(&key(&one), &sealed), Err(CryptoError::Forged));
        assert_eq!(open(&key(&one), b"E:"), Err(CryptoError::Short(0)));
        assert_eq!(open(&key(&one), b""), Err(CryptoError::Short(0)));
    }

    #[test]
    fn debug_output_contains_no_key() {
        let secured = exchange(&client().1, Encryption::Messages).unwrap();
        assert_eq!(format!("{secured:?} {:?}", key(&secured)), "Secured Key");
    }
}
