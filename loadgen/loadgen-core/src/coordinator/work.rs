//! The main loop of a worker: register, run assignments and upload results until the run is over.

use std::{fmt::Display, ops::ControlFlow};

use bench_format::{
    result::WorkerResult,
    trial::{Assignment, Registration},
};
use tokio::signal::unix::{SignalKind, signal};

use super::{Coordinator, CoordinatorGate};
use crate::{
    error::Error,
    live::LiveReport,
    trial::{Edge, Gate, StartAt},
};

/// The output of one trial of a worker.
pub struct WorkerOutput {
    /// The result that is uploaded to the coordinator.
    pub result: WorkerResult,
    /// Raw rows, compressed with zstd; absent unless the assignment asked for them.
    pub samples: Option<Vec<u8>>,
}

impl From<WorkerResult> for WorkerOutput {
    fn from(result: WorkerResult) -> Self {
        Self { result, samples: None }
    }
}

/// Runs assignments until the run is over. A trial that can't be run is left to the coordinator, which gets no result
/// for it.
///
/// # Errors
/// An [`Error`] if the coordinator can't be reached or SIGTERM can't be handled.
pub fn work<E: Display>(
    coordinator: &Coordinator,
    registration: &Registration,
    mut run_assignment: impl FnMut(&Assignment, &mut dyn Gate) -> Result<WorkerOutput, E>,
) -> Result<(), Error> {
    exit_on_sigterm()?;
    coordinator.register(registration)?;
    while let Some(assignment) = coordinator.next()? {
        let mut gate = OnceGate { inner: CoordinatorGate::new(coordinator, &assignment), reported: false };
        match run_assignment(&assignment, &mut gate) {
            Ok(done) => {
                if let Some(samples) = done.samples {
                    coordinator.upload_samples(&assignment, samples)?;
                }
                coordinator.upload(&done.result)?;
            }
            Err(error) => {
                eprintln!("{}: {error:#}", assignment.trial);
                if !gate.reported {
                    // The trial failed before the barrier, and the other workers must not wait. The response doesn't
                    // matter, there is no load.
                    let _ = gate.ready(0, Some(format!("{error:#}")));
                }
            }
        }
    }
    Ok(())
}

/// Exits on SIGTERM. The first process of a container has no default action for it, so without this the pod would run
/// until it is killed. Nothing is lost, because a cancelled trial has no result.
fn exit_on_sigterm() -> Result<(), Error> {
    let kernel = |source| Error::Kernel { action: "listen for SIGTERM", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(kernel)?;
    let mut terminate = {
        let _runtime_context = runtime.enter();
        signal(SignalKind::terminate()).map_err(kernel)?
    };
    std::thread::spawn(move || {
        runtime.block_on(terminate.recv());
        // 128 plus the number of the signal, as a shell reports it.
        std::process::exit(143);
    });
    Ok(())
}

/// A barrier that records whether it was asked.
struct OnceGate<'a> {
    inner: CoordinatorGate<'a>,
    reported: bool,
}

impl Gate for OnceGate<'_> {
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        self.reported = true;
        self.inner.ready(open, problem)
    }

    fn window_edge(&mut self, edge: Edge) {
        self.inner.window_edge(edge);
    }

    fn progress(&mut self, report: &LiveReport) -> ControlFlow<()> {
        self.inner.progress(report)
    }

    fn window_over(&mut self) {
        self.inner.window_over();
    }
}
