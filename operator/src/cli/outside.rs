//! `--url`, `--metrics` and `--evidence`: locate a service that ladder did not start, and check it before anything is
//! written.

use std::time::Duration;

use anyhow::{Context, bail};
use bench_format::run::Outside;
use clap::Args;

use crate::{
    outside::{self, counters},
    plan::Plan,
    registry::Registry,
};

/// Options that locate a service which already runs.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Climb the service that runs at this address, ws://HOST:PORT/PATH, instead of starting one.
    ///
    /// The plan must climb one service (--service picks it). Its counters are read from the address in --metrics. Parts
    /// of the plan that only the party that starts the service can set are left out, with a message for each. Its CPU
    /// and memory are in the results only with --evidence.
    #[arg(long, value_name = "URL", conflicts_with = "resume")]
    url: Option<String>,
    /// Address of that service's metrics port (its METRICS_PORT).
    ///
    /// Without it, and only for a loopback address, ladder tries the other ports on which the service's process
    /// listens.
    #[arg(long, value_name = "HOST:PORT", requires = "url")]
    metrics: Option<String>,
    /// Address of a `ladder evidence` that runs beside the service and reports its CPU and memory.
    ///
    /// It must share the PID namespace of the service's process: run it in a container of the same pod, or with `--pid
    /// container:NAME` of podman and docker.
    #[arg(long, value_name = "HOST:PORT", requires = "url")]
    evidence: Option<String>,
    /// How long to wait for the service and the addresses given with it to respond; 0 tries once.
    #[arg(long, value_name = "SECONDS", requires = "url", default_value_t = 0)]
    wait: u64,
}

/// The addresses of a service that already runs, as given on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceAddresses<'a> {
    url: &'a str,
    metrics: Option<&'a str>,
    evidence: Option<&'a str>,
    /// How long the service may take to respond.
    retry_time: Duration,
}

impl Flags {
    /// The place, or `None` without `--url`.
    pub(super) fn addresses(&self) -> Option<ServiceAddresses<'_>> {
        Some(ServiceAddresses {
            url: self.url.as_deref()?,
            metrics: self.metrics.as_deref(),
            evidence: self.evidence.as_deref(),
            retry_time: Duration::from_secs(self.wait),
        })
    }

    /// The flags that select the same service again, for the command that reproduces a run.
    pub(super) fn reproduce_command(outside: &Outside) -> String {
        let evidence = outside.evidence_address.iter().map(|address| format!(" --evidence {address}"));
        format!(" --url {} --metrics {}{}", outside.url, outside.metrics_address, evidence.collect::<String>())
    }
}

impl ServiceAddresses<'_> {
    /// Whether an evidence agent beside the service reports its CPU and memory.
    pub(super) fn has_usage(self) -> bool {
        self.evidence.is_some()
    }

    /// Resolves the addresses of the plan's only service (see [`outside::remove_unsupported`]) and checks that it can be climbed.
    pub(super) fn find(self, plan: &Plan, registry: &Registry) -> anyhow::Result<Outside> {
        let name = &plan.wire.services[0];
        let protocol = registry.protocol_of(&registry.services[name.as_str()]);
        let url = outside::address(self.url, protocol.path.as_deref().unwrap_or("/"))?;
        let metrics_address = match self.metrics {
            Some(given) => host_and_port("--metrics", given, "the service's METRICS_PORT")?,
            None => wait(counters::find(&outside::authority(&url)))?
                .map_err(|reason| outside::Error::NoCounters { url: url.to_string(), reason })?,
        };
        let agent_address = |given| host_and_port("--evidence", given, "where `ladder evidence` listens");
        let evidence_address = self.evidence.map(agent_address).transpose()?;
        let outside = Outside { url: url.into(), metrics_address, evidence_address };
        check_service(&outside, name, self.retry_time)?;
        Ok(outside)
    }
}

/// Checks a service before the climb, and prints on standard error what will be measured.
pub(super) fn check_service(outside: &Outside, name: &str, retry_time: Duration) -> anyhow::Result<()> {
    let version = wait(outside::check_with_retries(outside, name, retry_time))??;
    let Outside { url, metrics_address, evidence_address } = outside;
    let usage = match evidence_address {
        Some(address) => format!("reported by http://{address}"),
        None => "not read".into(),
    };
    eprintln!("{name} {version} runs at {url}; counters: http://{metrics_address}; CPU and memory: {usage}");
    Ok(())
}

/// Reduces a flag's value to `HOST:PORT`; an `http://` prefix and a path are dropped.
fn host_and_port(flag: &str, given: &str, what: &str) -> anyhow::Result<String> {
    let bare = given.strip_prefix("http://").unwrap_or(given);
    let bare = bare.split('/').next().unwrap_or_default();
    match bare.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(bare.into()),
        _ => bail!("{flag} {given}: no address; give HOST:PORT, {what}"),
    }
}

/// Runs a future to its end on a temporary runtime; the climb's runtime doesn't exist yet.
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
