//! Where each worker stands in the trial, and what it is told next. Pure: no sockets, no clocks.
//!
//! What concerns a trial names (run, trial, attempt) and its worker: a repeated request has the effect of one, and one
//! that belongs to another trial is refused in words.

use std::collections::{BTreeMap, HashMap};

use bench_format::{
    terms::Terms,
    trial::{Assignment, Next, Parting, Ready, Registration, Release, TrialId, WindowOver},
};

use super::upload::Upload;

/// A request that doesn't fit the state of the run; HTTP 409.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// It belongs to another run.
    #[error("run \"{found}\" is not served here; this is the coordinator of run \"{run}\"")]
    Run {
        /// What it said.
        found: String,
        /// The run served.
        run: String,
    },
    /// It belongs to a trial or an attempt that isn't the current one.
    #[error("trial {trial} (attempt {attempt}) is not under way; ask for the next")]
    Trial {
        /// The trial it said.
        trial: TrialId,
        /// The attempt it said.
        attempt: u32,
    },
    /// There is no such worker in the trial.
    #[error("worker {worker} has no part in trial {trial}; it has {workers} workers, counted from 0")]
    Worker {
        /// Its index.
        worker: u32,
        /// The trial.
        trial: TrialId,
        /// How many there are.
        workers: usize,
    },
    /// The path and the body name different workers.
    #[error("the path says worker {path}, the body says worker {body}")]
    WorkerNames {
        /// In the path.
        path: u32,
        /// In the body.
        body: u32,
    },
    /// A second, different result.
    #[error("worker {worker} has delivered another result for trial {trial} (attempt {attempt}) before")]
    SecondResult {
        /// Its index.
        worker: u32,
        /// The trial.
        trial: TrialId,
        /// The attempt.
        attempt: u32,
    },
    /// A result for a trial that never started.
    #[error("trial {trial} (attempt {attempt}) has not started; report ready first")]
    NotStarted {
        /// The trial.
        trial: TrialId,
        /// The attempt.
        attempt: u32,
    },
}

/// Which trial raw rows belong to: they can't say so themselves.
#[derive(Clone, Debug)]
pub struct SamplesOf {
    /// The run.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// The attempt.
    pub attempt: u32,
}

type Key = (TrialId, u32, u32);

/// The state of a run, as far as workers are concerned.
#[derive(Debug)]
pub struct Barrier {
    run: String,
    workers: BTreeMap<u32, Registration>,
    current: Option<Current>,
    /// What was delivered, so that a repeated upload is known even after its trial.
    delivered: HashMap<Key, u64>,
    finished: bool,
}

#[derive(Debug)]
struct Current {
    seats: Vec<Seat>,
    start_at_unix_ns: Option<u64>,
    /// The service has been read at the end of the window.
    window_read: bool,
    abandoned: Option<String>,
}

#[derive(Debug)]
struct Seat {
    assignment: Assignment,
    ready: Option<Ready>,
    /// It has nothing left to do in the window.
    is_over: bool,
    /// Raw rows, compressed: they come before the result that they belong to.
    samples: Option<Vec<u8>>,
    upload: Option<Upload>,
}

impl Barrier {
    /// A run without workers and trials.
    pub fn new(run: &str) -> Self {
        Self { run: run.into(), workers: BTreeMap::new(), current: None, delivered: HashMap::new(), finished: false }
    }

    /// A worker presents itself. One that takes the place of another in the middle of a trial ends that trial.
    pub fn register(&mut self, registration: Registration) {
        let Registration { worker, pid, started_at_unix_ns, .. } = registration;
        let other = |before: Registration| before.pid != pid || before.started_at_unix_ns != started_at_unix_ns;
        if self.workers.insert(worker, registration).is_some_and(other) && self.takes_part(worker) {
            self.abandon(&format!("worker {worker} was replaced by another process {pid} in the middle of the trial"));
        }
    }

    fn takes_part(&self, worker: u32) -> bool {
        let seat = self.current.as_ref().and_then(|current| current.seats.get(worker as usize));
        seat.is_some_and(|seat| seat.ready.is_some() && seat.upload.is_none())
    }

    /// Forgets all workers.
    pub fn expect_new_workers(&mut self) {
        self.workers.clear();
    }

    /// Starts a trial: one assignment per worker, in order of their indices.
    pub fn offer(&mut self, assignments: Vec<Assignment>) {
        let seats = assignments
            .into_iter()
            .map(|assignment| Seat { assignment, ready: None, is_over: false, samples: None, upload: None })
            .collect();
        self.current = Some(Current { seats, start_at_unix_ns: None, window_read: false, abandoned: None });
    }

    /// What a worker does next.
    pub fn next(&self, worker: u32) -> Next {
        if self.finished {
            return Next::Finished;
        }
        let current = self.current.as_ref().filter(|current| current.abandoned.is_none());
        match current.and_then(|current| current.seats.get(worker as usize)) {
            Some(Seat { assignment, upload: None, .. }) => Next::Trial(assignment.clone()),
            _ => Next::Wait,
        }
    }

    /// A worker is ready, or says why it can't be; the answer is the start or "ask again".
    pub fn ready(&mut self, worker: u32, ready: Ready) -> Result<Release, Conflict> {
        self.same_run(&ready.run)?;
        let (trial, attempt) = (ready.trial.clone(), ready.attempt);
        let current = self.current.as_mut().filter(|current| current.is(&trial, attempt));
        let current = current.ok_or_else(|| Conflict::Trial { trial: trial.clone(), attempt })?;
        let workers = current.seats.len();
        match current.seats.get_mut(worker as usize) {
            Some(seat) => seat.ready = Some(ready),
            None => return Err(Conflict::Worker { worker, trial, workers }),
        }
        self.answer(&trial, attempt)
    }

    /// What a worker that is ready is told.
    pub fn answer(&self, trial: &TrialId, attempt: u32) -> Result<Release, Conflict> {
        let current = self.current.as_ref().filter(|current| current.is(trial, attempt));
        let current = current.ok_or_else(|| Conflict::Trial { trial: trial.clone(), attempt })?;
        Ok(match (&current.abandoned, current.start_at_unix_ns) {
            (Some(reason), _) => Release::Abandoned { reason: reason.clone() },
            (None, Some(start_at_unix_ns)) => Release::Start { start_at_unix_ns },
            (None, None) => Release::Wait,
        })
    }

    /// Load starts at this moment.
    pub fn release(&mut self, start_at_unix_ns: u64) {
        if let Some(current) = &mut self.current {
            current.start_at_unix_ns = Some(start_at_unix_ns);
        }
    }

    /// A worker's window was over before its time; the answer is "drain" or "ask again".
    pub fn window_over(&mut self, worker: u32, over: &WindowOver) -> Result<Parting, Conflict> {
        self.same_run(&over.run)?;
        self.seat(worker, &over.trial, over.attempt)?.is_over = true;
        Ok(self.parting(over))
    }

    /// What a worker whose window is over is told. Nobody waits for a trial that isn't under way any more.
    pub fn parting(&self, over: &WindowOver) -> Parting {
        let current = self.current.as_ref().filter(|current| current.is(&over.trial, over.attempt));
        match current {
            Some(Current { window_read: false, abandoned: None, .. }) => Parting::Wait,
            _ => Parting::Drain,
        }
    }

    /// The service has been read at the end of the window.
    pub fn end_window(&mut self) {
        if let Some(current) = &mut self.current {
            current.window_read = true;
        }
    }

    /// The trial is off.
    pub fn abandon(&mut self, reason: &str) {
        if let Some(current) = &mut self.current {
            current.abandoned.get_or_insert(reason.into());
        }
    }

    /// A worker delivers its result. The same one again changes nothing.
    pub fn deliver(&mut self, worker: u32, upload: Upload) -> Result<(), Conflict> {
        let result = &upload.result;
        self.same_run(&result.run)?;
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
        let seat = self.seat(worker, &trial, attempt)?;
        let digest = upload.digest;
        seat.upload = Some(Upload { samples: seat.samples.take(), ..upload });
        self.delivered.insert(key, digest);
        Ok(())
    }

    /// A worker delivers its raw rows, before its result. Once that is there, rows change nothing any more.
    pub fn deliver_samples(&mut self, worker: u32, of: &SamplesOf, samples: Vec<u8>) -> Result<(), Conflict> {
        self.same_run(&of.run)?;
        let seat = self.seat(worker, &of.trial, of.attempt)?;
        if seat.upload.is_none() {
            seat.samples = Some(samples);
        }
        Ok(())
    }

    /// A worker's place in a trial that has started and wasn't called off.
    fn seat(&mut self, worker: u32, trial: &TrialId, attempt: u32) -> Result<&mut Seat, Conflict> {
        let trial = trial.clone();
        let under_way = |current: &&mut Current| current.is(&trial, attempt) && current.abandoned.is_none();
        let Some(current) = self.current.as_mut().filter(under_way) else {
            return Err(Conflict::Trial { trial, attempt });
        };
        if current.start_at_unix_ns.is_none() {
            return Err(Conflict::NotStarted { trial, attempt });
        }
        let workers = current.seats.len();
        current.seats.get_mut(worker as usize).ok_or(Conflict::Worker { worker, trial, workers })
    }

    /// Ends the trial with what was delivered, in order of the workers' indices.
    pub fn take_uploads(&mut self) -> Vec<Upload> {
        let seats = self.current.take().map(|current| current.seats).unwrap_or_default();
        seats.into_iter().filter_map(|seat| seat.upload).collect()
    }

    /// Workers are told to exit.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Programs that registered, by index.
    pub fn programs(&self) -> Vec<String> {
        self.workers.values().map(|registration| registration.program.clone()).collect()
    }

    /// On which terms a workload is judged, as the first worker announced; when it doesn't know the workload, why not.
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

    /// When all workers of the trial are ready: their open connections; when one can't be, why.
    pub fn all_ready(&self) -> Option<Result<u64, String>> {
        let current = self.current.as_ref()?;
        if let Some(reason) = &current.abandoned {
            return Some(Err(reason.clone()));
        }
        let ready = || current.seats.iter().filter_map(|seat| seat.ready.as_ref().map(|ready| (seat, ready)));
        if let Some((seat, problem)) = ready().find_map(|(seat, ready)| Some((seat, ready.problem.as_ref()?))) {
            return Some(Err(format!("worker {} can't take part: {problem}", seat.assignment.worker)));
        }
        (ready().count() == current.seats.len()).then(|| Ok(self.open()))
    }

    /// When all workers of the trial have said how far they are: their open connections, whether or not a worker has some; when
    /// the trial is off, why.
    pub fn all_answered(&self) -> Option<Result<u64, String>> {
        self.all(|seat| seat.ready.is_some()).map(|all| all.map(|()| self.open()))
    }

    /// Connections that are open, over the workers that have said so.
    fn open(&self) -> u64 {
        let seats = self.current.iter().flat_map(|current| &current.seats);
        seats.filter_map(|seat| seat.ready.as_ref()).map(|ready| u64::from(ready.open)).sum()
    }

    /// When none has anything left to do in the window, or the trial is off and why.
    pub fn all_over(&self) -> Option<Result<(), String>> {
        self.all(|seat| seat.is_over || seat.upload.is_some())
    }

    /// When all have delivered, or the trial is off and why.
    pub fn all_delivered(&self) -> Option<Result<(), String>> {
        self.all(|seat| seat.upload.is_some())
    }

    fn all(&self, is_so: impl Fn(&Seat) -> bool) -> Option<Result<(), String>> {
        let current = self.current.as_ref()?;
        match &current.abandoned {
            Some(reason) => Some(Err(reason.clone())),
            None => current.seats.iter().all(is_so).then_some(Ok(())),
        }
    }

    /// The indices of those that aren't ready yet.
    pub fn not_ready(&self) -> Vec<u32> {
        let seats = self.current.iter().flat_map(|current| &current.seats);
        seats.filter(|seat| seat.ready.is_none()).map(|seat| seat.assignment.worker).collect()
    }

    /// The highest index that registered plus one, counting only an unbroken row from 0.
    pub fn registered(&self) -> u32 {
        (0..).take_while(|index| self.workers.contains_key(index)).count() as u32
    }

    fn same_run(&self, found: &str) -> Result<(), Conflict> {
        if found == self.run { Ok(()) } else { Err(Conflict::Run { found: found.into(), run: self.run.clone() }) }
    }
}

impl Current {
    fn is(&self, trial: &TrialId, attempt: u32) -> bool {
        let first = self.seats.first().map(|seat| &seat.assignment);
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
    fn nobody_starts_before_everybody_is_ready_and_released() {
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
    fn a_worker_that_cannot_take_part_says_why() {
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
        // The answer got lost and the worker repeats it after the trial: still no second effect.
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
            assert_eq!((barrier.window_over(0, &over(1)), barrier.all_over()), (Ok(Parting::Wait), None));
        }
        // One that doesn't ask has nothing left to do when its result is there.
        barrier.deliver(1, upload(1, 1)).unwrap();
        assert_eq!((barrier.all_over(), barrier.parting(&over(1))), (Some(Ok(())), Parting::Wait));
        barrier.end_window();
        assert_eq!((barrier.parting(&over(1)), barrier.all_delivered()), (Parting::Drain, None));
        assert_eq!(barrier.window_over(0, &over(1)), Ok(Parting::Drain));
        assert!(matches!(barrier.window_over(0, &over(2)), Err(Conflict::Trial { .. })));
        // The next trial begins anew; who still asks about this one isn't kept.
        barrier.offer(vec![Assignment { attempt: 2, ..assignment(0, 2) }]);
        barrier.release(6);
        assert_eq!((barrier.window_over(0, &over(2)), barrier.parting(&over(1))), (Ok(Parting::Wait), Parting::Drain));
        barrier.abandon("a worker is gone");
        assert_eq!(
            (barrier.parting(&over(2)), barrier.all_over()),
            (Parting::Drain, Some(Err("a worker is gone".into())))
        );
    }

    #[test]
    fn what_belongs_to_another_run_or_attempt_is_refused_in_words() {
        let mut barrier = offered(1);
        let foreign = Ready { run: "other".into(), ..ready(1) };
        assert_eq!(
            barrier.ready(0, foreign).unwrap_err().to_string(),
            "run \"other\" is not served here; this is the coordinator of run \"run\""
        );
        let words = barrier.ready(0, ready(2)).unwrap_err().to_string();
        assert!(words.ends_with("(attempt 2) is not under way; ask for the next"), "{words}");
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
    fn raw_rows_come_with_the_result_that_they_belong_to() {
        let of =
            |attempt| SamplesOf { run: "run".into(), trial: crate::coordinator::upload::fixture::trial(), attempt };
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
        let words = barrier.deliver(0, upload(1, 1)).unwrap_err().to_string();
        assert_eq!(words, "the path says worker 0, the body says worker 1");
    }

    #[test]
    fn a_worker_beyond_the_trials_number_is_refused() {
        let words = offered(1).ready(3, ready(1)).unwrap_err().to_string();
        assert!(words.starts_with("worker 3 has no part in trial "), "{words}");
    }

    #[test]
    fn an_abandoned_trial_tells_its_workers_why() {
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
        barrier.register(registration(0, 100));
        barrier.ready(0, ready(1)).unwrap();
        barrier.register(registration(0, 100));
        assert_eq!(barrier.all_ready(), Some(Ok(10)));
        barrier.register(registration(0, 200));
        assert!(matches!(barrier.all_ready(), Some(Err(reason)) if reason.contains("replaced by another process 200")));
    }

    #[test]
    fn the_end_of_the_run_reaches_every_worker() {
        let mut barrier = offered(1);
        barrier.finish();
        assert!(matches!(barrier.next(0), Next::Finished));
    }
}
