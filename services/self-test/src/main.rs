//! Starts the service, prints its ready line, and stops it on SIGTERM or SIGINT.

use std::io::Write;

use anyhow::Context;
use clap::Parser;
use self_test_service::{Config, Service};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let service = Service::start(config).await?;
    let line = serde_json::to_string(&service.started()).context("failed to write the ready line")?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("failed to print the ready line")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    service.stop().await
}
