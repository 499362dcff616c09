//! The command line.

use clap::Parser;

/// Puts load on any WebSocket service, as a worker of `ladder`: the plan's `websocket` section describes the service.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Cli {
    /// Base URL of the coordinator, for example http://127.0.0.1:8080.
    #[arg(long)]
    pub coordinator: String,
    /// Index of this worker, from 0.
    #[arg(long)]
    pub worker: u32,
    /// Token that the coordinator requires; better set in the environment than on the command line.
    #[arg(long, env = "COORDINATOR_TOKEN", hide_env_values = true)]
    pub coordinator_token: Option<String>,
}
