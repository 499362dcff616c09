//! One trial, from the reading before its connections open to the one after its drain. One sequence: read, offer, all
//! ready, what shall publish does so, release, read at both edges of the window, collect results, let the service settle,
//! read.
//!
//! Nothing is judged here; what goes wrong on the way is noted as a problem or ends the trial. What each worker is told is
//! in [`assignments`].

use std::{collections::BTreeMap, time::Duration};

use bench_format::{
    SCHEMA,
    fanout::Start,
    pod::{Pod, PodRole},
    result::{Reading, Reason, ReasonKind, ServiceFile, ServiceReadings},
    service::{ServiceStats, Started},
    terms::Terms,
    trial::TrialId,
    trial_file::{BookKeeping, Cpus, TrialFile},
};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    backend::{Backend, Cause, Ended},
    clock::unix_ns,
    coordinator::{Coordinator, Upload, barrier::Barrier},
    equations::ServiceDelta,
    judge::Measured,
    plan::{Ladder, Plan},
    readings::{self, ServiceClient},
    registry::ProtocolCheck,
    validity::reason,
};
use assignments::assignments;

pub(crate) mod assignments;

/// Longest wait for workers to open their connections and to work out what will be expected of their answers.
const READY_DEADLINE: Duration = Duration::from_secs(120);
/// Between the release and the start: enough for every worker to hear of it.
const LEAD: Duration = Duration::from_millis(50);
/// What a worker may take, beyond the window, its drain and as long for goodbyes, to upload.
const UPLOAD_GRACE: Duration = Duration::from_secs(20);
/// Between two looks at processes and memory.
const WATCH: Duration = Duration::from_millis(50);
/// Between two looks at a service that settles, or that shall publish.
const SETTLE: Duration = Duration::from_millis(20);
/// A service whose counters stood still for so long has settled, whatever they say.
const STILL: Duration = Duration::from_secs(1);

/// Why a trial could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service could not be read before the trial.
    #[error(transparent)]
    Read(#[from] readings::Error),
    /// The workers did not get ready.
    #[error("the workers did not get ready: {0}")]
    NotReady(String),
    /// The service, which ought to publish, doesn't.
    #[error("the service publishes nothing: {0}")]
    Silent(String),
    /// A process ended, or the trial was called off, while load was running.
    #[error("the trial broke off: {0}")]
    BrokeOff(String),
    /// Somebody else ended or changed what ran: the trial says nothing.
    #[error("the trial was interrupted: {0}")]
    Interrupted(String),
    /// Nobody delivered a result.
    #[error("no worker delivered a result within {seconds} s after the window")]
    NoResult {
        /// How long was waited.
        seconds: u64,
    },
}

/// What to measure, and against what.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// The run's id.
    pub run: &'a str,
    /// The plan.
    pub plan: &'a Plan,
    /// The trial's ladder.
    pub ladder: &'a Ladder,
    /// The trial.
    pub trial: &'a TrialId,
    /// The attempt.
    pub attempt: u32,
    /// Where the service listens.
    pub service: &'a Started,
    /// What the service's books can answer.
    pub keeping: BookKeeping,
    /// Whether its protocol is checked.
    pub protocol_check: ProtocolCheck,
    /// The command that repeats the trial.
    pub reproduce: &'a str,
    /// Settings of the service that workers are told.
    pub settings: &'a BTreeMap<String, String>,
    /// Whether workers keep their connections for the next trial.
    pub keep_connections: bool,
}

/// Measures one trial.
///
/// # Errors
/// When there is nothing to judge. The trial is then called off for its workers, too.
pub async fn measure<B: Backend>(
    backend: &mut B,
    coordinator: &Coordinator,
    spec: &Spec<'_>,
) -> Result<Measured, Error> {
    let client = ServiceClient::new(&spec.service.metrics_address);
    let measured = Trial { backend: &mut *backend, coordinator, spec, client, rss_peak_bytes: 0 }.run().await;
    // Whatever was seen, it counts only if nobody had a hand in it until the very end.
    let measured = match backend.confirm().await {
        Some(Ended { cause: Cause::Outside, words }) => Err(Error::Interrupted(words)),
        _ => measured,
    };
    if let Err(error) = &measured {
        coordinator.abandon(&error.to_string());
    }
    measured
}

struct Trial<'a, B> {
    backend: &'a mut B,
    coordinator: &'a Coordinator,
    spec: &'a Spec<'a>,
    client: ServiceClient,
    rss_peak_bytes: u64,
}

/// How a watch ended.
enum Watched<T> {
    /// What was waited for.
    Answer(T),
    /// Time was up.
    Deadline,
    /// Something that was started ended.
    Ended(Ended),
}

impl<B: Backend> Trial<'_, B> {
    async fn run(mut self) -> Result<Measured, Error> {
        self.client.find_pages().await;
        let before = readings::read(&self.client, self.backend).await?;
        if self.spec.keeping == BookKeeping::Connections {
            // Connections of an earlier trial on this process: handed out once, so they don't come again.
            self.client.connections().await?;
        }
        let terms = self.terms()?;
        self.coordinator.offer(assignments(self.spec, &terms));
        let open_at_start = self.all_ready().await?;
        if terms.publishes_by.is_some() {
            self.publishing().await?;
        }
        let start_at_unix_ns = unix_ns() + LEAD.as_nanos() as u64;
        let start = Instant::now() + LEAD;
        self.coordinator.release(start_at_unix_ns);

        let mut problems = Vec::new();
        let mut readings = ServiceReadings { before: Some(before), ..ServiceReadings::default() };
        let window_start = start + self.spec.ladder.warmup;
        let window_end = window_start + self.spec.ladder.window;
        sleep_until(window_start).await;
        readings.window_start = note(&mut problems, readings::read(&self.client, self.backend).await);
        // A closed loop may have done all it was told to before the window is over. Its workers keep their connections until
        // the service was read: it closes thousands of them for a good part of what it took to open them.
        self.wait_by(window_end, Barrier::all_over).await?;
        readings.window_end = note(&mut problems, readings::read(&self.client, self.backend).await);
        self.coordinator.end_window();
        let grace = 2 * self.spec.plan.drain + UPLOAD_GRACE;
        self.wait_by(window_end + grace, Barrier::all_delivered).await?;
        let uploads = self.coordinator.take_uploads();
        if uploads.is_empty() {
            return Err(Error::NoResult { seconds: grace.as_secs() });
        }
        self.settle(&uploads, readings.before.as_ref().map(|before| &before.stats)).await;
        readings.after = note(&mut problems, readings::read(&self.client, self.backend).await);
        let connections = match self.spec.keeping {
            BookKeeping::Connections => note(&mut problems, self.client.connections().await),
            BookKeeping::Totals | BookKeeping::None => None,
        };
        // Workers whose connections all broke may have delivered before anybody looked.
        if let Some(ended) = self.backend.service_ended() {
            return Err(broke_off(ended));
        }
        let trial = self.trial_file(terms, start_at_unix_ns, open_at_start, &uploads, &readings, problems);
        Ok(Measured { trial, uploads, service: ServiceFile { schema: SCHEMA, readings, connections } })
    }

    /// What the trial is judged by, beside what the workers and the service counted.
    fn trial_file(
        &self,
        terms: Terms,
        started_at_unix_ns: u64,
        open_at_start: u64,
        uploads: &[Upload],
        readings: &ServiceReadings,
        problems: Vec<Reason>,
    ) -> TrialFile {
        let Spec { run, plan, ladder, trial, attempt, keeping, reproduce, .. } = *self.spec;
        let shares = self.backend.shares();
        TrialFile {
            schema: SCHEMA,
            run: run.into(),
            trial: trial.clone(),
            attempt,
            started_at_unix_ns,
            load: ladder.load.clone(),
            message: ladder.message.clone(),
            objectives: ladder.objectives.clone(),
            thresholds: plan.validity.clone(),
            terms,
            keeping,
            workers: plan.workers,
            window_ns: ladder.window.as_nanos() as u64,
            open_at_start,
            rss_peak_bytes: self.rss_peak_bytes,
            rss_at_rest_bytes: None,
            cpus: Cpus {
                workers: shares.worker_cpus.min(plan.cpu.worker.cpus * f64::from(plan.workers)),
                shared_with_service: false,
                shared_with_inference: shares.shared_with_inference,
                isolation: shares.isolation,
            },
            others: Vec::new(),
            problems,
            pods: pods(self.backend.whereabouts().pods, uploads, readings),
            reproduce: reproduce.into(),
        }
    }

    /// On which terms the trial's workload is judged, as its workers announced.
    fn terms(&self) -> Result<Terms, Error> {
        let workload = &self.spec.trial.workload;
        self.coordinator.ask(|barrier| barrier.terms(workload)).map_err(Error::NotReady)
    }

    async fn all_ready(&mut self) -> Result<u64, Error> {
        let deadline = Instant::now() + READY_DEADLINE;
        match self.watch(Barrier::all_ready, deadline).await {
            Watched::Answer(Ok(open)) => Ok(open),
            Watched::Answer(Err(problem)) => Err(Error::NotReady(problem)),
            Watched::Ended(Ended { cause: Cause::Outside, words }) => Err(Error::Interrupted(words)),
            Watched::Ended(Ended { words, .. }) => Err(Error::NotReady(words)),
            Watched::Deadline => {
                let late = self.coordinator.ask(Barrier::not_ready);
                let seconds = READY_DEADLINE.as_secs();
                Err(Error::NotReady(format!("worker {late:?} said nothing within {seconds} s")))
            }
        }
    }

    /// Waits until the service publishes.
    async fn publishing(&mut self) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            match Start::after(since.elapsed(), self.client.publisher().await) {
                Start::Now => return Ok(()),
                Start::Never(words) => return Err(Error::Silent(words)),
                Start::Later => {}
            }
            if let Some(ended) = self.backend.service_ended().or_else(|| self.backend.worker_ended()) {
                return Err(broke_off(ended));
            }
            sleep(SETTLE).await;
        }
    }

    /// Waits until all workers are so far, at the latest until `deadline`.
    async fn wait_by(
        &mut self,
        deadline: Instant,
        so_far: impl Fn(&Barrier) -> Option<Result<(), String>>,
    ) -> Result<(), Error> {
        match self.watch(so_far, deadline).await {
            Watched::Answer(Ok(())) | Watched::Deadline => Ok(()),
            Watched::Answer(Err(words)) => Err(Error::BrokeOff(words)),
            Watched::Ended(ended) => Err(broke_off(ended)),
        }
    }

    /// Waits for an answer of the barrier while it looks after processes and memory.
    async fn watch<T>(&mut self, answer: impl Fn(&Barrier) -> Option<T>, deadline: Instant) -> Watched<T> {
        let coordinator = self.coordinator;
        let waiting = coordinator.wait_until(answer);
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                biased;
                answer = &mut waiting => return Watched::Answer(answer),
                () = sleep_until(deadline) => return Watched::Deadline,
                () = sleep(WATCH) => {}
            }
            if let Some(ended) = self.backend.service_ended().or_else(|| self.backend.worker_ended()) {
                return Watched::Ended(ended);
            }
            if let Ok(Some(usage)) = self.backend.service_usage().await {
                self.rss_peak_bytes = self.rss_peak_bytes.max(usage.rss_bytes);
            }
        }
    }

    /// Waits until the service has counted all that was sent and nothing of it is on its way to the application, nor of what
    /// it published between its instances; at the latest until the drain's deadline, or until its counters stand still.
    async fn settle(&self, uploads: &[Upload], before: Option<&ServiceStats>) {
        let sent: u64 = uploads.iter().map(sent_by).sum();
        let deadline = Instant::now() + self.spec.plan.drain;
        let mut still = (Instant::now(), None);
        while Instant::now() < deadline {
            let Ok(mut stats) = self.client.stats().await else { return };
            let delta = ServiceDelta::between(before.unwrap_or(&ServiceStats::default()), &stats);
            if settled(&delta, sent) && self.client.links_rest().await.unwrap_or(true) {
                return;
            }
            stats.uptime_seconds = 0.0;
            match still {
                (since, Some(last)) if last == stats => {
                    if since.elapsed() > STILL {
                        return;
                    }
                    still = (since, Some(last));
                }
                _ => still = (Instant::now(), Some(stats)),
            }
            sleep(SETTLE).await;
        }
    }
}

/// What an end under load means for the trial.
fn broke_off(ended: Ended) -> Error {
    match ended.cause {
        Cause::Outside => Error::Interrupted(ended.words),
        Cause::Itself => Error::BrokeOff(ended.words),
    }
}

/// Pods, completed by what their workers said of themselves and by what the service's readings show.
fn pods(mut pods: Vec<Pod>, uploads: &[Upload], readings: &ServiceReadings) -> Vec<Pod> {
    for pod in &mut pods {
        let upload = uploads.iter().find(|upload| Some(upload.result.worker) == pod.worker);
        let between = |throttled: &dyn Fn(&Reading) -> Option<u64>| {
            let (after, before) = (readings.after.as_ref()?, readings.before.as_ref()?);
            Some(throttled(after)?.saturating_sub(throttled(before)?))
        };
        match (pod.role, upload) {
            (PodRole::Service, _) => pod.throttled_periods = between(&|reading| reading.throttled_periods),
            (PodRole::Companion, _) => {
                let name = pod.companion.clone().unwrap_or_default();
                pod.throttled_periods = between(&|reading| reading.companions.get(&name)?.throttled_periods);
            }
            (PodRole::Inference, _) => {
                pod.throttled_periods = between(&|reading| reading.inference.as_ref()?.throttled_periods);
            }
            (PodRole::Worker, Some(upload)) => {
                pod.cpus_allowed.clone_from(&upload.result.environment.cpus_allowed);
                pod.throttled_periods = upload.result.evidence.throttled_periods;
            }
            (PodRole::Worker, None) => {}
        }
    }
    pods
}

fn sent_by(upload: &Upload) -> u64 {
    let unnumbered: u64 = upload.result.books.iter().map(|book| book.unnumbered).sum();
    upload.result.messages.sent + unnumbered
}

/// Whether every message has reached its end.
fn settled(delta: &ServiceDelta, sent: u64) -> bool {
    let accounted = delta.consumed + delta.delivered + delta.dropped_total();
    let reached_the_application = delta.application.is_none_or(|application| application.delivered >= delta.delivered);
    delta.received >= sent && delta.queued == 0 && accounted >= delta.received && reached_the_application
}

/// Keeps what was read; what could not be read is a problem of the service's conduct.
fn note<T>(problems: &mut Vec<Reason>, read: Result<T, readings::Error>) -> Option<T> {
    read.map_err(|error| problems.push(reason(ReasonKind::Conformance, error.to_string()))).ok()
}

#[cfg(test)]
mod tests {
    use bench_format::service::ApplicationStats;

    use super::*;

    #[test]
    fn a_service_has_settled_when_all_messages_have_an_end() {
        let application = Some(ApplicationStats { delivered: 9, ..ApplicationStats::default() });
        let delta = ServiceDelta { received: 11, consumed: 1, delivered: 10, application, ..Default::default() };
        assert!(!settled(&delta, 11), "the application has one to go");
        let application = Some(ApplicationStats { delivered: 10, ..ApplicationStats::default() });
        let delta = ServiceDelta { application, ..delta };
        assert!(settled(&delta, 11));
        assert!(!settled(&delta, 12), "one is still on its way");
        assert!(!settled(&ServiceDelta { queued: 1, ..delta }, 11));
    }
}
