//! `ladder-kubernetes`: the part of `ladder` that talks to clusters. The work is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator_kubernetes::cli::main()
}
