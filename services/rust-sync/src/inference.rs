//! The inference thread: sends requests and receives responses over keep-alive HTTP/1.1 connections.
//!
//! A request's batch is written from the buffer that the session filled. A new connection is opened when no idle one is
//! left; the most recently used one is reused first. Further requests wait for a connection, within their timeout.

mod link;
pub mod response;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::{Timespec, epoll};

use self::link::{Link, Progress};
use crate::{
    mailbox::{Mailbox, Waker, timespec},
    protocol::messages::{Failure, Kind, Recognised},
    session::Request,
};

/// The waker's key in epoll. Slots have the keys from 0 on.
const WAKER: u64 = u64::MAX;
const EVENTS: usize = 1024;
/// Shortest time between two rounds that only receive responses, so that one round handles many. New requests end the
/// rest early, and responses that have arrived by then are handled in the same round. In an idle gateway a response
/// doesn't wait.
const MIN_ROUND_TIME: Duration = Duration::from_millis(8);

/// A request that has returned to its WebSocket thread, with its outcome.
#[derive(Debug)]
pub struct FinishedRequest {
    /// The request, which carries the session's ticket and the batch.
    pub request: Request,
    /// The inference's result, or why there is none.
    pub outcome: Result<Recognised, Failure>,
}

/// Settings of all inference threads.
#[derive(Debug)]
pub struct Settings {
    /// The inference's `host:port`, also the value of the `Host` header.
    pub authority: String,
    /// Passes that the inference makes over each batch.
    pub cpu_passes: u32,
    /// Time limit of a request, counted from its tick.
    pub timeout: Duration,
    /// The resolved addresses of the inference; empty until its name can be resolved.
    pub addresses: Mutex<Vec<SocketAddr>>,
}

/// The queues between a WebSocket thread and its inference thread, in both directions.
#[derive(Debug)]
pub struct Channels {
    /// Requests to the inference thread.
    pub requests: Mailbox<Request>,
    /// Keys of connections that ended while they had a request in flight.
    pub abandoned: Mailbox<u64>,
    /// Finished requests to the WebSocket thread.
    pub responses: Mailbox<FinishedRequest>,
    /// The waker of the inference thread.
    pub inference: Waker,
    /// The waker of the WebSocket thread.
    pub shard: Waker,
    /// Set when the WebSocket thread will send no more requests.
    pub is_closed: AtomicBool,
}

impl Channels {
    /// Creates an exchange with empty queues.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let (inference, shard) = (Waker::new()?, Waker::new()?);
        Ok(Self {
            requests: Mailbox::default(),
            abandoned: Mailbox::default(),
            responses: Mailbox::default(),
            inference,
            shard,
            is_closed: AtomicBool::new(false),
        })
    }
}

/// A request that is being sent, awaits its response, or waits for a connection.
#[derive(Debug)]
struct Job {
    request: Request,
    deadline: Instant,
}

/// The state of an inference thread.
pub struct Inference {
    settings: Arc<Settings>,
    channels: Arc<Channels>,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    /// Slots with a connection and no job, the most recently used last. The peer may have closed the connection since.
    idle: Vec<usize>,
    /// Slots with neither a connection nor a job.
    vacant: Vec<usize>,
    waiting: VecDeque<Job>,
    /// Deadlines of started jobs in ascending order, each with its slot and its job's number.
    deadlines: VecDeque<(Instant, usize, u64)>,
    new_requests: Vec<Request>,
    finished: Vec<FinishedRequest>,
    buffer: Vec<u8>,
    attempts: usize,
}

#[derive(Default)]
struct Slot {
    link: Option<Link>,
    job: Option<Job>,
    /// Number of jobs started so far; it distinguishes a slot's job from an earlier one in `deadlines`.
    number: u64,
}

impl Inference {
    /// Creates the state before the first request, for at most `slots` connections.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new(settings: Arc<Settings>, channels: Arc<Channels>, slots: usize) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, channels.inference.descriptor(), epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self {
            settings,
            channels,
            epoll,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            idle: Vec::with_capacity(slots),
            vacant: (0..slots).rev().collect(),
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            new_requests: Vec::new(),
            finished: Vec::new(),
            buffer: vec![0; response::MAXIMAL_BYTES],
            attempts: 0,
        })
    }

    /// Runs until the WebSocket thread will send no more requests.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut round_started = Instant::now();
        while !self.channels.is_closed.load(Ordering::SeqCst) {
            self.channels.inference.sleep_until(round_started + MIN_ROUND_TIME);
            let timeout = self.timeout(Instant::now());
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("epoll refuses to wait: {error}"),
            }
            round_started = Instant::now();
            for event in &events {
                if event.data.u64() != WAKER {
                    self.advance(event.data.u64() as usize);
                }
            }
            self.channels.inference.clear();
            // Taken before the requests, because it is posted after them: if the end of a connection is known here, its
            // request is, too.
            let mut disconnected = Vec::new();
            self.channels.abandoned.take(&mut disconnected);
            self.take_requests();
            self.abandon(disconnected);
            self.expire(Instant::now());
            self.channels.responses.post(&mut self.finished, &self.channels.shard);
        }
    }

    fn timeout(&self, now: Instant) -> Option<Timespec> {
        let started = self.deadlines.front().map(|(deadline, ..)| *deadline);
        let waiting = self.waiting.front().map(|job| job.deadline);
        let first = started.into_iter().chain(waiting).min()?;
        Some(timespec(first.saturating_duration_since(now)))
    }

    fn take_requests(&mut self) {
        let mut new_requests = std::mem::take(&mut self.new_requests);
        self.channels.requests.take(&mut new_requests);
        let timeout = self.settings.timeout;
        self.waiting.extend(new_requests.drain(..).map(|request| Job { deadline: request.sent_at + timeout, request }));
        self.new_requests = new_requests;
        self.start_waiting_jobs();
    }

    /// Starts waiting jobs, the oldest first, as long as slots are free.
    fn start_waiting_jobs(&mut self) {
        while !self.waiting.is_empty()
            && let Some(index) = self.free_slot()
            && let Some(job) = self.waiting.pop_front()
        {
            let slot = &mut self.slots[index];
            slot.number += 1;
            self.deadlines.push_back((job.deadline, index, slot.number));
            let progress = slot.link.as_mut().map(|link| link.start(&self.settings, &job.request));
            slot.job = Some(job);
            // A response is reported by epoll. The only progress at once is that the connection is closed or could not
            // be opened.
            match progress {
                Some(Progress::Waiting) => {}
                Some(Progress::Stale) => {
                    slot.link = None;
                    self.advance(index);
                }
                Some(_) | None => self.advance(index),
            }
        }
    }

    fn free_slot(&mut self) -> Option<usize> {
        while let Some(index) = self.idle.pop() {
            if self.slots[index].link.is_some() {
                return Some(index);
            }
            self.vacant.push(index);
        }
        self.vacant.pop()
    }

    /// Advances a slot's exchange until it would block.
    fn advance(&mut self, index: usize) {
        loop {
            let slot = &mut self.slots[index];
            let Some(job) = &slot.job else {
                slot.link.take_if(|link| !link.is_quiet());
                return;
            };
            let Some(link) = &mut slot.link else {
                match self.dial(index) {
                    Ok(()) => return,
                    Err(failure) => return self.finish(index, Err(failure)),
                }
            };
            match link.advance(&job.request, &mut self.buffer) {
                Progress::Waiting => return,
                Progress::Stale => slot.link = None,
                Progress::Failed(failure) => {
                    slot.link = None;
                    return self.finish(index, Err(failure));
                }
                Progress::Completed { status, body, reusable } => {
                    let frames = job.request.batch.frames() as u64;
                    let outcome = parse_outcome(status, &self.buffer[body], frames, self.settings.cpu_passes);
                    if !reusable {
                        slot.link = None;
                    }
                    return self.finish(index, outcome);
                }
            }
        }
    }

    fn dial(&mut self, index: usize) -> Result<(), Failure> {
        let address = {
            let addresses = self.settings.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            self.attempts += 1;
            addresses.get(self.attempts % addresses.len().max(1)).copied()
        };
        let authority = &self.settings.authority;
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(Kind::ConnectionReset, format!("failed to connect to the inference at {authority}: {error}"))
        };
        let address = address.ok_or_else(|| failed(&"its name can't be resolved"))?;
        let slot = &mut self.slots[index];
        let request = &slot.job.as_ref().expect("a slot dials for its job").request;
        let dialled = Link::dial(&self.epoll, index as u64, address, &self.settings, request);
        slot.link = Some(dialled.map_err(|error| failed(&error))?);
        Ok(())
    }

    fn finish(&mut self, index: usize, outcome: Result<Recognised, Failure>) {
        let slot = &mut self.slots[index];
        let job = slot.job.take().expect("a job is finished once");
        self.finished.push(FinishedRequest { request: job.request, outcome });
        if slot.link.is_some() { self.idle.push(index) } else { self.vacant.push(index) }
    }

    /// Returns requests whose clients have disconnected, so that their audio isn't held any longer. It searches once
    /// for all clients that left since the last round. A connection with an outstanding response can't be reused.
    fn abandon(&mut self, mut disconnected: Vec<u64>) {
        if disconnected.is_empty() {
            return;
        }
        disconnected.sort_unstable();
        let is_abandoned = |job: &Job| disconnected.binary_search(&job.request.ticket.connection).is_ok();
        let failure = || Failure::new(Kind::ConnectionReset, "the client has left");
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.job.as_ref().is_some_and(is_abandoned) {
                slot.link = None;
                self.finish(index, Err(failure()));
            }
        }
        let (abandoned, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition::<VecDeque<_>, _>(is_abandoned);
        self.waiting = waiting;
        self.finished
            .extend(abandoned.into_iter().map(|job| FinishedRequest { request: job.request, outcome: Err(failure()) }));
        self.start_waiting_jobs();
    }

    /// Fails jobs whose deadline has passed. A connection with an outstanding response can't be reused.
    fn expire(&mut self, now: Instant) {
        while let Some(&(deadline, index, number)) = self.deadlines.front() {
            let slot = &mut self.slots[index];
            let is_running = slot.number == number && slot.job.is_some();
            if is_running && deadline > now {
                break;
            }
            self.deadlines.pop_front();
            if is_running {
                slot.link = None;
                self.finish(index, Err(self.timed_out("no whole answer")));
            }
        }
        while let Some(job) = self.waiting.pop_front_if(|job| job.deadline <= now) {
            let failure = self.timed_out("no free connection to the inference");
            self.finished.push(FinishedRequest { request: job.request, outcome: Err(failure) });
        }
        self.start_waiting_jobs();
    }

    fn timed_out(&self, event: &str) -> Failure {
        Failure::new(Kind::Timeout, format!("{event} within {} ms", self.settings.timeout.as_millis()))
    }
}

fn parse_outcome(status: u16, body: &[u8], frames: u64, cpu_passes: u32) -> Result<Recognised, Failure> {
    match Failure::of_status(status) {
        Some(failure) => Err(failure),
        None => Recognised::parse(body, frames, cpu_passes)
            .map_err(|message| Failure { inference_status: Some(status), ..Failure::new(Kind::ParseError, message) }),
    }
}
