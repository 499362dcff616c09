//! `ladder`: climbs a plan, checks the books and stores the results. The work is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator::cli::main()
}
