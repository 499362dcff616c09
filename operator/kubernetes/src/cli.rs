//! The command line of `ladder-kubernetes`: parses the arguments and calls one function per subcommand. The work itself
//! is in the modules.

use std::{env, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use driver::coordinator::Token;
use operator::climb::RetryBudget;
use tokio::net::TcpListener;

use crate::{
    evidence::{self, node::NodeCgroups},
    remote::{assert, fetch, status, watch},
    serve,
};

/// The parsed command line.
/// The variable that holds the coordinator's token.
const TOKEN: &str = "COORDINATOR_TOKEN";

#[derive(Debug, Parser)]
#[command(name = "ladder", version, about = "The part of ladder that talks to clusters")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Climb inside a cluster: the command of the chart's operator.
    Serve(Serve),
    /// Print the status of a run in a cluster; exit code 0 when the operator is ready, 1 when it is not.
    Status(status::Status),
    /// Follow a run in a cluster to its end: a line for each trial, and at a terminal the trial that runs.
    Watch(watch::Watch),
    /// Fetch a bundle from a cluster, check every file, and make its report.
    Fetch(fetch::Fetch),
    /// Turn the verdicts of the requested run into an exit code: 0 pass, 1 fail, 2 invalid.
    Assert(assert::Assert),
    /// Report the CPU and memory use of a service in the same pod, or the CPU use of a node, over HTTP.
    Evidence(Evidence),
}

#[derive(Debug, Args)]
struct Serve {
    /// Path of the plan file.
    #[arg(long)]
    plan: PathBuf,
    /// The file that the chart generated from the plan (cluster.yaml).
    #[arg(long)]
    cluster: PathBuf,
    /// Folder in which bundles are written.
    #[arg(long, default_value = "results")]
    results: PathBuf,
    /// Address on which all ports listen.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port on which the coordinator listens for workers.
    #[arg(long, default_value_t = 8080)]
    coordinator_port: u16,
    /// Port for the live page, probes, status, fetch and assert.
    #[arg(long, default_value_t = 8081)]
    web_port: u16,
    /// Port of the operator's metrics, which Prometheus scrapes.
    #[arg(long, default_value_t = 9090)]
    metrics_port: u16,
    /// Longest wait for a pod to run or become ready, including image pulls.
    #[arg(long, env = "LADDER_START_DEADLINE_SECONDS", default_value_t = 180, value_name = "SECONDS")]
    start_deadline: u64,
    /// Keep the bundles of so many runs that have ended, the newest ones, and remove the others.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    keep_runs: Option<u32>,
    /// Remove bundles of runs that ended more than so many days ago.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    keep_days: Option<u32>,
    /// How long trials are tried again while a cause outside interrupts them, such as a lost node or a registry that is
    /// away.
    #[arg(long, env = "LADDER_RETRY_SECONDS", default_value_t = RetryBudget::default().0.as_secs(), value_name = "SECONDS")]
    retry_seconds: u64,
    /// Name of the pod in which the operator runs.
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
    /// Unique id of this pod; Kubernetes Events refer to it.
    #[arg(long, env = "POD_UID")]
    pod_uid: Option<String>,
}

#[derive(Debug, Args)]
struct Evidence {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on.
    #[arg(long, default_value_t = 9101)]
    port: u16,
    /// Report the CPU use of the node whose /sys/fs/cgroup is mounted in this folder, and nothing else.
    #[arg(long, value_name = "FOLDER")]
    node_cgroups: Option<PathBuf>,
}

/// Parses the process's arguments, runs the subcommand and returns its exit code.
pub fn main() -> ExitCode {
    // Installed before any client is built, since several crypto providers are compiled in and rustls can't choose one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("failed to start a runtime")
        .and_then(|runtime| {
            let code = runtime.block_on(run(Arguments::parse().command));
            // A client that keeps a connection open must not delay the exit.
            runtime.shutdown_background();
            code
        });
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ladder: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Serve(arguments) => serve::serve(options(arguments, env::var(TOKEN).ok().as_deref())?).await,
        Command::Status(arguments) => status::status(&arguments).await,
        Command::Watch(arguments) => watch::watch(&arguments).await,
        Command::Fetch(arguments) => fetch::fetch(&arguments).await,
        Command::Assert(arguments) => assert::assert(&arguments).await,
        Command::Evidence(arguments) => serve_evidence(&arguments).await,
    }
}

async fn serve_evidence(arguments: &Evidence) -> anyhow::Result<u8> {
    let mut stop = operator::signals::Stop::listen().context("failed to listen for signals")?;
    let Evidence { host, port, node_cgroups } = arguments;
    let listener = TcpListener::bind((host.as_str(), *port)).await;
    let listener = listener.with_context(|| format!("failed to listen on {host}:{port}"))?;
    let serving = async {
        match node_cgroups {
            Some(folder) => evidence::serve_node(listener, NodeCgroups::new(folder)).await,
            None => evidence::serve(listener).await,
        }
    };
    tokio::select! {
        () = serving => {}
        () = stop.wait() => {}
    }
    Ok(0)
}

/// The options of `ladder serve`. The token comes from the environment alone, because `ps` shows arguments to all users.
///
/// # Errors
/// Without a token: every client that reaches the port could then take part in a trial.
fn options(arguments: Serve, token: Option<&str>) -> anyhow::Result<serve::Options> {
    Ok(serve::Options {
        plan: arguments.plan,
        cluster: arguments.cluster,
        results: arguments.results,
        host: arguments.host,
        coordinator_port: arguments.coordinator_port,
        web_port: arguments.web_port,
        metrics_port: arguments.metrics_port,
        start_deadline: Duration::from_secs(arguments.start_deadline),
        keep: serve::Keep { runs: arguments.keep_runs, days: arguments.keep_days },
        retry_budget: Duration::from_secs(arguments.retry_seconds),
        token: Token::new(token.unwrap_or_default())?,
        pod: arguments.pod_name.filter(|name| !name.is_empty()),
        pod_uid: arguments.pod_uid.filter(|uid| !uid.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_operator_without_a_coordinator_token_does_not_start() {
        for token in [None, Some(""), Some("\n")] {
            let Command::Serve(arguments) =
                Arguments::try_parse_from(["ladder", "serve", "--plan", "p", "--cluster", "c"]).unwrap().command
            else {
                panic!("another command");
            };
            let error = options(arguments, token).unwrap_err().to_string();
            assert!(error.contains("set COORDINATOR_TOKEN"), "{error}");
        }
    }

    #[test]
    fn the_charts_arguments_are_parsed() {
        let line = "ladder serve --plan /etc/ws-ladder/plan.yaml --cluster /etc/ws-ladder/cluster.yaml --results /results \
                    --host 0.0.0.0";
        assert!(Arguments::try_parse_from(line.split_whitespace()).is_ok());
        for line in [
            "ladder status --url http://a-operator.b.svc:8081",
            "ladder watch --url http://a-operator.b.svc:8081 --quiet",
            "ladder assert --url http://a-operator.b.svc:8081 --wait --timeout 3600",
            "ladder fetch r1 -n b --release a --results results",
            "ladder evidence --host 0.0.0.0 --port 9101",
            "ladder evidence --host 0.0.0.0 --port 9102 --node-cgroups /host/cgroup",
        ] {
            assert!(Arguments::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
        }
        assert!(Arguments::try_parse_from(["ladder", "status"]).is_err(), "neither --url nor --release is given");
    }
}
