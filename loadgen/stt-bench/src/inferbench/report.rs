//! The output of the inference benchmark.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The printed JSON. The fields up to `latency` are those of the reference program; the later ones are additions.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// URL of the requests.
    pub url: String,
    /// How requests were timed.
    pub mode: Mode,
    /// How long requests were sent, in seconds.
    pub duration_secs: u64,
    /// Largest number of requests in flight.
    pub concurrency: u64,
    /// Number of HTTP/2 connections, which requests use in turn (`--clients`).
    pub clients: u64,
    /// Requested rate, in requests per second; `null` in a closed loop.
    pub target_rps: Option<f64>,
    /// Frames of audio in each request.
    pub payload_frames: u64,
    /// Bytes of audio in each request.
    pub payload_bytes: usize,
    /// Passes that each request asked for.
    pub cpu_passes: u32,
    /// Longest duration of a request, in milliseconds.
    pub timeout_ms: u64,
    /// Longest duration of opening a connection, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Requests begun, with any outcome.
    pub attempted: u64,
    /// Requests with a correct response.
    pub completed: u64,
    /// Failed requests, each counted once.
    pub errors: ErrorCounts,
    /// The first distinct error messages.
    pub error_samples: Vec<String>,
    /// Requests begun per second, until the last one ended.
    pub attempted_rps: f64,
    /// Requests with a correct response per second, until the last one ended.
    pub completed_rps: f64,
    /// Of requests with a correct response: from when the request was due to the end of the response. In a closed loop
    /// a request is due when it is sent.
    pub latency: Latencies,
    /// Of requests with a correct response: from when the request was sent to the end of the response, which is the
    /// service's part of the latency.
    pub service_latency: Latencies,
    /// How late requests were sent, because the largest number was in flight or this program was slow.
    pub lateness: Latencies,
    /// HTTP version: `1.1` or `2`.
    pub http: &'static str,
    /// From the first request to the end of the last one, in seconds.
    pub elapsed_secs: f64,
}

/// How requests are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// At times fixed in advance.
    OpenLoop,
    /// Each after a response.
    ClosedLoop,
}

/// Failed requests by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErrorCounts {
    /// No connection could be opened, or not in time.
    pub connect: u64,
    /// No complete response arrived in time.
    pub timeout: u64,
    /// The response had another status than 2xx.
    pub http_status: u64,
    /// The connection or the stream failed.
    pub request: u64,
    /// The response was wrong.
    pub content: u64,
}

impl ErrorCounts {
    /// Whether any request failed.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// A distribution, in milliseconds; all values are 0 when it is empty.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latencies {
    /// 50th percentile (the median), in milliseconds.
    pub p50_ms: f64,
    /// 95th percentile, in milliseconds.
    pub p95_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// 99.9th percentile, in milliseconds.
    pub p999_ms: f64,
    /// Largest latency, in milliseconds.
    pub max_ms: f64,
}

impl From<&Histogram<u64>> for Latencies {
    fn from(nanoseconds: &Histogram<u64>) -> Self {
        let at = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            p50_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: nanoseconds.max() as f64 / 1e6,
        }
    }
}
