//! Keys that verify tokens: a secret, a public key in PEM, or a set of keys as an issuer publishes it (RFC 7517).
//!
//! A key carries its algorithm. A token's header chooses among the keys but never how a key is used, so a forger can't
//! have a public key used as a secret. Keys are checked here, once, so that a bad one is found at the start and not by
//! the first client.

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::PublicKey,
    signature::{self, EcdsaKeyPair, ParsedPublicKey, RsaKeyPair, RsaPublicKeyComponents, VerificationAlgorithm},
};
use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse},
};

/// The shortest HMAC secret, in bytes (RFC 7518, 3.2).
const MIN_SECRET_BYTES: usize = 32;
/// The sizes of RSA keys in bits: the minimum is that of RFC 7518 (3.3), the maximum is the library's.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// The most keys: more than an issuer publishes during a rotation. Keys without an id are tried one after the other.
const MAX_KEYS: usize = 64;

/// The algorithm that signs a token (RFC 7518, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256: the key that verifies also signs.
    Hs256,
    /// RSA, PKCS #1 v1.5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

impl JwtAlgorithm {
    /// The algorithm's name in the `alg` of a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }

    /// The algorithm with this name; `None` if it isn't supported.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Hs256, Self::Rs256, Self::Es256].into_iter().find(|algorithm| algorithm.name() == name)
    }

    pub(crate) fn library(self) -> Algorithm {
        match self {
            Self::Hs256 => Algorithm::HS256,
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
        }
    }
}

/// Why keys are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The secret has too few bytes: it could be guessed.
    #[error("{0} bytes are too short for a secret: HS256 needs at least {MIN_SECRET_BYTES}")]
    ShortSecret(usize),
    /// The secret is a key of another algorithm, which may be public: its readers could sign tokens.
    #[error("{what} is not a secret for HS256: {advice}")]
    NoSecret {
        /// What was given instead of a secret.
        what: &'static str,
        /// Which algorithm or argument to give.
        advice: &'static str,
    },
    /// The text is not the PEM of a public key.
    #[error("not a public key for {algorithm}: give it as PEM, beginning with {expected}")]
    NotPublic {
        /// The algorithm that the key was given for.
        algorithm: &'static str,
        /// The first line that is expected.
        expected: &'static str,
    },
    /// A public key of another type, too short, or damaged.
    #[error("the public key is not one for {algorithm}: it takes {required}")]
    Unfit {
        /// The algorithm that the key was given for.
        algorithm: &'static str,
        /// The type of key that is accepted.
        required: &'static str,
    },
    /// The text is not a private key, or not the one of the public key.
    #[error(
        "the private key does not belong to the public one: give its PKCS #8 PEM, or leave it out: only the issuer of tokens needs it"
    )]
    PrivateKey,
    /// The text is not a JSON Web Key Set.
    #[error("not a JSON Web Key Set ({0}): give {{\"keys\": [...]}} as RFC 7517 has it")]
    NotASet(String),
    /// None of the set's keys can be used.
    #[error("none of the set's {0} keys is for signatures with HS256, RS256 (2048 to 8192 bits) or ES256")]
    NoneUsable(usize),
    /// There are no keys, so no client could connect.
    #[error("there is no key: no client could connect")]
    None,
    /// The server verifies no tokens.
    #[error("the server verifies no tokens: start it with a key to be able to replace it")]
    NoGate,
    /// There are more keys than an issuer publishes.
    #[error("there are {0} keys, more than {MAX_KEYS}")]
    TooMany(usize),
    /// Two keys have the same id and algorithm, so a token can't name one of them.
    #[error("there are two {algorithm} keys with the id {id:?}: give each its own")]
    SameId {
        /// The id of both keys.
        id: String,
        /// The algorithm of both keys.
        algorithm: &'static str,
    },
}

/// A key with its algorithm and its id, if it has one.
#[derive(Clone)]
pub struct JwtKey {
    pub(crate) id: Option<String>,
    pub(crate) algorithm: JwtAlgorithm,
    pub(crate) key: DecodingKey,
}

impl std::fmt::Debug for JwtKey {
    /// Leaves the key out, because configurations are logged.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, algorithm, .. } = self;
        formatter.debug_struct("JwtKey").field("id", id).field("algorithm", algorithm).finish_non_exhaustive()
    }
}

impl JwtKey {
    /// Makes a key for HS256 from a secret.
    ///
    /// # Errors
    /// [`KeyError::ShortSecret`] if it has fewer than 32 bytes, [`KeyError::NoSecret`] if it is a PEM or a JWK (Set).
    pub fn secret(secret: &[u8]) -> Result<Self, KeyError> {
        if let Some((what, advice)) = other_key(secret) {
            return Err(KeyError::NoSecret { what, advice });
        }
        if secret.len() < MIN_SECRET_BYTES {
            return Err(KeyError::ShortSecret(secret.len()));
        }
        Ok(Self { id: None, algorithm: JwtAlgorithm::Hs256, key: DecodingKey::from_secret(secret) })
    }

    /// Makes a key from what the reference calls the secret of `algorithm`: the secret itself, or a public key in PEM.
    ///
    /// # Errors
    /// [`KeyError::ShortSecret`] for a short secret, [`KeyError::NotPublic`] if it is not the PEM of a public key,
    /// [`KeyError::Unfit`] if the key is of another type or size.
    pub fn for_algorithm(algorithm: JwtAlgorithm, material: &[u8]) -> Result<Self, KeyError> {
        let (tags, expected): (&[&str], _) = match algorithm {
            JwtAlgorithm::Hs256 => return Self::secret(material),
            // X.509 and PKCS #1; the library reads both.
            JwtAlgorithm::Rs256 => (&["PUBLIC KEY", "RSA PUBLIC KEY"], "-----BEGIN PUBLIC KEY-----"),
            JwtAlgorithm::Es256 => (&["PUBLIC KEY"], "-----BEGIN PUBLIC KEY-----"),
        };
        let not_public = KeyError::NotPublic { algorithm: algorithm.name(), expected };
        let pem = pem::parse(material).ok().filter(|pem| tags.contains(&pem.tag())).ok_or(not_public)?;
        let (key, required) = match algorithm {
            JwtAlgorithm::Es256 => (curve_key(pem.contents()), "one of the curve P-256"),
            _ => (rsa_key(pem.contents()), "an RSA key of 2048 to 8192 bits"),
        };
        let key = key.ok_or(KeyError::Unfit { algorithm: algorithm.name(), required })?;
        Ok(Self { id: None, algorithm, key })
    }

    /// Restricts the key to tokens whose header names `id`. Without an id it verifies any token of its algorithm.
    #[must_use]
    pub fn with_id(self, id: Option<String>) -> Self {
        Self { id, ..self }
    }

    /// Reads the keys of a JSON Web Key Set. Keys for other purposes or algorithms are left out, as RFC 7517 (5)
    /// recommends.
    ///
    /// # Errors
    /// [`KeyError::NotASet`] if it is not a set, [`KeyError::NoneUsable`] if none of its keys can be used.
    pub fn set(text: &[u8]) -> Result<Vec<Self>, KeyError> {
        let set: JwkSet = serde_json::from_slice(text).map_err(|error| KeyError::NotASet(error.to_string()))?;
        let keys: Vec<Self> = set.keys.iter().filter_map(Self::of_set).collect();
        if keys.is_empty() { Err(KeyError::NoneUsable(set.keys.len())) } else { Ok(keys) }
    }

    fn of_set(jwk: &Jwk) -> Option<Self> {
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::OctetKey(_) => JwtAlgorithm::Hs256,
            AlgorithmParameters::RSA(_) => JwtAlgorithm::Rs256,
            AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => JwtAlgorithm::Es256,
            _ => return None,
        };
        let signs = !matches!(&jwk.common.public_key_use, Some(purpose) if *purpose != PublicKeyUse::Signature);
        let named = jwk.common.key_algorithm.unwrap_or(KeyAlgorithm::from(algorithm.library()));
        if !signs || named != KeyAlgorithm::from(algorithm.library()) {
            return None;
        }
        let key = DecodingKey::from_jwk(jwk).ok().filter(|key| is_sound(algorithm, key.kind()))?;
        Some(Self { id: jwk.common.key_id.clone(), algorithm, key })
    }

    /// Checks that `pem` holds the private half of this public key. The private key is not kept, because a server only
    /// verifies.
    ///
    /// # Errors
    /// [`KeyError::PrivateKey`] if it doesn't, or can't be read.
    pub fn check_private(&self, pem: &[u8]) -> Result<(), KeyError> {
        const PROBE: &[u8] = b"whose key is this?";
        let pem = pem::parse(pem).map_err(|_| KeyError::PrivateKey)?;
        let random = SystemRandom::new();
        let signed = match self.algorithm {
            JwtAlgorithm::Hs256 => None,
            JwtAlgorithm::Rs256 => {
                let pair = if pem.tag() == "RSA PRIVATE KEY" { RsaKeyPair::from_der } else { RsaKeyPair::from_pkcs8 };
                pair(pem.contents()).ok().and_then(|pair| {
                    let mut signed = vec![0; pair.public_modulus_len()];
                    pair.sign(&signature::RSA_PKCS1_SHA256, &random, PROBE, &mut signed).ok()?;
                    Some(signed)
                })
            }
            JwtAlgorithm::Es256 => {
                EcdsaKeyPair::from_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, pem.contents())
                    .ok()
                    .and_then(|pair| pair.sign(&random, PROBE).ok())
                    .map(|signed| signed.as_ref().to_vec())
            }
        };
        let public = self.key.try_get_as_bytes().map_err(|_| KeyError::PrivateKey)?;
        let verification: &'static dyn VerificationAlgorithm = match self.algorithm {
            JwtAlgorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            _ => &signature::RSA_PKCS1_2048_8192_SHA256,
        };
        let public = ParsedPublicKey::new(verification, public).map_err(|_| KeyError::PrivateKey)?;
        let is_ours = signed.is_some_and(|signed| public.verify_sig(PROBE, &signed).is_ok());
        if is_ours { Ok(()) } else { Err(KeyError::PrivateKey) }
    }
}

/// Checks that the number of keys is allowed and that a token can tell them apart.
///
/// # Errors
/// [`KeyError::None`] for no keys, [`KeyError::TooMany`] for too many, [`KeyError::SameId`] for two with the same id
/// and algorithm.
pub(crate) fn check(keys: &[JwtKey]) -> Result<(), KeyError> {
    if keys.is_empty() {
        return Err(KeyError::None);
    }
    if keys.len() > MAX_KEYS {
        return Err(KeyError::TooMany(keys.len()));
    }
    let same = |a: &JwtKey, b: &JwtKey| a.id.is_some() && a.id == b.id && a.algorithm == b.algorithm;
    for (index, key) in keys.iter().enumerate() {
        if keys[..index].iter().any(|other| same(other, key)) {
            let id = key.id.clone().unwrap_or_default();
            return Err(KeyError::SameId { id, algorithm: key.algorithm.name() });
        }
    }
    Ok(())
}

/// What a secret is if it is a key of another algorithm, and what to do with it. A secret is random bytes or a long
/// text, so none looks like this.
fn other_key(secret: &[u8]) -> Option<(&'static str, &'static str)> {
    let text = secret.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(secret).trim_ascii_start();
    if text.starts_with(b"-----BEGIN") {
        let content = pem::parse(text).map(pem::Pem::into_contents).unwrap_or_default();
        return Some(match (rsa_key(&content), curve_key(&content)) {
            (Some(_), _) => ("the PEM of an RSA key", "set jwt_algorithm to \"RS256\""),
            (_, Some(_)) => ("the PEM of a key of the curve P-256", "set jwt_algorithm to \"ES256\""),
            _ => ("a PEM", "set jwt_algorithm to \"RS256\" or \"ES256\", and give a public key"),
        });
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).ok()?;
    let is_key = object.contains_key("kty") || object.contains_key("keys");
    is_key
        .then_some(("a JSON Web Key or Key Set", "give the set as jwt_keys; each of its keys names its own algorithm"))
}

/// Reads a public key of the curve P-256, as DER or as a point.
fn curve_key(bytes: &[u8]) -> Option<DecodingKey> {
    ParsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, bytes).ok().map(|_| DecodingKey::from_ec_der(bytes))
}

/// Reads an RSA key in DER. Its size is checked here; the library would check it only for the first token.
fn rsa_key(der: &[u8]) -> Option<DecodingKey> {
    let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(&PublicKey::from_der(der).ok()?);
    is_rsa(&n, &e).then(|| DecodingKey::from_rsa_der(der))
}

/// Whether a modulus and an exponent may be used: long enough, without leading zeros (RFC 7518, 6.3.1).
fn is_rsa(n: &[u8], e: &[u8]) -> bool {
    let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
    // An even exponent has no inverse; with the exponent 1 nothing is signed.
    let is_exponent = e.first().is_some_and(|first| *first != 0) && e != [1] && e.last().is_some_and(|e| e % 2 == 1);
    n.first().is_some_and(|first| *first != 0) && RSA_BITS.contains(&bits) && is_exponent
}

/// Whether a key of a set is as strong as one that is configured directly must be.
fn is_sound(algorithm: JwtAlgorithm, kind: &DecodingKeyKind) -> bool {
    match (algorithm, kind) {
        (JwtAlgorithm::Hs256, DecodingKeyKind::SecretOrDer(secret)) => {
            secret.len() >= MIN_SECRET_BYTES && other_key(secret).is_none()
        }
        (JwtAlgorithm::Es256, DecodingKeyKind::SecretOrDer(point)) => curve_key(point).is_some(),
        (JwtAlgorithm::Rs256, DecodingKeyKind::RsaModulusExponent { n, e }) => is_rsa(n, e),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
