//! What a trial reads of the processes of this machine: their use of it, how they ended, and how CPUs are divided.

use std::collections::BTreeSet;

use bench_format::run::CrashCause;
use driver::{
    fixed_work::{self, Timing},
    inference_client::InferenceClient,
    machine::{OwnGroup, Snapshot},
    nodes::MachineSnapshot,
    service_process::ServiceProcess,
    stage::{self, Cause, Details, Ended, Shares, Stage, Usage},
};
use tokio::task::spawn_blocking;

use super::{
    Local, ReadyProcess,
    process::{self, RunningProcess},
};
use crate::{backend::Error, roles::Roles};

impl Stage for Local {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        if let Some(watched) = &self.watched {
            return Ok(watched.usage());
        }
        if let Some(found) = &self.found {
            return Ok(found.usage());
        }
        let service = self.service.as_ref().ok_or(Error::NoService)?;
        Ok(Some(service.usage(self.shapes.service, &self.roles.service)?))
    }

    async fn inference_usage(&self) -> Result<Option<Usage>, stage::Error> {
        let usage = |ready_process: &ReadyProcess| ready_process.usage(self.shapes.inference, &self.roles.inference);
        Ok(self.inference.as_ref().map(usage).transpose()?)
    }

    async fn details(&self) -> Details {
        let inference_counts = match &self.inference {
            Some(inference) => InferenceClient::new(&inference.metrics_address).counts().await,
            None => None,
        };
        Details {
            service: match (&self.watched, &self.found) {
                (Some(watched), _) => watched.threads(),
                (None, Some(found)) => found.process().and_then(ServiceProcess::threads),
                (None, None) => self.service.as_ref().and_then(ReadyProcess::threads),
            },
            inference: self.inference.as_ref().and_then(ReadyProcess::threads),
            inference_counts,
            ..Details::default()
        }
    }

    async fn machine(&self) -> Option<MachineSnapshot> {
        let group = |cpus: &[usize], pids: Vec<u32>| OwnGroup {
            cpus: cpus.iter().copied().collect(),
            pids: pids.into_iter().collect(),
        };
        let tree = |ready_process: &ReadyProcess| {
            // A wrapper that started the service is the trial's, too.
            ready_process.running.pid().into_iter().flat_map(process::process_tree).chain([ready_process.pid]).collect()
        };
        let service = self.service.iter().map(|service| group(&self.roles.service, tree(service)));
        let inference = self.inference.iter().map(|inference| group(&self.roles.inference, tree(inference)));
        let workers = self.workers.iter().enumerate().map(|(index, worker)| {
            let pids = worker.pid().map(process::process_tree).unwrap_or_default();
            group(&self.roles.workers[index % self.roles.workers.len()], pids)
        });
        let ladder = group(&self.roles.ladder, vec![std::process::id()]);
        Snapshot::take(service.chain(inference).chain(workers).chain([ladder])).map(MachineSnapshot::Machine)
    }

    async fn fixed_work(&mut self) -> Option<Timing> {
        if !self.times_work {
            return None;
        }
        let Roles { service, inference, workers, ladder } = &self.roles;
        let cpus: BTreeSet<usize> =
            [service, inference, ladder].into_iter().chain(workers).flatten().copied().collect();
        let rounds = self.fixed_rounds;
        // On threads of its own, so that the coordinator still serves its workers.
        let timing = spawn_blocking(move || fixed_work::time_on(&cpus, rounds.unwrap_or_else(fixed_work::calibrate)));
        let timing = timing.await.ok().flatten()?;
        self.fixed_rounds = Some(timing.rounds);
        Some(timing)
    }

    fn service_ended(&mut self) -> Option<Ended> {
        // Inference first: a service may end because of it.
        let inference = self.inference.as_mut().and_then(|inference| inference.running.ended()).map(own_exit);
        inference.or_else(|| self.service.as_mut().and_then(|service| crash(&mut service.running)))
    }

    fn worker_ended(&mut self) -> Option<Ended> {
        self.workers.iter_mut().find_map(RunningProcess::ended).map(own_exit)
    }

    async fn confirm(&mut self) -> Option<Ended> {
        self.service_ended().or_else(|| self.worker_ended())
    }

    fn shares(&self) -> Shares {
        // The CPUs of a service that ladder did not start, or that the plan names elsewhere, are not those of its role.
        let has_role = self.found.is_none() && self.watched.is_none();
        let sharing = self.roles.service_shares().filter(|_| has_role);
        Shares {
            worker_cpus: self.roles.worker_cpus() as f64,
            shared_with_service: match (&self.watched, &self.found) {
                (Some(watched), _) => watched.shares_cpus(),
                (None, Some(found)) => found.shares_cpus(),
                (None, None) => self.shapes.may_share && sharing.is_some(),
            },
            isolation: sharing.filter(|_| !self.shapes.may_share),
            shared_with_inference: self.roles.inference_shares().map(|cpus| cpus as f64),
        }
    }
}

/// The end of the service under load, which is a result.
fn crash(service: &mut RunningProcess) -> Option<Ended> {
    let description = service.ended()?;
    let cause = if service.ran_out_of_memory() { CrashCause::ServiceOom } else { CrashCause::ServiceCrashed };
    Some(Ended { description, cause: Cause::Service(cause) })
}

/// The end of a local process: nothing but ladder starts or stops them, so a process that ended did so by itself.
fn own_exit(description: String) -> Ended {
    Ended { description, cause: Cause::Itself }
}
