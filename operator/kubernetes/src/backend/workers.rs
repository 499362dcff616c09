//! Starts and stops workers: releases and suspends the Job of a tier or of a search.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use operator::backend::{Error, WorkersSpec};
use tokio::time::Instant;

use super::{
    Kubernetes, WATCH_TIMEOUT, Workers,
    errors::{deleted, remote_error, watch_is_late},
    logs,
    readiness::Readiness,
};
use crate::{
    caches::Caches,
    journal::Original,
    pod_end::{self, WorkerPods, index_of, is_suspended, job_of, job_over},
    pod_failure::{self, Outlook, PodFailure, pod_name},
};

impl Kubernetes {
    pub(super) async fn release_workers(&mut self, spec: &WorkersSpec) -> Result<(), Error> {
        let (job, found) = self.usable_job(spec).await?;
        let unusable = |reason: String| Error::Remote { what: format!("release Job {job}"), reason };
        let parallelism = found.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1);
        if u32::try_from(parallelism) != Ok(spec.count) {
            return Err(unusable(format!("it creates {parallelism} pods, but the plan needs {} workers", spec.count)));
        }
        // The chart creates Jobs suspended. If this one is released already, another party did it.
        self.note(Original::Job { name: job.clone(), suspend: true })?;
        self.workers =
            Some(Workers { known: WorkerPods { job: job.clone(), pods: BTreeMap::new() }, logs: spec.logs.clone() });
        if !is_suspended(&found) {
            self.set_suspended(&job, true).await?;
        }
        self.wait_until_removed("the workers", |pod| self.is_of_a_job(pod)).await?;
        self.set_suspended(&job, false).await?;
        let pods = self.running_workers(&job, spec.count).await?;
        if let Some(workers) = &mut self.workers {
            workers.known.pods = pods;
        }
        self.have_run.insert(job);
        self.describe_nodes().await;
        Ok(())
    }

    /// The trial's Job, or the one after it if a worker of the first has crashed.
    async fn usable_job(&self, spec: &WorkersSpec) -> Result<(String, Job), Error> {
        let no_job = || Error::Remote {
            what: format!("find the Job of {}", spec.trial),
            reason: "cluster.yaml has none; the plan changed since it was written".into(),
        };
        let jobs = self.cluster.job(&spec.trial).ok_or_else(no_job)?;
        let mut ended = Vec::new();
        for name in jobs.names() {
            let job = self.api.job(name).await.map_err(remote_error)?;
            match job_over(&job) {
                Some(over) => ended.push(format!("{name}: {over}")),
                None if self.crashed_jobs.contains(name) => ended.push(format!("{name}: a worker crashed")),
                None => return Ok((name.into(), job)),
            }
        }
        Err(Error::Remote {
            what: format!("release a Job for {}", spec.trial),
            reason: format!("all have ended ({}); run.retry or a new run.id makes new ones", ended.join("; ")),
        })
    }

    pub(super) async fn suspend_workers(&mut self) {
        let Some(Workers { known, logs: folder }) = self.workers.take() else { return };
        let pods = known.pods.values().filter_map(|(_, uid)| self.pod(uid));
        if pods.into_iter().any(|pod| pod_end::has_crashed(&pod)) {
            self.crashed_jobs.insert(known.job.clone());
        }
        let api = &self.api;
        let logs = known.pods.iter().map(|(index, (pod, _))| {
            let path = folder.join(format!("{index}.log"));
            async move { logs::store_log(api, pod, "worker", &path).await }
        });
        join_all(logs).await;
        if let Err(error) = self.api.suspend(&known.job, true).await {
            eprintln!("ladder: {error}");
        }
    }

    async fn set_suspended(&self, job: &str, suspend: bool) -> Result<(), Error> {
        self.api.suspend(job, suspend).await.map_err(remote_error)?;
        let shown = self.wait_for(Instant::now() + WATCH_TIMEOUT, |caches| {
            (is_suspended(&*caches.job(job)?) == suspend).then_some(())
        });
        if shown.await.is_some() {
            return Ok(());
        }
        let now = self.api.job(job).await.map_err(remote_error)?;
        Err(Error::Interrupted(if is_suspended(&now) == suspend {
            watch_is_late(&format!("suspend: {suspend} of Job {job}"))
        } else {
            format!("Job {job} doesn't keep suspend: {suspend}: another client changes it")
        }))
    }

    /// Waits until every index has a pod whose container runs.
    async fn running_workers(&self, job: &str, count: u32) -> Result<BTreeMap<u32, (String, String)>, Error> {
        self.wait_for_pods(&format!("workers of Job {job}"), job, |caches| look(caches, job, count)).await
    }
}

fn look(caches: &Caches, job: &str, count: u32) -> Readiness<BTreeMap<u32, (String, String)>> {
    let Some(now) = caches.job(job) else { return Readiness::Interrupted(deleted(&format!("Job {job}"))) };
    if is_suspended(&now) {
        return Readiness::Interrupted(format!("another client suspended Job {job} while its workers were starting"));
    }
    if let Some(over) = job_over(&now) {
        return Readiness::Interrupted(format!("Job {job} has ended while its workers were starting, {over}"));
    }
    let (pods, events) = (pods_of(caches, job), caches.events());
    let running: BTreeMap<u32, (String, String)> = pods
        .iter()
        .filter(|pod| runs(pod))
        .filter_map(|pod| Some((index_of(pod)?, (pod_name(pod), pod.metadata.uid.clone()?))))
        .collect();
    if running.len() as u64 == u64::from(count) {
        return Readiness::Done(running);
    }
    let pod_failures = pods.iter().filter(|pod| !runs(pod)).map(|pod| pod_failure::of_pod(pod, &events));
    Readiness::NotYet(pod_failures.max_by_key(|pod_failure| pod_failure.outlook).unwrap_or_else(|| {
        let warning = pod_failure::last_warning(job, &events).unwrap_or_else(|| "no event gives a reason".into());
        PodFailure {
            description: format!("Job {job} made {} of {count} pods: {warning}", pods.len()),
            outlook: Outlook::Open,
        }
    }))
}

fn pods_of(caches: &Caches, job: &str) -> Vec<Arc<Pod>> {
    let of_job = |pod: &Arc<Pod>| job_of(pod) == Some(job) && pod.metadata.deletion_timestamp.is_none();
    caches.pods().into_iter().filter(of_job).collect()
}

fn runs(pod: &Pod) -> bool {
    pod_failure::container(pod, "worker")
        .is_some_and(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()))
}
