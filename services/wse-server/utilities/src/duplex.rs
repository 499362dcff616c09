//! End-to-end encryption, version 2: one key for each direction, and a counter in each message.
//!
//! The constants on the wire are the protocol's (docs/PROTOCOL.md). An encrypted message is an 8-byte counter, the
//! ciphertext and a 16-byte tag. The counter is the number of the message in its direction; it is the nonce, and with
//! the direction it is the associated data. So a message that is repeated, left out, put in another order, or sent back
//! to its sender doesn't open. Neither side proves who it is: use TLS for that.

use std::fmt::{self, Debug, Formatter};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::crypto::{self, CryptoError, KEY_BYTES, PRIVATE_BYTES, PUBLIC_BYTES, TAG_BYTES};

/// The size of a counter, in bytes.
const COUNTER_BYTES: usize = 8;
/// By how many bytes an encrypted message is longer than its plaintext: the counter and the tag.
pub const OVERHEAD_BYTES: usize = COUNTER_BYTES + TAG_BYTES;

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that sent its public key first.
    Client,
    /// The side that answered it.
    Server,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// The beginning of the `info` of the key by which this side encrypts (RFC 5869).
    fn info(self) -> &'static [u8] {
        match self {
            Self::Client => b"wse-encryption-2 client",
            Self::Server => b"wse-encryption-2 server",
        }
    }

    /// The direction in the associated data of what this side sends.
    fn direction(self) -> u8 {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }
}

/// One direction of a connection: its key, and the number of the next message.
struct Direction {
    key: LessSafeKey,
    sender: Side,
    next: u64,
}

impl Direction {
    fn new(key: &[u8; KEY_BYTES], sender: Side) -> Result<Self, CryptoError> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| CryptoError::Library)?;
        Ok(Self { key: LessSafeKey::new(key), sender, next: 0 })
    }

    /// Nonce and associated data of the next message.
    fn of_next(&self) -> (Nonce, Aad<[u8; 1 + COUNTER_BYTES]>) {
        let counter = self.next.to_be_bytes();
        let (mut nonce, mut associated) = ([0; NONCE_LEN], [self.sender.direction(); 1 + COUNTER_BYTES]);
        nonce[NONCE_LEN - COUNTER_BYTES..].copy_from_slice(&counter);
        associated[1..].copy_from_slice(&counter);
        (Nonce::assume_unique_for_key(nonce), Aad::from(associated))
    }
}

/// Both directions of one connection, as one side has them.
pub struct Duplex {
    outbound: Direction,
    inbound: Direction,
}

impl Debug for Duplex {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Duplex")
    }
}

impl Duplex {
    /// Derives the keys of both directions, for the owner of `private`, which is `side`. The keys depend on both public
    /// keys.
    ///
    /// # Errors
    /// [`CryptoError::PrivateKey`] or [`CryptoError::PeerKey`] if a key isn't valid for P-256, [`CryptoError::Library`]
    /// if the library has no memory.
    pub fn agree(
        side: Side,
        private: &[u8; PRIVATE_BYTES],
        public: &[u8; PUBLIC_BYTES],
        peer: &[u8; PUBLIC_BYTES],
    ) -> Result<Self, CryptoError> {
        let (client, server) = match side {
            Side::Client => (public, peer),
            Side::Server => (peer, public),
        };
        let [outbound, inbound] = [side, side.other()].map(|sender| {
            let mut key = crypto::derive_with(private, peer, &[sender.info(), client, server])?;
            let direction = Direction::new(&key, sender);
            crypto::erase(&mut key);
            direction
        });
        Ok(Self { outbound: outbound?, inbound: inbound? })
    }

    /// Encrypts a message, which is the next one in its direction, and appends it to `out`. `parts` are the message,
    /// one after the other. After an error `out` is unchanged.
    ///
    /// # Errors
    /// [`CryptoError::Library`] if the message is longer than 2^36 bytes, or 2^64 messages were sent.
    pub fn seal_onto(&mut self, parts: [&[u8]; 2], out: &mut Vec<u8>) -> Result<(), CryptoError> {
        let direction = &mut self.outbound;
        let following = direction.next.checked_add(1).ok_or(CryptoError::Library)?;
        let start = out.len();
        out.reserve(parts[0].len() + parts[1].len() + OVERHEAD_BYTES);
        out.extend_from_slice(&direction.next.to_be_bytes());
        parts.iter().for_each(|part| out.extend_from_slice(part));
        let (nonce, associated) = direction.of_next();
        match direction.key.seal_in_place_separate_tag(nonce, associated, &mut out[start + COUNTER_BYTES..]) {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            Err(_) => {
                out.truncate(start);
                return Err(CryptoError::Library);
            }
        }
        direction.next = following;
        Ok(())
    }

    /// Decrypts the next message of the other side.
    ///
    /// # Errors
    /// [`CryptoError::Short`] if it is too short, [`CryptoError::Order`] if it isn't the next one, and
    /// [`CryptoError::Forged`] if it was encrypted with another key or has been changed. Nothing that follows an error
    /// can be trusted.
    pub fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let short = CryptoError::Short(sealed.len());
        let direction = &mut self.inbound;
        let (counter, rest) = sealed.split_first_chunk::<COUNTER_BYTES>().ok_or(short)?;
        let (ciphertext, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(short)?;
        let (got, expected) = (u64::from_be_bytes(*counter), direction.next);
        if got != expected {
            return Err(CryptoError::Order { got, expected });
        }
        let mut plain = ciphertext.to_vec();
        let (nonce, associated) = direction.of_next();
        let opened = direction.key.open_in_place_separate_tag(nonce, associated, tag, &mut plain);
        opened.map_err(|_| CryptoError::Forged)?;
        direction.next = direction.next.checked_add(1).ok_or(CryptoError::Library)?;
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Vectors that Python's `cryptography` made; `services/wse-server/tests/test_encryption_v2.py` checks them.
    const VECTORS: &str = include_str!("../../../testdata/wse-encryption-2.json");

    fn pair() -> (Duplex, Duplex) {
        let (client, client_public) = crypto::generate().unwrap();
        let (server, server_public) = crypto::generate().unwrap();
        (
            Duplex::agree(Side::Client, &client, &client_public, &server_public).unwrap(),
            Duplex::agree(Side::Server, &server, &server_public, &client_public).unwrap(),
        )
    }

    fn sealed(from: &mut Duplex, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        from.seal_onto([text, b""], &mut out).unwrap();
        out
    }

    #[test]
    fn both_sides_read_each_other_in_order() {
        let (mut client, mut server) = pair();
        for text in [&b"one"[..], b"", b"three"] {
            let message = sealed(&mut client, text);
            assert_eq!(message.len(), text.len() + OVERHEAD_BYTES);
            assert_eq!(server.open(&message).as_deref(), Ok(text));
            let message = sealed(&mut server, text);
            assert_eq!(client.open(&message).as_deref(), Ok(text));
        }
    }

    #[test]
    fn messages_that_are_repeated_missing_or_reordered_are_refused() {
        let (mut client, mut server) = pair();
        let [first, second, third] = [b"1", b"2", b"3"].map(|text| sealed(&mut client, text));
        assert_eq!(server.open(&second), Err(CryptoError::Order { got: 1, expected: 0 }));
        server.open(&first).unwrap();
        assert_eq!(server.open(&first), Err(CryptoError::Order { got: 0, expected: 1 }));
        assert_eq!(server.open(&third), Err(CryptoError::Order { got: 2, expected: 1 }));
        let mut renumbered = third.clone();
        renumbered[..8].copy_from_slice(&second[..8]);
        assert_eq!(server.open(&renumbered), Err(CryptoError::Forged));
        assert_eq!(server.open(&second).as_deref(), Ok(&b"2"[..]));
    }

    #[test]
    fn messages_that_are_reflected_altered_or_truncated_are_refused() {
        let (mut client, mut server) = pair();
        let message = sealed(&mut client, b"text");
        assert_eq!(client.open(&message), Err(CryptoError::Forged));
        assert_eq!(pair().1.open(&message), Err(CryptoError::Forged));
        for at in 8..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert_eq!(server.open(&changed), Err(CryptoError::Forged), "{at}");
        }
        for length in 0..OVERHEAD_BYTES {
            assert_eq!(server.open(&message[..length]), Err(CryptoError::Short(length)));
        }
        assert_eq!(server.open(&message).as_deref(), Ok(&b"text"[..]));
    }

    #[test]
    fn messages_are_those_of_the_test_vectors() {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        let bytes = |value: &Value| -> Vec<u8> {
            let hex = value.as_str().unwrap().as_bytes();
            hex.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
        };
        let keys = |name: &str| bytes(&vectors[name]);
        let private = |name: &str| -> [u8; PRIVATE_BYTES] { keys(name).try_into().unwrap() };
        let public = |name: &str| -> [u8; PUBLIC_BYTES] { keys(name).try_into().unwrap() };
        let (client, server) = (public("client_public"), public("server_public"));
        let mut client_side = Duplex::agree(Side::Client, &private("client_private"), &client, &server).unwrap();
        let mut server_side = Duplex::agree(Side::Server, &private("server_private"), &server, &client).unwrap();
        let messages = vectors["messages"].as_array().unwrap();
        for message in messages {
            let (plain, expected) = (bytes(&message["plain"]), bytes(&message["sealed"]));
            let (from, to) = match message["from"].as_str().unwrap() {
                "client" => (&mut client_side, &mut server_side),
                _ => (&mut server_side, &mut client_side),
            };
            assert_eq!(sealed(from, &plain), expected);
            assert_eq!(to.open(&expected).as_deref(), Ok(&plain[..]));
        }
        assert!(messages.len() >= 4);
    }
}
