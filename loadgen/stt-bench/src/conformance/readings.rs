//! Reads the gateway's metrics port (`/stats`, `/metrics`) and checks whether its books balance.

use std::time::{Duration, Instant};

use bench_format::service::ServiceStats;
use driver::http::HttpClient;
use reqwest::StatusCode;
use tokio::time::sleep;

use super::{
    finding::{NotPassed, ensure, failed},
    text::excerpt,
};

/// Time limit of one HTTP request to the metrics port.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two readings while a condition is awaited.
const POLL: Duration = Duration::from_millis(15);

/// HTTP client of one gateway's metrics port.
#[derive(Clone, Debug)]
pub struct Readings {
    url: String,
    client: HttpClient,
}

impl Readings {
    /// Creates a client for the port at `http://host:port`; sends no request yet.
    pub fn new(url: &str) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), client: HttpClient::new(PATIENCE) }
    }

    /// Requests a path with GET, and returns the status and the body.
    ///
    /// # Errors
    /// Fails if the request fails or takes too long. Any status is a success.
    pub async fn get(&self, path: &str) -> Result<(StatusCode, String), NotPassed> {
        let expectation = || format!("{}{path} answers", self.url);
        let response = self.client.get(&format!("{}{path}", self.url)).await;
        let (status, body) = response.map_err(|error| failed(expectation(), format!("{error:?}")))?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Reads and parses `/stats`.
    ///
    /// # Errors
    /// Fails if the request fails, the status is not 200, or the body does not fit the schema.
    pub async fn stats(&self) -> Result<ServiceStats, NotPassed> {
        let (status, text) = self.get("/stats").await?;
        ensure(status == StatusCode::OK, "/stats answers 200", status)?;
        serde_json::from_str(&text).map_err(|error| {
            failed("/stats is docs/schemas/service-stats.schema.json", format!("{error}: {}", excerpt(&text)))
        })
    }

    /// Reads a metric from `/metrics`, summed over its labels; none if the text has no sample of it.
    ///
    /// # Errors
    /// Fails if the request fails.
    pub async fn metric(&self, name: &str) -> Result<Option<f64>, NotPassed> {
        let (_, text) = self.get("/metrics").await?;
        Ok(metric(&text, name))
    }

    /// Reads `/stats` until `holds` is true of it, and returns that last reading.
    ///
    /// # Errors
    /// Fails if a reading fails, or if the condition does not hold within this time. `wish` describes the condition.
    pub async fn until(
        &self,
        expectation: &str,
        within: Duration,
        holds: impl Fn(&ServiceStats) -> bool,
    ) -> Result<ServiceStats, NotPassed> {
        let started = Instant::now();
        loop {
            let stats = self.stats().await?;
            if holds(&stats) {
                return Ok(stats);
            }
            if started.elapsed() > within {
                return Err(failed(format!("{expectation}, within {within:?}"), description(&stats)));
            }
            sleep(POLL).await;
        }
    }
}

/// Whether a reading's books balance: received = consumed + delivered + dropped + queued.
pub fn balances(stats: &ServiceStats) -> bool {
    let messages = &stats.messages;
    let dropped: u64 = messages.dropped.values().sum();
    messages.received == messages.consumed + messages.delivered + dropped + messages.queued
}

/// Formats a reading for the evidence of a case.
pub fn description(stats: &ServiceStats) -> String {
    let (messages, connections) = (&stats.messages, &stats.connections);
    let mut description = format!(
        "received {} = consumed {} + delivered {} + dropped {:?} + queued {}; sent {}; connections open {}, closed {:?}",
        messages.received,
        messages.consumed,
        messages.delivered,
        messages.dropped,
        messages.queued,
        messages.sent,
        connections.open,
        connections.closed
    );
    if let Some(inference) = &stats.inference {
        description += &format!(
            "; inference requests {}, answered {}, failed {:?}, abandoned {}, in flight {}, buffered {} bytes",
            inference.requests,
            inference.answered,
            inference.failed,
            inference.abandoned,
            inference.in_flight,
            inference.buffered_bytes
        );
    }
    description
}

/// Sum of all samples of a metric in the Prometheus text format; none if it has no sample.
pub fn metric(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let labels_and_value = line.strip_prefix(name)?;
        let value = match labels_and_value.as_bytes().first()? {
            b' ' => labels_and_value,
            b'{' => labels_and_value.rsplit_once('}')?.1,
            _ => return None,
        };
        value.split_whitespace().next()?.parse::<f64>().ok()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_sum_over_its_labels() {
        let text = "# TYPE a counter\na{x=\"1\"} 2\na{x=\"}\"} 3\nab 7\nc 1.5 1234\n";
        assert_eq!(["a", "ab", "c", "d"].map(|name| metric(text, name)), [Some(5.0), Some(7.0), Some(1.5), None]);
    }

    #[test]
    fn books_balance_or_they_do_not() {
        let mut stats = ServiceStats::default();
        (stats.messages.received, stats.messages.delivered, stats.messages.queued) = (5, 3, 1);
        stats.messages.dropped.insert("closed".into(), 1);
        assert!(balances(&stats));
        stats.messages.consumed = 1;
        assert!(!balances(&stats));
    }
}
