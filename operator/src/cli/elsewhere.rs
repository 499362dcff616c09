//! Hands the subcommands that need a cluster to a separate program, `ladder-kubernetes`, which keeps this one small.

use std::{convert::Infallible, env, ffi::OsString, os::unix::process::CommandExt, process::Command};

use anyhow::bail;

use crate::registry::worker_program;

/// Name of the program that talks to clusters.
const PROGRAM: &str = "ladder-kubernetes";
/// Options of `ladder assert` that locate a run in a cluster.
const PLACES: [&str; 6] = ["--url", "--release", "--namespace", "-n", "--kubeconfig", "--context"];

/// Whether the command line is `ladder assert` for a run in a cluster.
pub(super) fn asserts_elsewhere(arguments: &[OsString]) -> bool {
    let place = |word: &OsString| {
        let word = word.to_string_lossy();
        PLACES.iter().any(|place| word == *place || word.starts_with(&format!("{place}=")))
    };
    arguments.get(1).is_some_and(|word| word == "assert") && arguments[2..].iter().any(place)
}

/// Replaces this process with `ladder-kubernetes` (exec) and passes our arguments on.
///
/// # Errors
/// When the program is not beside `ladder` or on `PATH`, or can't be executed.
pub(super) fn become_it() -> anyhow::Result<Infallible> {
    let Some(program) = worker_program(PROGRAM) else {
        bail!(
            "no program \"{PROGRAM}\" beside ladder or on PATH; build it: cargo build --release -p operator-kubernetes"
        );
    };
    let error = Command::new(&program).args(env::args_os().skip(1)).exec();
    Err(anyhow::Error::new(error).context(format!("failed to run {}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::asserts_elsewhere;

    #[test]
    fn an_assertion_is_elsewhere_when_it_names_a_place() {
        let is = |line: &str| asserts_elsewhere(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(is("ladder assert --url http://a") && is("ladder assert -n b --release=c"));
        assert!(!is("ladder assert results/r --junit j.xml") && !is("ladder status --url http://a") && !is("ladder"));
    }
}
