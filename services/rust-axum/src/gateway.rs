//! The port of the clients: accepts, answers HTTP, upgrades, and brings everything to an end.

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{ALLOW, CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE},
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::any,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::{server::conn::http1, upgrade::OnUpgrade};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use sha1::{Digest, Sha1};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    select,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config, inference::Inference, metrics::Books, protocol::Echo, schedule::Schedule, session::Session,
};

/// Handshakes that may wait for us: clients come by the thousand.
const BACKLOG: u32 = 8192;
/// Longest time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// A pause when the kernel has no descriptor left, instead of asking again at once.
const PAUSE: Duration = Duration::from_millis(20);
/// How long all sessions together may take to end.
const DRAIN: Duration = Duration::from_secs(4);
/// Time of one frame of audio, in milliseconds.
const FRAME_MS: u64 = 20;

/// What all sessions have in common.
pub(crate) struct Gateway {
    /// The books.
    pub(crate) books: Arc<Books>,
    /// The inference.
    pub(crate) inference: Inference,
    /// What partials repeat of the settings.
    pub(crate) echo: Echo,
    /// Frames that may wait in a session.
    pub(crate) max_buffered_frames: u64,
    flush_interval: Duration,
    flush_phase_jitter: Duration,
    max_connections: u64,
    stop: CancellationToken,
    sessions: TaskTracker,
}

impl Gateway {
    /// With these settings.
    ///
    /// # Errors
    /// When a client for the inference can't be made.
    pub(crate) fn new(config: &Config, books: Arc<Books>) -> anyhow::Result<Self> {
        Ok(Self {
            books,
            inference: Inference::new(config)?,
            echo: Echo { cpu_passes: config.cpu_passes, model_delay_ms: config.model_delay_ms },
            max_buffered_frames: config.max_buffered_frames.into(),
            flush_interval: Duration::from_millis(config.flush_interval_ms),
            flush_phase_jitter: Duration::from_millis(config.flush_phase_jitter_ms),
            max_connections: config.max_connections,
            stop: CancellationToken::new(),
            sessions: TaskTracker::new(),
        })
    }

    /// Frames that come between two ticks, or that may wait if those are fewer.
    pub(crate) fn batch_frames(&self) -> usize {
        let frames = (self.flush_interval.as_millis() as u64).div_ceil(FRAME_MS);
        frames.min(self.max_buffered_frames) as usize
    }

    /// The ticks of a session that started at `now`.
    pub(crate) fn schedule(&self, now: Instant) -> Schedule {
        // A fresh hasher has random keys: randomness enough to spread ticks.
        let random = RandomState::new().hash_one(0);
        let offset = (self.flush_phase_jitter.as_nanos() * u128::from(random)) >> 64;
        let offset = Duration::from_nanos(u64::try_from(offset).expect("no longer than the jitter"));
        Schedule::new(now + offset + self.flush_interval, self.flush_interval)
    }

    /// Has connections accepted until `stop`, and returns when all sessions have ended.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, stop: impl Future<Output = ()>) {
        let service = TowerToHyperService::new(router(self.clone()));
        select! {
            () = accept(listener, service) => {}
            () = stop => {}
        }
        self.books.stop_accepting();
        self.stop.cancel();
        self.sessions.close();
        if timeout(DRAIN, self.sessions.wait()).await.is_err() {
            eprintln!("{} sessions did not end within {DRAIN:?}", self.sessions.len());
        }
    }

    /// Takes a place for a connection, if there is one; why not otherwise.
    fn admit(&self) -> Result<(), &'static str> {
        self.books.with(|counts| {
            let refused = if !self.books.is_accepting() {
                "draining"
            } else if self.max_connections > 0 && counts.open >= self.max_connections {
                "full"
            } else {
                counts.accepted += 1;
                counts.open += 1;
                return Ok(());
            };
            *counts.rejected.entry(refused).or_default() += 1;
            Err(refused)
        })
    }
}

/// Binds `address`.
///
/// # Errors
/// When it can't be bound.
pub(crate) fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("failed to bind {address}"))?;
    socket.listen(BACKLOG).with_context(|| format!("failed to listen on {address}"))
}

/// Accepts connections for ever.
async fn accept(listener: TcpListener, service: TowerToHyperService<Router>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES);
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                // Partials are single small packets: each must leave at once. A refusal means that the client is gone.
                let _ = socket.set_nodelay(true);
                let connection = http.serve_connection(TokioIo::new(socket), service.clone()).with_upgrades();
                // What goes wrong before the upgrade is the client's to see.
                tokio::spawn(async move { connection.await.ok() });
            }
            Err(error) => {
                eprintln!("failed to accept a connection: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/ws/stt", any(upgrade))
        .route("/health", any(|| async { Json(serde_json::json!({"ok": true, "runtime": "rust-axum"})) }))
        .route_layer(middleware::from_fn(only_get))
        .with_state(gateway)
}

async fn only_get(request: Request, next: Next) -> Response {
    match *request.method() {
        Method::GET => next.run(request).await,
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response(),
    }
}

/// Turns the connection into a WebSocket and begins its session.
async fn upgrade(State(gateway): State<Arc<Gateway>>, mut request: Request) -> Response {
    let accept = match check(request.headers()) {
        Ok(accept) => accept,
        Err(response) => {
            gateway.books.with(|counts| *counts.rejected.entry("handshake").or_default() += 1);
            return *response;
        }
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        // HTTP/1.0 has no upgrades.
        return refuse(StatusCode::BAD_REQUEST, "this connection can't be upgraded");
    };
    if let Err(reason) = gateway.admit() {
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    }
    gateway.sessions.spawn(begin(gateway.clone(), upgrade));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend([
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ]);
    response
}

/// Runs the session as soon as the answer to the upgrade is written.
async fn begin(gateway: Arc<Gateway>, upgrade: OnUpgrade) {
    let stop = gateway.stop.clone();
    let parts = upgrade.await.ok().and_then(|upgraded| upgraded.downcast::<TokioIo<TcpStream>>().ok());
    match parts {
        Some(parts) => Session::run(gateway, parts.io.into_inner(), &parts.read_buf, stop).await,
        // The client left in between.
        None => gateway.books.with(|counts| {
            counts.open -= 1;
            *counts.closed.entry("eof").or_default() += 1;
        }),
    }
}

/// The value of `Sec-WebSocket-Accept`, or what is wrong with the handshake.
fn check(headers: &HeaderMap) -> Result<HeaderValue, Box<Response>> {
    let upgrade_required = |message| {
        let mut response = refuse(StatusCode::UPGRADE_REQUIRED, message);
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        Box::new(response)
    };
    if !has_token(headers, UPGRADE, "websocket") || !has_token(headers, CONNECTION, "upgrade") {
        return Err(upgrade_required("this is a WebSocket: Upgrade: websocket and Connection: upgrade are needed"));
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(upgrade_required("Sec-WebSocket-Version must be 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if !BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == 16) {
        return Err(Box::new(refuse(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key must be 16 bytes in base64")));
    }
    Ok(accept_value(key))
}

/// RFC 6455, section 4.2.2.
fn accept_value(key: &[u8]) -> HeaderValue {
    let digest = Sha1::new().chain_update(key).chain_update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize();
    HeaderValue::try_from(BASE64_STANDARD.encode(digest)).expect("base64 is printable")
}

/// Whether one of the words in the header's list is `token`.
fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(token))
}

fn refuse(status: StatusCode, message: &'static str) -> Response {
    (status, message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_rfc_is_accepted_as_in_the_rfc() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
