//! The command line. A table of contents: the work is in the modules.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use tokio::net::TcpListener;

use crate::{
    evidence,
    remote::{assert, fetch, status},
    serve,
};

/// What the command line asked for.
#[derive(Debug, Parser)]
#[command(name = "ladder", version, about = "The part of ladder that speaks to clusters")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Climb inside a cluster: what the chart's operator runs.
    Serve(Serve),
    /// Say how a run in a cluster stands; exit code 0 when the operator is ready and its plan is valid.
    Status(status::Status),
    /// Fetch a bundle from a cluster, check it file by file, and make its report.
    Fetch(fetch::Fetch),
    /// Turn the verdicts of the ordered run into an exit code: 0 pass, 1 fail, 2 invalid.
    Assert(assert::Assert),
    /// Tell what a service beside it in a pod uses.
    Evidence(Evidence),
}

#[derive(Debug, Args)]
struct Serve {
    /// The plan.
    #[arg(long)]
    plan: PathBuf,
    /// What the chart made of it.
    #[arg(long)]
    cluster: PathBuf,
    /// Where bundles are kept.
    #[arg(long, default_value = "results")]
    results: PathBuf,
    /// Address of all ports.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port for workers.
    #[arg(long, default_value_t = 8080)]
    coordinator_port: u16,
    /// Port for people, probes, status, fetch and assert.
    #[arg(long, default_value_t = 8081)]
    web_port: u16,
    /// Port for Prometheus.
    #[arg(long, default_value_t = 9090)]
    metrics_port: u16,
    /// Longest wait for a pod to run or become ready, images included.
    #[arg(long, env = "LADDER_START_DEADLINE_SECONDS", default_value_t = 180, value_name = "SECONDS")]
    start_deadline: u64,
    /// What workers must show.
    #[arg(long, env = "COORDINATOR_TOKEN", hide_env_values = true)]
    coordinator_token: Option<String>,
    /// This pod's name.
    #[arg(long, env = "POD_NAME")]
    pod_name: Option<String>,
    /// This pod's unique id: Events are about it.
    #[arg(long, env = "POD_UID")]
    pod_uid: Option<String>,
}

#[derive(Debug, Args)]
struct Evidence {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port.
    #[arg(long, default_value_t = 9101)]
    port: u16,
}

/// Runs the command line.
pub fn main() -> ExitCode {
    // Before any client is built: with one provider for the whole process none has to be guessed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("failed to start a runtime")
        .and_then(|runtime| {
            let code = runtime.block_on(run(Arguments::parse().command));
            // Whoever still holds a connection open must not hold up the end.
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
        Command::Serve(arguments) => serve::serve(arguments.into()).await,
        Command::Status(arguments) => status::status(&arguments).await,
        Command::Fetch(arguments) => fetch::fetch(&arguments).await,
        Command::Assert(arguments) => assert::assert(&arguments).await,
        Command::Evidence(arguments) => tell(&arguments).await,
    }
}

async fn tell(arguments: &Evidence) -> anyhow::Result<u8> {
    let mut stop = operator::signals::Stop::listen().context("failed to listen for signals")?;
    let Evidence { host, port } = arguments;
    let listener = TcpListener::bind((host.as_str(), *port)).await;
    let listener = listener.with_context(|| format!("failed to listen on {host}:{port}"))?;
    tokio::select! {
        served = evidence::serve(listener) => served.map(|()| 0).context("failed to serve"),
        () = stop.wait() => Ok(0),
    }
}

impl From<Serve> for serve::Options {
    fn from(arguments: Serve) -> Self {
        Self {
            plan: arguments.plan,
            cluster: arguments.cluster,
            results: arguments.results,
            host: arguments.host,
            coordinator_port: arguments.coordinator_port,
            web_port: arguments.web_port,
            metrics_port: arguments.metrics_port,
            start_deadline: Duration::from_secs(arguments.start_deadline),
            token: arguments.coordinator_token.filter(|token| !token.is_empty()),
            pod: arguments.pod_name.filter(|name| !name.is_empty()),
            pod_uid: arguments.pod_uid.filter(|uid| !uid.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_charts_arguments_are_understood() {
        let line = "ladder serve --plan /etc/ws-ladder/plan.yaml --cluster /etc/ws-ladder/cluster.yaml --results /results \
                    --host 0.0.0.0";
        assert!(Arguments::try_parse_from(line.split_whitespace()).is_ok());
        for line in [
            "ladder status --url http://a-operator.b.svc:8081",
            "ladder assert --url http://a-operator.b.svc:8081 --wait --timeout 3600",
            "ladder fetch r1 -n b --release a --results results",
            "ladder evidence --host 0.0.0.0 --port 9101",
        ] {
            assert!(Arguments::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
        }
        assert!(Arguments::try_parse_from(["ladder", "status"]).is_err(), "nobody said where");
    }
}
