//! `wse-bench`: load on WSE services. By hand with the flags of the reference's own, or as a worker of a coordinator.
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`hand`] | a run by hand: tests, tiers, tables |
//! | [`coordinated`] | work for a coordinator |
//! | [`crew`] | several processes of a run by hand |
//! | [`preflight`] | what the machine and the service must allow |
//! | [`workloads`] | what an assignment means to each workload |
//! | [`protocol`], [`payload`] | WSE as a client speaks it |
//! | [`stats`] | what the service says of itself |
//! | [`outcome`] | one tier, judged |
//! | [`print`] | tables and JSON |

pub mod cli;
pub mod coordinated;
pub mod crew;
pub mod hand;
pub mod outcome;
pub mod payload;
pub mod preflight;
pub mod print;
pub mod protocol;
pub mod stats;
pub mod workloads;

use crate::cli::Cli;

/// Runs what the command line asks for; says whether it did what it says.
///
/// # Errors
/// When there is nothing to show: the service lets nobody in, a worker can't be started, the coordinator is away.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    match (&cli.coordinator, cli.worker, cli.pipe) {
        (Some(url), Some(worker), _) => {
            preflight::raise_open_files();
            coordinated::work(url, worker, cli.coordinator_token.clone(), &cli.secret).map(|()| true)
        }
        (_, _, true) => {
            preflight::raise_open_files();
            crew::serve(&cli.secret).map(|()| true)
        }
        _ => hand::run(cli),
    }
}
