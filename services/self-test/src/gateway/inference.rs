//! One request to the inference, and its result or failure.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, StatusCode};
use serde::Deserialize;

use super::config::{Config, Flaw};

/// The inference's result for a batch of audio.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceResponse {
    /// Root mean square of the samples.
    pub rms: f64,
    /// Sign changes between samples.
    pub zero_crossings: u64,
    /// Checksum of the samples.
    pub checksum: u32,
    /// Number of samples multiplied by the number of passes over them.
    pub samples: u64,
    /// The transcript; never empty.
    pub transcript: String,
    /// Bytes of audio in the batch.
    pub audio_bytes: u64,
}

/// Why frames get an error frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No response arrived in time.
    Timeout,
    /// The connection to inference failed.
    ConnectionReset,
    /// Inference responded with HTTP status 429.
    Http429,
    /// Another HTTP status than 2xx and 429.
    Http5xx,
    /// A response that isn't valid.
    ParseError,
    /// The frames were dropped before any request.
    Overflow,
}

impl Kind {
    /// The name in error frames and counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Timeout => "timeout",
            Kind::ConnectionReset => "connection_reset",
            Kind::Http429 => "http_429",
            Kind::Http5xx => "http_5xx",
            Kind::ParseError => "parse_error",
            Kind::Overflow => "overflow",
        }
    }

    /// The value of `stage` in error frames.
    pub fn stage(self) -> &'static str {
        match self {
            Kind::ParseError => "inference_response_parse",
            Kind::Overflow => "websocket_receive",
            _ => "inference_request",
        }
    }
}

/// Why there is no partial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: Kind,
    /// The description in the error frame.
    pub message: String,
    /// HTTP status of the inference; absent without a response.
    pub status: Option<u16>,
    /// Whether another request may succeed.
    pub retryable: bool,
}

/// A client of the inference.
#[derive(Clone, Debug)]
pub struct Inference {
    client: Client,
    url: String,
    passes: u32,
    timeout: Duration,
    flaw: Flaw,
}

impl Inference {
    /// Creates a client for the configured URL, passes and timeout.
    ///
    /// # Errors
    /// When the HTTP client can't be created.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            client: Client::builder().no_proxy().tcp_nodelay(true).build()?,
            url: format!("{}/infer", config.inference_url),
            passes: config.cpu_passes.get(),
            timeout: config.timeout(),
            flaw: config.flaw,
        })
    }

    /// Sends audio and returns the result.
    ///
    /// # Errors
    /// When no response arrives in time, the connection fails, the status isn't 2xx, or the response isn't valid.
    pub async fn infer(&self, audio: Bytes) -> Result<InferenceResponse, Failure> {
        let bytes = audio.len() as u64;
        let request = self.client.post(&self.url).timeout(self.timeout);
        let request_failure = |error: reqwest::Error| {
            let kind = if error.is_timeout() { Kind::Timeout } else { Kind::ConnectionReset };
            Failure { kind, message: error.to_string(), status: None, retryable: true }
        };
        let response = request.header("x-cpu-passes", self.passes).body(audio).send().await.map_err(request_failure)?;
        let status = response.status();
        if !status.is_success() {
            let kind = if status == StatusCode::TOO_MANY_REQUESTS { Kind::Http429 } else { Kind::Http5xx };
            let retryable = kind == Kind::Http429 || status.is_server_error();
            let message = format!("the inference answered {status}");
            return Err(Failure { kind, message, status: Some(status.as_u16()), retryable });
        }
        let body = response.bytes().await.map_err(request_failure)?;
        self.read(&body, bytes).map_err(|message| Failure {
            kind: Kind::ParseError,
            message,
            status: Some(status.as_u16()),
            retryable: false,
        })
    }

    fn read(&self, body: &[u8], bytes: u64) -> Result<InferenceResponse, String> {
        let inference_response: InferenceResponse = match self.flaw {
            Flaw::LenientParse => parse_leniently(body)?,
            _ => serde_json::from_slice(body).map_err(|error| error.to_string())?,
        };
        let samples = u64::from(self.passes) * bytes / 2;
        match inference_response {
            InferenceResponse { ref transcript, .. } if transcript.is_empty() => Err("the transcript is empty".into()),
            InferenceResponse { samples: declared, .. } if declared != samples => {
                Err(format!("samples is {declared} instead of {samples}"))
            }
            InferenceResponse { audio_bytes: declared, .. } if declared != bytes => {
                Err(format!("audio_bytes is {declared} instead of {bytes}"))
            }
            inference_response => Ok(inference_response),
        }
    }
}

/// Parses the six keys and ignores any others.
fn parse_leniently(body: &[u8]) -> Result<InferenceResponse, String> {
    let mut all: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(body).map_err(|error| error.to_string())?;
    all.retain(|key, _| {
        ["rms", "zero_crossings", "checksum", "samples", "transcript", "audio_bytes"].contains(&key.as_str())
    });
    serde_json::from_value(all.into()).map_err(|error| error.to_string())
}
