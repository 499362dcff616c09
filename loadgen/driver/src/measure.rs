//! One trial, from the reading before its connections open to the reading after its drain.
//!
//! The steps, in order: read the service, hand out the assignments, wait until all workers are ready and the service
//! publishes (if it should), release the barrier, read at both edges of the window, collect results, let the service
//! settle, read again.
//!
//! Nothing is judged here: a failure is recorded as a problem or ends the trial. `assignments` computes each worker's
//! part, `ending` looks at processes that ended, `silence` notices machines that are lost, `settle` waits for the service's
//! counters, `pods` looks at what the trial's pods report, `trial_file` has the conditions of the trial.

use std::time::Duration;

use bench_format::{
    SCHEMA, histogram,
    result::{FixedWork, Reason, ReasonKind, ServiceFile, ServiceReadings},
    run::CrashCause,
    terms::Terms,
    trial::ClockOffset,
    trial_file::{BookKeeping, TrialFile},
};
use judge::{Judged, judge, published::Start, reason};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::{
    clock::{publisher_clock, unix_ns},
    coordinator::{Coordinator, Upload, barrier::Barrier},
    live::{Live, LivePhase},
    readings,
    service_client::ServiceClient,
    stage::{self, Cause, Ended, Stage},
    trial_plan::{NothingOpen, TrialPlan},
};
use assignments::assignments;
use ending::aborted;
use silence::ServiceSilence;

mod assignments;
mod ending;
#[cfg(feature = "fixture")]
pub mod fixture;
mod pods;
mod settle;
mod silence;
mod trial_file;

/// Time between the release and the start of the load; enough for every worker to receive the release.
const LEAD: Duration = Duration::from_millis(50);
/// Time that a worker may take to upload, beyond the window, its drain and its close handshakes.
const UPLOAD_GRACE: Duration = Duration::from_secs(20);
/// Interval at which processes and memory are checked.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which a service is read until it settles or publishes.
const SETTLE_POLL: Duration = Duration::from_millis(20);

/// Why a trial could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service could not be read before the trial.
    #[error(transparent)]
    Read(#[from] readings::Error),
    /// The workers did not get ready; contains the reason.
    #[error("the workers did not get ready: {0}")]
    NotReady(String),
    /// The service should publish but doesn't; contains the reason.
    #[error("the service publishes nothing: {0}")]
    Silent(String),
    /// A process ended, or the trial was cancelled, under load; contains the reason.
    #[error("the trial was aborted: {0}")]
    Aborted(String),
    /// The service ended under load, which is a failed trial.
    #[error("{}: {description}", cause.as_str())]
    Crashed {
        /// How the service ended: by its own, or by what killed it.
        cause: CrashCause,
        /// Message with the process, how it ended, and its last output.
        description: String,
    },
    /// Another program stopped or changed a process, so the trial has no result; contains the reason.
    #[error("the trial was interrupted: {0}")]
    Interrupted(String),
    /// No worker delivered a result.
    #[error("no worker delivered a result within {seconds} s after the window")]
    NoResult {
        /// Time waited after the window, in seconds.
        seconds: u64,
    },
}

/// The data of one trial, before it is judged.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The conditions of the trial and the terms on which it is judged.
    pub trial: TrialFile,
    /// The results that the workers uploaded.
    pub uploads: Vec<Upload>,
    /// Readings and books of the service.
    pub service: ServiceFile,
}

impl Measured {
    /// Judges the trial from its files.
    ///
    /// # Errors
    /// [`histogram::Error`] if a histogram can't be read. The coordinator refuses uploads with such a histogram.
    pub fn judge(&self) -> Result<Judged, histogram::Error> {
        let uploads: Vec<_> = self.uploads.iter().map(|upload| &upload.result).collect();
        judge(&self.trial, &uploads, &self.service)
    }
}

/// Measures one trial on this stage and returns the data that the judge needs.
///
/// # Errors
/// An [`Error`] if there is nothing to judge. The trial is then cancelled for its workers, too.
pub async fn measure<S: Stage>(
    stage: &mut S,
    coordinator: &Coordinator,
    client: &mut ServiceClient,
    plan: &TrialPlan,
) -> Result<Measured, Error> {
    coordinator.shown(|live| live.begin(plan));
    client.find_pages().await;
    let work_before = stage.fixed_work().await;
    let trial = Trial {
        stage: &mut *stage,
        coordinator,
        plan,
        client,
        others: Vec::new(),
        rss_at_rest_bytes: None,
        rss_peak_bytes: 0,
    };
    let mut measured = trial.run().await;
    if let (Ok(measured), Some(before)) = (&mut measured, work_before)
        && let (Some(machine), Some(after)) = (&mut measured.trial.machine, stage.fixed_work().await)
    {
        machine.fixed_work = Some(FixedWork::new(before.rounds, &before.cpu_ns, &after.cpu_ns));
    }
    // The result counts only if no other program interfered until the end.
    let measured = ending::confirmed(stage, measured).await;
    if let Err(error) = &measured {
        coordinator.abandon(&error.to_string());
    }
    coordinator.shown(Live::end);
    measured
}

struct Trial<'a, S> {
    stage: &'a mut S,
    coordinator: &'a Coordinator,
    plan: &'a TrialPlan,
    client: &'a mut ServiceClient,
    /// Ids of the connections that the service had before the trial: kept ones of the workers, and those of other
    /// clients.
    others: Vec<String>,
    /// Lowest resident memory of the service's process before any of its trials, in bytes.
    rss_at_rest_bytes: Option<u64>,
    rss_peak_bytes: u64,
}

/// How a wait ended.
enum WaitOutcome<T> {
    /// The awaited answer of the barrier.
    Reached(T),
    /// The deadline passed before the barrier answered.
    Deadline,
    /// A process of the trial ended before the barrier answered.
    Ended(Ended),
}

impl<S: Stage> Trial<'_, S> {
    async fn run(mut self) -> Result<Measured, Error> {
        let before = readings::read(self.client, self.stage).await?;
        self.rss_at_rest_bytes = self.client.at_rest(&before);
        let (terms, open_at_start) = self.open().await?;
        let mut problems = Vec::new();
        let mut readings = ServiceReadings { before: Some(before), ..ServiceReadings::default() };
        if self.plan.read_when_open && !terms.opens_in_window {
            readings.open = record_problem(&mut problems, readings::read(self.client, self.stage).await);
        }
        let clock_before = self.publisher_clock(&terms).await;
        self.coordinator.publisher_is_ahead(clock_before.map_or(0, |clock| clock.ahead_ns));
        let start_at_unix_ns = unix_ns() + LEAD.as_nanos() as u64;
        let start = Instant::now() + LEAD;
        self.coordinator.release(start_at_unix_ns);

        let window_start = start + self.plan.warmup;
        let window_end = window_start + self.plan.window;
        self.coordinator.shown(|live| live.phase(LivePhase::WarmUp, start, Some(window_start)));
        sleep_until(window_start).await;
        self.coordinator.shown(|live| live.phase(LivePhase::Window, window_start, Some(window_end)));
        readings.window_start = record_problem(&mut problems, readings::read_edge(self.client, self.stage).await);
        let machine = self.stage.machine().await;
        // The load of a closed loop may end before the window. Its workers keep their connections until the service has
        // been read, because closing thousands of them takes a good part of the time that opening them took.
        self.wait_by(window_end, Barrier::all_over).await?;
        readings.window_end = record_problem(&mut problems, readings::read_edge(self.client, self.stage).await);
        let machine = machine.zip(self.stage.machine().await).and_then(|(from, to)| from.until(&to));
        self.coordinator.end_window();
        self.coordinator.shown(|live| live.phase(LivePhase::Drain, Instant::now(), None));
        let grace = self.plan.drain + self.plan.close_grace + UPLOAD_GRACE;
        self.wait_by(window_end + grace, Barrier::all_delivered).await?;
        let missing = self.coordinator.inspect(Barrier::not_delivered);
        if !missing.is_empty() && self.stage.has_remote_workers() {
            return Err(ending::cut_off(&missing, &self.stage.pods(), "deliver a result", grace));
        }
        let uploads = self.coordinator.take_uploads();
        if uploads.is_empty() {
            return Err(Error::NoResult { seconds: grace.as_secs() });
        }
        if self.plan.keeping != BookKeeping::None {
            self.settle(&uploads, readings.before.as_ref().map(|before| &before.stats)).await;
        }
        readings.after = record_problem(&mut problems, readings::read(self.client, self.stage).await);
        let publisher_clock = match clock_before {
            Some(before) => Some(publisher_clock(before, self.publisher_clock(&terms).await)),
            None => None,
        };
        let connections = match self.plan.keeping {
            BookKeeping::Connections => record_problem(&mut problems, self.client.connections().await),
            BookKeeping::Totals | BookKeeping::None => None,
        };
        // A worker whose connections all broke may deliver its result before the end of the service is noticed.
        if let Some(ended) = self.stage.service_ended() {
            return Err(aborted(ended));
        }
        let trial = self.trial_file(terms, start_at_unix_ns, open_at_start, &uploads, &readings, problems);
        let trial = TrialFile { machine, ..trial };
        let service = ServiceFile { schema: SCHEMA, readings, connections, publisher_clock };
        Ok(Measured { trial, uploads, service })
    }

    /// The clock by which the service publishes; `None` if it doesn't publish, or by our clock.
    async fn publisher_clock(&self, terms: &Terms) -> Option<ClockOffset> {
        if terms.publishes_by.is_some() { self.stage.publisher_clock().await } else { None }
    }

    /// Hands out the assignments and waits until the workers are ready and, if it should, the service publishes.
    /// Returns the terms and the number of open connections.
    async fn open(&mut self) -> Result<(Terms, u64), Error> {
        if self.plan.keeping == BookKeeping::Connections {
            let known = self.client.connections().await.map_err(readings::Error::from)?;
            self.others = known.into_iter().map(|book| book.id).collect();
        }
        let terms = self.terms()?;
        self.coordinator.offer(assignments(self.plan, &terms));
        let open_at_start = self.all_ready().await?;
        if terms.publishes_by.is_some() && self.client.has_metrics_port() {
            self.publishing().await?;
        }
        Ok((terms, open_at_start))
    }

    /// The terms of the trial's workload, as its workers registered them.
    fn terms(&self) -> Result<Terms, Error> {
        let workload = &self.plan.trial.workload;
        self.coordinator.inspect(|barrier| barrier.terms(workload)).map_err(Error::NotReady)
    }

    async fn all_ready(&mut self) -> Result<u64, Error> {
        let deadline = Instant::now() + self.plan.opening;
        let reached = match self.plan.nothing_open {
            NothingOpen::Abort => Barrier::all_ready,
            NothingOpen::Continue => Barrier::all_reported,
        };
        match self.watch(reached, deadline).await {
            WaitOutcome::Reached(Ok(open)) => Ok(open),
            WaitOutcome::Reached(Err(problem)) => Err(Error::NotReady(problem)),
            WaitOutcome::Ended(Ended { cause: Cause::Itself, description }) => Err(Error::NotReady(description)),
            WaitOutcome::Ended(ended) => Err(aborted(ended)),
            WaitOutcome::Deadline => {
                let late = self.coordinator.inspect(Barrier::not_ready);
                if self.stage.has_remote_workers() {
                    let pods = self.stage.pods();
                    return Err(ending::cut_off(&late, &pods, "report ready", self.plan.opening));
                }
                let seconds = self.plan.opening.as_secs();
                Err(Error::NotReady(format!("workers {late:?} did not report ready within {seconds} s")))
            }
        }
    }

    /// Waits until the service publishes.
    async fn publishing(&mut self) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            match Start::after(since.elapsed(), self.client.publisher().await) {
                Start::Now => return Ok(()),
                Start::Never(description) => return Err(Error::Silent(description)),
                Start::Later => {}
            }
            if let Some(ended) = self.stage.service_ended().or_else(|| self.stage.worker_ended()) {
                return Err(aborted(ended));
            }
            sleep(SETTLE_POLL).await;
        }
    }

    /// Waits until all workers have reached a state, at the latest until `deadline`.
    async fn wait_by(
        &mut self,
        deadline: Instant,
        so_far: impl Fn(&Barrier) -> Option<Result<(), String>>,
    ) -> Result<(), Error> {
        match self.watch(so_far, deadline).await {
            WaitOutcome::Reached(Ok(())) | WaitOutcome::Deadline => Ok(()),
            WaitOutcome::Reached(Err(description)) => Err(Error::Aborted(description)),
            WaitOutcome::Ended(ended) => Err(aborted(ended)),
        }
    }

    /// Waits for an answer of the barrier while it checks the processes and records the service's memory.
    async fn watch<T>(&mut self, reached: impl Fn(&Barrier) -> Option<T>, deadline: Instant) -> WaitOutcome<T> {
        let coordinator = self.coordinator;
        let waiting = coordinator.wait_until(reached);
        tokio::pin!(waiting);
        let mut silence = ServiceSilence::broken(Instant::now());
        loop {
            tokio::select! {
                biased;
                reached = &mut waiting => return WaitOutcome::Reached(reached),
                () = sleep_until(deadline) => return WaitOutcome::Deadline,
                () = sleep(WATCH_INTERVAL) => {}
            }
            if let Some(ended) = self.stage.service_ended().or_else(|| self.stage.worker_ended()) {
                return WaitOutcome::Ended(ended);
            }
            // A pod that does not answer must not hold up what follows at the deadline.
            let Ok(usage) = timeout_at(deadline, self.stage.service_usage()).await else {
                return WaitOutcome::Deadline;
            };
            if let Ok(Some(usage)) = &usage {
                self.rss_peak_bytes = self.rss_peak_bytes.max(usage.rss_bytes);
                self.coordinator.shown(|live| live.service(usage));
            }
            if self.stage.has_remote_workers()
                && let Some(ended) = self.silent(&mut silence, usage.err())
            {
                return WaitOutcome::Ended(ended);
            }
        }
    }

    /// The end of a trial of which a worker or the service has given no sign of life for too long; `unread` is why the
    /// service's pod did not answer just now.
    fn silent(&self, silence: &mut ServiceSilence, unread: Option<stage::Error>) -> Option<Ended> {
        let now = Instant::now();
        let workers = self.coordinator.inspect(|barrier| barrier.silent(silence::LONGEST_SILENCE, now));
        if !workers.is_empty() {
            return Some(silence::of_workers(&workers, &self.stage.pods()));
        }
        let Some(error) = unread else {
            *silence = ServiceSilence::broken(now);
            return None;
        };
        silence.too_long(&error, &self.stage.pods(), now)
    }
}

/// Returns what was read. A failed reading is recorded as a problem of the service.
fn record_problem<T>(problems: &mut Vec<Reason>, read: Result<T, impl std::error::Error>) -> Option<T> {
    read.map_err(|error| problems.push(reason(ReasonKind::Conformance, error.to_string()))).ok()
}
