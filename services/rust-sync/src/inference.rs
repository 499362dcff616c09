//! The thread that speaks to the inference: requests in, answers out, over kept-alive HTTP/1.1 connections.
//!
//! A request's batch is written from where the session filled it. A connection is dialled when no idle one is left; the one
//! used last is used first. Further requests wait their turn, within their timeout.

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

/// The waker's key in epoll; slots count from 0.
const WAKER: u64 = u64::MAX;
const EVENTS: usize = 1024;
/// Answers are taken at most once in this time, so that many come in one round; requests end the rest, and the answers that
/// are there by then are taken in the same round. An answer to an idle gateway doesn't wait.
const REST: Duration = Duration::from_millis(8);

/// A request that has come back.
#[derive(Debug)]
pub struct Answer {
    /// With the session's ticket and the batch.
    pub request: Request,
    /// What came of it.
    pub outcome: Result<Recognised, Failure>,
}

/// What all inference threads are told.
#[derive(Debug)]
pub struct Settings {
    /// `host:port`.
    pub authority: String,
    /// Passes to ask for.
    pub cpu_passes: u32,
    /// For a request in all, from its tick.
    pub timeout: Duration,
    /// Where the inference is now; empty as long as its name can't be resolved.
    pub addresses: Mutex<Vec<SocketAddr>>,
}

/// Both directions between a WebSocket thread and its inference thread.
#[derive(Debug)]
pub struct Exchange {
    /// To the inference.
    pub requests: Mailbox<Request>,
    /// Connections that ended while a request of theirs was in flight.
    pub abandoned: Mailbox<u64>,
    /// From the inference.
    pub answers: Mailbox<Answer>,
    /// Wakes the inference thread.
    pub inference: Waker,
    /// Wakes the WebSocket thread.
    pub shard: Waker,
    /// Set when no more requests come.
    pub is_over: AtomicBool,
}

impl Exchange {
    /// An exchange with nothing in it.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new() -> std::io::Result<Self> {
        let (inference, shard) = (Waker::new()?, Waker::new()?);
        Ok(Self {
            requests: Mailbox::default(),
            abandoned: Mailbox::default(),
            answers: Mailbox::default(),
            inference,
            shard,
            is_over: AtomicBool::new(false),
        })
    }
}

/// A request under way, or waiting for a connection.
#[derive(Debug)]
struct Job {
    request: Request,
    deadline: Instant,
}

/// The thread's state.
pub struct Inference {
    settings: Arc<Settings>,
    exchange: Arc<Exchange>,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    /// Slots with a connection and no job, the last used on top. The connection may have been closed since.
    idle: Vec<usize>,
    /// Slots with neither.
    vacant: Vec<usize>,
    waiting: VecDeque<Job>,
    /// Deadlines of started jobs, which are in order: slot and the job's number in it.
    deadlines: VecDeque<(Instant, usize, u64)>,
    arrived: Vec<Request>,
    done: Vec<Answer>,
    buffer: Vec<u8>,
    dials: usize,
}

#[derive(Default)]
struct Slot {
    link: Option<Link>,
    job: Option<Job>,
    /// Counts jobs, so that a deadline of an earlier one is known as such.
    number: u64,
}

impl Inference {
    /// The state before the first request.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(settings: Arc<Settings>, exchange: Arc<Exchange>, slots: usize) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, exchange.inference.descriptor(), epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self {
            settings,
            exchange,
            epoll,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            idle: Vec::with_capacity(slots),
            vacant: (0..slots).rev().collect(),
            waiting: VecDeque::new(),
            deadlines: VecDeque::new(),
            arrived: Vec::new(),
            done: Vec::new(),
            buffer: vec![0; response::MAXIMAL_BYTES],
            dials: 0,
        })
    }

    /// Runs until no more requests come.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut round_started = Instant::now();
        while !self.exchange.is_over.load(Ordering::SeqCst) {
            self.exchange.inference.rest_until(round_started + REST);
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
            self.exchange.inference.clear();
            // Asked for before the requests, because it is posted behind them: whose end is known, its request is here.
            let mut left = Vec::new();
            self.exchange.abandoned.take(&mut left);
            self.take_requests();
            self.abandon(left);
            self.expire(Instant::now());
            self.exchange.answers.post(&mut self.done, &self.exchange.shard);
        }
    }

    fn timeout(&self, now: Instant) -> Option<Timespec> {
        let started = self.deadlines.front().map(|(deadline, ..)| *deadline);
        let waiting = self.waiting.front().map(|job| job.deadline);
        let first = started.into_iter().chain(waiting).min()?;
        Some(timespec(first.saturating_duration_since(now)))
    }

    fn take_requests(&mut self) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.exchange.requests.take(&mut arrived);
        let timeout = self.settings.timeout;
        self.waiting.extend(arrived.drain(..).map(|request| Job { deadline: request.sent_at + timeout, request }));
        self.arrived = arrived;
        self.begin_waiting();
    }

    /// Starts what waited longest, as long as there are slots.
    fn begin_waiting(&mut self) {
        while !self.waiting.is_empty()
            && let Some(index) = self.free_slot()
            && let Some(job) = self.waiting.pop_front()
        {
            let slot = &mut self.slots[index];
            slot.number += 1;
            self.deadlines.push_back((job.deadline, index, slot.number));
            let progress = slot.link.as_mut().map(|link| link.begin(&self.settings, &job.request));
            slot.job = Some(job);
            // An answer shows as an event; what shows at once is that the connection is gone, or was never there.
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

    /// Does what a slot's connection allows, until it would have to wait.
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
                Progress::Answered { status, body, reusable } => {
                    let frames = job.request.batch.frames() as u64;
                    let outcome = outcome_of(status, &self.buffer[body], frames, self.settings.cpu_passes);
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
            self.dials += 1;
            addresses.get(self.dials % addresses.len().max(1)).copied()
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
        self.done.push(Answer { request: job.request, outcome });
        if slot.link.is_some() { self.idle.push(index) } else { self.vacant.push(index) }
    }

    /// Gives back requests whose clients have left, so that their audio isn't held any longer. All that left since the last
    /// round are looked for in one go. A connection that owes an answer can't be used again.
    fn abandon(&mut self, mut left: Vec<u64>) {
        if left.is_empty() {
            return;
        }
        left.sort_unstable();
        let has_left = |job: &Job| left.binary_search(&job.request.ticket.connection).is_ok();
        let failure = || Failure::new(Kind::ConnectionReset, "the client has left");
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.job.as_ref().is_some_and(has_left) {
                slot.link = None;
                self.finish(index, Err(failure()));
            }
        }
        let (gone, waiting) = std::mem::take(&mut self.waiting).into_iter().partition::<VecDeque<_>, _>(has_left);
        self.waiting = waiting;
        self.done.extend(gone.into_iter().map(|job| Answer { request: job.request, outcome: Err(failure()) }));
        self.begin_waiting();
    }

    /// Fails what has waited too long. A connection that owes an answer can't be used again.
    fn expire(&mut self, now: Instant) {
        while let Some(&(deadline, index, number)) = self.deadlines.front() {
            let slot = &mut self.slots[index];
            let is_under_way = slot.number == number && slot.job.is_some();
            if is_under_way && deadline > now {
                break;
            }
            self.deadlines.pop_front();
            if is_under_way {
                slot.link = None;
                self.finish(index, Err(self.timed_out("no whole answer")));
            }
        }
        while let Some(job) = self.waiting.pop_front_if(|job| job.deadline <= now) {
            let failure = self.timed_out("no free connection to the inference");
            self.done.push(Answer { request: job.request, outcome: Err(failure) });
        }
        self.begin_waiting();
    }

    fn timed_out(&self, what: &str) -> Failure {
        Failure::new(Kind::Timeout, format!("{what} within {} ms", self.settings.timeout.as_millis()))
    }
}

fn outcome_of(status: u16, body: &[u8], frames: u64, cpu_passes: u32) -> Result<Recognised, Failure> {
    match Failure::of_status(status) {
        Some(failure) => Err(failure),
        None => Recognised::parse(body, frames, cpu_passes)
            .map_err(|message| Failure { inference_status: Some(status), ..Failure::new(Kind::ParseError, message) }),
    }
}
