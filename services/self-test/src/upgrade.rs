//! The handshake and the check of the client's token.

use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde::Deserialize;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        handshake::server::{ErrorResponse, Request, Response},
        http::{
            StatusCode,
            header::{AUTHORIZATION, COOKIE},
        },
        protocol::WebSocketConfig,
    },
};

use crate::{config::Flaw, protocol::MAX_MESSAGE_BYTES, wire::Wire};

/// Longest duration of a handshake.
const DEADLINE: Duration = Duration::from_secs(10);
/// Size of a connection's read buffer. The library's default of 128 KiB would need gigabytes for ten thousand
/// connections.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// Checks tokens against one secret.
struct Verifier {
    key: DecodingKey,
    validation: Validation,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
}

impl Verifier {
    /// Creates a verifier of HS256 tokens.
    fn new(secret: &str) -> Self {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.leeway = 30;
        validation.validate_aud = false;
        Self { key: DecodingKey::from_secret(secret.as_bytes()), validation }
    }

    fn admits(&self, request: &Request) -> bool {
        let claims = token(request).and_then(|token| decode::<Claims>(token, &self.key, &self.validation).ok());
        claims.is_some_and(|claims| !claims.claims.sub.is_empty())
    }
}

/// The token of the cookie, else that of the Authorization header.
fn token(request: &Request) -> Option<&str> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let cookie = header(COOKIE).and_then(|cookies| {
        cookies
            .split(';')
            .find_map(|cookie| cookie.trim().strip_prefix("access_token="))
            .filter(|token| !token.is_empty())
    });
    cookie.or_else(|| {
        let (scheme, token) = header(AUTHORIZATION)?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    })
}

/// What the service requires of a handshake.
pub(crate) struct AdmissionRules {
    verifier: Option<Verifier>,
    unmasked: bool,
    /// The k of a service that refuses one upgrade in k.
    refuse_every: Option<NonZeroU64>,
    upgrades: AtomicU64,
}

impl AdmissionRules {
    /// Without a secret every client is accepted. The flaw `gullible` accepts every token and frames without a mask.
    /// The flaw `refuses-upgrades` refuses one upgrade in `every`.
    pub(crate) fn new(secret: Option<&str>, flaw: Flaw, every: NonZeroU64) -> Self {
        let gullible = flaw == Flaw::Gullible;
        Self {
            verifier: secret.filter(|_| !gullible).map(Verifier::new),
            unmasked: gullible,
            refuse_every: (flaw == Flaw::RefusesUpgrades).then_some(every),
            upgrades: AtomicU64::new(0),
        }
    }

    /// Whether the next upgrade is refused.
    fn refuses(&self) -> bool {
        let is_nth =
            |every: NonZeroU64| (self.upgrades.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every.get());
        self.refuse_every.is_some_and(is_nth)
    }
}

/// Whether the client's token is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is valid, or none is required.
    Granted,
    /// It is missing or invalid: WSE completes the upgrade and then sends an error.
    Denied,
}

/// Completes the WebSocket handshake and decides whether the client is admitted.
///
/// # Errors
/// The reason by which the rejection is counted: `timeout` or `handshake`.
pub(crate) async fn upgrade(
    wire: Wire,
    admission_rules: &AdmissionRules,
) -> Result<(WebSocketStream<Wire>, Admission), &'static str> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES))
        .accept_unmasked_frames(admission_rules.unmasked);
    let mut admission = Admission::Granted;
    let handshake = async {
        #[expect(clippy::result_large_err, reason = "the library's signature")]
        let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            if admission_rules.refuses() {
                let mut refusal = ErrorResponse::new(None);
                *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                return Err(refusal);
            }
            if admission_rules.verifier.as_ref().is_some_and(|verifier| !verifier.admits(request)) {
                admission = Admission::Denied;
            }
            Ok(response)
        };
        accept_hdr_async_with_config(wire, check, Some(config)).await
    };
    let socket = timeout(DEADLINE, handshake).await.map_err(|_| "timeout")?.map_err(|_| "handshake")?;
    socket.get_ref().traffic().restart();
    Ok((socket, admission))
}
