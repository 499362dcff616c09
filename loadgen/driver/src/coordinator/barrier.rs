//! The state of a trial's workers and the rules for what each does next. Pure: no sockets, no clocks.
//!
//! A request about a trial names the run, the trial, the attempt and the worker. A repeated request has the effect of
//! one, and a request about another trial is refused with a message.

use std::collections::{BTreeMap, HashMap};

use bench_format::{
    terms::Terms,
    trial::{Assignment, DrainRelease, Next, Ready, Registration, Release, TrialId, WindowOver},
};

use super::upload::Upload;

/// A request that doesn't fit the state of the run; HTTP status 409.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The request belongs to another run.
    #[error("run \"{found}\" is not served here; this is the coordinator of run \"{run}\"")]
    Run {
        /// Id of the run in the request.
        found: String,
        /// Id of the run that is served.
        run: String,
    },
    /// The request belongs to a trial or an attempt that isn't under way.
    #[error("trial {trial} (attempt {attempt}) is not running; request the next step")]
    Trial {
        /// Id of the trial in the request.
        trial: TrialId,
        /// Number of the attempt in the request.
        attempt: u32,
    },
    /// The trial has no worker with this index.
    #[error("trial {trial} has no worker {worker}; it has {workers} workers, counted from 0")]
    Worker {
        /// Index of the worker in the request.
        worker: u32,
        /// Id of the trial.
        trial: TrialId,
        /// Number of workers of the trial.
        workers: usize,
    },
    /// A worker registers under an index that no worker of the plan has. HTTP status 503 while none is expected, so that
    /// the worker asks again.
    #[error("worker {worker} is not expected; {expected} workers are, counted from 0")]
    Unexpected {
        /// Index of the worker in the request.
        worker: u32,
        /// Number of workers that are expected; 0 before the run starts any.
        expected: u32,
    },
    /// The path and the body name different workers.
    #[error("the path names worker {path}, the body names worker {body}")]
    WorkerNames {
        /// Index of the worker in the path.
        path: u32,
        /// Index of the worker in the body.
        body: u32,
    },
    /// The worker has delivered a different result before.
    #[error("worker {worker} has delivered another result for trial {trial} (attempt {attempt}) before")]
    SecondResult {
        /// Index of the worker.
        worker: u32,
        /// Id of the trial.
        trial: TrialId,
        /// Number of the attempt.
        attempt: u32,
    },
    /// The result belongs to a trial that hasn't started.
    #[error("trial {trial} (attempt {attempt}) has not started; report ready first")]
    NotStarted {
        /// Id of the trial.
        trial: TrialId,
        /// Number of the attempt.
        attempt: u32,
    },
}

/// The trial that raw rows belong to. The rows themselves don't contain it.
#[derive(Clone, Debug)]
pub struct AttemptId {
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt.
    pub attempt: u32,
}

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
    /// Whether the service has been read at the end of the window.
    window_read: bool,
    abandoned: Option<String>,
}

#[derive(Debug)]
struct Participant {
    assignment: Assignment,
    ready: Option<Ready>,
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
            .map(|assignment| Participant { assignment, ready: None, is_over: false, samples: None, upload: None })
            .collect();
        self.current = Some(Current { participants, start_at_unix_ns: None, window_read: false, abandoned: None });
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
            (None, Some(start_at_unix_ns)) => Release::Start { start_at_unix_ns },
            (None, None) => Release::Wait,
        })
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

    /// Stores the result of a worker. Repeating the same upload has no effect.
    pub fn deliver(&mut self, worker: u32, upload: Upload) -> Result<(), Conflict> {
        let result = &upload.result;
        self.check_run(&result.run)?;
        if result.worker != worker {
            return Err(Conflict::WorkerNames { path: worker, body: result.worker });
        }
        let (trial, attempt) = (result.trial.clone(), result.attempt);
        let key = (trial.clone(), attempt, worker);
        match self.delivered.get(&key) {
            Some(digest) if *digest == upload.digest => return Ok(()),
            Some(_) => return Err(Conflict::SecondResult { worker, trial, attempt }),
            None => {}
        }
        let participant = self.participant(worker, &trial, attempt)?;
        let digest = upload.digest;
        participant.upload = Some(Upload { samples: participant.samples.take(), ..upload });
        self.delivered.insert(key, digest);
        Ok(())
    }

    /// Whether raw rows of a worker would be kept. It is asked before they are read.
    pub fn takes_samples(&mut self, worker: u32, of: &AttemptId) -> Result<(), Conflict> {
        self.check_run(&of.run)?;
        self.participant(worker, &of.trial, of.attempt).map(drop)
    }

    /// Stores the raw rows of a worker. They must come before its result; later rows have no effect.
    pub fn deliver_samples(&mut self, worker: u32, of: &AttemptId, samples: Vec<u8>) -> Result<(), Conflict> {
        self.check_run(&of.run)?;
        let participant = self.participant(worker, &of.trial, of.attempt)?;
        if participant.upload.is_none() {
            participant.samples = Some(samples);
        }
        Ok(())
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

    /// Ends the trial and returns the uploads, in the order of the workers' indices.
    pub fn take_uploads(&mut self) -> Vec<Upload> {
        let participants = self.current.take().map(|current| current.participants).unwrap_or_default();
        participants.into_iter().filter_map(|participant| participant.upload).collect()
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

    /// Number of open connections, once all workers are ready; an error if one can't take part or the trial is
    /// cancelled.
    pub fn all_ready(&self) -> Option<Result<u64, String>> {
        let current = self.current.as_ref()?;
        if let Some(reason) = &current.abandoned {
            return Some(Err(reason.clone()));
        }
        let ready = || {
            current
                .participants
                .iter()
                .filter_map(|participant| participant.ready.as_ref().map(|ready| (participant, ready)))
        };
        if let Some((participant, problem)) =
            ready().find_map(|(participant, ready)| Some((participant, ready.problem.as_ref()?)))
        {
            return Some(Err(format!("worker {} can't take part: {problem}", participant.assignment.worker)));
        }
        (ready().count() == current.participants.len()).then(|| Ok(self.open()))
    }

    /// Number of open connections, once all workers have reported ready, including workers that opened none; an error
    /// if the trial is cancelled.
    pub fn all_reported(&self) -> Option<Result<u64, String>> {
        self.all(|participant| participant.ready.is_some()).map(|all| all.map(|()| self.open()))
    }

    /// Number of open connections of the workers that have reported.
    fn open(&self) -> u64 {
        let participants = self.current.iter().flat_map(|current| &current.participants);
        participants.filter_map(|participant| participant.ready.as_ref()).map(|ready| u64::from(ready.open)).sum()
    }

    /// Present once no worker has load left in the window; an error if the trial is cancelled.
    pub fn all_over(&self) -> Option<Result<(), String>> {
        self.all(|participant| participant.is_over || participant.upload.is_some())
    }

    /// Present once all workers have delivered a result; an error if the trial is cancelled.
    pub fn all_delivered(&self) -> Option<Result<(), String>> {
        self.all(|participant| participant.upload.is_some())
    }

    fn all(&self, condition: impl Fn(&Participant) -> bool) -> Option<Result<(), String>> {
        let current = self.current.as_ref()?;
        match &current.abandoned {
            Some(reason) => Some(Err(reason.clone())),
            None => current.participants.iter().all(condition).then_some(Ok(())),
        }
    }

    /// Indices of the workers that haven't reported ready.
    pub fn not_ready(&self) -> Vec<u32> {
        let participants = self.current.iter().flat_map(|current| &current.participants);
        participants
            .filter(|participant| participant.ready.is_none())
            .map(|participant| participant.assignment.worker)
            .collect()
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
    use crate::coordinator::upload::fixture::{assignment, ready, registration, upload};

    fn offered(workers: u32) -> Barrier {
        let mut barrier = Barrier::new("run");
        barrier.offer((0..workers).map(|worker| assignment(worker, workers)).collect());
        barrier
    }

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
    fn no_worker_starts_before_all_are_ready_and_released() {
        let mut barrier = offered(2);
        assert!(matches!(barrier.ready(0, ready(1)), Ok(Release::Wait)));
        assert_eq!((barrier.all_ready(), barrier.not_ready()), (None, vec![1]));
        assert!(matches!(barrier.ready(1, ready(1)), Ok(Release::Wait)));
        assert_eq!(barrier.all_ready(), Some(Ok(20)));
        barrier.release(7);
        for worker in [0, 1, 0] {
            assert!(matches!(barrier.ready(worker, ready(1)), Ok(Release::Start { start_at_unix_ns: 7 })));
        }
    }

    #[test]
    fn a_worker_that_cannot_take_part_reports_why() {
        let mut barrier = offered(2);
        barrier.ready(1, Ready { problem: Some("no ports".into()), ..ready(1) }).unwrap();
        assert_eq!(barrier.all_ready(), Some(Err("worker 1 can't take part: no ports".into())));
    }

    #[test]
    fn the_same_result_twice_counts_once_and_another_one_is_refused() {
        let mut barrier = offered(2);
        barrier.release(5);
        barrier.deliver(0, upload(0, 1)).unwrap();
        barrier.deliver(0, upload(0, 1)).unwrap();
        let mut other = upload(0, 1);
        other.digest += 1;
        assert!(matches!(barrier.deliver(0, other), Err(Conflict::SecondResult { .. })));
        assert_eq!(barrier.all_delivered(), None);
        barrier.deliver(1, upload(1, 1)).unwrap();
        assert_eq!((barrier.all_delivered(), barrier.take_uploads().len()), (Some(Ok(())), 2));
        // The response was lost and the worker repeats the upload after the trial: it has no second effect.
        barrier.deliver(0, upload(0, 1)).unwrap();
    }

    #[test]
    fn workers_keep_their_connections_until_the_service_was_read() {
        let over =
            |attempt| WindowOver { run: "run".into(), trial: crate::coordinator::upload::fixture::trial(), attempt };
        let mut barrier = offered(2);
        assert!(matches!(barrier.window_over(0, &over(1)), Err(Conflict::NotStarted { .. })));
        barrier.release(5);
        for _ in 0..2 {
            assert_eq!((barrier.window_over(0, &over(1)), barrier.all_over()), (Ok(DrainRelease::Wait), None));
        }
        // A worker that doesn't report the end of its load has finished when its result arrives.
        barrier.deliver(1, upload(1, 1)).unwrap();
        assert_eq!((barrier.all_over(), barrier.drain_release(&over(1))), (Some(Ok(())), DrainRelease::Wait));
        barrier.end_window();
        assert_eq!((barrier.drain_release(&over(1)), barrier.all_delivered()), (DrainRelease::Drain, None));
        assert_eq!(barrier.window_over(0, &over(1)), Ok(DrainRelease::Drain));
        assert!(matches!(barrier.window_over(0, &over(2)), Err(Conflict::Trial { .. })));
        // The next trial starts from the beginning; a worker that still asks about this one isn't held.
        barrier.offer(vec![Assignment { attempt: 2, ..assignment(0, 2) }]);
        barrier.release(6);
        assert_eq!(
            (barrier.window_over(0, &over(2)), barrier.drain_release(&over(1))),
            (Ok(DrainRelease::Wait), DrainRelease::Drain)
        );
        barrier.abandon("a worker ended");
        assert_eq!(
            (barrier.drain_release(&over(2)), barrier.all_over()),
            (DrainRelease::Drain, Some(Err("a worker ended".into())))
        );
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
    fn a_late_result_is_refused_after_the_trial_was_closed() {
        let mut barrier = offered(1);
        barrier.release(5);
        assert!(barrier.take_uploads().is_empty());
        assert!(matches!(barrier.deliver(0, upload(0, 1)), Err(Conflict::Trial { .. })));
    }

    #[test]
    fn raw_rows_are_stored_with_their_result() {
        let of =
            |attempt| AttemptId { run: "run".into(), trial: crate::coordinator::upload::fixture::trial(), attempt };
        let mut barrier = offered(1);
        let early = barrier.deliver_samples(0, &of(1), vec![1]);
        assert!(matches!(early, Err(Conflict::NotStarted { .. })));
        barrier.release(5);
        barrier.deliver_samples(0, &of(1), vec![1]).unwrap();
        barrier.deliver_samples(0, &of(1), vec![2]).unwrap();
        assert!(matches!(barrier.deliver_samples(0, &of(2), vec![3]), Err(Conflict::Trial { .. })));
        assert!(matches!(barrier.deliver_samples(1, &of(1), vec![3]), Err(Conflict::Worker { .. })));
        barrier.deliver(0, upload(0, 1)).unwrap();
        barrier.deliver_samples(0, &of(1), vec![4]).unwrap();
        assert_eq!(barrier.take_uploads()[0].samples, Some(vec![2]));
        assert!(matches!(barrier.deliver_samples(0, &of(1), vec![5]), Err(Conflict::Trial { .. })));
    }

    #[test]
    fn a_result_before_the_start_is_refused() {
        assert!(matches!(offered(1).deliver(0, upload(0, 1)), Err(Conflict::NotStarted { .. })));
    }

    #[test]
    fn a_result_under_another_workers_path_is_refused() {
        let mut barrier = offered(2);
        barrier.release(5);
        let description = barrier.deliver(0, upload(1, 1)).unwrap_err().to_string();
        assert_eq!(description, "the path names worker 0, the body names worker 1");
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
