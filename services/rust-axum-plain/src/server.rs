//! The port of the clients: its routes, the upgrade, and the end of everything.

use std::{net::SocketAddr, sync::Arc, time::Duration};

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

use crate::{gateway::Gateway, protocol::MAX_MESSAGE_BYTES, session};

/// Handshakes that may wait to be accepted: clients come by the thousand.
const BACKLOG: u32 = 8192;
/// How much is read from a socket at once. The default of 128 KiB is meant for fewer connections.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// How long all sessions together may take to end.
const DRAIN: Duration = Duration::from_secs(4);

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
