//! Creates and verifies JSON Web Tokens (RFC 7519) with HS256, RS256 and ES256, by the same rules as the server.
//!
//! The caller states what a valid token is; the token itself decides nothing. An invalid token is not an error: it has
//! no claims, and no reason is returned that could reach its sender.

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, ParsedPublicKey, RsaKeyPair, VerificationAlgorithm},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header, errors::ErrorKind};
use serde::{Serialize, de::DeserializeOwned};

use crate::signing::hmac_sha256;

/// The shortest HMAC secret that is accepted, in bytes (RFC 7518, 3.2).
pub const MIN_SECRET_BYTES: usize = 32;
/// The longest token that is accepted, in bytes. Longer ones are refused before they are parsed.
pub const MAX_TOKEN_BYTES: usize = 8192;
/// The tolerated difference between the clocks of issuer and verifier, in seconds.
pub const LEEWAY_SECONDS: u64 = 30;

/// Why a token can't be created, or a key can't be used. No variant contains the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The algorithm isn't supported; the string is its name, shortened to 40 characters.
    #[error("the algorithm is {0:?}: give 'HS256', 'RS256' or 'ES256'")]
    Algorithm(String),
    /// The HMAC secret has this many bytes, fewer than [`MIN_SECRET_BYTES`], and could be guessed.
    #[error("{0} bytes are too short for a secret: HS256 needs at least {MIN_SECRET_BYTES}")]
    ShortSecret(usize),
    /// The key isn't PEM, or is a key of another type.
    #[error("the key is not valid for {algorithm}: give {expected} as PEM")]
    Key {
        /// The algorithm for which the key was given.
        algorithm: &'static str,
        /// The type of key that the algorithm needs.
        expected: &'static str,
    },
    /// The claims can't be written as JSON, or signing failed; the string is the reason.
    #[error("the token can't be made: {0}")]
    Unsigned(String),
    /// The token would have this many bytes, so verifiers would refuse it.
    #[error("the token would have {0} bytes: it may have {MAX_TOKEN_BYTES}, so leave claims out")]
    Long(usize),
}

/// How tokens are signed and verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// HMAC with SHA-256. The same secret signs and verifies.
    Hs256,
    /// RSASSA-PKCS1-v1_5 with SHA-256. Public keys have 2048 to 8192 bits.
    Rs256,
    /// ECDSA on the curve P-256, with SHA-256.
    Es256,
}

impl SignatureAlgorithm {
    /// The algorithm with this name: `HS256`, `RS256` or `ES256`.
    ///
    /// # Errors
    /// Returns [`TokenError::Algorithm`] for any other name.
    pub fn named(name: &str) -> Result<Self, TokenError> {
        match name {
            "HS256" => Ok(Self::Hs256),
            "RS256" => Ok(Self::Rs256),
            "ES256" => Ok(Self::Es256),
            other => Err(TokenError::Algorithm(other.chars().take(40).collect())),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }

    fn jwt_algorithm(self) -> Algorithm {
        match self {
            Self::Hs256 => Algorithm::HS256,
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
        }
    }

    fn secret(secret: &[u8]) -> Result<&[u8], TokenError> {
        if secret.len() < MIN_SECRET_BYTES { Err(TokenError::ShortSecret(secret.len())) } else { Ok(secret) }
    }

    fn verifying_key(self, key: &[u8]) -> Result<DecodingKey, TokenError> {
        let invalid_key = TokenError::Key { algorithm: self.name(), expected: "its public key" };
        let (tags, verification): (&[&str], &'static dyn VerificationAlgorithm) = match self {
            Self::Hs256 => return Self::secret(key).map(DecodingKey::from_secret),
            // A public key in the format of PKCS #1 or X.509.
            Self::Rs256 => (&["PUBLIC KEY", "RSA PUBLIC KEY"], &signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Es256 => (&["PUBLIC KEY"], &signature::ECDSA_P256_SHA256_FIXED),
        };
        let pem = pem::parse(key).ok().filter(|pem| tags.contains(&pem.tag())).ok_or_else(|| invalid_key.clone())?;
        ParsedPublicKey::new(verification, pem.contents()).map_err(|_| invalid_key)?;
        let made = if self == Self::Es256 { DecodingKey::from_ec_der } else { DecodingKey::from_rsa_der };
        Ok(made(pem.contents()))
    }
}

/// A signing key. The library that verifies tokens accepts only one format of private keys; this accepts all common
/// ones.
enum Signer<'a> {
    Secret(&'a [u8]),
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl<'a> Signer<'a> {
    fn new(signature: SignatureAlgorithm, key: &'a [u8]) -> Result<Self, TokenError> {
        if signature == SignatureAlgorithm::Hs256 {
            return SignatureAlgorithm::secret(key).map(Self::Secret);
        }
        let read = pem::parse(key).ok().and_then(|pem| match (signature, pem.tag()) {
            (SignatureAlgorithm::Rs256, "PRIVATE KEY") => RsaKeyPair::from_pkcs8(pem.contents()).ok().map(Self::Rsa),
            (SignatureAlgorithm::Rs256, "RSA PRIVATE KEY") => RsaKeyPair::from_der(pem.contents()).ok().map(Self::Rsa),
            (SignatureAlgorithm::Es256, "PRIVATE KEY" | "EC PRIVATE KEY") => {
                let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
                EcdsaKeyPair::from_private_key_der(algorithm, pem.contents()).ok().map(Self::Ecdsa)
            }
            _ => None,
        });
        read.ok_or(TokenError::Key { algorithm: signature.name(), expected: "its private key" })
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, TokenError> {
        let random = SystemRandom::new();
        let signed = match self {
            Self::Secret(secret) => Ok(hmac_sha256(secret, message).to_vec()),
            Self::Rsa(pair) => {
                let mut signed = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signed).map(|()| signed)
            }
            Self::Ecdsa(pair) => pair.sign(&random, message).map(|signed| signed.as_ref().to_vec()),
        };
        signed.map_err(|_| TokenError::Unsigned("the cryptographic library failed".into()))
    }
}

/// The header of a token (RFC 7515, 4.1), with the fields in the order of the library that verifies tokens.
#[derive(Serialize)]
struct Head<'a> {
    typ: &'static str,
    alg: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

/// Creates a token with these claims. `key` is a secret (HS256) or a private key in PEM; `key_id` becomes its `kid`.
///
/// # Errors
/// Returns [`TokenError::ShortSecret`] or [`TokenError::Key`] if the key can't be used, [`TokenError::Unsigned`] if the
/// claims can't be written as JSON or signed, and [`TokenError::Long`] if the token is too long.
pub fn make(
    claims: &impl Serialize,
    key: &[u8],
    signature: SignatureAlgorithm,
    key_id: Option<&str>,
) -> Result<String, TokenError> {
    let signer = Signer::new(signature, key)?;
    let unsigned = |error: serde_json::Error| TokenError::Unsigned(error.to_string());
    let head = Head { typ: "JWT", alg: signature.name(), kid: key_id };
    let mut token = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&head).map_err(unsigned)?);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(serde_json::to_vec(claims).map_err(unsigned)?, &mut token);
    let signed = signer.sign(token.as_bytes())?;
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signed, &mut token);
    if token.len() > MAX_TOKEN_BYTES { Err(TokenError::Long(token.len())) } else { Ok(token) }
}

/// The requirements for a valid token.
#[derive(Clone, Copy, Debug)]
pub struct TokenVerifier<'a> {
    /// The secret (HS256), or a public key in PEM.
    pub key: &'a [u8],
    /// The only algorithm that is accepted.
    pub signature: SignatureAlgorithm,
    /// The required claim `iss`; `None` accepts any.
    pub issuer: Option<&'a str>,
    /// The required claim `aud`; `None` accepts any.
    pub audience: Option<&'a str>,
    /// The key before the last rotation. Tokens signed with it are accepted with any `kid`.
    pub previous_key: Option<&'a [u8]>,
    /// The required `kid` of tokens signed with `key`; `None` accepts any.
    pub key_id: Option<&'a str>,
}

impl TokenVerifier<'_> {
    /// The claims of `token`; `None` if it isn't valid. The claim `exp` is required and `nbf` is checked, both with a
    /// tolerance of [`LEEWAY_SECONDS`].
    ///
    /// # Errors
    /// Returns [`TokenError::ShortSecret`] or [`TokenError::Key`] if a key can't be used.
    pub fn read<T: DeserializeOwned>(&self, token: &str) -> Result<Option<T>, TokenError> {
        let key = self.signature.verifying_key(self.key)?;
        let previous = self.previous_key.map(|key| self.signature.verifying_key(key)).transpose()?;
        if token.len() > MAX_TOKEN_BYTES {
            return Ok(None);
        }
        let validation = self.validation();
        if self.matches_key_id(token) {
            match decode(token, &key, &validation) {
                Ok(read) => return Ok(Some(read.claims)),
                // The token may be signed with the previous key.
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => {}
                Err(_) => return Ok(None),
            }
        }
        let Some(previous) = previous else { return Ok(None) };
        Ok(decode(token, &previous, &validation).ok().map(|read| read.claims))
    }

    fn matches_key_id(&self, token: &str) -> bool {
        // Without a required id the header is parsed once only, by `decode`.
        self.key_id.is_none() || decode_header(token).is_ok_and(|header| header.kid.as_deref() == self.key_id)
    }

    fn validation(&self) -> Validation {
        let mut validation = Validation::new(self.signature.jwt_algorithm());
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.validate_aud = self.audience.is_some();
        // The claim must be required as well as checked, because a token without it would be accepted otherwise.
        if let Some(issuer) = self.issuer {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".into());
        }
        if let Some(audience) = self.audience {
            validation.set_audience(&[audience]);
            validation.required_spec_claims.insert("aud".into());
        }
        validation
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use jsonwebtoken::{EncodingKey, Header, encode};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &[u8] = b"a secret of 32 bytes, or more...";
    const OTHER: &[u8] = b"another secret of 32 bytes or more";

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    fn valid_claims() -> Value {
        json!({"sub": "user", "iss": "me", "aud": ["you", "them"], "exp": now() + 60})
    }

    fn claims_with(name: &str, value: Value) -> Value {
        let mut claims = valid_claims();
        claims[name] = value;
        claims
    }

    fn expected() -> TokenVerifier<'static> {
        TokenVerifier {
            key: SECRET,
            signature: SignatureAlgorithm::Hs256,
            issuer: Some("me"),
            audience: Some("you"),
            previous_key: None,
            key_id: None,
        }
    }

    fn made(claims: &Value, key: &[u8], id: Option<&str>) -> String {
        make(claims, key, SignatureAlgorithm::Hs256, id).unwrap()
    }

    fn read(expected: TokenVerifier<'_>, token: &str) -> Option<Value> {
        expected.read(token).unwrap()
    }

    #[test]
    fn a_made_token_is_read_to_the_same_claims() {
        let claims = valid_claims();
        assert_eq!(read(expected(), &made(&claims, SECRET, None)), Some(claims));
    }

    #[test]
    fn the_example_of_rfc_7515_has_a_good_signature_but_is_long_expired() {
        // Appendix A.1; the claims expired in 2011.
        let key = [
            3, 35, 53, 75, 43, 15, 165, 188, 131, 126, 6, 101, 119, 123, 166, 143, 90, 179, 40, 230, 240, 84, 201, 40,
            169, 15, 132, 178, 210, 80, 46, 191, 211, 251, 90, 146, 210, 6, 71, 239, 150, 138, 180, 195, 119, 98, 61,
            34, 61, 46, 33, 114, 5, 46, 79, 8, 192, 205, 154, 245, 103, 208, 128, 163,
        ];
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
                     eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
                     dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let expected = TokenVerifier { key: &key, issuer: None, audience: None, ..expected() };
        assert_eq!(read(expected, token), None);
        let mut validation = expected.validation();
        validation.validate_exp = false;
        let claims: Value = decode(token, &DecodingKey::from_secret(&key), &validation).unwrap().claims;
        assert_eq!(claims["exp"], 1_300_819_380);
    }

    #[test]
    fn a_token_other_than_expected_is_read_as_none() {
        for claims in [
            claims_with("exp", json!(now() - 40)),
            claims_with("nbf", json!(now() + 40)),
            claims_with("iss", json!("someone")),
            claims_with("aud", json!("someone")),
            claims_with("exp", json!("soon")),
            json!({"iss": "me", "aud": "you"}),
            json!({"aud": "you", "exp": now() + 60}),
            json!({"iss": "me", "exp": now() + 60}),
        ] {
            assert_eq!(read(expected(), &made(&claims, SECRET, None)), None, "{claims}");
        }
        for token in ["", "x", "a.b.c", &made(&valid_claims(), OTHER, None)] {
            assert_eq!(read(expected(), token), None, "{token}");
        }
        let foreign =
            encode(&Header::new(Algorithm::HS512), &valid_claims(), &EncodingKey::from_secret(SECRET)).unwrap();
        assert_eq!(read(expected(), &foreign), None);
    }

    #[test]
    fn clocks_may_differ_by_half_a_minute() {
        for claims in [claims_with("exp", json!(now() - 20)), claims_with("nbf", json!(now() + 20))] {
            assert!(read(expected(), &made(&claims, SECRET, None)).is_some(), "{claims}");
        }
    }

    #[test]
    fn the_previous_key_matches_any_key_id_and_the_current_one_only_its_own() {
        let rotated = TokenVerifier { previous_key: Some(OTHER), key_id: Some("new"), ..expected() };
        for (key, id, is_accepted) in [
            (SECRET, Some("new"), true),
            (SECRET, Some("old"), false),
            (SECRET, None, false),
            (OTHER, Some("old"), true),
            (OTHER, Some("new"), true),
            (OTHER, None, true),
        ] {
            assert_eq!(read(rotated, &made(&valid_claims(), key, id)).is_some(), is_accepted, "{id:?}");
        }
        let expired = claims_with("exp", json!(now() - 100));
        assert_eq!(read(rotated, &made(&expired, OTHER, None)), None);
    }

    #[test]
    fn a_weak_or_foreign_key_is_an_error() {
        let short = TokenVerifier { key: b"short", ..expected() };
        assert_eq!(short.read::<Value>("x"), Err(TokenError::ShortSecret(5)));
        let previous = TokenVerifier { previous_key: Some(b"short"), ..expected() };
        assert_eq!(previous.read::<Value>("x"), Err(TokenError::ShortSecret(5)));
        for signature in [SignatureAlgorithm::Rs256, SignatureAlgorithm::Es256] {
            let foreign = TokenVerifier { signature, ..expected() };
            assert!(matches!(foreign.read::<Value>("x"), Err(TokenError::Key { expected: "its public key", .. })));
            let made = make(&valid_claims(), SECRET, signature, None);
            assert!(matches!(made, Err(TokenError::Key { expected: "its private key", .. })));
        }
        assert_eq!(make(&valid_claims(), b"short", SignatureAlgorithm::Hs256, None), Err(TokenError::ShortSecret(5)));
        assert_eq!(SignatureAlgorithm::named("none"), Err(TokenError::Algorithm("none".into())));
    }

    #[test]
    fn a_token_too_long_to_be_read_is_not_made() {
        let claims = claims_with("padding", json!("x".repeat(MAX_TOKEN_BYTES)));
        assert!(matches!(make(&claims, SECRET, SignatureAlgorithm::Hs256, None), Err(TokenError::Long(_))));
        assert_eq!(read(expected(), &"x".repeat(MAX_TOKEN_BYTES + 1)), None);
    }

    proptest! {
        #[test]
        fn a_token_with_any_character_changed_is_read_as_none(at: prop::sample::Index, to in "[A-Za-z0-9_-]") {
            let token = made(&valid_claims(), SECRET, None);
            let at = at.index(token.len());
            let mut changed = token.clone();
            changed.replace_range(at..=at, &to);
            // The last character of a part has bits that belong to no byte. Libraries refuse them or ignore them.
            let is_last = token[at + 1..].is_empty() || token[at + 1..].starts_with('.');
            prop_assume!(changed != token && !is_last);
            prop_assert_eq!(read(expected(), &changed), None);
        }
    }
}
