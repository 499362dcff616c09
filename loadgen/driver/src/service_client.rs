//! Client of a service's metrics port: its counters, books, publisher, links and processes. `replicas` adds up what
//! several processes of a service report.

use std::{collections::BTreeMap, time::Duration};

use bench_format::{
    result::Reading,
    service::{
        ConnectionBook, ConnectionBooks, LinksStats, ProcessStats, ProcessesStats, PublisherStats, ServiceStats,
    },
    trial_file::BookKeeping,
};
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::{
    clock::unix_ns,
    counters::{MappedCounters, PageError, ReportedStats},
    http::{HttpClient, HttpError},
};

mod replicas;

/// Longest wait for a response; a service at its limit responds late.
const PATIENCE: Duration = Duration::from_secs(10);
/// Page of the publisher's counters.
const PUBLISHER: &str = "/stats/publisher";
/// Page of the counters of links between instances.
const LINKS: &str = "/stats/links";
/// Page of the service's processes.
const PROCESSES: &str = "/stats/processes";
/// Page of the books of each connection.
const CONNECTIONS: &str = "/stats/connections";

/// Why a service's metrics port could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service doesn't respond, or not with status 200.
    #[error("failed to get {path} from the service: {reason}")]
    Get {
        /// Path of the page.
        path: &'static str,
        /// Why the request failed.
        reason: String,
    },
    /// The page differs from the contract.
    #[error("the service's {path} differs from services/README.md: {reason}")]
    Contract {
        /// Path of the page.
        path: &'static str,
        /// How the page differs from the contract.
        reason: String,
    },
    /// The page of a described service's counters can't be read.
    #[error("failed to read the counters at {url}: {reason}")]
    Counters {
        /// Address of the page, as the plan names it.
        url: String,
        /// Why it can't be read.
        reason: String,
    },
    /// What the replicas of the service report can't be added up.
    #[error(transparent)]
    Replicas(#[from] replicas::Error),
    /// No service responds at the URL of the publishing instance.
    #[error("no publishing instance responds at {url}")]
    NoPublisher {
        /// URL of the metrics port.
        url: String,
    },
    /// The instance at that URL doesn't publish.
    #[error("the instance whose metrics are at {url} publishes nothing")]
    PublishesNothing {
        /// URL of the metrics port.
        url: String,
    },
}

/// Client of a service's metrics port, of the ports of its replicas, or of the ports of its two instances.
#[derive(Clone, Debug)]
pub struct ServiceClient {
    http: HttpClient,
    /// URL of each replica of the service; empty if it has no metrics port.
    bases: Vec<String>,
    /// Counters of its own that a plan maps; absent if it keeps the harness's books or none.
    mapped: Option<MappedCounters>,
    /// URL of a second instance, which publishes.
    other: Option<String>,
    /// The optional pages that were found, each with the URLs of the instances that serve it. They are read with the
    /// counters.
    pages: BTreeMap<&'static str, Vec<String>>,
    /// The cursor of the last reading of the connections' books, by URL.
    cursors: BTreeMap<String, String>,
    /// The process that was read last, and its lowest resident memory before any of its trials, in bytes.
    at_rest: Option<(u32, u64)>,
}

impl ServiceClient {
    /// Creates a client for `host:port`, or for the replicas at several of these, separated by commas.
    pub fn new(metrics_addresses: &str) -> Self {
        Self::at(metrics_addresses.split(',').map(|address| format!("http://{address}")).collect())
    }

    /// Creates a client for `http://host:port`.
    pub fn of_url(url: &str) -> Self {
        Self::at(vec![url.trim_end_matches('/').to_owned()])
    }

    /// Creates a client for a service without a metrics port. All its counters are 0.
    pub fn none() -> Self {
        Self::at(Vec::new())
    }

    /// Creates a client for a service whose own counters a plan maps.
    pub fn of_counters(mapped: MappedCounters) -> Self {
        Self { mapped: Some(mapped), ..Self::at(Vec::new()) }
    }

    fn at(bases: Vec<String>) -> Self {
        Self {
            http: HttpClient::new(PATIENCE),
            bases,
            mapped: None,
            other: None,
            pages: BTreeMap::new(),
            cursors: BTreeMap::new(),
            at_rest: None,
        }
    }

    /// Adds a second instance at `http://host:port`, which publishes. It isn't asked if the first instance reports for
    /// both.
    pub fn with_publisher(self, url: &str) -> Self {
        Self { other: Some(url.trim_end_matches('/').to_owned()), ..self }
    }

    /// Whether the service has a metrics port.
    pub fn has_metrics_port(&self) -> bool {
        !self.bases.is_empty()
    }

    /// Whether the service accepts connections; of several replicas, whether all do.
    pub async fn ready(&self) -> bool {
        self.has_metrics_port() && self.all_have("/readyz").await
    }

    /// One consistent reading of the service's counters.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says.
    pub async fn stats(&self) -> Result<ServiceStats, Error> {
        Ok(self.reported().await?.stats)
    }

    /// The same, with the counters that a plan maps and the service's page doesn't have.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says, or its page of counters can't be read.
    pub async fn reported(&self) -> Result<ReportedStats, Error> {
        if let Some(mapped) = &self.mapped {
            let failed = |error: PageError| Error::Counters { url: mapped.url().into(), reason: error.to_string() };
            return mapped.get(&self.http, Duration::from_nanos(unix_ns())).await.map_err(failed);
        }
        let stats = replicas::sum(self.get_from_replicas("/stats").await?)?;
        Ok(ReportedStats { stats, ..ReportedStats::default() })
    }

    /// The books of the open connections, and of those that have closed since this client's last reading. One that
    /// closed during that reading may be among them again.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says.
    pub async fn connections(&mut self) -> Result<Vec<ConnectionBook>, Error> {
        if self.bases.is_empty() {
            return Err(Error::Get {
                path: CONNECTIONS,
                reason: "the address of its metrics port is not known".into(),
            });
        }
        let mut all = Vec::new();
        for base in &self.bases {
            let cursor = self.cursors.get(base).map(String::as_str).unwrap_or_default();
            let books: ConnectionBooks = get_from(&self.http, base, CONNECTIONS, &format!("?since={cursor}")).await?;
            match books.cursor {
                Some(cursor) => self.cursors.insert(base.clone(), cursor),
                None => self.cursors.remove(base),
            };
            all.push(books.connections);
        }
        Ok(replicas::united(all)?)
    }

    /// How detailed the service's books are.
    pub async fn keeping(&self) -> BookKeeping {
        match self.has_metrics_port() {
            false => BookKeeping::None,
            true if self.all_have(CONNECTIONS).await => BookKeeping::Connections,
            true => BookKeeping::Totals,
        }
    }

    /// Looks for the optional pages. Those that exist are read with the counters from now on. A service that doesn't
    /// respond at all is noticed when they are read.
    ///
    /// Replicas are not asked: each publishes to its own connections, and what one has is not a part of a whole.
    pub async fn find_pages(&mut self) {
        if self.bases.len() > 1 {
            return;
        }
        let own = self.bases.clone();
        self.find(PROCESSES, &own).await;
        self.find(PUBLISHER, &own).await;
        // A first instance that publishes reports for all instances.
        let covers_all = self.pages.get(PUBLISHER).is_some_and(|serving| *serving == own);
        let other: Vec<_> = self.other.iter().filter(|_| !covers_all).cloned().collect();
        self.find(PUBLISHER, &other).await;
        self.find(LINKS, &[own, other].concat()).await;
        // The engine serves the page of links in any setup. Without links, there is no need to read it again.
        if let Ok(None) = self.links().await {
            self.pages.remove(LINKS);
        }
    }

    /// Asks each instance for a page, unless the page was found before.
    async fn find(&mut self, path: &'static str, urls: &[String]) {
        if self.pages.contains_key(path) {
            return;
        }
        let mut serving = Vec::new();
        for url in urls {
            if self.has_page(url, path).await {
                serving.push(url.clone());
            }
        }
        if !serving.is_empty() {
            self.pages.insert(path, serving);
        }
    }

    /// Checks that everything that a run reads is available.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says, or if the named publishing instance doesn't
    /// publish.
    pub async fn check(&mut self) -> Result<(), Error> {
        self.find_pages().await;
        self.stats().await?;
        match &self.other {
            Some(url) if !self.pages.contains_key(PUBLISHER) => {
                let url = url.clone();
                let responds = self.has_page(&url, "/stats").await;
                Err(if responds { Error::PublishesNothing { url } } else { Error::NoPublisher { url } })
            }
            _ => Ok(()),
        }
    }

    /// Lowest resident memory of the process, in bytes, over the readings before its trials. This is its memory without
    /// connections. `before` is the reading before the current trial.
    pub(crate) fn at_rest(&mut self, before: &Reading) -> Option<u64> {
        let (pid, rss_bytes) = (before.pid?, before.rss_bytes?);
        let least = match self.at_rest {
            Some((known, least)) if known == pid => least.min(rss_bytes),
            _ => rss_bytes,
        };
        self.at_rest = Some((pid, least));
        Some(least)
    }

    /// Counters of the service's publisher; `None` if it has none.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says.
    pub async fn publisher(&self) -> Result<Option<PublisherStats>, Error> {
        Ok(self.get_from_instances(PUBLISHER).await?.pop())
    }

    /// Counters of the links between the service's instances, summed; `None` if there is only one instance.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says.
    pub async fn links(&self) -> Result<Option<LinksStats>, Error> {
        let links = self.get_from_instances::<LinksStats>(LINKS).await?;
        let links = links.iter().fold(LinksStats::default(), |all, links| all.merge(links));
        let has_links = links.by_name().next().is_some();
        Ok(has_links.then_some(links))
    }

    /// The service's processes by name; empty if it doesn't report them.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says.
    pub async fn processes(&self) -> Result<BTreeMap<String, ProcessStats>, Error> {
        let found = self.get_from_instances::<ProcessesStats>(PROCESSES).await?;
        Ok(found.into_iter().flat_map(|found| found.processes).collect())
    }

    /// Whether no publication is on its way between the service's instances; true if there is only one instance.
    ///
    /// # Errors
    /// [`Error`] if the service doesn't respond as the contract says.
    pub async fn links_are_idle(&self) -> Result<bool, Error> {
        let Some(links) = self.links().await? else { return Ok(true) };
        let publishes = self.publisher().await?.is_some_and(|publisher| publisher.publishing);
        Ok(!publishes && links.at_rest())
    }

    async fn has_page(&self, base: &str, path: &str) -> bool {
        let status = self.http.status(&format!("{base}{path}")).await;
        status.is_ok_and(|status| status == StatusCode::OK)
    }

    /// Whether every replica has a page.
    async fn all_have(&self, path: &str) -> bool {
        for base in &self.bases {
            if !self.has_page(base, path).await {
                return false;
            }
        }
        true
    }

    /// Reads a page from each instance that serves it.
    async fn get_from_instances<T: DeserializeOwned>(&self, path: &'static str) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        for base in self.pages.get(path).into_iter().flatten() {
            found.push(get_from(&self.http, base, path, "").await?);
        }
        Ok(found)
    }

    /// Reads a page from all replicas at the same time: one after the other would be that much later on a busy service.
    async fn get_from_replicas<T: DeserializeOwned + Send + 'static>(
        &self,
        path: &'static str,
    ) -> Result<Vec<T>, Error> {
        let mut reading = JoinSet::new();
        for (index, base) in self.bases.iter().cloned().enumerate() {
            let http = self.http.clone();
            reading.spawn(async move { (index, get_from(&http, &base, path, "").await) });
        }
        let mut read: BTreeMap<usize, T> = BTreeMap::new();
        while let Some(joined) = reading.join_next().await {
            let (index, page) = joined.expect("the task neither panics nor is aborted");
            read.insert(index, page?);
        }
        Ok(read.into_values().collect())
    }
}

async fn get_from<T: DeserializeOwned>(
    http: &HttpClient,
    base: &str,
    path: &'static str,
    query: &str,
) -> Result<T, Error> {
    let failed = |error: HttpError| Error::Get { path, reason: error.to_string() };
    let (status, body) = http.get(&format!("{base}{path}{query}")).await.map_err(failed)?;
    if status != StatusCode::OK {
        return Err(Error::Get { path, reason: format!("HTTP status {status}") });
    }
    serde_json::from_slice(&body).map_err(|error| Error::Contract { path, reason: error.to_string() })
}
