//! Starts the simulator, prints the ready line, and stops on SIGTERM or SIGINT.

use std::io::Write;

use anyhow::Context;
use clap::Parser;
use inference_sim::{Config, Service};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
};

fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If the limit can't be raised, connections beyond it are refused.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    runtime(&config)?.block_on(run(config))
}

/// A single thread needs no scheduler that moves tasks between threads.
fn runtime(config: &Config) -> anyhow::Result<Runtime> {
    let mut builder = match config.threads() {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let threads = config.threads();
    let builder = builder.worker_threads(threads).max_blocking_threads(threads).enable_all();
    builder.build().context("failed to start the runtime")
}

async fn run(config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let service = Service::bind(&config)?;
    let line = serde_json::to_string(&service.started()).context("failed to write the ready line")?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("failed to print the ready line")?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    service.serve(stop).await;
    Ok(())
}
