//! `ladder-kubernetes`: the part of `ladder` that speaks to clusters.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator_kubernetes::cli::main()
}
