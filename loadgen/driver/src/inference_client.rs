//! Reads what the inference simulator counts by itself, from its Prometheus text.

use std::time::Duration;

use bench_format::result::InferenceCounts;

use crate::http::HttpClient;

/// Longest wait for a response. The counts are wanted at an edge of the window or not at all.
const PATIENCE: Duration = Duration::from_secs(1);

/// Client of one inference simulator.
#[derive(Clone, Debug)]
pub struct InferenceClient {
    http: HttpClient,
    url: String,
}

impl InferenceClient {
    /// Creates a client for the server at `host:port`.
    pub fn new(address: &str) -> Self {
        Self { http: HttpClient::new(PATIENCE), url: format!("http://{address}/metrics") }
    }

    /// The counts so far; `None` if there is no response within a second, or one without these counters.
    pub async fn counts(&self) -> Option<InferenceCounts> {
        let (status, body) = self.http.get(&self.url).await.ok()?;
        let text = String::from_utf8_lossy(&body);
        if status.is_success() { counts(&text) } else { None }
    }
}

fn counts(exposition: &str) -> Option<InferenceCounts> {
    let counter = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        exposition.lines().find_map(value)
    };
    Some(InferenceCounts { answered: counter("inference_answered_total")?, late: counter("inference_late_total")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_counters_are_found_by_their_names() {
        let text = "# TYPE inference_answered_total counter\ninference_answered_total 40\n\
                    inference_late_total_other 9\ninference_late_total 3\n";
        assert_eq!(counts(text), Some(InferenceCounts { answered: 40, late: 3 }));
        assert_eq!(counts("inference_late_total 3\n"), None, "another program's metrics");
    }
}
