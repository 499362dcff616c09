//! What the service says of itself on its metrics port, read around a trial run by hand.

use std::{
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context;
use bench_format::service::{ConnectionBooks, LinksStats, MessageStats, PublisherStats, ServiceStats};
use loadgen_core::clock::monotonic_ns;
use serde::de::DeserializeOwned;

const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// What it published, by itself.
const PUBLISHER: &str = "/stats/publisher";
/// What its instances sent to each other.
const LINKS: &str = "/stats/links";

/// Where a service tells of itself, as `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urls {
    /// That of the instance that connections go to.
    pub service: String,
    /// That of another instance, which publishes.
    pub publisher: Option<String>,
}

/// A service's metrics port.
#[derive(Clone)]
pub struct Stats {
    url: String,
    client: reqwest::Client,
    /// Where its publisher is asked, if it has one.
    publisher: Option<String>,
    /// Where its links are asked, if it has some.
    links: Vec<String>,
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
    /// What its instances sent to each other, if there are several.
    pub links: Option<LinksStats>,
}

impl Stats {
    /// For a service, which is asked whether it has a publisher; if it hasn't, that is the other instance's.
    ///
    /// # Errors
    /// When there are no resources for a client, or nobody answers.
    pub fn new(urls: &Urls) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        let trimmed = |url: &String| url.trim_end_matches('/').to_owned();
        let own = trimmed(&urls.service);
        let mut stats = Self { url: own.clone(), client, publisher: None, links: Vec::new() };
        if stats.fetch_if_there::<PublisherStats>(&own, PUBLISHER)?.is_some() {
            // It tells of all of its instances.
            (stats.publisher, stats.links) = (Some(own.clone()), vec![own]);
        } else if let Some(other) = urls.publisher.as_ref().map(trimmed) {
            let there = stats.fetch_if_there::<PublisherStats>(&other, PUBLISHER);
            there
                .with_context(|| format!("no publishing instance tells of itself at {other}; give its --metrics-port"))?
                .with_context(|| format!("the instance whose metrics are at {other} publishes nothing"))?;
            (stats.publisher, stats.links) = (Some(other.clone()), vec![own, other]);
        }
        let mut there = Vec::new();
        for url in std::mem::take(&mut stats.links) {
            if stats.fetch_if_there::<LinksStats>(&url, LINKS)?.is_some() {
                there.push(url);
            }
        }
        Ok(Self { links: there, ..stats })
    }

    /// `/stats`, and what there is of `/stats/publisher` and `/stats/links`.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn read(&self) -> anyhow::Result<Timed> {
        let before = monotonic_ns();
        let stats = self.fetch(&self.url, "/stats")?;
        let (publisher, links) = (self.publisher()?, self.links()?);
        Ok(Timed { at_ns: before + (monotonic_ns() - before) / 2, stats, publisher, links })
    }

    /// `/stats/publisher`; nothing where the service publishes nothing by itself.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn publisher(&self) -> anyhow::Result<Option<PublisherStats>> {
        self.publisher.as_ref().map(|url| self.fetch(url, PUBLISHER)).transpose()
    }

    /// `/stats/links` of all instances together; nothing where there is only one.
    fn links(&self) -> anyhow::Result<Option<LinksStats>> {
        let mut all = LinksStats::default();
        for url in &self.links {
            all = all.and(&self.fetch(url, LINKS)?);
        }
        let are_there = all.by_name().next().is_some();
        Ok(are_there.then_some(all))
    }

    /// `/stats/connections`; nothing where the service keeps no such books.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn connections(&self) -> anyhow::Result<Option<ConnectionBooks>> {
        self.fetch_if_there(&self.url, "/stats/connections")
    }

    /// Waits until the service has handed on what it received since `before`, at least `expected` messages, its application has
    /// counted what it took of them, and nothing of what it publishes is on the way between its instances; returns what it says then, or at the deadline.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn settled(&self, before: &ServiceStats, expected: u64, patience: Duration) -> anyhow::Result<Timed> {
        self.read_until(patience, |Timed { stats: now, publisher, links, .. }| {
            let received = since(&before.messages, &now.messages).received;
            // An application takes a batch from the queue first and counts it a moment later.
            let counted = now.application.is_none_or(|application| application.delivered >= now.messages.delivered);
            let publishes = publisher.as_ref().is_some_and(|publisher| publisher.publishing);
            let arrived = links.as_ref().is_none_or(|links| !publishes && links.at_rest());
            received >= expected && now.messages.queued == 0 && counted && arrived
        })
    }

    /// Waits until no more than so many connections are open; returns what the service says then, or at the deadline.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn at_rest(&self, open: u64, patience: Duration) -> anyhow::Result<Timed> {
        self.read_until(patience, |now| now.stats.connections.open <= open)
    }

    fn read_until(&self, patience: Duration, enough: impl Fn(&Timed) -> bool) -> anyhow::Result<Timed> {
        let deadline = Instant::now() + patience;
        loop {
            let now = self.read()?;
            if enough(&now) || Instant::now() >= deadline {
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

    fn fetch_if_there<T: DeserializeOwned>(&self, base: &str, path: &str) -> anyhow::Result<Option<T>> {
        match self.fetch(base, path) {
            Ok(page) => Ok(Some(page)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn fetch<T: DeserializeOwned>(&self, base: &str, path: &str) -> anyhow::Result<T> {
        let url = format!("{base}{path}");
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
