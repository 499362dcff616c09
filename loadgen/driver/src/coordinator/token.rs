//! The bearer token that workers of a cluster present. Without it, any client that reaches the port could disturb a
//! trial.

use std::hint::black_box;

use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::Shared;

/// Passes a request that presents the token, or every request if no token is required.
pub(super) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let Some(token) = &shared.token else { return next.run(request).await };
    let presented = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let description = match presented.map(|value| value.strip_prefix("Bearer ")) {
        Some(Some(presented)) if are_equal(presented.as_bytes(), token.as_bytes()) => return next.run(request).await,
        Some(Some(_)) => "the token is not the one of this coordinator; both sides take it from COORDINATOR_TOKEN",
        Some(None) => "the authorization is no bearer token; send `Authorization: Bearer` and COORDINATOR_TOKEN",
        None => "no token; send `Authorization: Bearer` with what COORDINATOR_TOKEN holds",
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
    use super::are_equal;

    #[test]
    fn only_the_complete_token_is_accepted() {
        let cases = [("secret", true), ("secreT", false), ("secre", false), ("secrets", false), ("", false)];
        for (presented, expected) in cases {
            assert_eq!(are_equal(presented.as_bytes(), b"secret"), expected, "{presented}");
        }
    }
}
