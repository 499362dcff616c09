//! Speech-to-text gateway on axum's own WebSocket extractor. `services/README.md` ("Gateways") is its contract.
//!
//! `main` starts it and prints where it listens. `server` has the routes, upgrades connections and stops everything;
//! `session` serves one client: `session::audio` holds the frames that wait, `session::outbox` the messages that its
//! socket hasn't taken yet. `inference` sends batches, `protocol` has the messages, `metrics` the books and their port,
//! `config` the settings.

mod config;
mod gateway;
mod inference;
mod metrics;
mod protocol;
mod server;
mod session;

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
    let (address, metrics_address) = (listener.local_addr()?, metrics_listener.local_addr()?);
    let books = Arc::new(Books::new());
    let gateway = Arc::new(Gateway::new(config, books.clone())?);
    metrics::serve(metrics_listener, books)?;
    announce(address, metrics_address)?;
    server::serve(gateway, listener, async {
        select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await;
    Ok(())
}

/// Prints the ready line.
fn announce(address: SocketAddr, metrics_address: SocketAddr) -> anyhow::Result<()> {
    let line = serde_json::to_string(&Started {
        event: "ready".into(),
        address: address.to_string(),
        metrics_address: metrics_address.to_string(),
        pid: process::id(),
    })?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("failed to print the ready line")
}

/// Raises the soft limit of open files to the hard one: each connection needs a descriptor.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        eprintln!("failed to raise the limit of open files: {error}");
    }
}
