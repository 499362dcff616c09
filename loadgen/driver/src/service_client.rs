//! A service's metrics port: what it says of itself.

use std::{collections::BTreeMap, time::Duration};

use bench_format::service::{
    ConnectionBook, ConnectionBooks, LinksStats, ProcessStats, ProcessesStats, PublisherStats, ServiceStats,
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
}

/// A service's metrics port.
#[derive(Clone, Debug)]
pub struct ServiceClient {
    http: Client,
    /// Its URL; absent where there is none, or nobody may ask.
    base: Option<String>,
    /// Pages that not every service has, and this one has: they are read with the rest.
    pages: Vec<&'static str>,
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
        Self { http, base, pages: Vec::new() }
    }

    /// Whether it accepts connections.
    pub async fn ready(&self) -> bool {
        self.answers("/readyz").await
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
        self.get::<ConnectionBooks>("/stats/connections").await.map(|books| books.connections)
    }

    /// Asks for the pages that not every service has: from then on those that it has are read with its counters. One that
    /// doesn't answer at all is found out when these are read.
    pub async fn find_pages(&mut self) {
        for path in [PUBLISHER, LINKS, PROCESSES] {
            if !self.pages.contains(&path) && self.answers(path).await {
                self.pages.push(path);
            }
        }
        // An engine has the page whatever it is part of; of one instance there is nothing to be read again and again.
        if let Ok(None) = self.links().await {
            self.pages.retain(|path| *path != LINKS);
        }
    }

    /// What its publisher has published, if it has one.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn publisher(&self) -> Result<Option<PublisherStats>, Error> {
        self.get_if_there(PUBLISHER).await
    }

    /// What its instances sent to each other, if there are several.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn links(&self) -> Result<Option<LinksStats>, Error> {
        let links = self.get_if_there::<LinksStats>(LINKS).await?;
        Ok(links.filter(|links| links.by_name().next().is_some()))
    }

    /// Its processes, if it tells them apart.
    ///
    /// # Errors
    /// When it doesn't answer by the contract.
    pub async fn processes(&self) -> Result<BTreeMap<String, ProcessStats>, Error> {
        let found = self.get_if_there::<ProcessesStats>(PROCESSES).await?;
        Ok(found.map(|found| found.processes).unwrap_or_default())
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

    async fn answers(&self, path: &str) -> bool {
        let Some(base) = &self.base else { return false };
        let answer = self.http.get(format!("{base}{path}")).send().await;
        answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }

    async fn get_if_there<T: DeserializeOwned>(&self, path: &'static str) -> Result<Option<T>, Error> {
        if self.pages.contains(&path) { self.get(path).await.map(Some) } else { Ok(None) }
    }

    async fn get<T: DeserializeOwned>(&self, path: &'static str) -> Result<T, Error> {
        let failed = |error: reqwest::Error| Error::Get { path, reason: chain(&error) };
        let nobody = || Error::Get { path, reason: "nobody said where its metrics port is".into() };
        let base = self.base.as_ref().ok_or_else(nobody)?;
        let answer = self.http.get(format!("{base}{path}")).send().await.map_err(failed)?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(Error::Get { path, reason: format!("it answers {status}") });
        }
        let body = answer.bytes().await.map_err(failed)?;
        serde_json::from_slice(&body).map_err(|error| Error::Contract { path, reason: error.to_string() })
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    words
}
