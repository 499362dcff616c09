//! Requests to the inference: HTTP/2 with prior knowledge, over a fixed number of connections.
//!
//! Each client of reqwest keeps one HTTP/2 connection and replaces it when it breaks. A session keeps to one client.

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

/// Longest time for a connection to the inference to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection that says nothing is asked after this time, in use or not, and is given up when it stays silent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long it may stay silent after that.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// An answer is some hundred bytes; what is longer is none.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The inference, for all sessions.
pub(crate) struct Inference {
    clients: Vec<Client>,
    /// Sessions so far: they take the clients in turn.
    sessions: AtomicUsize,
    url: Url,
    timeout: Duration,
    cpu_passes: u32,
}

/// A session's way to the inference.
#[derive(Clone)]
pub(crate) struct Lane {
    client: Client,
    url: Url,
    timeout: Duration,
    cpu_passes: u32,
}

impl Inference {
    /// Ready to connect; nothing is sent before the first batch.
    ///
    /// # Errors
    /// When a client can't be made.
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

    /// The way of the next session.
    pub(crate) fn lane(&self) -> Lane {
        let turn = self.sessions.fetch_add(1, Ordering::Relaxed) % self.clients.len();
        Lane {
            client: self.clients[turn].clone(),
            url: self.url.clone(),
            timeout: self.timeout,
            cpu_passes: self.cpu_passes,
        }
    }
}

impl Lane {
    /// Has `audio` recognised, the batch of `span`. Takes no longer than the time that is set, from now.
    pub(crate) async fn recognise(self, span: Span, audio: Bytes) -> Result<Recognition, Failure> {
        let answer = timeout(self.timeout, self.ask(span, audio)).await;
        answer.unwrap_or_else(|_| {
            let message = format!("no answer within {} ms", self.timeout.as_millis());
            Err(Failure { kind: Kind::Timeout, status: None, message })
        })
    }

    async fn ask(&self, span: Span, audio: Bytes) -> Result<Recognition, Failure> {
        let response = self.client.post(self.url.clone()).body(audio).send().await.map_err(|error| failure(&error))?;
        let status = response.status();
        if !status.is_success() {
            let kind = if status.as_u16() == 429 { Kind::Http429 } else { Kind::Http5xx };
            let message = format!("the inference answered {}", status.as_u16());
            return Err(Failure { kind, status: Some(status.as_u16()), message });
        }
        let no_answer = |message| Failure { kind: Kind::ParseError, status: Some(status.as_u16()), message };
        let Some(body) = body(response).await.map_err(|error| failure(&error))? else {
            return Err(no_answer(format!("the inference's answer is longer than {MAX_ANSWER_BYTES} bytes")));
        };
        Recognition::parse(&body, span, self.cpu_passes).map_err(no_answer)
    }
}

/// The whole body; none when it is too long to be an answer.
async fn body(mut response: Response) -> Result<Option<BytesMut>, reqwest::Error> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// A peer that broke the rules of HTTP/2 is no inference; everything else is a matter of the connection.
fn failure(error: &reqwest::Error) -> Failure {
    let mut causes = Vec::new();
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    let no_http = causes.iter().filter_map(|cause| cause.downcast_ref::<h2::Error>()).any(h2::Error::is_library);
    let root = causes.last().expect("the error itself is one of them");
    let (kind, message) = match no_http {
        true => (Kind::ParseError, format!("the inference doesn't speak HTTP/2: {root}")),
        false => (Kind::ConnectionReset, format!("the connection to the inference failed: {root}")),
    };
    Failure { kind, status: None, message }
}
