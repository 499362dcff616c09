//! `wse-bench`: load generator for WSE services. It runs by hand, with the flags of the reference's own `wse-bench`, or
//! as a worker of a coordinator.
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`test`](mod@test), [`suite`] | the tests of a run by hand: their names, and the load that each offers; pure |
//! | [`hand`] | a run by hand: its trials one after another |
//! | [`coordinated`] | a worker that takes assignments from a coordinator |
//! | [`preflight`] | the machine's limits, and whether the service accepts a connection |
//! | [`workloads`] | turns an assignment into the load generator's pattern |
//! | [`protocol`], [`payload`] | the client side of WSE, and the messages that it sends |
//! | [`tick`] | parses the messages that a service publishes |
//! | [`smoke`] | checks the service's protocol before and after the load |
//! | [`outcome`] | one tier with its measurements and problems |
//! | [`mod@print`] | tables and JSON |

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

/// Runs what the command line requests; returns whether all of it succeeded.
///
/// # Errors
/// When there is no result: the service refuses the first connection, a worker can't be started, or the coordinator
/// can't be reached.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    match (&cli.coordinator, cli.worker) {
        (Some(url), Some(worker)) => {
            loadgen_core::preflight::raise_open_files();
            coordinated::work(url, worker, cli.coordinator_token.clone(), &cli.access()).map(|()| true)
        }
        _ => hand::run(cli),
    }
}
