//! The load generator: parses the command line, runs by hand or for a coordinator, and sets the exit code.

use std::process::ExitCode;

use clap::Parser;
use stt_bench::{cli::Cli, coordinated, hand};

/// Exit code when the run was not clean, or failed.
const NOT_CLEAN: u8 = 1;
/// Exit code when the command line is not valid.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(description) = cli.check() {
        eprintln!("{description}");
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
