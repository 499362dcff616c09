//! Starts the gateway, prints its ready line, and stops it on SIGTERM or SIGINT.

use std::io::Write;

use anyhow::Context;
use clap::Parser;
use self_test_service::gateway::{Config, Gateway};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let gateway = Gateway::start(config).await?;
    let line = serde_json::to_string(&gateway.started()).context("failed to write the ready line")?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("failed to print the ready line")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    gateway.stop().await
}
