//! Requests to the inference, over HTTP/2 with prior knowledge (h2c).
//!
//! A reqwest client has one HTTP/2 connection and replaces it when it breaks. There are several clients; sessions take
//! them in turn.

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

/// Time limit for opening a connection to the inference.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time of silence after which a connection is checked with an HTTP/2 PING.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time limit for the reply to that PING; after it, the connection is closed.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest response body that is read. A regular one has a few hundred bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// All HTTP clients, handed out to sessions in turn.
pub(crate) struct Clients {
    all: Vec<Inference>,
    /// Clients handed out so far.
    assigned: AtomicUsize,
}

impl Clients {
    /// Builds the clients. Each connects with its first request.
    ///
    /// # Errors
    /// When an HTTP client cannot be built.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let all = (0..config.inference_http_clients).map(|_| Inference::new(config)).collect::<Result<_, _>>()?;
        Ok(Self { all, assigned: AtomicUsize::new(0) })
    }

    /// Returns the client for the next session.
    pub(crate) fn assign(&self) -> Inference {
        let index = self.assigned.fetch_add(1, Ordering::Relaxed);
        self.all[index % self.all.len()].clone()
    }
}

/// A client of the inference. Clones share one HTTP/2 connection.
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

    /// Sends `audio`, the frames of `span`, as one request and parses the response. The configured timeout covers both.
    pub(crate) async fn recognise(self, span: Span, audio: Bytes) -> Result<Recognition, Failure> {
        let response = self.client.post(self.url).body(audio).send().await.map_err(|error| failure(&error))?;
        let status = response.status().as_u16();
        if !response.status().is_success() {
            let kind = if status == 429 { Kind::Http429 } else { Kind::Http5xx };
            return Err(Failure { kind, status: Some(status), message: format!("the inference answered {status}") });
        }
        let parse_error = |message| Failure { kind: Kind::ParseError, status: Some(status), message };
        let Some(body) = body(response).await.map_err(|error| failure(&error))? else {
            return Err(parse_error(format!("the answer has more than {MAX_RESPONSE_BYTES} bytes")));
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

/// Maps an error of reqwest to the failure that the client is sent.
fn failure(error: &reqwest::Error) -> Failure {
    let causes = || {
        std::iter::successors(Some(error as &(dyn Error + 'static)), |cause: &&(dyn Error + 'static)| (*cause).source())
    };
    let is_not_http = causes().filter_map(|cause| cause.downcast_ref::<h2::Error>()).any(h2::Error::is_library);
    let kind = match error {
        // A timeout of connecting counts as a connection failure, not as a timeout of the request.
        error if error.is_timeout() && !error.is_connect() => Kind::Timeout,
        _ if is_not_http => Kind::ParseError,
        _ => Kind::ConnectionReset,
    };
    let message = causes().last().map_or_else(String::new, ToString::to_string);
    Failure { kind, status: None, message: format!("the request to the inference failed: {message}") }
}
