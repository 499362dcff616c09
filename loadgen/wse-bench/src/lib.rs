//! `wse-bench`: load on WSE services. By hand with the flags of the reference's own, or as a worker of a coordinator.
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`test`](mod@test), [`suite`] | the tests of a run by hand: their names, and what each offers; pure |
//! | [`hand`] | a run by hand: its trials one after the other |
//! | [`coordinated`] | work for a coordinator |
//! | [`preflight`] | what the machine allows, and whether the service lets anybody in |
//! | [`workloads`] | what an assignment means to each workload |
//! | [`protocol`], [`payload`] | WSE as a client speaks it |
//! | [`tick`] | the messages that a service publishes |
//! | [`smoke`] | whether the service still speaks the protocol, before a load and after it |
//! | [`outcome`] | one tier, as it was judged |
//! | [`print`] | tables and JSON |

pub mod cli;
pub mod coordinated;
mod digits;
pub mod hand;
pub mod outcome;
pub mod payload;
pub mod preflight;
pub mod print;
pub mod protocol;
pub mod smoke;
pub mod suite;
pub mod test;
pub mod tick;
pub mod workloads;

use crate::cli::Cli;

/// Runs what the command line asks for; says whether it did what it says.
///
/// # Errors
/// When there is nothing to show: the service lets nobody in, a worker can't be started, the coordinator is away.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    match (&cli.coordinator, cli.worker) {
        (Some(url), Some(worker)) => {
            loadgen_core::preflight::raise_open_files();
            coordinated::work(url, worker, cli.coordinator_token.clone(), &cli.access()).map(|()| true)
        }
        _ => hand::run(cli),
    }
}
