//! Subcommands that need a cluster are a program of their own, `ladder-kubernetes`, so that this one stays small.

use std::{convert::Infallible, env, ffi::OsString, os::unix::process::CommandExt, process::Command};

use anyhow::bail;

use crate::registry::worker_program;

/// The program that speaks to clusters.
const PROGRAM: &str = "ladder-kubernetes";
/// Options of `assert` that say where in a cluster a run is.
const PLACES: [&str; 6] = ["--url", "--release", "--namespace", "-n", "--kubeconfig", "--context"];

/// Whether the command line is one of `ladder assert` about a run in a cluster.
pub(super) fn asserts_elsewhere(words: &[OsString]) -> bool {
    let place = |word: &OsString| {
        let word = word.to_string_lossy();
        PLACES.iter().any(|place| word == *place || word.starts_with(&format!("{place}=")))
    };
    words.get(1).is_some_and(|word| word == "assert") && words[2..].iter().any(place)
}

/// Becomes that program, with our own arguments.
///
/// # Errors
/// When it isn't there.
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
