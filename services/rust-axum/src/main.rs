//! Speech-to-text gateway on Tokio and Axum. `services/README.md` ("Gateways") is its contract.
//!
//! `main` reads the settings (`config`), starts the runtime and prints the ready line. `server` accepts connections,
//! answers HTTP requests and upgrades; `gateway` holds what all sessions share. `session` serves one client: `socket`
//! reads its bytes, `inbox` parses them into audio, `backlog` keeps sequence numbers and times, `schedule` computes
//! when ticks are due, `session::request` sends the audio through `inference`, `protocol` writes the messages, `outbox`
//! holds those that are not written yet, and `close_reason` maps the end of a session to a close code. `metrics` keeps the books and serves
//! them.

mod backlog;
mod close_reason;
mod config;
mod gateway;
mod inbox;
mod inference;
mod metrics;
mod outbox;
mod protocol;
mod schedule;
mod server;
mod session;
mod socket;

use std::{io::Write, net::SocketAddr, process, sync::Arc};

use anyhow::Context;
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service_contract::Started;
use tokio::{
    runtime, select,
    signal::unix::{SignalKind, signal},
};

use crate::{config::Config, gateway::Gateway, metrics::Books};

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    raise_open_files();
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(config.threads())
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(run(&config))
}

/// Serves clients until SIGTERM or SIGINT, and then until all sessions have ended.
async fn run(config: &Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let listener = server::listen(SocketAddr::new(config.host, config.port))?;
    let metrics_listener = server::listen(SocketAddr::new(config.host, config.metrics_port))?.into_std()?;
    let books = Arc::new(Books::new());
    let gateway = Arc::new(Gateway::new(config, books.clone())?);
    let (address, metrics_address) = (listener.local_addr()?, metrics_listener.local_addr()?);
    metrics::serve(metrics_listener, books)?;
    announce(address, metrics_address)?;
    let stop = async {
        select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    server::serve(gateway, listener, stop).await;
    Ok(())
}

/// Prints the ready line: one JSON object on stdout with both addresses and the process id.
fn announce(address: SocketAddr, metrics_address: SocketAddr) -> anyhow::Result<()> {
    let started = Started {
        event: "ready".into(),
        address: address.to_string(),
        metrics_address: metrics_address.to_string(),
        pid: process::id(),
    };
    let line = serde_json::to_string(&started).context("failed to write the ready line")?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("failed to print the ready line")
}

/// Raises the soft limit of open files to the hard limit, because each connection needs a file descriptor.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // On failure the limit stays as it is; reaching it later is reported by `accept`.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
