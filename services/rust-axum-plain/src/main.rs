//! Speech-to-text gateway on axum's own WebSocket extractor. `services/README.md` ("Gateways") is its contract.
//!
//! `main` reads the settings (`config`), starts the runtime and prints the ready line. `server` routes requests,
//! upgrades connections and stops the gateway; `gateway` holds what all sessions share. `session` serves one
//! client: `session::audio` buffers frames until the next tick, `inference` sends them as one request,
//! `session::outbox` holds the messages that the socket has not taken yet, `session::close_reason` maps the reason
//! for its end to a close code. `protocol` parses and writes the messages; `metrics` keeps the books and serves
//! them on a port of its own.

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

/// Serves clients until SIGTERM or SIGINT, and then until all sessions have ended.
async fn run(config: &Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let listener = server::listen(SocketAddr::new(config.host, config.port))?;
    let metrics_listener = server::listen(SocketAddr::new(config.host, config.metrics_port))?.into_std()?;
    let (address, metrics_address) = (listener.local_addr()?, metrics_listener.local_addr()?);
    let books = Arc::new(Books::new());
    let gateway = Arc::new(Gateway::new(config, books.clone())?);
    metrics::serve(metrics_listener, books)?;
    print_ready_line(address, metrics_address)?;
    server::serve(gateway, listener, async {
        select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await;
    Ok(())
}

/// Prints the ready line: one JSON object on stdout with both addresses and the process id.
fn print_ready_line(address: SocketAddr, metrics_address: SocketAddr) -> anyhow::Result<()> {
    let line = serde_json::to_string(&Started {
        event: "ready".into(),
        address: address.to_string(),
        metrics_address: metrics_address.to_string(),
        pid: process::id(),
    })?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("failed to print the ready line")
}

/// Raises the soft limit of open files to the hard limit, because each connection needs a file descriptor.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        eprintln!("failed to raise the limit of open files: {error}");
    }
}
