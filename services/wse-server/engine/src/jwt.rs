//! Admission of clients: extracts the token from a request's headers and verifies it.
//!
//! Tokens, secrets and the exact reasons of a refusal are never logged and never sent to the client.

use std::sync::{Arc, PoisonError, RwLock};

use jsonwebtoken::{Header, Validation, decode, decode_header, errors::ErrorKind};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    config::JwtConfig,
    keys::{self, JwtKey, KeyError},
    topics::TopicAcl,
};

/// The longest token that is checked, in bytes; a longer one is refused without reading it.
const MAXIMAL_TOKEN_BYTES: usize = 8192;
/// How far the clocks of issuer and server may differ, in seconds.
const LEEWAY_SECONDS: u64 = 30;

/// Why a client isn't admitted, as it is reported to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The request has no token.
    Missing,
    /// The token is invalid, or its user id has control characters.
    Failed,
    /// The token is valid but has no user id in `sub`.
    NoUser,
}

impl AuthError {
    /// The error code on the wire.
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "AUTH_REQUIRED",
            Self::Failed | Self::NoUser => "AUTH_FAILED",
        }
    }

    /// The error message on the wire.
    pub fn message(self) -> &'static str {
        match self {
            Self::Missing => "No JWT cookie or Authorization header",
            Self::Failed => "Authentication failed",
            Self::NoUser => "Token missing user ID",
        }
    }
}

#[derive(Deserialize)]
struct Claims {
    /// Seconds since the Unix epoch.
    exp: f64,
    #[serde(default)]
    sub: Value,
    #[serde(default)]
    wse_topics: Value,
}

/// The topic rules in a token's `wse_topics` claim.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicClaim {
    /// `None` allows what isn't denied. An empty list allows nothing: its issuer found nothing to allow.
    #[serde(default, deserialize_with = "present")]
    allow: Option<Vec<String>>,
    #[serde(default)]
    deny: Vec<String>,
}

/// A list that is present: `null` is none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    Vec::deserialize(deserializer).map(Some)
}

/// A client that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The user's id, from the claim `sub`.
    pub user: String,
    /// The topics that the user may subscribe to; `None` if the token has no rules.
    pub topics: Option<TopicAcl>,
    /// When the token admits no one any more, in milliseconds since the Unix epoch: `exp` and the leeway.
    pub expires_millis: u64,
}

/// A key and the checks of a token that it verifies. The token must be signed with this key's algorithm and no other.
struct TokenVerifier {
    key: JwtKey,
    validation: Validation,
}

/// Verifies tokens with the current keys.
pub struct Gate {
    /// The current keys. Handshakes in progress keep the previous list when a rotation replaces it.
    verifiers: RwLock<Arc<[TokenVerifier]>>,
    issuer: Option<String>,
    audience: Option<String>,
    cookie_name: String,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Gate").field("cookie_name", &self.cookie_name).finish_non_exhaustive()
    }
}

impl Gate {
    /// Makes a gate with the keys and claims of `config`.
    pub fn new(config: &JwtConfig) -> Self {
        let gate = Self {
            verifiers: RwLock::new(Arc::new([])),
            issuer: config.issuer.clone(),
            audience: config.audience.clone(),
            cookie_name: config.cookie_name.clone(),
        };
        gate.install(&config.keys);
        gate
    }

    /// Verifies tokens with `keys` alone from now on. Open connections stay.
    ///
    /// # Errors
    /// [`KeyError`] if there are no keys, too many, or two with the same id and algorithm; the old keys then stay.
    pub fn replace(&self, keys: &[JwtKey]) -> Result<(), KeyError> {
        keys::check(keys)?;
        self.install(keys);
        Ok(())
    }

    fn install(&self, keys: &[JwtKey]) {
        let verifiers =
            keys.iter().map(|key| TokenVerifier { key: key.clone(), validation: self.validation(key) }).collect();
        *self.verifiers.write().unwrap_or_else(PoisonError::into_inner) = verifiers;
    }

    fn validation(&self, key: &JwtKey) -> Validation {
        let mut validation = Validation::new(key.algorithm.library());
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.validate_aud = self.audience.is_some();
        validation.set_required_spec_claims(&["exp"]);
        // A token without the claim passes its check unless the claim is required as well.
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".into());
        }
        if let Some(audience) = &self.audience {
            validation.set_audience(&[audience]);
            validation.required_spec_claims.insert("aud".into());
        }
        validation
    }

    /// Whether a request's token is in one of its cookies. The browser, and not the page, decides whether to send these.
    pub fn has_token_in<'a>(&self, cookies: impl IntoIterator<Item = &'a str>) -> bool {
        cookies.into_iter().any(|header| cookie_value(header, &self.cookie_name).is_some())
    }

    /// Finds the token (cookie first, then bearer) and verifies it. Returns the user.
    ///
    /// # Errors
    /// [`AuthError`], which is reported to the client.
    pub fn admit<'a>(
        &self,
        cookies: impl IntoIterator<Item = &'a str>,
        authorization: Option<&'a str>,
    ) -> Result<Admitted, AuthError> {
        let cookie = cookies.into_iter().find_map(|header| cookie_value(header, &self.cookie_name));
        let token = cookie.or_else(|| authorization.and_then(bearer)).ok_or(AuthError::Missing)?;
        let Claims { exp, sub, wse_topics } = self.claims(token).ok_or(AuthError::Failed)?;
        let expires_millis = ((exp + LEEWAY_SECONDS as f64) * 1000.0) as u64;
        match sub {
            // It goes to logs, to other clients and to the application, which may take a line break for an end.
            Value::String(user) if user.chars().any(char::is_control) => Err(AuthError::Failed),
            Value::String(user) if !user.is_empty() => Ok(Admitted { user, topics: rules(wse_topics), expires_millis }),
            _ => Err(AuthError::NoUser),
        }
    }

    fn claims(&self, token: &str) -> Option<Claims> {
        if token.len() > MAXIMAL_TOKEN_BYTES {
            return None;
        }
        let verifiers = Arc::clone(&self.verifiers.read().unwrap_or_else(PoisonError::into_inner));
        if let [verifier] = &*verifiers
            && verifier.key.id.is_none()
        {
            // There is only one key to choose, so `decode` alone reads the header.
            return verifier.verify(token).ok();
        }
        let header = decode_header(token).ok()?;
        // The key that the token names is tried first, because each other key costs a signature check.
        for named in [true, false] {
            for verifier in
                verifiers.iter().filter(|verifier| verifier.key.id.is_some() == named && verifier.may_verify(&header))
            {
                match verifier.verify(token) {
                    Ok(claims) => return Some(claims),
                    // The signature may be by another key without an id, such as the one before the last rotation.
                    Err(ErrorKind::InvalidSignature) => {}
                    Err(_) => return None,
                }
            }
        }
        None
    }
}

impl TokenVerifier {
    fn may_verify(&self, header: &Header) -> bool {
        header.alg == self.key.algorithm.library() && (self.key.id.is_none() || self.key.id == header.kid)
    }

    fn verify(&self, token: &str) -> Result<Claims, ErrorKind> {
        // `decode` refuses any algorithm but that of the validation before it uses the key.
        let decoded = decode::<Claims>(token, &self.key.key, &self.validation).map_err(|error| error.into_kind())?;
        // It names extensions that must be understood, and none is here (RFC 7515, 4.1.11).
        if decoded.header.crit.is_some() { Err(ErrorKind::InvalidToken) } else { Ok(decoded.claims) }
    }
}

/// The rules in a token's `wse_topics`. Invalid rules allow nothing, because their author meant to deny something. Nor
/// does an empty list of what is allowed.
fn rules(claim: Value) -> Option<TopicAcl> {
    if claim.is_null() {
        return None;
    }
    let rules = serde_json::from_value(claim).ok().and_then(|TopicClaim { allow, deny }| match allow {
        Some(allow) if allow.is_empty() => None,
        allow => TopicAcl::new(allow.unwrap_or_default(), deny).ok(),
    });
    Some(rules.unwrap_or_else(TopicAcl::nothing))
}

/// The value of cookie `name`. Scripts write `undefined` and `null` if they have no token.
fn cookie_value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let values = header.split(';').filter_map(|cookie| cookie.trim().split_once('='));
    let mut named = values.filter(|(found, _)| *found == name).map(|(_, value)| value.trim());
    named.find(|value| !matches!(*value, "" | "undefined" | "null"))
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey, encode};
    use serde_json::json;

    use super::*;

    const SECRET: &[u8] = b"bench-secret-key-for-testing-only";
    const OTHER: &[u8] = b"another-secret-key-of-32-bytes-or-more";

    fn now() -> i64 {
        (crate::clock::now_millis() / 1000) as i64
    }

    fn secret(secret: &[u8]) -> JwtKey {
        JwtKey::secret(secret).unwrap()
    }

    fn token(secret: &[u8], header: &Header, claims: &Value) -> String {
        encode(header, claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    fn signed(claims: Value) -> String {
        token(SECRET, &Header::default(), &claims)
    }

    fn good() -> Value {
        json!({"sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": now() + 3600, "iat": now()})
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = good();
        claims[name] = value;
        claims
    }

    fn gate() -> Gate {
        Gate::new(&config())
    }

    fn config() -> JwtConfig {
        let name = Some("wse-bench".to_owned());
        JwtConfig { issuer: name.clone(), audience: name, ..JwtConfig::new(vec![secret(SECRET)]) }
    }

    fn admit(gate: &Gate, token: &str) -> Result<String, AuthError> {
        gate.admit([], Some(&format!("Bearer {token}"))).map(|admitted| admitted.user)
    }

    fn user(admitted: &Result<Admitted, AuthError>) -> Result<&str, AuthError> {
        admitted.as_ref().map(|admitted| admitted.user.as_str()).map_err(|error| *error)
    }

    #[test]
    fn a_token_s_topic_rules_apply_and_invalid_ones_allow_no_topic() {
        let topics = |claim: Value| {
            let bearer = format!("Bearer {}", signed(with("wse_topics", claim)));
            gate().admit([], Some(&bearer)).unwrap().topics
        };
        assert_eq!(topics(Value::Null), None);
        let rules = topics(json!({"allow": ["a.*"], "deny": ["a.b"]})).unwrap();
        assert!(rules.permits("a.c").unwrap() && !rules.permits("a.b").unwrap() && !rules.permits("c").unwrap());
        for senseless in [json!("a.*"), json!({"allow": "a.*"}), json!({"allows": ["a"]}), json!({"deny": [""]})] {
            assert!(!topics(senseless.clone()).unwrap().permits("a.c").unwrap(), "{senseless}");
        }
    }

    #[test]
    fn a_token_that_allows_an_empty_list_allows_nothing() {
        let topics = |claim: Value| rules(claim).unwrap();
        for claim in [json!({"allow": []}), json!({"allow": [], "deny": ["a"]}), json!({"allow": null})] {
            let topics = topics(claim.clone());
            assert!(!topics.permits("secret.payroll").unwrap() && !topics.permits("*").unwrap(), "{claim}");
        }
        assert!(topics(json!({})).permits("a").unwrap() && topics(json!({"deny": ["b"]})).permits("a").unwrap());
    }

    #[test]
    fn a_token_with_critical_extensions_is_refused() {
        let header = Header { crit: Some(vec!["x".into()]), ..Header::default() };
        let with_crit = token(SECRET, &header, &good());
        assert_eq!(admit(&gate(), &with_crit), Err(AuthError::Failed));
        let keys = vec![secret(SECRET), secret(OTHER)];
        assert_eq!(admit(&Gate::new(&JwtConfig { keys, ..config() }), &with_crit), Err(AuthError::Failed));
    }

    #[test]
    fn a_user_id_with_control_characters_is_refused() {
        for user in ["a\r\nb", "a\0", "\u{7f}", "a\u{85}b"] {
            assert_eq!(admit(&gate(), &signed(with("sub", json!(user)))), Err(AuthError::Failed), "{user:?}");
        }
        assert!(admit(&gate(), &signed(with("sub", json!("Zoë O'Neil / 3")))).is_ok());
    }

    #[test]
    fn a_token_admits_until_its_expiry_and_the_leeway() {
        let bearer = format!("Bearer {}", signed(with("exp", json!(4_000_000_000_u64))));
        assert_eq!(gate().admit([], Some(&bearer)).unwrap().expires_millis, 4_000_000_030_000);
    }

    #[test]
    fn a_valid_token_is_accepted_as_cookie_and_as_bearer() {
        let token = signed(good());
        let cookie = format!("a=b; access_token={token}; c=d");
        assert_eq!(user(&gate().admit([cookie.as_str()], None)), Ok("bench-user"));
        assert_eq!(user(&gate().admit([], Some(&format!("bEARER  {token}")))), Ok("bench-user"));
    }

    #[test]
    fn the_cookie_comes_first_unless_it_is_empty() {
        let bearer = format!("Bearer {}", signed(good()));
        assert_eq!(gate().admit(["access_token=forged"], Some(&bearer)), Err(AuthError::Failed));
        for empty in ["access_token=", "access_token=undefined", "access_token=null", "xaccess_token=forged", "x"] {
            assert_eq!(user(&gate().admit([empty], Some(&bearer))), Ok("bench-user"), "{empty}");
        }
    }

    #[test]
    fn without_a_token_one_is_required() {
        assert_eq!(gate().admit([], None), Err(AuthError::Missing));
        assert_eq!(gate().admit(["a=b"], Some("Basic abc")), Err(AuthError::Missing));
    }

    #[test]
    fn expired_premature_foreign_and_forged_tokens_are_refused() {
        for claims in [
            with("exp", json!(now() - 40)),
            with("nbf", json!(now() + 40)),
            with("iss", json!("someone")),
            with("aud", json!("someone")),
            with("aud", json!(["a", "b"])),
            with("exp", Value::Null),
            json!({"sub": "x", "exp": now() + 60}),
        ] {
            assert_eq!(admit(&gate(), &signed(claims.clone())), Err(AuthError::Failed), "{claims}");
        }
        let forged = token(OTHER, &Header::default(), &good());
        assert_eq!(admit(&gate(), &forged), Err(AuthError::Failed));
    }

    #[test]
    fn tokens_are_accepted_with_30_seconds_of_clock_difference() {
        assert!(admit(&gate(), &signed(with("exp", json!(now() - 20)))).is_ok());
        assert!(admit(&gate(), &signed(with("nbf", json!(now() + 20)))).is_ok());
        assert!(admit(&gate(), &signed(with("aud", json!(["other", "wse-bench"])))).is_ok());
    }

    #[test]
    fn another_algorithm_fails_even_with_the_right_secret() {
        let token = token(SECRET, &Header::new(Algorithm::HS512), &good());
        assert_eq!(admit(&gate(), &token), Err(AuthError::Failed));
        // {"alg":"none"}, the same claims, no signature.
        let claims = signed(good()).split('.').nth(1).unwrap().to_owned();
        assert_eq!(admit(&gate(), &format!("eyJhbGciOiJub25lIn0.{claims}.")), Err(AuthError::Failed));
    }

    #[test]
    fn a_token_must_name_its_user() {
        for user in [json!(""), json!(5), Value::Null] {
            assert_eq!(admit(&gate(), &signed(with("sub", user))), Err(AuthError::NoUser));
        }
    }

    #[test]
    fn a_token_beyond_8_kib_is_not_decoded() {
        let token = signed(with("padding", json!("x".repeat(8192))));
        assert_eq!(admit(&gate(), &token), Err(AuthError::Failed));
    }

    #[test]
    fn the_previous_secret_matches_any_key_id_and_the_current_one_only_its_own() {
        let named = |kid: &str| Header { kid: Some(kid.into()), ..Header::default() };
        let keys = vec![secret(SECRET).with_id(Some("new".into())), secret(OTHER)];
        let gate = Gate::new(&JwtConfig { keys, ..config() });
        assert!(admit(&gate, &token(SECRET, &named("new"), &good())).is_ok());
        assert!(admit(&gate, &token(OTHER, &named("old"), &good())).is_ok());
        assert!(admit(&gate, &token(OTHER, &named("new"), &good())).is_ok());
        assert_eq!(admit(&gate, &token(SECRET, &named("old"), &good())), Err(AuthError::Failed));
        assert_eq!(admit(&gate, &token(SECRET, &Header::default(), &good())), Err(AuthError::Failed));
        let expired = with("exp", json!(now() - 100));
        assert_eq!(admit(&gate, &token(OTHER, &named("old"), &expired)), Err(AuthError::Failed));
    }
}
