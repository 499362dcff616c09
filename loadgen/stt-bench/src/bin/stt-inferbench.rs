//! Puts load on speech-to-text inference without a gateway, and checks every answer. The report is JSON on standard
//! output. Exit code: 0, 1 if any request failed, 2 for bad usage.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use stt_bench::inferbench::{self, Options};

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let runtime = match std::thread::available_parallelism().map_or(1, usize::from) {
        // With a single CPU no scheduler has to move work between threads.
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
