//! Starts the gateway, prints the ready line, and stops the gateway on SIGTERM or SIGINT.

use std::io::Write;

use anyhow::Context;
use clap::Parser;
use rust_sync::{Config, Gateway};
use signal_hook::{consts::TERM_SIGNALS, iterator::Signals};

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let mut signals = Signals::new(TERM_SIGNALS).context("failed to listen for SIGTERM")?;
    let gateway = Gateway::start(&config)?;
    let line = serde_json::to_string(&gateway.started()).context("failed to write the ready line")?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("failed to print the ready line")?;
    signals.forever().next();
    gateway.stop();
    Ok(())
}
