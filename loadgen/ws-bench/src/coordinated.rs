//! A worker of a coordinator: everything comes from its assignments.

use bench_format::trial::Registration;
use loadgen_core::{
    clock::unix_ns,
    coordinator::{self, Coordinator, WorkerOutput},
};

use crate::workloads::{PROGRAM, Workload};

/// Carries out assignments until the run is over.
///
/// # Errors
/// When the coordinator can't be reached or refuses, or an assignment can't be carried out.
pub fn work(url: &str, worker: u32, token: Option<String>) -> anyhow::Result<()> {
    let coordinator = Coordinator::new(url, worker)?.with_token(token);
    let registration = Registration {
        worker,
        pid: std::process::id(),
        started_at_unix_ns: unix_ns(),
        program: PROGRAM.into(),
        workloads: Workload::all_terms(),
    };
    coordinator::work(&coordinator, &registration, |assignment, gate| {
        Workload::find(&assignment.trial.workload)?.run(assignment, gate).map(WorkerOutput::from)
    })?;
    Ok(())
}
