//! `--url` and `--metrics`: a service that somebody else started, found and looked at before anything is written.

use std::time::Duration;

use anyhow::{Context, bail};
use bench_format::run::Outside;
use clap::Args;

use crate::{
    outside::{self, counters},
    plan::Plan,
    registry::Registry,
};

/// Where the service is that is climbed without starting it.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Climb the service that runs at this address, ws://HOST:PORT/PATH, in place of starting one.
    ///
    /// The plan must climb one service (--service picks it). Its counters are read where --metrics says; what only the one
    /// who starts a service can set is left out in words, and its CPU and memory are not in the results without --evidence.
    #[arg(long, value_name = "URL", conflicts_with = "resume")]
    url: Option<String>,
    /// The metrics port of that service (its METRICS_PORT).
    ///
    /// Without it ladder looks on which other ports the process at a loopback address listens.
    #[arg(long, value_name = "HOST:PORT", requires = "url")]
    metrics: Option<String>,
    /// Where the service's CPU and memory are told: a `ladder evidence` that was started beside it.
    ///
    /// It sees the service's process where it shares its namespace: in a container of the same pod, or with
    /// `--pid container:NAME` of podman and docker.
    #[arg(long, value_name = "HOST:PORT", requires = "url")]
    evidence: Option<String>,
    /// Wait so long for the service and what was given beside it to answer, in place of giving up at once.
    #[arg(long, value_name = "SECONDS", requires = "url", default_value_t = 0)]
    wait: u64,
}

/// Where a service is said to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    url: &'a str,
    metrics: Option<&'a str>,
    evidence: Option<&'a str>,
    /// How long it may take to answer.
    patience: Duration,
}

impl Flags {
    /// The place, if one was given.
    pub(super) fn place(&self) -> Option<Place<'_>> {
        Some(Place {
            url: self.url.as_deref()?,
            metrics: self.metrics.as_deref(),
            evidence: self.evidence.as_deref(),
            patience: Duration::from_secs(self.wait),
        })
    }

    /// The flags that say the same of a service that was found.
    pub(super) fn again(outside: &Outside) -> String {
        let evidence = outside.evidence_address.iter().map(|address| format!(" --evidence {address}"));
        format!(" --url {} --metrics {}{}", outside.url, outside.metrics_address, evidence.collect::<String>())
    }
}

impl Place<'_> {
    /// Whether something beside the service tells what it uses.
    pub(super) fn tells_usage(self) -> bool {
        self.evidence.is_some()
    }

    /// Finds the only service of a plan that was fitted to it, and looks whether it can be climbed.
    pub(super) fn find(self, plan: &Plan, registry: &Registry) -> anyhow::Result<Outside> {
        let name = &plan.wire.services[0];
        let protocol = registry.protocol_of(&registry.services[name]);
        let url = outside::address(self.url, protocol.path.as_deref().unwrap_or("/"))?;
        let metrics_address = match self.metrics {
            Some(given) => host_and_port("--metrics", given, "the service's METRICS_PORT")?,
            None => wait(counters::find(&outside::authority(&url)))?
                .map_err(|reason| outside::Error::NoCounters { url: url.to_string(), reason })?,
        };
        let beside = |given| host_and_port("--evidence", given, "where `ladder evidence` listens");
        let evidence_address = self.evidence.map(beside).transpose()?;
        let outside = Outside { url: url.into(), metrics_address, evidence_address };
        look(&outside, name, self.patience)?;
        Ok(outside)
    }
}

/// Looks at a service before it is climbed, and says on standard error what will be measured.
pub(super) fn look(outside: &Outside, name: &str, patience: Duration) -> anyhow::Result<()> {
    let version = wait(outside::look_patiently(outside, name, patience))??;
    let Outside { url, metrics_address, evidence_address } = outside;
    let usage = match evidence_address {
        Some(address) => format!("are told at http://{address}"),
        None => "are not read".into(),
    };
    eprintln!(
        "{name} {version} runs at {url}; its counters are at http://{metrics_address}, its CPU and memory {usage}"
    );
    Ok(())
}

/// `HOST:PORT`, with or without `http://` before and a path behind it.
fn host_and_port(flag: &str, given: &str, what: &str) -> anyhow::Result<String> {
    let bare = given.strip_prefix("http://").unwrap_or(given);
    let bare = bare.split('/').next().unwrap_or_default();
    match bare.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(bare.into()),
        _ => bail!("{flag} {given}: no address; give HOST:PORT, {what}"),
    }
}

/// Waits for something before the climb has a runtime of its own.
fn wait<T>(what: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.context("failed to start a runtime")?.block_on(what))
}

#[cfg(test)]
mod tests {
    use super::host_and_port;

    #[test]
    fn a_metrics_address_may_be_written_as_people_copy_it() {
        for given in ["127.0.0.1:9100", "http://127.0.0.1:9100", "http://127.0.0.1:9100/metrics"] {
            assert_eq!(host_and_port("--metrics", given, "").unwrap(), "127.0.0.1:9100", "{given}");
        }
        for given in ["9100", ":9100", "a:0", "a:b", ""] {
            let error = host_and_port("--metrics", given, "its port").unwrap_err().to_string();
            assert!(error.starts_with(&format!("--metrics {given}: no address; give HOST:PORT")), "{error}");
        }
    }
}
