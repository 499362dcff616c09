//! The client port: its routes, the WebSocket upgrade, and the graceful shutdown.

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

/// Listen backlog. Thousands of clients may connect at once.
const BACKLOG: u32 = 8192;
/// Size of a connection's read buffer. The library's default of 128 KiB costs too much memory with many connections.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// Time limit for all sessions to end after a stop.
const DRAIN: Duration = Duration::from_secs(4);

/// Binds a listener with the gateway's backlog.
///
/// # Errors
/// When `address` cannot be bound.
pub(crate) fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("failed to bind {address}"))?;
    socket.listen(BACKLOG).with_context(|| format!("failed to listen on {address}"))
}

/// Serves until `stop` completes; then waits at most [`DRAIN`] for all sessions to end.
pub(crate) async fn serve(gateway: Arc<Gateway>, listener: TcpListener, stop: impl Future<Output = ()>) {
    // A partial is one small packet and must leave at once. An error means that the client has disconnected.
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
        // The server ends through the token and never returns an error.
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
        // `get` would accept HEAD as well.
        .route_layer(middleware::from_fn(only_get))
        .with_state(gateway)
}

async fn only_get(request: Request, next: Next) -> Response {
    match *request.method() {
        Method::GET => next.run(request).await,
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response(),
    }
}

/// Upgrades the connection and runs its session.
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
        // Each message is written when it is sent. The outbox holds and limits what the socket does not take; the limit
        // here is for the library's own pongs.
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_MESSAGE_BYTES)
        .on_failed_upgrade(move |_| books.with(|counts| counts.close("eof")))
        .on_upgrade(|socket| async move {
            session::run(socket, gateway).await;
            drop(running);
        })
}

/// Whether `Sec-WebSocket-Key` is 16 bytes in base64 (RFC 6455 4.1). axum accepts any value.
fn has_valid_key(headers: &HeaderMap) -> bool {
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| BASE64_STANDARD.decode(key).ok());
    key.is_some_and(|key| key.len() == 16)
}
