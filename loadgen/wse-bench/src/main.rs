//! The program around the library: parses the command line and sets the exit code.

use std::process::ExitCode;

use clap::Parser;

use wse_bench::{cli::Cli, run, test::Test};

/// Exit code when a test was not clean, or failed.
const NOT_CLEAN: u8 = 1;
/// Exit code when the command line is not valid.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(description) = check(&cli) {
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

fn check(cli: &Cli) -> Result<(), String> {
    cli.check()?;
    match &cli.test {
        Some(name) => Test::find(name).map(|_| ()).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}
