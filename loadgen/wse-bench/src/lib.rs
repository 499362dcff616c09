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
//! | [`stats`] | what the service says of itself |
//! | [`watch`] | the CPU of its process, where that runs on this machine |
//! | [`outcome`] | one tier, judged |
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
pub mod stats;
pub mod suite;
pub mod test;
pub mod tick;
pub mod watch;
pub mod workloads;

use loadgen_core::crew;

use crate::{cli::Cli, workloads::Workload};

/// Runs what the command line asks for; says whether it did what it says.
///
/// # Errors
/// When there is nothing to show: the service lets nobody in, a worker can't be started, the coordinator is away.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    match (&cli.coordinator, cli.worker, cli.pipe) {
        (Some(url), Some(worker), _) => {
            loadgen_core::preflight::raise_open_files();
            coordinated::work(url, worker, cli.coordinator_token.clone(), &cli.access()).map(|()| true)
        }
        (_, _, true) => {
            loadgen_core::preflight::raise_open_files();
            let access = cli.access();
            crew::serve(|assignment, gate| {
                Workload::find(&assignment.trial.workload).and_then(|workload| workload.run(assignment, &access, gate))
            })?;
            Ok(true)
        }
        _ => hand::run(cli),
    }
}
