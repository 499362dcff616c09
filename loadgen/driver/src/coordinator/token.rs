//! The bearer token that workers present. Without it, any client that reaches the port could disturb a trial.

use std::{
    fmt,
    fs::File,
    hint::black_box,
    io::{self, Read},
    sync::Arc,
};

use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::Shared;

/// The bearer token of a coordinator. It is never empty, and `Debug` doesn't print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

/// The error for an empty token, with which every request would be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator's token is empty; set COORDINATOR_TOKEN to a random text of 16 characters or more")]
pub struct EmptyToken;

impl Token {
    /// Takes a token that was configured.
    ///
    /// # Errors
    /// [`EmptyToken`] if it is empty or white space.
    pub fn new(text: &str) -> Result<Self, EmptyToken> {
        if text.trim().is_empty() { Err(EmptyToken) } else { Ok(Self(text.into())) }
    }

    /// A token of 128 random bits, for workers that this process starts.
    ///
    /// # Errors
    /// An [`io::Error`] if the kernel gives no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bytes)).into()))
    }

    /// The token as text, for the environment of a worker.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Passes a request that presents the token.
pub(super) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let presented = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let description = match presented.map(|value| value.strip_prefix("Bearer ")) {
        Some(Some(presented)) if are_equal(presented.as_bytes(), shared.token.0.as_bytes()) => {
            return next.run(request).await;
        }
        Some(Some(_)) => "the token is not the one of this coordinator; both sides take it from COORDINATOR_TOKEN",
        Some(None) => "the authorization is not a bearer token; send `Authorization: Bearer` and COORDINATOR_TOKEN",
        None => "no token; send `Authorization: Bearer` with the value of COORDINATOR_TOKEN",
    };
    (StatusCode::UNAUTHORIZED, Json(json!({ "error": description }))).into_response()
}

/// Whether two tokens are equal, in a time that depends only on their lengths.
fn are_equal(presented: &[u8], token: &[u8]) -> bool {
    let differing = presented.iter().zip(token).fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
    presented.len() == token.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_complete_token_is_accepted() {
        let cases = [("secret", true), ("secreT", false), ("secre", false), ("secrets", false), ("", false)];
        for (presented, expected) in cases {
            assert_eq!(are_equal(presented.as_bytes(), b"secret"), expected, "{presented}");
        }
    }

    #[test]
    fn an_empty_token_is_refused_and_a_token_is_not_printed() {
        assert_eq!((Token::new(""), Token::new(" \n")), (Err(EmptyToken), Err(EmptyToken)));
        assert_eq!(format!("{:?}", Token::new("secret").unwrap()), "Token(..)");
    }

    #[test]
    fn two_random_tokens_differ() {
        assert_ne!(Token::random().unwrap(), Token::random().unwrap());
    }
}
