//! A worker's life under a coordinator: register, carry out assignments, hand in what they left, until the run is over.

use std::fmt::Display;

use bench_format::{
    result::WorkerResult,
    trial::{Assignment, Registration},
};
use tokio::signal::unix::{SignalKind, signal};

use super::{Coordinator, CoordinatorGate};
use crate::{
    error::Error,
    trial::{Edge, Gate, StartAt},
};

/// What a trial leaves at a worker.
pub struct Done {
    /// Its result.
    pub result: WorkerResult,
    /// Raw rows, compressed with zstd, where the assignment asked for them.
    pub samples: Option<Vec<u8>>,
}

impl From<WorkerResult> for Done {
    fn from(result: WorkerResult) -> Self {
        Self { result, samples: None }
    }
}

/// Carries out assignments until the run is over. A trial that can't be carried out is the coordinator's to judge: it
/// sees that no result came.
///
/// # Errors
/// When the coordinator can't be reached.
pub fn work<E: Display>(
    coordinator: &Coordinator,
    registration: &Registration,
    mut carry_out: impl FnMut(&Assignment, &mut dyn Gate) -> Result<Done, E>,
) -> Result<(), Error> {
    end_on_sigterm()?;
    coordinator.register(registration)?;
    while let Some(assignment) = coordinator.next()? {
        let mut gate = OnceGate { inner: CoordinatorGate::new(coordinator, &assignment), asked: false };
        match carry_out(&assignment, &mut gate) {
            Ok(done) => {
                if let Some(samples) = done.samples {
                    coordinator.upload_samples(&assignment, samples)?;
                }
                coordinator.upload(&done.result)?;
            }
            Err(error) => {
                eprintln!("{}: {error:#}", assignment.trial);
                if !gate.asked {
                    // Failed before the barrier: the others must not wait for us. Whatever the answer, there is no load.
                    let _ = gate.ready(0, Some(format!("{error:#}")));
                }
            }
        }
    }
    Ok(())
}

/// As the first process of a container we have no default action for SIGTERM: without this the pod would linger until it is
/// killed. Nothing is lost, a trial that is called off has no result.
fn end_on_sigterm() -> Result<(), Error> {
    let kernel = |source| Error::Kernel { what: "listen for SIGTERM", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(kernel)?;
    let mut terminate = {
        let _inside = runtime.enter();
        signal(SignalKind::terminate()).map_err(kernel)?
    };
    std::thread::spawn(move || {
        runtime.block_on(terminate.recv());
        // 128 plus the signal's number, as a shell would say it.
        std::process::exit(143);
    });
    Ok(())
}

/// Remembers whether the barrier was asked.
struct OnceGate<'a> {
    inner: CoordinatorGate<'a>,
    asked: bool,
}

impl Gate for OnceGate<'_> {
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        self.asked = true;
        self.inner.ready(open, problem)
    }

    fn window_edge(&mut self, edge: Edge) {
        self.inner.window_edge(edge);
    }

    fn window_over(&mut self) {
        self.inner.window_over();
    }
}
