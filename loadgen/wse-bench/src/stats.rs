//! What the service says of itself on its metrics port, read around a trial run by hand.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use bench_format::service::{ConnectionBooks, MessageStats, PublisherStats, ServiceStats};
use loadgen_core::clock::monotonic_ns;
use serde::de::DeserializeOwned;

const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A service's metrics port.
#[derive(Clone)]
pub struct Stats {
    url: String,
    client: reqwest::Client,
    /// Whether it has a publisher that is asked with the rest.
    publishes: bool,
}

/// A reading and when it was taken.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Nanoseconds of the monotonic clock, in the middle of the request.
    pub at_ns: u64,
    /// The reading.
    pub stats: ServiceStats,
    /// Its publisher's books, if it has one.
    pub publisher: Option<PublisherStats>,
}

impl Stats {
    /// For a URL such as `http://127.0.0.1:6006`. The service is asked whether it has a publisher.
    ///
    /// # Errors
    /// When there are no resources for a client, or nobody answers.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        let stats = Self { url: url.trim_end_matches('/').to_owned(), client, publishes: false };
        Ok(Self { publishes: stats.publisher()?.is_some(), ..stats })
    }

    /// `/stats`, and `/stats/publisher` where there is one.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn read(&self) -> anyhow::Result<Timed> {
        let before = monotonic_ns();
        let stats = self.fetch("/stats")?;
        let publisher = if self.publishes { self.publisher()? } else { None };
        Ok(Timed { at_ns: before + (monotonic_ns() - before) / 2, stats, publisher })
    }

    /// `/stats/publisher`; nothing where the service publishes nothing by itself.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn publisher(&self) -> anyhow::Result<Option<PublisherStats>> {
        self.fetch_if_there("/stats/publisher")
    }

    /// `/stats/connections`; nothing where the service keeps no such books.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn connections(&self) -> anyhow::Result<Option<ConnectionBooks>> {
        self.fetch_if_there("/stats/connections")
    }

    /// Waits until the service has handed on what it received since `before`, at least `expected` messages, and its
    /// application has counted what it took of them; returns what it says then, or at the deadline.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn settled(&self, before: &ServiceStats, expected: u64, patience: Duration) -> anyhow::Result<Timed> {
        self.read_until(patience, |now| {
            let received = since(&before.messages, &now.messages).received;
            // An application takes a batch from the queue first and counts it a moment later.
            let counted = now.application.is_none_or(|application| application.delivered >= now.messages.delivered);
            received >= expected && now.messages.queued == 0 && counted
        })
    }

    /// Waits until no more than so many connections are open; returns what the service says then, or at the deadline.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn at_rest(&self, open: u64, patience: Duration) -> anyhow::Result<Timed> {
        self.read_until(patience, |now| now.connections.open <= open)
    }

    fn read_until(&self, patience: Duration, enough: impl Fn(&ServiceStats) -> bool) -> anyhow::Result<Timed> {
        let deadline = Instant::now() + patience;
        loop {
            let now = self.read()?;
            if enough(&now.stats) || Instant::now() >= deadline {
                return Ok(now);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Reads at two moments of the monotonic clock, from a thread of its own.
    pub fn read_at(&self, moments_ns: [u64; 2]) -> JoinHandle<anyhow::Result<[Timed; 2]>> {
        let stats = self.clone();
        thread::spawn(move || {
            let read = |moment_ns: u64| {
                thread::sleep(Duration::from_nanos(moment_ns.saturating_sub(monotonic_ns())));
                stats.read()
            };
            Ok([read(moments_ns[0])?, read(moments_ns[1])?])
        })
    }

    fn fetch_if_there<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        match self.fetch(path) {
            Ok(page) => Ok(Some(page)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fetch<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.url);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let response = self.client.get(&url).send().await.and_then(reqwest::Response::error_for_status);
            let bytes = response.with_context(|| format!("failed to read {url}"))?.bytes().await?;
            serde_json::from_slice(&bytes).with_context(|| format!("failed to understand {url}"))
        })
    }
}

fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<reqwest::Error>().is_some_and(|error| error.status() == Some(reqwest::StatusCode::NOT_FOUND))
}

/// What was counted between two readings.
pub fn since(before: &MessageStats, after: &MessageStats) -> MessageStats {
    let dropped = |reasons: &std::collections::BTreeMap<String, u64>,
                   before: &std::collections::BTreeMap<String, u64>| {
        reasons.iter().map(|(reason, count)| (reason.clone(), count - before.get(reason).unwrap_or(&0))).collect()
    };
    MessageStats {
        received: after.received - before.received,
        consumed: after.consumed - before.consumed,
        delivered: after.delivered - before.delivered,
        dropped: dropped(&after.dropped, &before.dropped),
        queued: after.queued,
        malformed: after.malformed - before.malformed,
        sent: after.sent - before.sent,
        send_dropped: dropped(&after.send_dropped, &before.send_dropped),
    }
}
