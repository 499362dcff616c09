//! One request over HTTP/1.1 or HTTP/2, and the connections that are kept for the next.

use std::{
    io,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::timeout};

use super::{Options, response::ExpectedResponse};

/// Interval of HTTP/2 pings, which detect a dead connection.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("failed to connect to {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("no connection to {address} within {within:?}")]
    ConnectTimeout { address: String, within: Duration },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("answered with status {0}")]
    Status(StatusCode),
    #[error("the request failed: {0:?}")]
    Request(#[from] hyper::Error),
    #[error("{0}")]
    Content(String),
}

/// Sends the same request repeatedly.
pub(crate) struct Client {
    address: String,
    /// The request that each one is a clone of.
    request: Request<Full<Bytes>>,
    right: ExpectedResponse,
    timeout: Duration,
    connect_timeout: Duration,
    connections: Connections,
}

/// The connections that are kept.
enum Connections {
    /// Connections that are idle.
    Http1(Mutex<Vec<http1::SendRequest<Full<Bytes>>>>),
    /// A fixed number, used in turn; each is opened at its first use and again after it closed.
    Http2 { slots: Vec<tokio::sync::Mutex<Option<http2::SendRequest<Full<Bytes>>>>>, next: AtomicUsize },
}

impl Client {
    /// Creates a client without connections.
    pub(crate) fn new(options: &Options, body: Bytes) -> Self {
        let connections = match options.http1 {
            true => Connections::Http1(Mutex::default()),
            false => {
                let slots = (0..options.clients.get()).map(|_| tokio::sync::Mutex::default()).collect();
                Connections::Http2 { slots, next: AtomicUsize::new(0) }
            }
        };
        Self {
            address: host_and_port(&options.url),
            request: request(options, body),
            right: ExpectedResponse::new(options.payload_frames, options.cpu_passes),
            timeout: options.timeout(),
            connect_timeout: options.connect_timeout(),
            connections,
        }
    }

    /// Sends a request and checks the response.
    pub(crate) async fn send(&self) -> Result<(), Failure> {
        timeout(self.timeout, self.exchange()).await.unwrap_or(Err(Failure::Timeout(self.timeout)))
    }

    async fn exchange(&self) -> Result<(), Failure> {
        match &self.connections {
            Connections::Http1(idle) => {
                let connection = lock(idle).pop().filter(|connection| !connection.is_closed());
                let mut connection = match connection {
                    Some(connection) => connection,
                    None => self.open_http1().await?,
                };
                // The response may be complete before the connection accepts the next request.
                connection.ready().await?;
                let response = connection.send_request(self.request.clone()).await?;
                let outcome = self.check(response).await;
                // A response with an error status or wrong contents leaves the connection usable.
                if !matches!(outcome, Err(Failure::Request(_))) {
                    lock(idle).push(connection);
                }
                outcome
            }
            Connections::Http2 { slots, next } => {
                let slot = &slots[next.fetch_add(1, Relaxed) % slots.len()];
                let mut connection = self.open_http2(slot).await?;
                connection.ready().await?;
                self.check(connection.send_request(self.request.clone()).await?).await
            }
        }
    }

    async fn check(&self, response: Response<Incoming>) -> Result<(), Failure> {
        let status = response.status();
        // The body is read even after an error status, so that the connection can be used again.
        let body = response.into_body().collect().await?.to_bytes();
        match status.is_success() {
            true => self.right.check(&body).map_err(Failure::Content),
            false => Err(Failure::Status(status)),
        }
    }

    async fn open_http1(&self) -> Result<http1::SendRequest<Full<Bytes>>, Failure> {
        let (sender, connection) = http1::handshake(self.connect().await?).await?;
        // A failure of the connection is reported by the request on it.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// The slot's connection, opened again if it is closed or was never open.
    async fn open_http2(
        &self,
        slot: &tokio::sync::Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
    ) -> Result<http2::SendRequest<Full<Bytes>>, Failure> {
        let mut slot = slot.lock().await;
        if let Some(living) = slot.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(living.clone());
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_while_idle(true)
            .handshake(self.connect().await?)
            .await?;
        tokio::spawn(connection);
        Ok(slot.insert(sender).clone())
    }

    async fn connect(&self) -> Result<TokioIo<TcpStream>, Failure> {
        let address = || self.address.clone();
        let stream = timeout(self.connect_timeout, TcpStream::connect(&self.address))
            .await
            .map_err(|_| Failure::ConnectTimeout { address: address(), within: self.connect_timeout })?
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|source| Failure::Connect { address: address(), source })?;
        Ok(TokioIo::new(stream))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds the list")
}

fn host_and_port(url: &Uri) -> String {
    format!("{}:{}", url.host().unwrap_or_default(), url.port_u16().unwrap_or(80))
}

fn request(options: &Options, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = http::Method::POST;
    let path = options.url.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    if options.http1 {
        let host = HeaderValue::from_str(&host_and_port(&options.url)).expect("an address is a valid header");
        request.headers_mut().insert(header::HOST, host);
        *request.uri_mut() = Uri::from(path);
    } else {
        *request.uri_mut() = options.url.clone();
    }
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert("x-cpu-passes", options.cpu_passes.into());
    request
}
