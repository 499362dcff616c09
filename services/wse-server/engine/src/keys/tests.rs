//! Keys are generated when the tests start: the repository contains none. The Python tests check tokens of an
//! independent implementation.

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaSigningAlgorithm, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;
use crate::{
    config::JwtConfig,
    jwt::{AuthError, Gate},
};

const SECRET: &[u8] = b"bench-secret-key-for-testing-only";

/// An issuer's key pair, and the tokens that it issues.
struct Pair {
    algorithm: JwtAlgorithm,
    signing: EncodingKey,
    public_pem: String,
    private_pem: String,
    jwk: Value,
}

fn to_pem(tag: &str, der: &[u8]) -> String {
    pem::encode(&pem::Pem::new(tag, der))
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn rsa() -> Pair {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let private: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let (n, e) = (pair.public_key().modulus(), pair.public_key().exponent());
    Pair {
        algorithm: JwtAlgorithm::Rs256,
        // The library signs with the content of PKCS #8, which follows 26 bytes of version, algorithm and lengths.
        signing: EncodingKey::from_rsa_der(&private.as_ref()[26..]),
        public_pem: to_pem("PUBLIC KEY", public.as_ref()),
        private_pem: to_pem("PRIVATE KEY", private.as_ref()),
        jwk: json!({"kty": "RSA", "n": text(n.big_endian_without_leading_zero()), "e": text(e.big_endian_without_leading_zero())}),
    }
}

fn on_curve(curve: &'static EcdsaSigningAlgorithm, name: &str) -> Pair {
    let pair = EcdsaKeyPair::generate(curve).unwrap();
    let private = pair.to_pkcs8v1().unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let point = &pair.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    Pair {
        algorithm: JwtAlgorithm::Es256,
        signing: EncodingKey::from_ec_der(private.as_ref()),
        public_pem: to_pem("PUBLIC KEY", public.as_ref()),
        private_pem: to_pem("PRIVATE KEY", private.as_ref()),
        jwk: json!({"kty": "EC", "crv": name, "x": text(x), "y": text(y)}),
    }
}

fn p256() -> Pair {
    on_curve(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")
}

impl Pair {
    fn key(&self) -> JwtKey {
        JwtKey::for_algorithm(self.algorithm, self.public_pem.as_bytes()).unwrap()
    }

    fn jwk(&self, with: Value) -> Value {
        let mut jwk = self.jwk.clone();
        jwk.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        jwk
    }

    fn token(&self, kid: Option<&str>) -> String {
        signed(self.algorithm, kid, &self.signing)
    }
}

fn signed(algorithm: JwtAlgorithm, kid: Option<&str>, key: &EncodingKey) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm.library()) };
    encode(&header, &json!({"sub": "u", "exp": crate::clock::now_millis() / 1000 + 60}), key).unwrap()
}

fn by_secret(kid: Option<&str>, secret: &[u8]) -> String {
    signed(JwtAlgorithm::Hs256, kid, &EncodingKey::from_secret(secret))
}

fn admits(gate: &Gate, token: &str) -> bool {
    match gate.admit([], Some(&format!("Bearer {token}"))) {
        Ok(admitted) => admitted.user == "u",
        Err(error) => {
            assert_eq!(error, AuthError::Failed);
            false
        }
    }
}

fn gate(keys: Vec<JwtKey>) -> Gate {
    Gate::new(&JwtConfig::new(keys))
}

#[test]
fn a_token_is_accepted_only_with_the_public_key_of_its_private_key() {
    for (one, other) in [(rsa(), rsa()), (p256(), p256())] {
        let gate = gate(vec![one.key()]);
        assert!(admits(&gate, &one.token(None)) && admits(&gate, &one.token(Some("any"))));
        assert!(!admits(&gate, &other.token(None)));
    }
}

#[test]
fn a_token_signed_with_the_public_key_as_secret_is_refused() {
    for pair in [rsa(), p256()] {
        let forged = by_secret(None, pair.public_pem.as_bytes());
        assert!(!admits(&gate(vec![pair.key()]), &forged));
        // The same holds with a secret beside it, even though the token then names the secret's algorithm correctly.
        let both = gate(vec![pair.key(), JwtKey::secret(SECRET).unwrap()]);
        assert!(!admits(&both, &forged) && admits(&both, &by_secret(None, SECRET)));
    }
}

#[test]
fn a_token_is_verified_with_the_key_that_it_names() {
    let (old, new, secret) = (rsa(), p256(), JwtKey::secret(SECRET).unwrap());
    let named = |key: JwtKey, id: &str| key.with_id(Some(id.into()));
    let gate = gate(vec![named(old.key(), "old"), named(new.key(), "new"), named(secret, "s")]);
    for token in [old.token(Some("old")), new.token(Some("new")), by_secret(Some("s"), SECRET)] {
        assert!(admits(&gate, &token));
    }
    for token in [old.token(Some("new")), old.token(Some("s")), new.token(Some("old")), old.token(None)] {
        assert!(!admits(&gate, &token), "{token}");
    }
}

#[test]
fn keys_are_rotated_while_the_gate_is_in_use() {
    let (old, new) = (p256(), p256());
    let gate = gate(vec![old.key()]);
    gate.replace(&[old.key(), new.key()]).unwrap();
    assert!(admits(&gate, &old.token(None)) && admits(&gate, &new.token(None)));
    gate.replace(&[new.key()]).unwrap();
    assert!(!admits(&gate, &old.token(None)) && admits(&gate, &new.token(None)));
    assert_eq!(gate.replace(&[]), Err(KeyError::None));
    assert!(admits(&gate, &new.token(None)), "a rotation that fails changes nothing");
}

#[test]
fn a_key_set_yields_its_usable_keys_and_skips_the_others() {
    let (rsa, p256, p384) = (rsa(), p256(), on_curve(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"));
    let short = json!({"kty": "RSA", "n": text(&[0xFF; 128]), "e": "AQAB", "kid": "short"});
    let off_curve = json!({"kty": "EC", "crv": "P-256", "x": text(&[1; 32]), "y": text(&[2; 32])});
    let set = json!({"keys": [
        rsa.jwk(json!({"kid": "r", "alg": "RS256", "use": "sig"})),
        p256.jwk(json!({"kid": "e"})),
        {"kty": "oct", "k": text(SECRET), "kid": "s"},
        rsa.jwk(json!({"kid": "encrypts", "use": "enc"})),
        rsa.jwk(json!({"kid": "pss", "alg": "PS256"})),
        rsa.jwk(json!({"kid": "oaep", "alg": "RSA-OAEP"})),
        p384.jwk(json!({"kid": "p384"})),
        {"kty": "oct", "k": text(b"short"), "kid": "x"},
        {"kty": "OKP", "crv": "Ed25519", "x": text(&[1; 32])},
        {"kty": "future", "kid": "y"},
        short, off_curve,
    ]});
    let keys = JwtKey::set(set.to_string().as_bytes()).unwrap();
    let ids: Vec<_> = keys.iter().map(|key| key.id.as_deref().unwrap()).collect();
    assert_eq!(ids, ["r", "e", "s"]);
    let gate = gate(keys);
    for token in [rsa.token(Some("r")), p256.token(Some("e")), by_secret(Some("s"), SECRET)] {
        assert!(admits(&gate, &token));
    }
    assert!(!admits(&gate, &p256.token(Some("r"))) && !admits(&gate, &rsa.token(Some("encrypts"))));
}

#[test]
fn an_invalid_key_set_is_refused_with_a_reason() {
    for (text, begins) in [
        ("{", "not a JSON Web Key Set (EOF"),
        ("{}", "not a JSON Web Key Set (missing field `keys`"),
        (r#"{"keys":[{"kty":"future"}]}"#, "none of the set's 1 keys is for signatures"),
    ] {
        let error = JwtKey::set(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(begins), "{error}");
    }
}

#[test]
fn a_key_of_the_wrong_type_is_refused() {
    let (rsa, p256) = (rsa(), p256());
    let p384 = on_curve(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384");
    let broken = rsa.public_pem.replace("\nM", "\nN");
    for (algorithm, pem, expected) in [
        (JwtAlgorithm::Rs256, &p256.public_pem, "not one for RS256: it takes an RSA key of 2048"),
        (JwtAlgorithm::Es256, &rsa.public_pem, "not one for ES256: it takes one of the curve P-256"),
        (JwtAlgorithm::Es256, &p384.public_pem, "not one for ES256"),
        (JwtAlgorithm::Rs256, &rsa.private_pem, "not a public key for RS256: give it as PEM"),
        (JwtAlgorithm::Es256, &"a secret of more than 32 bytes, not a key".into(), "not a public key for ES256"),
        (JwtAlgorithm::Rs256, &broken, "RS256"),
        (JwtAlgorithm::Hs256, &"short".into(), "5 bytes are too short"),
    ] {
        let error = JwtKey::for_algorithm(algorithm, pem.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_private_key_must_belong_to_the_public_key() {
    for (one, other) in [(rsa(), rsa()), (p256(), p256()), (rsa(), p256())] {
        assert_eq!(one.key().check_private(one.private_pem.as_bytes()), Ok(()));
        assert_eq!(one.key().check_private(other.private_pem.as_bytes()), Err(KeyError::PrivateKey));
        assert_eq!(one.key().check_private(one.public_pem.as_bytes()), Err(KeyError::PrivateKey));
    }
    assert_eq!(JwtKey::secret(SECRET).unwrap().check_private(SECRET), Err(KeyError::PrivateKey));
}

#[test]
fn keys_that_a_token_cannot_tell_apart_are_refused() {
    let secret = |id: &str| JwtKey::secret(SECRET).unwrap().with_id(Some(id.into()));
    assert_eq!(check(&[secret("a"), secret("b"), JwtKey::secret(SECRET).unwrap()]), Ok(()));
    assert_eq!(check(&[secret("a"), p256().key().with_id(Some("a".into()))]), Ok(()), "their algorithms differ");
    assert_eq!(check(&[secret("a"), secret("a")]), Err(KeyError::SameId { id: "a".into(), algorithm: "HS256" }));
    assert_eq!(check(&vec![JwtKey::secret(SECRET).unwrap(); 65]), Err(KeyError::TooMany(65)));
}

#[test]
fn a_key_of_another_algorithm_is_not_a_secret_and_the_error_says_which_algorithm_to_give() {
    let (rsa, p256) = (rsa(), p256());
    let refused =
        |material: &str| JwtKey::for_algorithm(JwtAlgorithm::Hs256, material.as_bytes()).unwrap_err().to_string();
    for (material, expected) in [
        (rsa.public_pem.clone(), "the PEM of an RSA key is not a secret for HS256: set jwt_algorithm to \"RS256\""),
        (
            p256.public_pem.clone(),
            "the PEM of a key of the curve P-256 is not a secret for HS256: set jwt_algorithm to \"ES256\"",
        ),
        (format!("\n  {}", rsa.public_pem), "the PEM of an RSA key is not a secret"),
        (rsa.private_pem.clone(), "a PEM is not a secret for HS256"),
        (rsa.jwk.to_string(), "a JSON Web Key or Key Set is not a secret for HS256: give the set as jwt_keys"),
        (json!({"keys": [p256.jwk]}).to_string(), "a JSON Web Key or Key Set is not a secret for HS256"),
    ] {
        let error = refused(&material);
        assert!(error.starts_with(expected), "{error}");
    }
    // Nor is it one in a set.
    let set = json!({"keys": [{"kty": "oct", "k": text(rsa.public_pem.as_bytes())}]}).to_string();
    assert_eq!(JwtKey::set(set.as_bytes()).unwrap_err(), KeyError::NoneUsable(1));
    assert!(JwtKey::secret(br#"{"a": "secret that happens to be JSON"}"#).is_ok());
}
