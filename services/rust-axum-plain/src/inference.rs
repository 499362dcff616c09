//! Requests to the inference: HTTP/2 with prior knowledge.
//!
//! A client of reqwest has one HTTP/2 connection, which it replaces when it breaks. There are several clients, and
//! sessions take them in turn.

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

use crate::{
    config::Config,
    protocol::{Failure, Kind, Recognition, Span},
};

/// Longest time for a connection to the inference to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A connection that is silent for this time is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long it may take to answer that.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest answer that is read; a real one has some hundred bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The clients of all sessions.
pub(crate) struct Clients {
    all: Vec<Inference>,
    /// Sessions so far.
    taken: AtomicUsize,
}

impl Clients {
    /// Makes the clients. They connect with their first request.
    ///
    /// # Errors
    /// When a client can't be made.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let all = (0..config.inference_http_clients).map(|_| Inference::new(config)).collect::<Result<_, _>>()?;
        Ok(Self { all, taken: AtomicUsize::new(0) })
    }

    /// The client of the next session.
    pub(crate) fn next(&self) -> Inference {
        let turn = self.taken.fetch_add(1, Ordering::Relaxed);
        self.all[turn % self.all.len()].clone()
    }
}

/// A client of the inference. Clones share a connection.
#[derive(Clone)]
pub(crate) struct Inference {
    client: Client,
    url: Url,
    cpu_passes: u32,
}

impl Inference {
    fn new(config: &Config) -> anyhow::Result<Self> {
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static("x-cpu-passes"), config.cpu_passes.into()),
            (CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        ]);
        let client = Client::builder()
            .http2_prior_knowledge()
            .http2_keep_alive_interval(KEEP_ALIVE)
            .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .default_headers(headers)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(config.inference_timeout_ms)
            .pool_idle_timeout(None)
            .build()
            .context("failed to make a client for the inference")?;
        Ok(Self { client, url: config.inference_url.infer(), cpu_passes: config.cpu_passes })
    }

    /// Sends `audio`, the batch of `span`, and reads the answer, all within the timeout of the settings.
    pub(crate) async fn recognise(self, span: Span, audio: Bytes) -> Result<Recognition, Failure> {
        let response = self.client.post(self.url).body(audio).send().await.map_err(|error| failure(&error))?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let kind = if status == 429 { Kind::Http429 } else { Kind::Http5xx };
            return Err(Failure { kind, status: Some(status), message: format!("the inference answered {status}") });
        }
        let unreadable = |message| Failure { kind: Kind::ParseError, status: Some(status), message };
        let Some(body) = body(response).await.map_err(|error| failure(&error))? else {
            return Err(unreadable(format!("the answer has more than {MAX_ANSWER_BYTES} bytes")));
        };
        Recognition::parse(&body, span, self.cpu_passes).map_err(unreadable)
    }
}

/// The whole body; `None` when it is longer than [`MAX_ANSWER_BYTES`].
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

/// What a request's error is to the client.
fn failure(error: &reqwest::Error) -> Failure {
    let causes = || {
        std::iter::successors(Some(error as &(dyn Error + 'static)), |cause: &&(dyn Error + 'static)| (*cause).source())
    };
    let is_no_http = causes().filter_map(|cause| cause.downcast_ref::<h2::Error>()).any(h2::Error::is_library);
    let kind = match error {
        // That a connection took too long to open is the connection's failure.
        error if error.is_timeout() && !error.is_connect() => Kind::Timeout,
        _ if is_no_http => Kind::ParseError,
        _ => Kind::ConnectionReset,
    };
    let message = causes().last().map_or_else(String::new, ToString::to_string);
    Failure { kind, status: None, message: format!("the request to the inference failed: {message}") }
}
