//! `ws-bench`: load generator for any WebSocket service, from a plan alone. It runs as a worker of a coordinator.
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`], [`coordinated`] | the command line; takes assignments from a coordinator |
//! | [`workloads`] | turns an assignment into the load generator's pattern |
//! | [`protocol`] | the client: what the load generator asks of a protocol |
//! | [`section`], `check` | compiles the `websocket` section of a plan; lists its mistakes |
//! | [`request`], [`rows`], [`tls`] | the upgrade request; the rows of a file or a command, one for each connection; encryption |
//! | [`script`] | the opening; pure |
//! | [`messages`], [`template`] | composes messages, and recognizes them in echoes; pure |
//! | [`framing`] | cuts the protocol's messages from WebSocket messages; pure |
//! | [`reply`], [`fanout`] | what a message of the service says about the load: replies, publications; pure |
//! | [`condition`], [`extract`], [`pointer`], [`hex`], `number` | conditions on messages, and values in them; pure |
//! | [`descriptors`] | file descriptors that a load needs |
//! | [`look`] | looks at a running service, for `ladder try` |
//! | [`state`], [`constants`] | what is kept of a connection and of a trial |
//! | [`mistakes`] | mistakes with their places |

mod check;
pub mod cli;
pub mod condition;
pub mod constants;
pub mod coordinated;
pub mod descriptors;
pub mod extract;
pub mod fanout;
pub mod framing;
pub mod hex;
pub mod look;
pub mod messages;
pub mod mistakes;
mod number;
pub mod pointer;
pub mod protocol;
pub mod reply;
pub mod request;
pub mod rows;
pub mod script;
pub mod section;
pub mod state;
pub mod template;
pub mod tls;
pub mod workloads;

pub use check::{check, check_printed, path_of, tls_name};
pub use template::TemplateError;

/// Works for the coordinator that the command line names.
///
/// # Errors
/// When the coordinator can't be reached, or an assignment can't be carried out.
pub fn run(cli: cli::Cli) -> anyhow::Result<()> {
    loadgen_core::preflight::raise_open_files();
    coordinated::work(&cli.coordinator, cli.worker, cli.coordinator_token)
}
