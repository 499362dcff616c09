//! Work for a coordinator: everything but the secret comes from its assignments.

use bench_format::trial::Registration;
use loadgen_core::{
    clock::unix_ns,
    coordinator::{Coordinator, CoordinatorGate},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::workloads::{PROGRAM, Workload};

/// Carries out assignments until the run is over. A trial that can't be carried out is the coordinator's to judge: it
/// sees that no result came.
///
/// # Errors
/// When the coordinator can't be reached.
pub fn work(url: &str, worker: u32, token: Option<String>, secret: &str) -> anyhow::Result<()> {
    end_on_sigterm()?;
    let coordinator = Coordinator::new(url, worker)?.with_token(token);
    let registration = Registration {
        worker,
        pid: std::process::id(),
        started_at_unix_ns: unix_ns(),
        program: PROGRAM.into(),
        workloads: Workload::names(),
    };
    coordinator.register(&registration)?;
    while let Some(assignment) = coordinator.next()? {
        let mut gate = OnceGate { inner: CoordinatorGate::new(&coordinator, &assignment), asked: false };
        let result = Workload::find(&assignment.trial.workload)
            .and_then(|workload| workload.run(&assignment, secret, &mut gate));
        match result {
            Ok(result) => coordinator.upload(&result)?,
            Err(error) => {
                eprintln!("{}: {error:#}", assignment.trial);
                if !gate.asked {
                    // Failed before the barrier: the others must not wait for us. Whatever the answer, there is no load.
                    let _ = loadgen_core::trial::Gate::ready(&mut gate, 0, Some(format!("{error:#}")));
                }
            }
        }
    }
    Ok(())
}

/// As the first process of a container we have no default action for SIGTERM: without this the pod would linger until it is
/// killed. Nothing is lost, a trial that is called off has no result.
fn end_on_sigterm() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut terminate = {
        let _inside = runtime.enter();
        signal(SignalKind::terminate())?
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

impl loadgen_core::trial::Gate for OnceGate<'_> {
    fn ready(
        &mut self,
        open: u32,
        problem: Option<String>,
    ) -> Result<loadgen_core::trial::StartAt, loadgen_core::Error> {
        self.asked = true;
        self.inner.ready(open, problem)
    }
}
