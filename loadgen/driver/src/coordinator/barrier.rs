//! The state of a trial's workers and the rules for what each does next. Pure: no sockets, and moments are arguments.
//!
//! A request about a trial names the run, the trial, the attempt and the worker. A repeated request has the effect of
//! one, and a request about another trial is refused with a message.
//!
//! `conflict` has the refusals, `results` what workers deliver, `progress` the steps that `measure` waits for.

use std::collections::{BTreeMap, HashMap};

use bench_format::{
    terms::Terms,
    trial::{Assignment, DrainRelease, Next, Progress, Ready, Registration, Release, TrialId, WindowOver},
};
use tokio::time::Instant;

use super::upload::Upload;
pub use conflict::Conflict;
pub use results::AttemptId;

mod conflict;
#[cfg(test)]
mod fixture;
mod progress;
mod results;

type Key = (TrialId, u32, u32);

/// The state of a run's workers and of its current trial.
#[derive(Debug)]
pub struct Barrier {
    run: String,
    workers: BTreeMap<u32, Registration>,
    /// Number of workers that may register.
    expected: u32,
    current: Option<Current>,
    /// Hashes of the delivered results, so that a repeated upload is recognised even after its trial.
    delivered: HashMap<Key, u64>,
    finished: bool,
}

#[derive(Debug)]
struct Current {
    participants: Vec<Participant>,
    start_at_unix_ns: Option<u64>,
    /// How far the clock by which the service publishes is ahead of ours, in nanoseconds.
    publisher_ahead_ns: i64,
    /// Whether the service has been read at the end of the window.
    window_read: bool,
    abandoned: Option<String>,
}

#[derive(Debug)]
struct Participant {
    assignment: Assignment,
    ready: Option<Ready>,
    /// When the worker last reported its progress; absent if it never did.
    heard_at: Option<Instant>,
    /// Whether the worker has finished its load in the window.
    is_over: bool,
    /// Raw rows, compressed. They arrive before the result that they belong to.
    samples: Option<Vec<u8>>,
    upload: Option<Upload>,
}

impl Barrier {
    /// Creates a run without workers and trials.
    pub fn new(run: &str) -> Self {
        Self {
            run: run.into(),
            workers: BTreeMap::new(),
            expected: 0,
            current: None,
            delivered: HashMap::new(),
            finished: false,
        }
    }

    /// Registers a worker. If it replaces another process in the middle of a trial, the trial is cancelled.
    pub fn register(&mut self, registration: Registration) -> Result<(), Conflict> {
        let Registration { worker, pid, started_at_unix_ns, .. } = registration;
        self.is_expected(worker)?;
        let other = |before: Registration| before.pid != pid || before.started_at_unix_ns != started_at_unix_ns;
        if self.workers.insert(worker, registration).is_some_and(other) && self.is_in_trial(worker) {
            self.abandon(&format!("worker {worker} was replaced by another process {pid} in the middle of the trial"));
        }
        Ok(())
    }

    /// Refuses a worker whose index the plan doesn't have.
    pub fn is_expected(&self, worker: u32) -> Result<(), Conflict> {
        let expected = self.expected;
        if worker < expected { Ok(()) } else { Err(Conflict::Unexpected { worker, expected }) }
    }

    fn is_in_trial(&self, worker: u32) -> bool {
        let participant = self.current.as_ref().and_then(|current| current.participants.get(worker as usize));
        participant.is_some_and(|participant| participant.ready.is_some() && participant.upload.is_none())
    }

    /// Forgets all workers, because `count` new processes replace them.
    pub fn expect_new_workers(&mut self, count: u32) {
        self.workers.clear();
        self.expected = count;
    }

    /// Starts a trial with one assignment per worker, in the order of their indices.
    pub fn offer(&mut self, assignments: Vec<Assignment>) {
        let participants = assignments
            .into_iter()
            .map(|assignment| Participant {
                assignment,
                ready: None,
                heard_at: None,
                is_over: false,
                samples: None,
                upload: None,
            })
            .collect();
        self.current = Some(Current {
            participants,
            start_at_unix_ns: None,
            publisher_ahead_ns: 0,
            window_read: false,
            abandoned: None,
        });
    }

    /// The next step of a worker.
    pub fn next(&self, worker: u32) -> Next {
        if self.finished {
            return Next::Finished;
        }
        let current = self.current.as_ref().filter(|current| current.abandoned.is_none());
        match current.and_then(|current| current.participants.get(worker as usize)) {
            Some(Participant { assignment, upload: None, .. }) => Next::Trial(assignment.clone()),
            _ => Next::Wait,
        }
    }

    /// Records that a worker is ready, or why it can't be. Returns the start or "ask again".
    pub fn ready(&mut self, worker: u32, ready: Ready) -> Result<Release, Conflict> {
        self.check_run(&ready.run)?;
        let (trial, attempt) = (ready.trial.clone(), ready.attempt);
        let current = self.current.as_mut().filter(|current| current.matches_attempt(&trial, attempt));
        let current = current.ok_or_else(|| Conflict::Trial { trial: trial.clone(), attempt })?;
        let workers = current.participants.len();
        match current.participants.get_mut(worker as usize) {
            Some(participant) => participant.ready = Some(ready),
            None => return Err(Conflict::Worker { worker, trial, workers }),
        }
        self.release_for(&trial, attempt)
    }

    /// The response to a worker that has reported ready.
    pub fn release_for(&self, trial: &TrialId, attempt: u32) -> Result<Release, Conflict> {
        let current = self.current.as_ref().filter(|current| current.matches_attempt(trial, attempt));
        let current = current.ok_or_else(|| Conflict::Trial { trial: trial.clone(), attempt })?;
        Ok(match (&current.abandoned, current.start_at_unix_ns) {
            (Some(reason), _) => Release::Abandoned { reason: reason.clone() },
            (None, Some(start_at_unix_ns)) => {
                Release::Start { start_at_unix_ns, publisher_ahead_ns: current.publisher_ahead_ns }
            }
            (None, None) => Release::Wait,
        })
    }

    /// Records how far the clock by which the service publishes is ahead of ours, in nanoseconds.
    pub fn publisher_is_ahead(&mut self, ns: i64) {
        if let Some(current) = &mut self.current {
            current.publisher_ahead_ns = ns;
        }
    }

    /// Releases the barrier: load starts at this moment, in nanoseconds since the Unix epoch.
    pub fn release(&mut self, start_at_unix_ns: u64) {
        if let Some(current) = &mut self.current {
            current.start_at_unix_ns = Some(start_at_unix_ns);
        }
    }

    /// Records that a worker has finished its load before the end of the window. Returns "drain" or "ask again".
    pub fn window_over(&mut self, worker: u32, over: &WindowOver) -> Result<DrainRelease, Conflict> {
        self.check_run(&over.run)?;
        self.participant(worker, &over.trial, over.attempt)?.is_over = true;
        Ok(self.drain_release(over))
    }

    /// Records that a worker reports its progress, at the moment `now`. Refused unless its trial is under way.
    pub fn takes_progress(&mut self, worker: u32, progress: &Progress, now: Instant) -> Result<(), Conflict> {
        self.check_run(&progress.run)?;
        self.participant(worker, &progress.trial, progress.attempt)?.heard_at = Some(now);
        Ok(())
    }

    /// The response to a worker that has finished its load. It is "drain" if the trial is no longer under way.
    pub fn drain_release(&self, over: &WindowOver) -> DrainRelease {
        let current = self.current.as_ref().filter(|current| current.matches_attempt(&over.trial, over.attempt));
        match current {
            Some(Current { window_read: false, abandoned: None, .. }) => DrainRelease::Wait,
            _ => DrainRelease::Drain,
        }
    }

    /// Records that the service has been read at the end of the window.
    pub fn end_window(&mut self) {
        if let Some(current) = &mut self.current {
            current.window_read = true;
        }
    }

    /// Cancels the trial. The first reason is kept.
    pub fn abandon(&mut self, reason: &str) {
        if let Some(current) = &mut self.current {
            current.abandoned.get_or_insert(reason.into());
        }
    }

    /// The worker's place in a trial that has started and isn't cancelled.
    fn participant(&mut self, worker: u32, trial: &TrialId, attempt: u32) -> Result<&mut Participant, Conflict> {
        let trial = trial.clone();
        let is_running =
            |current: &&mut Current| current.matches_attempt(&trial, attempt) && current.abandoned.is_none();
        let Some(current) = self.current.as_mut().filter(is_running) else {
            return Err(Conflict::Trial { trial, attempt });
        };
        if current.start_at_unix_ns.is_none() {
            return Err(Conflict::NotStarted { trial, attempt });
        }
        let workers = current.participants.len();
        current.participants.get_mut(worker as usize).ok_or(Conflict::Worker { worker, trial, workers })
    }

    /// Ends the run: workers exit when they ask for the next step.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Programs of the registered workers, by index.
    pub fn programs(&self) -> Vec<String> {
        self.workers.values().map(|registration| registration.program.clone()).collect()
    }

    /// The terms of a workload, as the first worker registered them; a message if it doesn't know the workload.
    pub fn terms(&self, workload: &str) -> Result<Terms, String> {
        let Some((worker, registration)) = self.workers.first_key_value() else {
            return Err("no worker has registered".into());
        };
        registration.workloads.get(workload).cloned().ok_or_else(|| {
            let known: Vec<&str> = registration.workloads.keys().map(String::as_str).collect();
            let program = &registration.program;
            format!("worker {worker} ({program}) has no workload \"{workload}\"; it has {}", known.join(", "))
        })
    }

    /// Number of registered workers whose indices form an unbroken sequence from 0.
    pub fn registered(&self) -> u32 {
        (0..).take_while(|index| self.workers.contains_key(index)).count() as u32
    }

    fn check_run(&self, found: &str) -> Result<(), Conflict> {
        if found == self.run { Ok(()) } else { Err(Conflict::Run { found: found.into(), run: self.run.clone() }) }
    }
}

impl Current {
    fn matches_attempt(&self, trial: &TrialId, attempt: u32) -> bool {
        let first = self.participants.first().map(|participant| &participant.assignment);
        first.is_some_and(|assignment| assignment.trial == *trial && assignment.attempt == attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::{
        barrier::fixture::offered,
        upload::fixture::{ready, registration, upload},
    };

    #[test]
    fn a_worker_gets_its_trial_until_it_has_delivered() {
        let mut barrier = offered(1);
        for _ in 0..2 {
            assert!(matches!(barrier.next(0), Next::Trial(assignment) if assignment.worker == 0));
        }
        barrier.ready(0, ready(1)).unwrap();
        barrier.release(5);
        barrier.deliver(0, upload(0, 1)).unwrap();
        assert!(matches!(barrier.next(0), Next::Wait));
    }

    #[test]
    fn uploads_of_another_run_or_attempt_are_refused_with_the_reason() {
        let mut barrier = offered(1);
        let foreign = Ready { run: "other".into(), ..ready(1) };
        assert_eq!(
            barrier.ready(0, foreign).unwrap_err().to_string(),
            "run \"other\" is not served here; this is the coordinator of run \"run\""
        );
        let description = barrier.ready(0, ready(2)).unwrap_err().to_string();
        assert!(description.ends_with("(attempt 2) is not running; request the next step"), "{description}");
        assert!(matches!(barrier.deliver(0, upload(0, 2)), Err(Conflict::Trial { .. })));
    }

    #[test]
    fn a_worker_beyond_the_trials_number_is_refused() {
        let description = offered(1).ready(3, ready(1)).unwrap_err().to_string();
        assert!(description.contains(" has no worker 3; it has 1 workers"), "{description}");
    }

    #[test]
    fn an_abandoned_trial_reports_the_reason_to_its_workers() {
        let mut barrier = offered(2);
        barrier.ready(0, ready(1)).unwrap();
        barrier.abandon("the service died");
        assert!(
            matches!(barrier.ready(0, ready(1)), Ok(Release::Abandoned { reason }) if reason == "the service died")
        );
        assert!(matches!(barrier.next(1), Next::Wait));
    }

    #[test]
    fn a_worker_replaced_in_the_middle_of_a_trial_ends_it() {
        let mut barrier = offered(1);
        barrier.expect_new_workers(1);
        barrier.register(registration(0, 100)).unwrap();
        barrier.ready(0, ready(1)).unwrap();
        barrier.register(registration(0, 100)).unwrap();
        assert_eq!(barrier.all_ready(), Some(Ok(10)));
        barrier.register(registration(0, 200)).unwrap();
        assert!(matches!(barrier.all_ready(), Some(Err(reason)) if reason.contains("replaced by another process 200")));
    }

    #[test]
    fn a_worker_beyond_those_of_the_plan_cannot_register() {
        let mut barrier = Barrier::new("run");
        let refused = |expected| Err(Conflict::Unexpected { worker: 2, expected });
        assert_eq!(barrier.register(registration(2, 1)), refused(0));
        barrier.expect_new_workers(2);
        assert_eq!((barrier.register(registration(2, 1)), barrier.registered()), (refused(2), 0));
        barrier.register(registration(0, 1)).unwrap();
        assert_eq!(barrier.registered(), 1);
    }

    #[test]
    fn the_end_of_the_run_reaches_every_worker() {
        let mut barrier = offered(1);
        barrier.finish();
        assert!(matches!(barrier.next(0), Next::Finished));
    }
}
