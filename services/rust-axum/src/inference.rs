//! Requests to the inference, over HTTP/2 with prior knowledge (h2c) and a fixed number of connections.
//!
//! Each reqwest client has one HTTP/2 connection and replaces it when it breaks. A session always uses the same client.

use std::{
    error::Error,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use reqwest::{
    Client, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use tokio::time::timeout;

use crate::{
    config::Config,
    protocol::{Failure, Kind, Recognition, Span},
};

/// Time limit for opening a connection to the inference.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time without inbound frames after which a connection is checked with an HTTP/2 PING, whether it is in use or not.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time limit for the reply to that PING; after it, the connection is closed.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest response body that is read. A regular one has a few hundred bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// All HTTP clients of the inference, with the settings of their requests.
pub(crate) struct Inference {
    clients: Vec<Client>,
    /// Sessions so far; they take the clients in turn.
    sessions: AtomicUsize,
    url: Url,
    timeout: Duration,
    cpu_passes: u32,
}

/// The connection that a session uses: its HTTP client and the settings of requests.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    url: Url,
    timeout: Duration,
    cpu_passes: u32,
}

impl Inference {
    /// Builds the clients. Each connects with its first request.
    ///
    /// # Errors
    /// When an HTTP client cannot be built.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("x-cpu-passes"), config.cpu_passes.into());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        let client = || {
            Client::builder()
                .http2_prior_knowledge()
                .default_headers(headers.clone())
                .no_proxy()
                .redirect(redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .pool_idle_timeout(None)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .http2_keep_alive_while_idle(true)
                .build()
                .context("failed to make a client for the inference")
        };
        Ok(Self {
            clients: (0..config.inference_http_clients).map(|_| client()).collect::<Result<_, _>>()?,
            sessions: AtomicUsize::new(0),
            url: config.inference_url.infer(),
            timeout: Duration::from_millis(config.inference_timeout_ms),
            cpu_passes: config.cpu_passes,
        })
    }

    /// Returns the connection for the next session.
    pub(crate) fn assign_connection(&self) -> Connection {
        let turn = self.sessions.fetch_add(1, Ordering::Relaxed) % self.clients.len();
        Connection {
            client: self.clients[turn].clone(),
            url: self.url.clone(),
            timeout: self.timeout,
            cpu_passes: self.cpu_passes,
        }
    }
}

impl Connection {
    /// Sends `audio`, the frames of `span`, as one request and parses the response. The configured timeout starts now
    /// and covers both.
    pub(crate) async fn recognise(self, span: Span, audio: Bytes) -> Result<Recognition, Failure> {
        let response = timeout(self.timeout, self.send(span, audio)).await;
        response.unwrap_or_else(|_| {
            let message = format!("no answer within {} ms", self.timeout.as_millis());
            Err(Failure { kind: Kind::Timeout, status: None, message })
        })
    }

    async fn send(&self, span: Span, audio: Bytes) -> Result<Recognition, Failure> {
        let response = self.client.post(self.url.clone()).body(audio).send().await.map_err(|error| failure(&error))?;
        let status = response.status();
        if !status.is_success() {
            let kind = if status.as_u16() == 429 { Kind::Http429 } else { Kind::Http5xx };
            let message = format!("the inference answered {}", status.as_u16());
            return Err(Failure { kind, status: Some(status.as_u16()), message });
        }
        let parse_error = |message| Failure { kind: Kind::ParseError, status: Some(status.as_u16()), message };
        let Some(body) = body(response).await.map_err(|error| failure(&error))? else {
            return Err(parse_error(format!("the inference's answer is longer than {MAX_RESPONSE_BYTES} bytes")));
        };
        Recognition::parse(&body, span, self.cpu_passes).map_err(parse_error)
    }
}

/// Reads the whole body; `None` if it is longer than [`MAX_RESPONSE_BYTES`].
async fn body(mut response: Response) -> Result<Option<BytesMut>, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// Maps an error of reqwest: a violation of HTTP/2 by the peer is a parse error, everything else a connection reset.
fn failure(error: &reqwest::Error) -> Failure {
    let mut causes = Vec::new();
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    let violates_http2 = causes.iter().filter_map(|cause| cause.downcast_ref::<h2::Error>()).any(h2::Error::is_library);
    let root = causes.last().expect("the error itself is one of them");
    let (kind, message) = match violates_http2 {
        true => (Kind::ParseError, format!("the inference doesn't speak HTTP/2: {root}")),
        false => (Kind::ConnectionReset, format!("the connection to the inference failed: {root}")),
    };
    Failure { kind, status: None, message }
}
