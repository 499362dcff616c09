//! A worker of a coordinator: everything but the secret and the source addresses comes from its assignments.

use loadgen_core::coordinator::{self, Coordinator, WorkerOutput};

use crate::{
    protocol::Access,
    workloads::{PROGRAM, Workload},
};

/// Carries out assignments until the run is over.
///
/// # Errors
/// When the coordinator can't be reached or refuses, or an assignment can't be carried out.
pub fn work(url: &str, worker: u32, token: Option<String>, access: &Access) -> anyhow::Result<()> {
    let coordinator = Coordinator::new(url, worker)?.with_token(token);
    let registration = coordinator.registration(PROGRAM, Workload::all_terms());
    coordinator::work(&coordinator, &registration, |assignment, gate| {
        Workload::find(&assignment.trial.workload)?.run(assignment, access, gate).map(WorkerOutput::from)
    })?;
    Ok(())
}
