//! The counters that a described service keeps by itself, read as the plan maps them: from a page in the Prometheus text
//! format, or from a JSON page.
//!
//! A mapped counter takes the place of the harness's own in [`ServiceStats`]; all others stay 0, and the trial's terms
//! say which there are ([`ReportedCounters`](bench_format::websocket::ReportedCounters)).

use std::{collections::BTreeMap, time::Duration};

use bench_format::{
    service::{ApplicationStats, ServiceStats},
    websocket::{Counter, Counters},
};
use reqwest::StatusCode;
use serde_json::Value;

use crate::{
    exposition::{ExpositionError, LARGEST_COUNT, Selector, SelectorError, samples, sums},
    http::{HttpClient, HttpError},
};

/// The reason under which drops are counted that the service doesn't explain.
const REPORTED: &str = "reported";
/// Start of the process in seconds since the Unix epoch, by the convention of Prometheus's client libraries.
const START_TIME: &str = "process_start_time_seconds";

/// Why the text of a mapping can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// The text does not name samples.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// One counter is in a Prometheus page, another in a JSON page.
    #[error("some counters are JSON pointers and others are samples, but all are read from one page; use one notation")]
    Mixed,
}

/// Why a page of counters can't be read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The page is not text, or not JSON.
    #[error("it is not {0}")]
    Format(&'static str),
    /// The page is not in the Prometheus text format, or a value in it is not a count.
    #[error(transparent)]
    Exposition(#[from] ExpositionError),
    /// A JSON page has something other than a count at the pointer.
    #[error("at {pointer} is {value}, which is not a count")]
    NoCount {
        /// The pointer of the mapping.
        pointer: String,
        /// What the page has at the pointer.
        value: Value,
    },
    /// There is no page.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The server responds with another status than 200.
    #[error("HTTP status {0}")]
    Status(StatusCode),
}

/// Where the counters of a service are.
#[derive(Clone, Debug)]
pub struct MappedCounters {
    url: String,
    /// The counters and the texts by which the plan names them.
    mapped: Vec<(Counter, String)>,
    notation: Notation,
}

#[derive(Clone, Debug)]
enum Notation {
    /// One selector for each counter.
    Samples(Vec<Selector>),
    /// The texts are JSON pointers.
    Pointers,
}

/// The counters of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportedStats {
    /// The counters in the place of the harness's; those that the page doesn't have are 0.
    pub stats: ServiceStats,
    /// Mapped counters that the page doesn't have, by name, with the text of the plan.
    pub missing: BTreeMap<String, String>,
}

impl MappedCounters {
    /// The counters of a plan at `url`, which has no placeholders.
    ///
    /// # Errors
    /// The counter whose text can't be used, and why.
    pub fn new(url: &str, counters: &Counters) -> Result<Self, (Counter, MappingError)> {
        let mapped: Vec<_> = counters.mapped().map(|(counter, text)| (counter, text.to_owned())).collect();
        let are_pointers = mapped.first().is_some_and(|(_, text)| is_pointer(text));
        if let Some((other, _)) = mapped.iter().find(|(_, text)| is_pointer(text) != are_pointers) {
            return Err((*other, MappingError::Mixed));
        }
        let notation = if are_pointers {
            Notation::Pointers
        } else {
            let parse = |(counter, text): &(Counter, String)| {
                text.parse().map_err(|error: SelectorError| (*counter, error.into()))
            };
            Notation::Samples(mapped.iter().map(parse).collect::<Result<_, _>>()?)
        };
        Ok(Self { url: url.into(), mapped, notation })
    }

    /// The page of the counters.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests the page and reads the mapped counters in it.
    ///
    /// # Errors
    /// [`PageError`] if there is no page, or it can't be read. A page without a counter is no error.
    pub async fn get(&self, http: &HttpClient, since_epoch: Duration) -> Result<ReportedStats, PageError> {
        let (status, body) = http.get(&self.url).await?;
        if status != StatusCode::OK {
            return Err(PageError::Status(status));
        }
        self.read(&body, since_epoch)
    }

    /// Reads the counters of a page that was received at this time.
    ///
    /// # Errors
    /// [`PageError`] if the page is in another format or has something other than a count in the place of a counter.
    pub fn read(&self, page: &[u8], since_epoch: Duration) -> Result<ReportedStats, PageError> {
        let (counts, uptime_seconds) = match &self.notation {
            Notation::Samples(selectors) => {
                let page = std::str::from_utf8(page).map_err(|_| PageError::Format("UTF-8"))?;
                (sums(page, selectors)?, uptime_seconds(page, since_epoch))
            }
            Notation::Pointers => {
                let page: Value = serde_json::from_slice(page).map_err(|_| PageError::Format("JSON"))?;
                let counts = self.mapped.iter().map(|(_, pointer)| at(&page, pointer)).collect::<Result<_, _>>()?;
                (counts, 0.0)
            }
        };
        let mut reported = ReportedStats::default();
        reported.stats.uptime_seconds = uptime_seconds;
        for ((counter, text), count) in self.mapped.iter().zip(counts) {
            match count {
                Some(count) => set(&mut reported.stats, *counter, count),
                None => {
                    reported.missing.insert(counter.to_string(), text.clone());
                }
            }
        }
        Ok(reported)
    }
}

fn is_pointer(text: &str) -> bool {
    text.starts_with('/')
}

fn at(page: &Value, pointer: &str) -> Result<Option<u64>, PageError> {
    let Some(value) = page.pointer(pointer).filter(|value| !value.is_null()) else { return Ok(None) };
    let no_count = || PageError::NoCount { pointer: pointer.into(), value: value.clone() };
    value.as_u64().filter(|count| *count <= LARGEST_COUNT).map(Some).ok_or_else(no_count)
}

/// Seconds since the start of the process, if the page has it exactly once; otherwise 0.
fn uptime_seconds(page: &str, since_epoch: Duration) -> f64 {
    let mut starts = samples(page).flatten().filter(|(_, sample)| sample.name == START_TIME);
    match (starts.next(), starts.next()) {
        (Some((_, start)), None) => {
            let start_seconds: f64 = start.value.parse().unwrap_or(f64::INFINITY);
            (since_epoch.as_secs_f64() - start_seconds).max(0.0)
        }
        _ => 0.0,
    }
}

fn set(stats: &mut ServiceStats, counter: Counter, count: u64) {
    match counter {
        Counter::Received => stats.messages.received = count,
        Counter::Delivered => {
            stats.application = Some(ApplicationStats { delivered: count, ..ApplicationStats::default() });
        }
        Counter::Dropped => stats.messages.dropped = [(REPORTED.to_owned(), count)].into(),
        Counter::ConnectionsAccepted => stats.connections.accepted = count,
        Counter::ConnectionsOpen => stats.connections.open = count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn counters(text: &str) -> Counters {
        serde_json::from_str(text).unwrap()
    }

    fn read(mapping: &str, page: &str) -> Result<ReportedStats, String> {
        let mapped = MappedCounters::new("http://127.0.0.1:1/metrics", &counters(mapping)).unwrap();
        mapped.read(page.as_bytes(), NOW).map_err(|error| error.to_string())
    }

    const IN_OUT: &str = r#"{"url": "", "received": "m_total{way=\"in\"}", "delivered": "handled", "dropped": "lost_total",
        "connections_accepted": "opened_total", "connections_open": "open"}"#;

    #[test]
    fn each_counter_takes_the_place_of_the_harness_own() {
        let page = "m_total{way=\"in\",shard=\"0\"} 7\nm_total{way=\"in\",shard=\"1\"} 5\nm_total{way=\"out\"} 90\nhandled 11\n\
                    lost_total 1\nopened_total 4\nopen 3\nprocess_start_time_seconds 990.5\n";
        let ReportedStats { stats, missing } = read(IN_OUT, page).unwrap();
        assert_eq!((stats.messages.received, stats.application.unwrap().delivered), (12, 11));
        assert_eq!((stats.messages.dropped[REPORTED], stats.connections.accepted, stats.connections.open), (1, 4, 3));
        assert_eq!((stats.uptime_seconds, missing), (9.5, BTreeMap::new()));
    }

    #[test]
    fn a_counter_that_the_page_lacks_is_named_with_the_plans_text() {
        let ReportedStats { stats, missing } = read(IN_OUT, "m_total{way=\"out\"} 90\nhandled 11\n").unwrap();
        assert_eq!((stats.messages.received, stats.uptime_seconds), (0, 0.0));
        assert_eq!(missing["received"], "m_total{way=\"in\"}");
        assert_eq!(
            missing.keys().collect::<Vec<_>>(),
            ["connections_accepted", "connections_open", "dropped", "received"]
        );
    }

    #[test]
    fn pointers_read_a_json_page() {
        let mapping = r#"{"url": "", "received": "/in/messages", "connections_open": "/open"}"#;
        let ReportedStats { stats, missing } = read(mapping, r#"{"in": {"messages": 9007199254740992}}"#).unwrap();
        assert_eq!((stats.messages.received, missing.len()), (LARGEST_COUNT, 1));
        assert_eq!(read(mapping, r#"{"open": -1}"#).unwrap_err(), "at /open is -1, which is not a count");
        assert_eq!(read(mapping, "open 1").unwrap_err(), "it is not JSON");
    }

    #[test]
    fn a_text_that_names_nothing_is_refused_with_its_counter() {
        let refused = |text: &str| MappedCounters::new("", &counters(text)).unwrap_err();
        let mixed = refused(r#"{"url": "", "received": "/in", "delivered": "handled"}"#);
        assert_eq!(mixed, (Counter::Delivered, MappingError::Mixed));
        assert_eq!(refused(r#"{"url": "", "received": "a", "dropped": "a{b}"}"#).0, Counter::Dropped);
    }
}
