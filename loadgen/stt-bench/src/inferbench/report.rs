//! What the inference benchmark measured.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The whole output. The fields up to `latency` are the reference's, those after it ours.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where requests went.
    pub url: String,
    /// How requests were timed.
    pub mode: Mode,
    /// How long requests were sent, in seconds.
    pub duration_secs: u64,
    /// Requests in flight at most.
    pub concurrency: u64,
    /// HTTP/2 connections.
    pub clients: u64,
    /// Requests per second that were wanted; `null` in a closed loop.
    pub target_rps: Option<f64>,
    /// Frames of audio in each request.
    pub payload_frames: u64,
    /// Bytes of audio in each request.
    pub payload_bytes: usize,
    /// Passes that each request asked for.
    pub cpu_passes: u32,
    /// How long a request could take.
    pub timeout_ms: u64,
    /// How long opening a connection could take.
    pub connect_timeout_ms: u64,
    /// Requests begun.
    pub attempted: u64,
    /// Of those, answered rightly.
    pub completed: u64,
    /// Of those, failed: each in one way.
    pub errors: ErrorCounts,
    /// The first few errors.
    pub error_samples: Vec<String>,
    /// Requests begun per second, until the last one ended.
    pub attempted_rps: f64,
    /// Requests answered rightly per second, until the last one ended.
    pub completed_rps: f64,
    /// Of the requests answered rightly: from when the request was due to the end of its answer. In a closed loop a
    /// request is due when it is sent.
    pub latency: Latencies,
    /// The same from when the request was sent: what the service can be blamed for.
    pub service_latency: Latencies,
    /// How late requests were sent, because all allowed were in flight or this program was slow.
    pub lateness: Latencies,
    /// HTTP version.
    pub http: &'static str,
    /// From the first request to the end of the last one, in seconds.
    pub elapsed_secs: f64,
}

/// How requests were timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// At times fixed in advance.
    OpenLoop,
    /// Each after an answer.
    ClosedLoop,
}

/// Failed requests, by what failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErrorCounts {
    /// No connection could be opened.
    pub connect: u64,
    /// No answer came in time.
    pub timeout: u64,
    /// The answer was not a success.
    pub http_status: u64,
    /// The connection or stream broke.
    pub request: u64,
    /// The answer was wrong.
    pub content: u64,
}

impl ErrorCounts {
    /// Whether anything failed.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}

/// A distribution, in milliseconds; all 0 if it is empty.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latencies {
    /// Median.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p999_ms: f64,
    /// Largest.
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
