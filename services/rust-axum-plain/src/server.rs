//! The port of the clients: its routes, the upgrade, and the end of everything.

use std::{
    hash::{BuildHasher, RandomState},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::{
        Request, State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, Method, StatusCode, header::ALLOW, header::SEC_WEBSOCKET_KEY},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::any,
    serve::ListenerExt,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use tokio::{
    net::{TcpListener, TcpSocket},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    inference::Clients,
    metrics::Books,
    protocol::{Echo, MAX_MESSAGE_BYTES},
    session,
};

/// Handshakes that may wait to be accepted: clients come by the thousand.
const BACKLOG: u32 = 8192;
/// How much is read from a socket at once. The default of 128 KiB is meant for fewer connections.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// How long all sessions together may take to end.
const DRAIN: Duration = Duration::from_secs(4);

/// What all sessions have in common.
pub(crate) struct Gateway {
    /// The books.
    pub(crate) books: Arc<Books>,
    /// Clients of the inference.
    pub(crate) clients: Clients,
    /// What partials repeat of the settings.
    pub(crate) echo: Echo,
    /// Frames that may wait in a session.
    pub(crate) max_buffered_frames: usize,
    /// Time between two ticks of a session.
    pub(crate) flush_interval: Duration,
    /// Cancelled when the gateway stops.
    pub(crate) stop: CancellationToken,
    flush_phase_jitter: Duration,
    max_connections: u64,
    sessions: TaskTracker,
}

impl Gateway {
    /// Makes what sessions need.
    ///
    /// # Errors
    /// When a client for the inference can't be made.
    pub(crate) fn new(config: &Config, books: Arc<Books>) -> anyhow::Result<Self> {
        Ok(Self {
            books,
            clients: Clients::new(config)?,
            echo: Echo { cpu_passes: config.cpu_passes, model_delay_ms: config.model_delay_ms },
            max_buffered_frames: config.max_buffered_frames as usize,
            flush_interval: config.flush_interval_ms,
            flush_phase_jitter: config.flush_phase_jitter_ms,
            max_connections: config.max_connections,
            stop: CancellationToken::new(),
            sessions: TaskTracker::new(),
        })
    }

    /// The time by which a new session's ticks are shifted.
    pub(crate) fn random_phase(&self) -> Duration {
        // Each hasher has random keys: enough to spread ticks.
        let random = RandomState::new().hash_one(());
        self.flush_phase_jitter.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// Books a new connection; the error is the reason why it is refused.
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
            counts.reject(refused);
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

/// Serves until `stop` is ready and all sessions have ended.
pub(crate) async fn serve(gateway: Arc<Gateway>, listener: TcpListener, stop: impl Future<Output = ()>) {
    // Partials are single small packets that must leave at once. An error means that the client is gone.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    let server = axum::serve(listener, router(gateway.clone()))
        .with_graceful_shutdown(gateway.stop.clone().cancelled_owned())
        .into_future();
    let server = tokio::spawn(server);
    stop.await;
    gateway.books.stop_accepting();
    gateway.stop.cancel();
    gateway.sessions.close();
    let ended = async {
        // It ends by the token, and never with an error.
        let _ = server.await;
        gateway.sessions.wait().await;
    };
    if timeout(DRAIN, ended).await.is_err() {
        eprintln!("{} sessions did not end within {DRAIN:?}", gateway.sessions.len());
    }
}

fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/ws/stt", any(upgrade))
        .route("/health", any(|| async { Json(serde_json::json!({"ok": true, "runtime": "rust-axum-plain"})) }))
        // Not `get`, which takes HEAD as well.
        .route_layer(middleware::from_fn(only_get))
        .with_state(gateway)
}

async fn only_get(request: Request, next: Next) -> Response {
    match *request.method() {
        Method::GET => next.run(request).await,
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response(),
    }
}

/// Makes a WebSocket of the connection, and has its session run.
async fn upgrade(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) if has_valid_key(&headers) => upgrade,
        refused => {
            gateway.books.with(|counts| counts.reject("handshake"));
            let invalid_key = (StatusCode::BAD_REQUEST, "Sec-WebSocket-Key must be 16 bytes in base64");
            return refused.map_or_else(IntoResponse::into_response, |_| invalid_key.into_response());
        }
    };
    if let Err(reason) = gateway.admit() {
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    }
    let books = gateway.books.clone();
    let running = gateway.sessions.token();
    upgrade
        .max_message_size(MAX_MESSAGE_BYTES)
        .max_frame_size(MAX_MESSAGE_BYTES)
        .read_buffer_size(READ_BUFFER_BYTES)
        // Messages are written when they are sent. What the socket doesn't take is the outbox's to hold and to limit;
        // this limit is for the library's own pongs.
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_MESSAGE_BYTES)
        .on_failed_upgrade(move |_| books.with(|counts| counts.close("eof")))
        .on_upgrade(|socket| async move {
            session::run(socket, gateway).await;
            drop(running);
        })
}

/// axum takes any key.
fn has_valid_key(headers: &HeaderMap) -> bool {
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| BASE64_STANDARD.decode(key).ok());
    key.is_some_and(|key| key.len() == 16)
}
