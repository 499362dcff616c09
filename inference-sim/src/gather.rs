//! Gathers requests until there are enough to be computed side by side, on threads that do nothing else.
//!
//! An answer isn't due before the latency model says so, so there is time to gather in. It ends when the lanes are
//! full or when the most urgent request has to be begun: some time before it is due, and soon after it came at any rate.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{
    compute::{Answer, Audio},
    lanes::{Chain, LANES, Lanes},
};

/// A request is begun so long before it is due, so that the answer is there in time even if others come first.
const MARGIN: Duration = Duration::from_millis(10);
/// A request is gathered for so long at least, also if it is due at once: under load this makes for fuller lanes.
const SHORTEST: Duration = Duration::from_micros(500);
/// And for so long at most: longer fills no more lanes, but the audio leaves the cache.
const LONGEST: Duration = Duration::from_millis(20);
/// Samples of the longest request that shares lanes. Three seconds are 48 000.
const LANE_SAMPLES: usize = 1 << 16;
/// Samples over all passes of the longest such request. One longer would hold up those beside it.
const LANE_STEPS: u64 = 1 << 18;
/// And its passes: each begins anew in all lanes, however little there is to go over.
const LANE_PASSES: u32 = 64;

/// Hands requests to the computing threads, which end when the last clone is gone.
#[derive(Clone)]
pub(crate) struct Gatherer {
    shared: Arc<Shared>,
    // Dropped with the last clone, and tells the threads.
    _ending: Arc<Ending>,
}

/// What the computing threads have done.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Batches computed.
    pub batches: AtomicU64,
    /// Requests in them.
    pub requests: AtomicU64,
    /// Time that it took, in nanoseconds of the wall clock.
    pub busy_ns: AtomicU64,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    work: Work,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    /// When the most urgent job has to be begun.
    start: Option<Instant>,
    ended: bool,
}

/// One request on its way.
struct Job {
    body: Bytes,
    passes: u32,
    start: Instant,
    answer: oneshot::Sender<(Answer, Instant)>,
}

impl Job {
    fn audio(&self) -> Audio<'_> {
        Audio::new(&self.body).expect("only even bodies are submitted")
    }
}

impl Gatherer {
    /// Starts so many computing threads.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), work: Work::default() });
        let ending = Arc::new(Ending(shared.clone()));
        for _ in 0..threads {
            let shared = shared.clone();
            thread::Builder::new().name("compute".into()).spawn(move || shared.run())?;
        }
        Ok(Self { shared, _ending: ending })
    }

    /// Whether a request is short enough to be computed beside others.
    pub(crate) fn takes(audio: Audio, passes: u32) -> bool {
        let steps = audio.len() as u64 * u64::from(passes);
        passes <= LANE_PASSES && audio.len() <= LANE_SAMPLES && steps <= LANE_STEPS
    }

    /// Hands over an even body that [`takes`](Self::takes) accepts, received now and due at `due`. The answer comes
    /// with the time at which it was computed; the receiver may be dropped if nobody wants it any more.
    pub(crate) fn submit(&self, body: Bytes, passes: u32, due: Instant) -> oneshot::Receiver<(Answer, Instant)> {
        let now = Instant::now();
        let room = due.saturating_duration_since(now).saturating_sub(MARGIN);
        let (answer, answered) = oneshot::channel();
        let job = Job { body, passes, start: now + room.clamp(SHORTEST, LONGEST), answer };
        let mut queue = self.shared.lock();
        let urgent = queue.start.is_none_or(|start| job.start < start);
        if urgent {
            queue.start = Some(job.start);
        }
        queue.jobs.push(job);
        let full = queue.jobs.len().is_multiple_of(LANES);
        drop(queue);
        if urgent || full {
            self.shared.changed.notify_one();
        }
        answered
    }

    /// What the threads have done so far.
    pub(crate) fn work(&self) -> &Work {
        &self.shared.work
    }
}

struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no thread panics while it holds the queue")
    }

    /// Computes until the last gatherer is gone.
    fn run(&self) {
        let mut lanes = Lanes::new();
        while let Some(mut batch) = self.gather() {
            let begun = Instant::now();
            // Who has given up needs no answer.
            batch.retain(|job| !job.answer.is_closed());
            self.work.batches.fetch_add(1, Relaxed);
            self.work.requests.fetch_add(batch.len() as u64, Relaxed);
            compute(batch, &mut lanes);
            self.work.busy_ns.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
        }
    }

    /// Waits until a batch is full or urgent; none means that there will be no more.
    fn gather(&self) -> Option<Vec<Job>> {
        let mut queue = self.lock();
        loop {
            if queue.ended {
                return None;
            }
            let wait = queue.start.map(|start| start.saturating_duration_since(Instant::now()));
            queue = match wait {
                _ if queue.jobs.len() >= LANES => return Some(queue.take()),
                Some(Duration::ZERO) => return Some(queue.take()),
                Some(wait) => self.changed.wait_timeout(queue, wait).expect("see lock").0,
                None => self.changed.wait(queue).expect("see lock"),
            };
        }
    }
}

impl Queue {
    /// The most urgent jobs, as many as there are lanes.
    fn take(&mut self) -> Vec<Job> {
        if self.jobs.len() > LANES {
            self.jobs.select_nth_unstable_by_key(LANES, |job| job.start);
        }
        let rest = self.jobs.split_off(LANES.min(self.jobs.len()));
        let batch = std::mem::replace(&mut self.jobs, rest);
        self.start = self.jobs.iter().map(|job| job.start).min();
        batch
    }
}

/// Computes a batch and sends the answers.
fn compute(batch: Vec<Job>, lanes: &mut Lanes) {
    let chains: Vec<Chain> = batch.iter().map(|job| Chain { audio: job.audio(), passes: job.passes }).collect();
    let answers = lanes.infer(&chains);
    let now = Instant::now();
    for (job, answer) in batch.into_iter().zip(answers) {
        // Fails if nobody waits for it any more.
        let _ = job.answer.send((answer, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::tests::{frame, naive};

    #[test]
    fn every_request_gets_its_own_answer() {
        let gatherer = Gatherer::start(2).expect("threads can be started");
        let bodies: Vec<Bytes> = (0..200).map(|session| frame(session, 1).into()).collect();
        let answers: Vec<_> = bodies.iter().map(|body| gatherer.submit(body.clone(), 4, Instant::now())).collect();
        for (body, answer) in bodies.iter().zip(answers) {
            assert_eq!(answer.blocking_recv().expect("it is answered").0, naive(body, 4));
        }
        assert_eq!(gatherer.work().requests.load(Relaxed), 200);
    }

    #[test]
    fn requests_with_time_left_are_computed_together() {
        let gatherer = Gatherer::start(1).expect("threads can be started");
        let due = Instant::now() + Duration::from_secs(3600);
        let answers: Vec<_> = (0..LANES).map(|_| gatherer.submit(frame(0, 1).into(), 4, due)).collect();
        for answer in answers {
            answer.blocking_recv().expect("it is answered");
        }
        let batches = gatherer.work().batches.load(Relaxed);
        assert!(batches < LANES as u64, "{batches} batches");
    }

    #[test]
    fn the_most_urgent_go_first() {
        let (answer, now) = (|| oneshot::channel().0, Instant::now());
        let job = |index: u64| Job {
            body: Bytes::new(),
            passes: 1,
            start: now + Duration::from_millis(index),
            answer: answer(),
        };
        let mut queue = Queue { jobs: (0..50).rev().map(job).collect(), ..Default::default() };
        let latest = queue.take().iter().map(|job| job.start).max();
        assert_eq!(latest, Some(now + Duration::from_millis(31)));
        assert_eq!((queue.jobs.len(), queue.start), (18, Some(now + Duration::from_millis(32))));
    }
}
