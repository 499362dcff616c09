//! The program: parses the command line, runs the library, and prints one JSON object or an error.

use std::process::ExitCode;

use clap::Parser;
use floor::cli::{Cli, Command};

/// Exit code if nothing could be measured.
const FAILED: u8 = 1;
/// Exit code for an invalid command line.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::End => floor::dispatch::serve(),
        Command::Load(load) => {
            if let Err(description) = load.check() {
                eprintln!("floor: {description}");
                return ExitCode::from(BAD_USAGE);
            }
            floor::run(&cli, load)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}
