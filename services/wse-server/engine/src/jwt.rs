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
const MAX_TOKEN_BYTES: usize = 8192;
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
        if token.len() > MAX_TOKEN_BYTES {
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
mod tests;
