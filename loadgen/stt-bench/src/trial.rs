//! One trial of one worker: protocol check, connections, barrier, load, protocol check, result.
//!
//! When an assignment says so, connections stay open after the trial, and the next trial on the same gateway uses them.

mod thread_pool;

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use bench_format::{
    plan::Load,
    result::{Witness, WorkerEvidence, WorkerResult},
    terms::Terms,
    trial::Assignment,
};
use loadgen_core::{
    Error,
    clock::monotonic_ns,
    connect::{Sources, UpgradeRequest, resolve},
    evidence::Baseline,
    schedule::splitmix64,
    trial::Gate,
};
use thread_pool::ThreadPool;

use crate::{
    audio::Audio,
    context::Context,
    error_samples::ErrorSamples,
    expected::Expected,
    load_thread::{LoadThread, SessionTimeouts, epoll_set},
    outcome, protocol,
    samples::Feed,
    smoke::{self, Smoke},
};

/// The only workload that this program knows.
pub const WORKLOAD: &str = "sessions";
/// The reason for which a gateway drops what it holds when a connection ends: no error frame can report it.
const CLOSED: &str = "closed";

/// The rules by which the judge counts this workload: the gateway's replies confirm delivery.
pub fn terms() -> Terms {
    Terms {
        witness: Witness::Reply,
        counts_answers: true,
        unreported_drops: vec![CLOSED.into()],
        late_by: Some("oldest".into()),
        ages: Some("frame".into()),
        ..Terms::default()
    }
}

/// Name and version, for registrations and evidence.
pub const PROGRAM: &str = concat!("stt-loadgen ", env!("CARGO_PKG_VERSION"));
/// The gateway's setting for the number of passes that it requests from inference.
const PASSES: &str = "CPU_PASSES";
/// Numbers of passes whose answers can be computed in time.
pub(crate) const LEGAL_PASSES: RangeInclusive<i64> = 1..=64;
/// Usual batch sizes, in frames: one flush interval of a second, give or take two frames for a late tick or frame.
const COMMON_BATCHES: [u64; 5] = [50, 49, 51, 48, 52];

/// A worker's settings that no assignment contains.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The timeouts of sessions.
    pub timeouts: SessionTimeouts,
    /// Passes over the audio that gateways request from inference; their partials report the number.
    pub cpu_passes: u32,
    /// Whether worker 0 checks the protocol before and after each trial.
    pub conformance: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let timeouts = SessionTimeouts { connect_ns: 5_000_000_000, send_ns: 5_000_000_000, close_ns: 5_000_000_000 };
        Self { timeouts, cpu_passes: 4, conformance: true }
    }
}

/// The outcome of a trial.
pub struct Done {
    /// The result that the worker uploads.
    pub result: WorkerResult,
    /// A sample of the error frames.
    pub errors: ErrorSamples,
}

/// A worker, with the connections that it keeps between trials.
pub struct Worker {
    settings: Settings,
    audio: Arc<Audio>,
    expected: Expected,
    pool: Option<ThreadPool>,
}

impl Worker {
    /// Creates a worker without connections.
    pub fn new(settings: Settings) -> Self {
        let expected = Expected::new(settings.cpu_passes);
        Self { settings, audio: Arc::new(Audio::new()), expected, pool: None }
    }

    /// Carries out an assignment. `feed` creates the sender into which a load thread puts its rows, or returns `None`
    /// when none are kept.
    ///
    /// # Errors
    /// When there is no result: the assignment isn't valid, its address can't be resolved, the gate reports an error,
    /// or a load thread fails. When no session opens, the gate gets the reason and decides.
    pub fn run(
        &mut self,
        assignment: &Assignment,
        gate: &mut dyn Gate,
        feed: impl Fn() -> Option<Feed>,
    ) -> Result<Done, Error> {
        check(assignment)?;
        self.expect(assignment)?;
        let before = Baseline::read();
        let mut pool = self.pool_for(assignment, before.cpu_limit)?;
        let checks = self.settings.conformance && assignment.protocol_check && assignment.worker == 0;
        let smoke_before = checks.then(|| self.check_protocol(&mut pool, smoke::FIRST_PATIENCE));
        let opening_from_ns = monotonic_ns();
        let ready = self.prepare(&mut pool, assignment);
        let opening_ns = Some(monotonic_ns() - opening_from_ns);
        let start = match ready.and_then(|problem| gate.ready(pool.alive(), problem)) {
            Ok(start) => start,
            Err(error) => {
                // The connections are at rest, but the caller that ended the trial may not be: keep none of them.
                pool.close_all()?;
                return Err(error);
            }
        };
        let phases = before.phases(assignment, start);
        let congestion_control = pool.threads.iter().find_map(LoadThread::congestion_control);
        let (from, to, ended_ns) = pool.work(assignment, phases, gate, &before, &feed)?;
        let smoke_after = checks.then(|| self.check_protocol(&mut pool, smoke::PATIENCE));
        pool.end_trial(assignment.keep_connections)?;
        let mut done = pool.report()?;
        done.window_ended(ended_ns);
        let evidence = WorkerEvidence {
            program: PROGRAM.to_owned(),
            opening_ns,
            start_skew_ns: done.skew_ns,
            congestion_control: congestion_control
                .unwrap_or_else(|| bench_format::environment::Environment::read().congestion_control),
            ..before.evidence(start, &from, &to)
        };
        let errors = std::mem::take(&mut done.errors);
        let mut result = outcome::result(assignment, done, to.cpu_ns - from.cpu_ns, evidence);
        result.error_samples.clone_from(&errors.0);
        if let (Some(earlier), Some(later)) = (smoke_before, smoke_after) {
            smoke::enter(&mut result, earlier, later);
        }
        if assignment.keep_connections {
            self.pool = Some(pool);
        }
        Ok(Done { result, errors })
    }

    /// Closes every connection that was kept.
    ///
    /// # Errors
    /// When waiting for events fails.
    pub fn close(&mut self) -> Result<(), Error> {
        self.pool.take().map_or(Ok(()), |mut pool| pool.close_all())
    }

    /// Sets the number of passes that answers must report: the gateway's CPU_PASSES if the assignment has it, else the
    /// worker's own setting.
    fn expect(&mut self, assignment: &Assignment) -> Result<(), Error> {
        let passes = match assignment.settings.get(PASSES) {
            Some(text) => passes(text).map_err(Error::Assignment)?,
            None => self.settings.cpu_passes,
        };
        if passes != self.expected.passes() {
            self.expected = Expected::new(passes);
        }
        Ok(())
    }

    fn pool_for(&mut self, assignment: &Assignment, cpu_limit: f64) -> Result<ThreadPool, Error> {
        match self.pool.take() {
            Some(kept) if (&kept.run, &kept.address) == (&assignment.run, &assignment.address) => return Ok(kept),
            Some(mut other) => other.close_all()?,
            None => {}
        }
        let sources = Sources::new(resolve(&assignment.address)?, &[]);
        let upgrade = UpgradeRequest::new(&assignment.address, protocol::PATH, &[]);
        let count = (cpu_limit.ceil() as u32).max(1);
        let mut random = assignment.seed ^ u64::from(assignment.worker + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let threads = (0..count)
            .map(|_| {
                let seed = splitmix64(&mut random);
                let cx = Context::new(
                    upgrade.clone(),
                    epoll_set()?,
                    Arc::clone(&self.audio),
                    Expected::new(self.expected.passes()),
                    seed,
                );
                Ok(LoadThread::new(cx, sources.clone(), self.settings.timeouts, seed.rotate_left(17)))
            })
            .collect::<Result<_, Error>>()?;
        let Assignment { run, address, .. } = assignment.clone();
        Ok(ThreadPool { run, address, upgrade, sources, threads, random })
    }

    fn check_protocol(&mut self, pool: &mut ThreadPool, patience: Duration) -> Smoke {
        let connect_timeout = Duration::from_nanos(self.settings.timeouts.connect_ns);
        let terms = smoke::Terms { target: pool.sources.target(), upgrade: &pool.upgrade, connect_timeout, patience };
        smoke::check(&terms, &mut self.expected, &self.audio, &mut pool.random)
    }

    /// Opens connections and computes the usual answers; returns a reason when no session opened.
    fn prepare(&mut self, pool: &mut ThreadPool, assignment: &Assignment) -> Result<Option<String>, Error> {
        pool.open(assignment)?;
        let Assignment { first_connection, connections, .. } = *assignment;
        if self.expected.prepare_sessions(u64::from(first_connection), u64::from(connections), &COMMON_BATCHES) {
            pool.threads.iter_mut().for_each(|thread| thread.cx.expected = self.expected.clone());
        }
        let late_after_ns = assignment.late_after_ns.unwrap_or(u64::MAX);
        pool.threads.iter_mut().for_each(|thread| thread.cx.late_after_ns = late_after_ns);
        if pool.alive() > 0 || connections == 0 {
            return Ok(None);
        }
        let mut failed = BTreeMap::new();
        pool.threads.iter().for_each(|thread| crate::books::add(&mut failed, &thread.cx.attempts.failed));
        let reasons = loadgen_core::trial::description(&failed);
        let nothing = Error::NothingOpen { requested: connections, address: pool.sources.target(), reasons };
        Ok(Some(nothing.to_string()))
    }
}

/// Parses the number of passes that the gateway is configured with.
fn passes(text: &str) -> Result<u32, String> {
    let read = text.parse().ok().filter(|passes| LEGAL_PASSES.contains(&i64::from(*passes)));
    let (least, most) = (LEGAL_PASSES.start(), LEGAL_PASSES.end());
    read.ok_or_else(|| {
        format!(
            "the service's {PASSES} is {text:?}, and a worker can verify {least} to {most}; give it so many in the plan"
        )
    })
}

fn check(assignment: &Assignment) -> Result<(), Error> {
    if assignment.trial.workload != WORKLOAD {
        let description = format!("no workload {:?}; known is {WORKLOAD}", assignment.trial.workload);
        return Err(Error::Assignment(description));
    }
    match assignment.load {
        Load::Sessions { .. } => Ok(()),
        _ => Err(Error::Assignment(format!("workload {WORKLOAD} needs `load: {{model: sessions}}`"))),
    }
}
