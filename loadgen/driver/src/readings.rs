//! A reading of a service: its own counters and, at the same moment, the kernel's.

use std::collections::BTreeMap;

use bench_format::result::{ProcessReading, Reading};

use crate::{
    clock::unix_ns,
    service_client::{self, ServiceClient},
    stage::{self, Details, Stage, Usage},
};

/// Why a service could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service's metrics port could not be read.
    #[error(transparent)]
    Counters(#[from] service_client::Error),
    /// The usage of a process could not be read.
    #[error(transparent)]
    Usage(#[from] stage::Error),
}

/// Reads a service's counters, CPU and memory.
///
/// The service takes its counters between the request and the response, so time and CPU are the mean of both. If its
/// process can't be read, the reading has the counters only.
///
/// # Errors
/// - [`Error::Counters`] if the service doesn't respond
/// - [`Error::Usage`] if its process has ended
pub async fn read<S: Stage>(client: &ServiceClient, stage: &S) -> Result<Reading, Error> {
    let (requested_at, before) = (unix_ns(), stage.service_usage().await?);
    // Concurrent requests: one after the other would be that much later on a busy service.
    let (reported, publisher, links, processes) =
        tokio::try_join!(client.reported(), client.publisher(), client.links(), client.processes())?;
    let (received_at, after) = (unix_ns(), stage.service_usage().await?);
    let inference = stage.inference_usage().await?;
    let companions = stage.companions_usage().await?;
    Ok(Reading {
        unix_ns: middle(requested_at, received_at),
        pid: after.map(|usage| usage.pid),
        cpu_ns: before.zip(after).map(|(before, after)| middle(before.cpu_ns, after.cpu_ns)),
        rss_bytes: after.map(|usage| usage.rss_bytes),
        kernel_bytes: stage.kernel_bytes(),
        cpu_limit: after.map(|usage| usage.cpu_limit),
        throttled_periods: after.and_then(|usage| usage.throttled_periods),
        periods: after.and_then(|usage| usage.periods),
        throttled_ns: after.and_then(|usage| usage.throttled_ns),
        threads: None,
        stats: reported.stats,
        missing: reported.missing,
        publisher,
        links,
        processes,
        inference: inference.map(of_process),
        companions: companions.into_iter().map(|(name, usage)| (name, of_process(usage))).collect(),
        replicas: BTreeMap::new(),
    })
}

/// Reads a service at an edge of the window: [`read`], and the details of its processes.
///
/// # Errors
/// Those of [`read`]; what is missing from the details is no error.
pub async fn read_edge<S: Stage>(client: &ServiceClient, stage: &S) -> Result<Reading, Error> {
    let mut reading = read(client, stage).await?;
    let Details { service, replicas, mut companions, inference, inference_counts } = stage.details().await;
    reading.threads = service;
    reading.replicas = replicas.into_iter().map(|(name, usage)| (name, of_process(usage))).collect();
    for (name, companion) in &mut reading.companions {
        companion.threads = companions.remove(name);
    }
    if let Some(simulator) = &mut reading.inference {
        (simulator.threads, simulator.counts) = (inference, inference_counts);
    }
    Ok(reading)
}

fn of_process(usage: Usage) -> ProcessReading {
    let Usage { pid, cpu_ns, rss_bytes, cpu_limit, throttled_periods, periods, throttled_ns } = usage;
    ProcessReading {
        pid,
        cpu_ns,
        rss_bytes,
        cpu_limit,
        throttled_periods,
        periods,
        throttled_ns,
        threads: None,
        counts: None,
    }
}

fn middle(a: u64, b: u64) -> u64 {
    a / 2 + b / 2 + (a % 2 + b % 2) / 2
}
