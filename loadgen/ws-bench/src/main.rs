//! The program around the library: parses the command line and sets the exit code.

use std::process::ExitCode;

use clap::Parser;

use ws_bench::{cli::Cli, run};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
