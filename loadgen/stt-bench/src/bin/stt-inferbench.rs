//! Loads the inference behind speech-to-text gateways directly, and checks every answer. What it measured is JSON on
//! standard output; it exits with 0, with 1 if any request failed, or with 2 if it was told what makes no sense.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use stt_bench::inferbench::{self, Options};

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let runtime = match std::thread::available_parallelism().map_or(1, usize::from) {
        // One thread needs no scheduler that moves work between threads.
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    }
    .enable_all()
    .build()
    .context("failed to start the runtime")?;
    let report = runtime.block_on(inferbench::run(options))?;
    println!("{}", serde_json::to_string_pretty(&report).context("failed to write the report")?);
    for sample in &report.error_samples {
        eprintln!("{sample}");
    }
    Ok(ExitCode::from(u8::from(report.errors.any())))
}
