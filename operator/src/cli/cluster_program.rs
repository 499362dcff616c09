//! Hands the subcommands that need a cluster to a separate program, `ladder-kubernetes`, so that this one doesn't
//! contain the Kubernetes client.

use std::{convert::Infallible, env, ffi::OsString, os::unix::process::CommandExt, process::Command};

use anyhow::bail;

use crate::registry::worker_program;

/// Name of the program that talks to clusters.
const CLUSTER_PROGRAM: &str = "ladder-kubernetes";
/// Options of `ladder assert` that locate a run in a cluster.
const LOCATION_OPTIONS: [&str; 6] = ["--url", "--release", "--namespace", "-n", "--kubeconfig", "--context"];

/// Whether the command line is `ladder assert` for a run in a cluster.
pub(super) fn is_assert_in_cluster(arguments: &[OsString]) -> bool {
    let is_location = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        LOCATION_OPTIONS.iter().any(|option| argument == *option || argument.starts_with(&format!("{option}=")))
    };
    arguments.get(1).is_some_and(|subcommand| subcommand == "assert") && arguments[2..].iter().any(is_location)
}

/// Replaces this process with `ladder-kubernetes` (exec) and passes our arguments on.
///
/// # Errors
/// When the program is not beside `ladder` or on `PATH`, or can't be executed.
pub(super) fn exec_cluster_program() -> anyhow::Result<Infallible> {
    let Some(program) = worker_program(CLUSTER_PROGRAM) else {
        bail!(
            "no program \"{CLUSTER_PROGRAM}\" beside ladder or on PATH; build it: cargo build --release -p operator-kubernetes"
        );
    };
    let error = Command::new(&program).args(env::args_os().skip(1)).exec();
    Err(anyhow::Error::new(error).context(format!("failed to run {}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::is_assert_in_cluster;

    #[test]
    fn an_assertion_with_a_location_is_for_a_cluster() {
        let is = |line: &str| is_assert_in_cluster(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(is("ladder assert --url http://a") && is("ladder assert -n b --release=c"));
        assert!(!is("ladder assert results/r --junit j.xml") && !is("ladder status --url http://a") && !is("ladder"));
    }
}
