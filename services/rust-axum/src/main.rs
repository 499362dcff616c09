//! Speech-to-text gateway on Tokio and Axum. `services/README.md` ("Gateways") is its contract.
//!
//! `main` starts it and says where it listens. `server` accepts clients, answers HTTP and upgrades; `gateway` is what
//! sessions have in common; `session` is one client: `socket` brings its bytes, `inbox` makes audio of them, `backlog`
//! numbers it, `schedule` says when it is due, `inference` has it recognised, `protocol` is what the client is told,
//! `outbox` what of that isn't written yet, `end` why it was over. `metrics` keeps the books and shows them. `config` has
//! the settings.

mod backlog;
mod config;
mod end;
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

/// Serves until SIGTERM or SIGINT.
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

/// Prints the ready line.
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

/// Raises the soft limit of open files to the hard one: each connection needs a descriptor.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // A refusal leaves the limit as it is; running into it is seen.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
