//! End-to-end encryption, version 1: keys by ECDH on P-256 with HKDF-SHA256, messages encrypted with AES-256-GCM.
//!
//! The constants on the wire are the protocol's (docs/PROTOCOL.md). An encrypted message is a 12-byte IV, the
//! ciphertext, and a 16-byte tag. IVs are random, so one key is safe for 2^32 messages (NIST SP 800-38D, 8.3). Each
//! connection has its own key.

use std::hint::black_box;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey},
    encoding::{AsBigEndian, EcPrivateKeyBin},
    error::Unspecified,
    hkdf::{HKDF_SHA256, KeyType, Salt},
    rand,
};

/// The size of a P-256 private key, in bytes.
pub const PRIVATE_BYTES: usize = 32;
/// The size of a public key, in bytes: an uncompressed point of the curve (SEC 1, 2.3.3).
pub const PUBLIC_BYTES: usize = 65;
/// The size of an encryption key, in bytes.
pub const KEY_BYTES: usize = 32;
/// The size of the tag behind the ciphertext, in bytes.
pub(crate) const TAG_BYTES: usize = 16;
/// By how many bytes an encrypted message is longer than its plaintext: the IV and the tag.
pub const OVERHEAD_BYTES: usize = NONCE_LEN + TAG_BYTES;
/// The first byte of an uncompressed point.
const UNCOMPRESSED: u8 = 4;
/// The `info` of the key derivation (RFC 5869). The reference's clients use the same bytes.
const INFO: &[u8] = b"wse-encryption/aes-gcm-key";

/// Why a key can't be derived, or a message can't be encrypted or decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// The private key is 0 or not below the order of the curve.
    #[error("the private key is not valid for P-256: give one that was generated")]
    PrivateKey,
    /// The peer's public key, of this many bytes, isn't a point of the curve or isn't uncompressed.
    #[error(
        "the peer's public key of {0} bytes is not a point of P-256: give its {PUBLIC_BYTES} bytes, uncompressed (the first is 4)"
    )]
    PeerKey(usize),
    /// The encrypted message has this many bytes, too few for IV and tag.
    #[error("{0} bytes are too short for a sealed message: its IV and tag alone have {OVERHEAD_BYTES}")]
    Short(usize),
    /// The tag doesn't match: the message was encrypted with another key or has been changed.
    #[error("the message was sealed with another key, or changed in transit")]
    Forged,
    /// The message isn't the next one: it was repeated, others were left out, or the order was changed.
    #[error("the message has number {got} instead of {expected}: it was repeated, left out, or put in another order")]
    Order {
        /// The number in the message.
        got: u64,
        /// The number of the next message.
        expected: u64,
    },
    /// The system has no random bytes or no memory, or the message is too long for AES-GCM.
    #[error("the cryptographic library failed: it has no random bytes, or the message is too long for it")]
    Library,
}

/// Generates a key pair: the private key and its public key.
///
/// # Errors
/// Returns [`CryptoError::Library`] if the system has no random bytes.
pub fn generate() -> Result<([u8; PRIVATE_BYTES], [u8; PUBLIC_BYTES]), CryptoError> {
    let library = |_: Unspecified| CryptoError::Library;
    let key = PrivateKey::generate(&ECDH_P256).map_err(library)?;
    let private: EcPrivateKeyBin<'_> = key.as_be_bytes().map_err(library)?;
    let public = key.compute_public_key().map_err(library)?;
    let (private, public) = (private.as_ref().try_into(), public.as_ref().try_into());
    Ok((private.map_err(|_| CryptoError::Library)?, public.map_err(|_| CryptoError::Library)?))
}

/// The encryption key that the owner of `private` shares with the owner of the public key `peer`.
///
/// # Errors
/// Returns [`CryptoError::PrivateKey`] or [`CryptoError::PeerKey`] if the key isn't valid for P-256.
pub fn derive(private: &[u8; PRIVATE_BYTES], peer: &[u8]) -> Result<[u8; KEY_BYTES], CryptoError> {
    derive_with(private, peer, &[INFO])
}

/// The same as [`derive`], with this `info` for the key derivation, one part after the other.
pub(crate) fn derive_with(
    private: &[u8; PRIVATE_BYTES],
    peer: &[u8],
    info: &[&[u8]],
) -> Result<[u8; KEY_BYTES], CryptoError> {
    let private = PrivateKey::from_private_key(&ECDH_P256, private).map_err(|_| CryptoError::PrivateKey)?;
    let invalid = CryptoError::PeerKey(peer.len());
    // The library would also accept compressed points, which no client of the protocol sends.
    if peer.len() != PUBLIC_BYTES || peer[0] != UNCOMPRESSED {
        return Err(invalid);
    }
    agreement::agree(&private, UnparsedPublicKey::new(&ECDH_P256, peer), invalid, |secret| expand(secret, info))
}

/// Overwrites a key that is no longer needed.
pub fn erase(key: &mut [u8]) {
    key.fill(0);
    // The read keeps the compiler from removing the zeroing.
    black_box(key);
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives bytes by HKDF-SHA256 (RFC 5869) without a salt.
fn expand<const BYTES: usize>(secret: &[u8], info: &[&[u8]]) -> Result<[u8; BYTES], CryptoError> {
    let mut key = [0; BYTES];
    let filled = Salt::none(HKDF_SHA256).extract(secret).expand(info, Length(BYTES)).and_then(|okm| okm.fill(&mut key));
    filled.map_err(|_| CryptoError::Library)?;
    Ok(key)
}

/// An encryption key, prepared once for many messages. Threads can share it.
pub struct Key {
    key: LessSafeKey,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

impl Key {
    /// Prepares the key with these bytes.
    ///
    /// # Errors
    /// Returns [`CryptoError::Library`] if the library has no memory for it.
    pub fn new(key: &[u8; KEY_BYTES]) -> Result<Self, CryptoError> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| CryptoError::Library)?;
        Ok(Self { key: LessSafeKey::new(key) })
    }

    /// Encrypts `plain` with a random IV.
    ///
    /// # Errors
    /// Returns [`CryptoError::Library`] if the system has no random bytes, or the message is longer than 2^36 bytes.
    pub fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let mut sealed = Vec::with_capacity(plain.len() + OVERHEAD_BYTES);
        self.seal_onto(plain, &mut sealed)?;
        Ok(sealed)
    }

    /// The same as [`Self::seal`], appended to `out`. After an error `out` is unchanged.
    ///
    /// # Errors
    /// The same as [`Self::seal`].
    pub fn seal_onto(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CryptoError> {
        let mut iv = [0; NONCE_LEN];
        rand::fill(&mut iv).map_err(|_| CryptoError::Library)?;
        self.seal_with(iv, plain, out)
    }

    fn seal_with(&self, iv: [u8; NONCE_LEN], plain: &[u8], out: &mut Vec<u8>) -> Result<(), CryptoError> {
        let start = out.len();
        out.reserve(plain.len() + OVERHEAD_BYTES);
        out.extend_from_slice(&iv);
        out.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(iv);
        match self.key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[start + NONCE_LEN..]) {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            Err(Unspecified) => {
                out.truncate(start);
                return Err(CryptoError::Library);
            }
        }
        Ok(())
    }

    /// Decrypts the message `sealed`.
    ///
    /// # Errors
    /// Returns [`CryptoError::Short`] if the message is too short, and [`CryptoError::Forged`] if it was encrypted with
    /// another key or has been changed.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let short = CryptoError::Short(sealed.len());
        let (iv, rest) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(short)?;
        let (ciphertext, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(short)?;
        let mut plain = ciphertext.to_vec();
        let nonce = Nonce::assume_unique_for_key(*iv);
        let opened = self.key.open_in_place_separate_tag(nonce, Aad::empty(), tag, &mut plain);
        opened.map_err(|_| CryptoError::Forged)?;
        Ok(plain)
    }
}

/// Encrypts `plain` with `key` once. For several messages with one key, [`Key`] is faster.
///
/// # Errors
/// The same as [`Key::seal`].
pub fn seal(key: &[u8; KEY_BYTES], plain: &[u8]) -> Result<Vec<u8>, CryptoError> {
    Key::new(key)?.seal(plain)
}

/// Decrypts a message that was encrypted with `key`.
///
/// # Errors
/// The same as [`Key::open`].
pub fn open(key: &[u8; KEY_BYTES], sealed: &[u8]) -> Result<Vec<u8>, CryptoError> {
    Key::new(key)?.open(sealed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        assert_eq!(hex.len(), N * 2);
        std::array::from_fn(|index| u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16).unwrap())
    }

    fn sealed_with(key: [u8; KEY_BYTES], iv: [u8; NONCE_LEN], plain: &[u8]) -> Vec<u8> {
        let mut out = b"E:".to_vec();
        Key::new(&key).unwrap().seal_with(iv, plain, &mut out).unwrap();
        assert!(out.starts_with(b"E:") && out[2..].starts_with(&iv));
        out[2 + NONCE_LEN..].to_vec()
    }

    /// The key pair and the peer's public key of the first P-256 vector of NIST's KAS ECC CDH Primitive Test Vectors.
    const PRIVATE: &str = "7d7dc5f71eb29ddaf80d6214632eeae03d9058af1fb6d22ed80badb62bc1a534";
    const PEER: &str = "04700c48f77f56584c5cc632ca65640db91b6bacce3a4df6b42ce7cc838833d287\
                        db71e509e3fd9b060ddb20ba5c51dcc5948d46fbf640dfe0441782cab85fa4ac";
    const SHARED: &str = "46fc62106420ff012e54a434fbdd2d25ccc5852060561e68040dd7778997bd7b";

    #[test]
    fn hkdf_matches_rfc_5869_test_case_3_without_salt_and_info() {
        let expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        assert_eq!(expand::<42>(&[0x0B; 22], &[b""]), Ok(bytes(expected)));
    }

    #[test]
    fn the_agreed_key_is_hkdf_of_the_secret_that_nist_publishes() {
        let secret: [u8; 32] = bytes(SHARED);
        let derived = derive(&bytes(PRIVATE), &bytes::<65>(PEER)).unwrap();
        assert_eq!(expand::<32>(&secret, &[INFO]), Ok(derived));
        // Derived with Python's `cryptography`, so that a change of the info doesn't go unnoticed.
        assert_eq!(derived, bytes("917f4f1eb537dd9732229828bf64ca84ee780fba7195be5e632206961cf0b0ee"));
    }

    #[test]
    fn aes_256_gcm_matches_the_specifications_test_cases_13_to_15() {
        assert_eq!(sealed_with([0; 32], [0; 12], b""), bytes::<16>("530f8afbc74536b9a963b4f1c4cb738b"));
        let expected = "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919";
        assert_eq!(sealed_with([0; 32], [0; 12], &[0; 16]), bytes::<32>(expected));
        let key = bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let plain = bytes::<64>(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
        );
        let expected = bytes::<80>(
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838\
             c5f61e6393ba7a0abcc9f662898015adb094dac5d93471bdec1a502270e3cc6c",
        );
        assert_eq!(sealed_with(key, bytes("cafebabefacedbaddecaf888"), &plain), expected);
    }

    #[test]
    fn two_parties_derive_the_same_key_and_a_third_derives_another() {
        let [(private, public), (other, other_public), (_, third)] = std::array::from_fn(|_| generate().unwrap());
        assert_eq!(derive(&private, &other_public), derive(&other, &public));
        assert_ne!(derive(&private, &other_public), derive(&private, &third));
        assert_eq!(public[0], UNCOMPRESSED);
    }

    #[test]
    fn a_key_that_is_not_on_the_curve_is_refused() {
        let (private, peer) = (bytes(PRIVATE), bytes::<65>(PEER));
        assert_eq!(derive(&[0; 32], &peer), Err(CryptoError::PrivateKey));
        assert_eq!(derive(&[0xFF; 32], &peer), Err(CryptoError::PrivateKey));
        let mut off_curve = peer;
        off_curve[64] ^= 1;
        assert_eq!(derive(&private, &off_curve), Err(CryptoError::PeerKey(65)));
        let compressed = [&[2], &peer[1..33]].concat();
        for invalid in [&b""[..], &peer[..64], &peer[1..], &compressed, &[&[6], &peer[1..]].concat(), &[0; 65]] {
            assert_eq!(derive(&private, invalid), Err(CryptoError::PeerKey(invalid.len())), "{invalid:x?}");
        }
    }

    #[test]
    fn a_message_sealed_twice_is_never_the_same_and_opens_twice() {
        let key = Key::new(&[7; 32]).unwrap();
        let (first, second) = (key.seal(b"hello").unwrap(), seal(&[7; 32], b"hello").unwrap());
        assert_ne!(first, second);
        assert_ne!(first[..NONCE_LEN], second[..NONCE_LEN]);
        assert_eq!(first.len(), 5 + OVERHEAD_BYTES);
        assert_eq!(open(&[7; 32], &first).as_deref(), Ok(&b"hello"[..]));
        assert_eq!(key.open(&second).as_deref(), Ok(&b"hello"[..]));
    }

    #[test]
    fn a_short_message_is_distinguished_from_a_forged_one() {
        let key = Key::new(&[7; 32]).unwrap();
        assert_eq!(key.open(&[0; 27]), Err(CryptoError::Short(27)));
        assert_eq!(key.open(b""), Err(CryptoError::Short(0)));
        assert_eq!(key.open(&[0; 28]), Err(CryptoError::Forged));
        assert_eq!(open(&[8; 32], &key.seal(b"x").unwrap()), Err(CryptoError::Forged));
    }

    proptest! {
        #[test]
        fn a_sealed_message_opens_unless_any_bit_of_it_changed(
            key: [u8; 32],
            plain in prop::collection::vec(any::<u8>(), 0..2000),
            at: prop::sample::Index,
            bit in 0..8u8,
        ) {
            let mut sealed = seal(&key, &plain).unwrap();
            prop_assert_eq!(open(&key, &sealed), Ok(plain));
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(open(&key, &sealed), Err(CryptoError::Forged));
        }
    }
}
