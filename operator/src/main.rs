//! `ladder`: climbs a plan, checks the books, keeps the results.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator::cli::main()
}
