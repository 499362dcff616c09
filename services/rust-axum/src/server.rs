//! The client port: accepts connections, answers HTTP requests, upgrades to WebSocket, and shuts down gracefully.

use std::{net::SocketAddr, sync::Arc, time::Duration};

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
    time::{sleep, timeout},
};

use crate::{gateway::Gateway, session::Session};

/// Listen backlog. Thousands of clients may connect at once.
const BACKLOG: u32 = 8192;
/// Time limit for receiving the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request, in bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// Pause after `accept` fails, for example because no file descriptor is left; prevents a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Time limit for all sessions to end after a stop.
const DRAIN: Duration = Duration::from_secs(4);

/// Serves until `stop` completes; then waits at most [`DRAIN`] for all sessions to end.
pub(crate) async fn serve(gateway: Arc<Gateway>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router(gateway.clone()));
    select! {
        () = accept(listener, service) => {}
        () = stop => {}
    }
    gateway.books.stop_accepting();
    gateway.stop.cancel();
    gateway.sessions.close();
    if timeout(DRAIN, gateway.sessions.wait()).await.is_err() {
        eprintln!("{} sessions did not end within {DRAIN:?}", gateway.sessions.len());
    }
}

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

/// Accepts connections in an endless loop and serves each in its own task.
async fn accept(listener: TcpListener, service: TowerToHyperService<Router>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                // A partial is one small packet and must leave at once. An error means that the client has
                // disconnected.
                let _ = socket.set_nodelay(true);
                let connection = http.serve_connection(TokioIo::new(socket), service.clone()).with_upgrades();
                // Errors before the upgrade are visible to the client only.
                tokio::spawn(async move { connection.await.ok() });
            }
            Err(error) => {
                eprintln!("failed to accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
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

/// Upgrades the connection and spawns its session.
async fn upgrade(State(gateway): State<Arc<Gateway>>, mut request: Request) -> Response {
    let accept = match check(request.headers()) {
        Ok(accept) => accept,
        Err(response) => {
            gateway.books.update(|counts| *counts.rejected.entry("handshake").or_default() += 1);
            return *response;
        }
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        // HTTP/1.0 has no upgrade.
        return refuse(StatusCode::BAD_REQUEST, "this connection can't be upgraded");
    };
    if let Err(reason) = gateway.admit() {
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    }
    gateway.sessions.spawn(run_session(gateway.clone(), upgrade));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend([
        (CONNECTION, HeaderValue::from_static("upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
    ]);
    response
}

/// Runs the session once the response to the upgrade request is written.
async fn run_session(gateway: Arc<Gateway>, upgrade: OnUpgrade) {
    let stop = gateway.stop.clone();
    let parts = upgrade.await.ok().and_then(|upgraded| upgraded.downcast::<TokioIo<TcpStream>>().ok());
    match parts {
        Some(parts) => Session::run(gateway, parts.io.into_inner(), &parts.read_buf, stop).await,
        // The client disconnected before the upgrade was complete.
        None => gateway.books.update(|counts| {
            counts.open -= 1;
            *counts.closed.entry("eof").or_default() += 1;
        }),
    }
}

/// Validates the handshake's headers. Returns the value of `Sec-WebSocket-Accept`, or the response that refuses the
/// handshake.
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

/// The value of `Sec-WebSocket-Accept` for a key (RFC 6455, section 4.2.2).
fn accept_value(key: &[u8]) -> HeaderValue {
    let digest = Sha1::new().chain_update(key).chain_update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize();
    HeaderValue::try_from(BASE64_STANDARD.encode(digest)).expect("base64 is printable")
}

/// Whether the header's comma-separated list contains `token`, in any case.
fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|element| element.trim().eq_ignore_ascii_case(token))
}

fn refuse(status: StatusCode, message: &'static str) -> Response {
    (status, message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_equals_the_example_of_the_rfc() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
