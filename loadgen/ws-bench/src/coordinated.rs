//! A worker of a coordinator: everything comes from its assignments.

use loadgen_core::coordinator::{self, Coordinator, WorkerOutput};

use crate::workloads::{PROGRAM, Workload};

/// Carries out assignments until the run is over.
///
/// # Errors
/// When the coordinator can't be reached or refuses, or an assignment can't be carried out.
pub fn work(url: &str, worker: u32, token: Option<String>) -> anyhow::Result<()> {
    let coordinator = Coordinator::new(url, worker)?.with_token(token);
    let registration = coordinator.registration(PROGRAM, Workload::all_terms());
    coordinator::work(&coordinator, &registration, |assignment, gate| {
        Workload::find(&assignment.trial.workload)?.run(assignment, gate).map(WorkerOutput::from)
    })?;
    Ok(())
}
