//! A service's metrics port: what it says of itself.

use std::{collections::BTreeMap, time::Duration};

use bench_format::{
    result::Reading,
    service::{
        ConnectionBook, ConnectionBooks, LinksStats, ProcessStats, ProcessesStats, PublisherStats, ServiceStats,
    },
    trial_file::BookKeeping,
};
use reqwest::{Client, StatusCode};
use serde::de::DeserializeOwned;

/// Longest wait for an answer; a service at its limit answers late.
const PATIENCE: Duration = Duration::from_secs(10);
/// What it published, by itself.
const PUBLISHER: &str = "/stats/publisher";
/// What its instances sent to each other.
const LINKS: &str = "/stats/links";
/// Its processes.
const PROCESSES: &str = "/stats/processes";
/// Its books on each connection.
const CONNECTIONS: &str = "/stats/connections";

/// Why a service's metrics port could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It doesn't answer.
    #[error("failed to get {path} from the service: {reason}")]
    Get {
        /// The path.
        path: &'static str,
        /// Why.
        reason: String,
    },
    /// It answers something else than the contract says.
    #[error("the service's {path} is not what services/README.md says: {reason}")]
    Contract {
        /// The path.
        path: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers where an instance that publishes should.
    #[error("no publishing instance tells of itself at {url}")]
    NoPublisher {
        /// Its metrics port.
        url: String,
    },
    /// What answers there publishes nothing.
    #[error("the instance whose metrics are at {url} publishes nothing")]
    PublishesNothing {
        /// Its metrics port.
        url: String,
    },
}

/// A service's metrics port, or those of its two instances.
#[derive(Clone, Debug)]
pub struct ServiceClient {
    http: Client,
    /// Its URL; absent where there is none, or nobody may ask.
    base: Option<String>,
    /// The URL of another instance, which publishes.
    other: Option<String>,
    /// Pages that not every service has, each with the URLs of those that have it: they are read with the rest.
    pages: BTreeMap<&'static str, Vec<String>>,
    /// The process that was read last, and its least resident memory before any of its trials, in bytes.
    at_rest: Option<(u32, u64)>,
}

impl ServiceClient {
    /// A client for `host:port`.
    pub fn new(metrics_address: &str) -> Self {
        Self::at(Some(format!("http://{metrics_address}")))
    }

    /// A client for `http://host:port`.
    pub fn of_url(url: &str) -> Self {
        Self::at(Some(url.trim_end_matches('/').to_owned()))
    }

    /// A client for a service that says nothing of itself: its counters stand still at nothing.
    pub fn none() -> Self {
        Self::at(None)
    }

    fn at(base: Option<String>) -> Self {
        // A proxy between us and a service on this machine is never meant.
        let http = Client::builder().no_proxy().timeout(PATIENCE).build().expect("no option of it can fail");
        Self { http, base, other: None, pages: BTreeMap::new(), at_rest: None }
    }

    /// The same client for a service of two instances; the other one, at `http://host:port`, publishes. It is not asked where
    /// the first one tells of both.
    pub fn with_publisher(self, url: &str) -> Self {
        Self { other: Some(url.trim_end_matches('/').to_owned()), ..self }
    }

    /// Whether there is anybody to ask.
    pub fn can_ask(&self) -> bool {
        self.base.is_some()
    }

    /// Whether it accepts connections.
    pub async fn ready(&self) -> bool {
        match &self.base {
            Some(base) => self.answers(base, "/readyz").await,
            None => false,
        }
    }

    /// One consistent reading of its counters.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn stats(&self) -> Result<ServiceStats, Error> {
        if self.base.is_none() { Ok(ServiceStats::default()) } else { self.get("/stats").await }
    }

    /// Its books on each connection; those of closed ones are handed out once.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn connections(&self) -> Result<Vec<ConnectionBook>, Error> {
        self.get::<ConnectionBooks>(CONNECTIONS).await.map(|books| books.connections)
    }

    /// What its books can answer.
    pub async fn keeping(&self) -> BookKeeping {
        match &self.base {
            None => BookKeeping::None,
            Some(base) if self.answers(base, CONNECTIONS).await => BookKeeping::Connections,
            Some(_) => BookKeeping::Totals,
        }
    }

    /// Asks for the pages that not every service has: from then on those that it has are read with its counters. One that
    /// doesn't answer at all is found out when these are read.
    pub async fn find_pages(&mut self) {
        let own: Vec<_> = self.base.iter().cloned().collect();
        self.find(PROCESSES, &own).await;
        self.find(PUBLISHER, &own).await;
        // An instance that publishes tells of all of them.
        let tells_of_all = self.pages.get(PUBLISHER).is_some_and(|there| *there == own);
        let other: Vec<_> = self.other.iter().filter(|_| !tells_of_all).cloned().collect();
        self.find(PUBLISHER, &other).await;
        self.find(LINKS, &[own, other].concat()).await;
        // An engine has the page whatever it is part of; of one instance there is nothing to be read again and again.
        if let Ok(None) = self.links().await {
            self.pages.remove(LINKS);
        }
    }

    /// Which of several instances have a page; those that are known to have it aren't asked again.
    async fn find(&mut self, path: &'static str, urls: &[String]) {
        if self.pages.contains_key(path) {
            return;
        }
        let mut there = Vec::new();
        for url in urls {
            if self.answers(url, path).await {
                there.push(url.clone());
            }
        }
        if !there.is_empty() {
            self.pages.insert(path, there);
        }
    }

    /// Looks whether there is all that a run will read.
    ///
    /// # Errors
    /// When it doesn't answer by the contract, or nothing publishes where an instance that does was named.
    pub async fn check(&mut self) -> Result<(), Error> {
        self.find_pages().await;
        self.stats().await?;
        match &self.other {
            Some(url) if !self.pages.contains_key(PUBLISHER) => {
                let url = url.clone();
                let is_there = self.answers(&url, "/stats").await;
                Err(if is_there { Error::PublishesNothing { url } } else { Error::NoPublisher { url } })
            }
            _ => Ok(()),
        }
    }

    /// Least resident memory of the process of a reading before its trial and before its earlier ones, in bytes: what it holds
    /// without connections.
    pub(crate) fn at_rest(&mut self, before: &Reading) -> Option<u64> {
        let (pid, rss_bytes) = (before.pid?, before.rss_bytes?);
        let least = match self.at_rest {
            Some((known, least)) if known == pid => least.min(rss_bytes),
            _ => rss_bytes,
        };
        self.at_rest = Some((pid, least));
        Some(least)
    }

    /// What its publisher has published, if it has one.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn publisher(&self) -> Result<Option<PublisherStats>, Error> {
        Ok(self.get_if_there(PUBLISHER).await?.pop())
    }

    /// What its instances sent to each other, over all of them; nothing where there is only one.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn links(&self) -> Result<Option<LinksStats>, Error> {
        let links = self.get_if_there::<LinksStats>(LINKS).await?;
        let links = links.iter().fold(LinksStats::default(), |all, links| all.and(links));
        let are_there = links.by_name().next().is_some();
        Ok(are_there.then_some(links))
    }

    /// Its processes, if it tells them apart.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn processes(&self) -> Result<BTreeMap<String, ProcessStats>, Error> {
        let found = self.get_if_there::<ProcessesStats>(PROCESSES).await?;
        Ok(found.into_iter().flat_map(|found| found.processes).collect())
    }

    /// Whether nothing of what it published is on the way between its instances any more. Where there is one instance, there
    /// is no such way.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn links_rest(&self) -> Result<bool, Error> {
        let Some(links) = self.links().await? else { return Ok(true) };
        let publishes = self.publisher().await?.is_some_and(|publisher| publisher.publishing);
        Ok(!publishes && links.at_rest())
    }

    async fn answers(&self, base: &str, path: &str) -> bool {
        let answer = self.http.get(format!("{base}{path}")).send().await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }

    /// A page of each instance that has it.
    async fn get_if_there<T: DeserializeOwned>(&self, path: &'static str) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        for base in self.pages.get(path).into_iter().flatten() {
            found.push(self.get_from(base, path).await?);
        }
        Ok(found)
    }

    async fn get<T: DeserializeOwned>(&self, path: &'static str) -> Result<T, Error> {
        let nobody = || Error::Get { path, reason: "nobody said where its metrics port is".into() };
        self.get_from(self.base.as_ref().ok_or_else(nobody)?, path).await
    }

    async fn get_from<T: DeserializeOwned>(&self, base: &str, path: &'static str) -> Result<T, Error> {
        let failed = |error: reqwest::Error| Error::Get { path, reason: chain(&error) };
        let answer = self.http.get(format!("{base}{path}")).send().await.map_err(failed)?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(Error::Get { path, reason: format!("it answers {status}") });
        }
        let body = answer.bytes().await.map_err(failed)?;
        serde_json::from_slice(&body).map_err(|error| Error::Contract { path, reason: error.to_string() })
    }
}

/// An error with its causes, on one line; a cause that is said already isn't said again.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        source = cause.source();
    }
    words
}
