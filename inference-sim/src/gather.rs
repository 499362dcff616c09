//! Gathers requests until there are enough to compute them side by side, on threads that do nothing else.
//!
//! The latency model leaves time before a result is due, in which requests are gathered. Gathering ends when the lanes
//! are full or when the most urgent request must start: some time before it is due, and in any case soon after its
//! arrival.

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
    compute::{Audio, InferenceResult},
    lanes::{Chain, LANES, Lanes},
};

/// Time before its due time at which a request starts, so that its result is ready even if others are computed first.
const MARGIN: Duration = Duration::from_millis(10);
/// Shortest time that a request is gathered, even if it is due at once; under load this fills the lanes better.
const SHORTEST: Duration = Duration::from_micros(500);
/// Longest time that a request is gathered. More time fills no more lanes, but the audio leaves the cache.
const LONGEST: Duration = Duration::from_millis(20);
/// Largest number of samples of a request that shares lanes. Three seconds of audio have 48 000.
const LANE_SAMPLES: usize = 1 << 16;
/// Largest number of samples over all passes of such a request. A longer one would delay those beside it.
const LANE_STEPS: u64 = 1 << 18;
/// Largest number of passes of such a request, because each pass restarts all lanes, even for short audio.
const LANE_PASSES: u32 = 64;

/// Hands requests to the computing threads, which end with the last clone.
#[derive(Clone)]
pub(crate) struct Gatherer {
    shared: Arc<Shared>,
    // Dropped with the last clone; this stops the threads.
    _stop_guard: Arc<StopGuard>,
}

/// Counters of the computing threads.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Number of batches that were computed.
    pub batches: AtomicU64,
    /// Number of requests in those batches.
    pub requests: AtomicU64,
    /// Wall-clock time of the computation, in nanoseconds.
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
    /// Time at which the most urgent job must start.
    start: Option<Instant>,
    is_stopped: bool,
}

/// One request that waits for its computation.
struct Job {
    body: Bytes,
    passes: u32,
    start: Instant,
    reply: oneshot::Sender<(InferenceResult, Instant)>,
}

impl Job {
    fn audio(&self) -> Audio<'_> {
        Audio::new(&self.body).expect("only even bodies are submitted")
    }
}

impl Gatherer {
    /// Starts `threads` computing threads.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), work: Work::default() });
        let stop_guard = Arc::new(StopGuard(shared.clone()));
        for _ in 0..threads {
            let shared = shared.clone();
            thread::Builder::new().name("compute".into()).spawn(move || shared.run())?;
        }
        Ok(Self { shared, _stop_guard: stop_guard })
    }

    /// Whether a request is short enough to be computed beside others.
    pub(crate) fn accepts(audio: Audio, passes: u32) -> bool {
        let steps = audio.len() as u64 * u64::from(passes);
        passes <= LANE_PASSES && audio.len() <= LANE_SAMPLES && steps <= LANE_STEPS
    }

    /// Submits an even body that [`accepts`](Self::accepts) accepts and whose result is due at `due`. The result comes with
    /// the time at which it was computed. The caller may drop the receiver if the result is no longer needed.
    pub(crate) fn submit(
        &self,
        body: Bytes,
        passes: u32,
        due: Instant,
    ) -> oneshot::Receiver<(InferenceResult, Instant)> {
        let now = Instant::now();
        let slack = due.saturating_duration_since(now).saturating_sub(MARGIN);
        let (reply, result) = oneshot::channel();
        let job = Job { body, passes, start: now + slack.clamp(SHORTEST, LONGEST), reply };
        let mut queue = self.shared.lock();
        let is_earliest = queue.start.is_none_or(|start| job.start < start);
        if is_earliest {
            queue.start = Some(job.start);
        }
        queue.jobs.push(job);
        let full = queue.jobs.len().is_multiple_of(LANES);
        drop(queue);
        if is_earliest || full {
            self.shared.changed.notify_one();
        }
        result
    }

    /// The counters of the computing threads.
    pub(crate) fn work(&self) -> &Work {
        &self.shared.work
    }
}

struct StopGuard(Arc<Shared>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.lock().is_stopped = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no thread panics while it holds the queue")
    }

    /// Computes batches until the last gatherer is dropped.
    fn run(&self) {
        let mut lanes = Lanes::new();
        while let Some(mut batch) = self.gather() {
            let started = Instant::now();
            // Requests whose receiver was dropped need no result.
            batch.retain(|job| !job.reply.is_closed());
            self.work.batches.fetch_add(1, Relaxed);
            self.work.requests.fetch_add(batch.len() as u64, Relaxed);
            compute(batch, &mut lanes);
            self.work.busy_ns.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        }
    }

    /// Waits until a batch is full or urgent; `None` means that there will be no more batches.
    fn gather(&self) -> Option<Vec<Job>> {
        let mut queue = self.lock();
        loop {
            if queue.is_stopped {
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
    /// Removes the most urgent jobs, at most one per lane.
    fn take(&mut self) -> Vec<Job> {
        if self.jobs.len() > LANES {
            self.jobs.select_nth_unstable_by_key(LANES, |job| job.start);
        }
        let later_jobs = self.jobs.split_off(LANES.min(self.jobs.len()));
        let batch = std::mem::replace(&mut self.jobs, later_jobs);
        self.start = self.jobs.iter().map(|job| job.start).min();
        batch
    }
}

/// Computes a batch and sends the results.
fn compute(batch: Vec<Job>, lanes: &mut Lanes) {
    let chains: Vec<Chain> = batch.iter().map(|job| Chain { audio: job.audio(), passes: job.passes }).collect();
    let replies = lanes.infer(&chains);
    let now = Instant::now();
    for (job, reply) in batch.into_iter().zip(replies) {
        // Fails if the receiver was dropped.
        let _ = job.reply.send((reply, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::tests::{frame, naive};

    #[test]
    fn every_request_gets_its_own_result() {
        let gatherer = Gatherer::start(2).expect("threads can be started");
        let bodies: Vec<Bytes> = (0..200).map(|session| frame(session, 1).into()).collect();
        let replies: Vec<_> = bodies.iter().map(|body| gatherer.submit(body.clone(), 4, Instant::now())).collect();
        for (body, reply) in bodies.iter().zip(replies) {
            assert_eq!(reply.blocking_recv().expect("a response arrives").0, naive(body, 4));
        }
        assert_eq!(gatherer.work().requests.load(Relaxed), 200);
    }

    #[test]
    fn requests_with_time_left_are_computed_together() {
        let gatherer = Gatherer::start(1).expect("threads can be started");
        let due = Instant::now() + Duration::from_secs(3600);
        let replies: Vec<_> = (0..LANES).map(|_| gatherer.submit(frame(0, 1).into(), 4, due)).collect();
        for reply in replies {
            reply.blocking_recv().expect("a response arrives");
        }
        let batches = gatherer.work().batches.load(Relaxed);
        assert!(batches < LANES as u64, "{batches} batches");
    }

    #[test]
    fn the_most_urgent_requests_are_computed_first() {
        let (reply, now) = (|| oneshot::channel().0, Instant::now());
        let job = |index: u64| Job {
            body: Bytes::new(),
            passes: 1,
            start: now + Duration::from_millis(index),
            reply: reply(),
        };
        let mut queue = Queue { jobs: (0..50).rev().map(job).collect(), ..Default::default() };
        let latest = queue.take().iter().map(|job| job.start).max();
        assert_eq!(latest, Some(now + Duration::from_millis(31)));
        assert_eq!((queue.jobs.len(), queue.start), (18, Some(now + Duration::from_millis(32))));
    }
}
