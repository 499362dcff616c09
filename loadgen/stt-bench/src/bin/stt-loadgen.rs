//! The load generator: command line in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use stt_bench::{cli::Cli, coordinated, hand};

/// The run was not clean.
const NOT_CLEAN: u8 = 1;
/// The command line makes no sense.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(words) = cli.check() {
        eprintln!("{words}");
        return ExitCode::from(BAD_USAGE);
    }
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_CLEAN),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(NOT_CLEAN)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<bool> {
    match (&cli.coordinator, cli.worker) {
        (Some(url), Some(worker)) => {
            loadgen_core::preflight::raise_open_files();
            coordinated::work(url, worker, cli.coordinator_token.clone(), cli.settings()).map(|()| true)
        }
        _ => hand::run(cli),
    }
}
