//! SHA-256, HMAC-SHA256, and the protocol's signature of a message.

use aws_lc_rs::{digest, hmac};

/// The size of a digest and of an HMAC tag, in bytes.
pub const DIGEST_BYTES: usize = 32;

fn array(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    bytes.try_into().expect("SHA-256 gives 32 bytes, and so does HMAC with it")
}

/// HMAC-SHA256 (RFC 2104) of `data`.
#[must_use]
pub fn hmac_sha256(key: &[u8], data: &[u8]) -> [u8; DIGEST_BYTES] {
    array(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref())
}

/// SHA-256 (FIPS 180-4) of `data`.
#[must_use]
pub fn sha256(data: &[u8]) -> [u8; DIGEST_BYTES] {
    array(digest::digest(&digest::SHA256, data).as_ref())
}

/// The digest as lower-case hexadecimal digits.
#[must_use]
pub fn hex(digest: &[u8; DIGEST_BYTES]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 0x0F]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The signature of a message: the HMAC-SHA256, in hexadecimal, of the hexadecimal SHA-256 of its JSON text.
#[must_use]
pub fn sign_message(json: &str, secret: &[u8]) -> String {
    hex(&hmac_sha256(secret, hex(&sha256(json.as_bytes())).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha_256_matches_fips_180_and_nist() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hex(&sha256(b"")), empty);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&sha256(b"abc")), abc);
        let blocks = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
        assert_eq!(hex(&sha256(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")), blocks);
    }

    #[test]
    fn hmac_matches_rfc_4231_test_cases_1_to_4_6_and_7() {
        let long = b"This is a test using a larger than block-size key and a larger than block-size data. \
                     The key needs to be hashed before being used by the HMAC algorithm.";
        let counted: Vec<u8> = (1..=25).collect();
        let cases: [(&[u8], &[u8], &str); 6] = [
            (&[0x0B; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0xAA; 20], &[0xDD; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (&counted, &[0xCD; 50], "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
            (
                &[0xAA; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (&[0xAA; 131], long, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"),
        ];
        for (key, data, expected) in cases {
            assert_eq!(hex(&hmac_sha256(key, data)), expected, "{}", String::from_utf8_lossy(data));
        }
    }

    #[test]
    fn a_message_is_signed_through_its_hexadecimal_digest() {
        // Computed with Python's hashlib and hmac.
        let expected = "2c13798b62219c41b7c6fef258737bd01847771a9010ca4a792c0616ceffd5a2";
        assert_eq!(sign_message(r#"{"a":1}"#, b"secret"), expected);
        assert_ne!(sign_message(r#"{"a":2}"#, b"secret"), expected);
        assert_ne!(sign_message(r#"{"a":1}"#, b"secreT"), expected);
    }
}
