//! A WebSocket thread: it owns its connections and handles them in rounds.
//!
//! Epoll reports unpredictable events: new sockets, handshakes, start messages, a client that reads again. Once it has
//! started, a session is not watched by epoll any more but visited by the clock ([`Wheel`]). A round handles all
//! pending work and then rests a little, so that under load one wake-up does much work, while an idle gateway still
//! answers at once.

mod close;
mod connection;
mod handshake;
mod read;
mod visit;
mod write;

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll,
    net::SocketFlags,
    rand::{GetRandomFlags, getrandom},
};

use self::connection::Connections;
use crate::{
    inference::FinishedRequest,
    mailbox::timespec,
    metrics::Counters,
    protocol::MAXIMAL_MESSAGE,
    session::{Pool, Request},
    shared::{ShardHandle, Shared, lock},
    wheel::Wheel,
};

/// Epoll keys of the waker and the listener. Keys of connections are smaller.
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const EVENTS: usize = 1024;
/// Shortest time between the starts of two rounds. With 1 000 sessions that is fifteen visits per round. It adds half
/// of itself to the mean lateness of a tick.
const MIN_ROUND_TIME: Duration = Duration::from_millis(5);
/// Maximum of visits in one round, so that handshakes and responses don't wait for a thousand visits.
const VISITS_PER_ROUND: usize = 128;
/// Maximum of sockets accepted in one round.
const ACCEPTS_PER_ROUND: usize = 256;
/// Size of one read in bytes: more than a second of a session's audio, and all that a default receive buffer holds.
const READ_BYTES: usize = 256 << 10;

/// The state of a WebSocket thread.
pub(crate) struct Shard {
    shared: Arc<Shared>,
    handle: Arc<ShardHandle>,
    index: usize,
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    /// Number of sockets accepted so far; the threads get them in turn.
    accepted: usize,
    connections: Connections,
    wheel: Wheel,
    due: VecDeque<u64>,
    pool: Pool,
    /// The read buffer: the incomplete rest of the previous read, then new bytes. All connections share it, so it stays
    /// in the CPU's cache.
    buffer: Vec<u8>,
    /// The buffer in which messages are encoded.
    scratch: Vec<u8>,
    requests: Vec<Request>,
    /// Keys of connections that ended while they had a request in flight.
    abandoned: Vec<u64>,
    responses: Vec<FinishedRequest>,
    random: u64,
    counters: Counters,
    drain_deadline: Option<Instant>,
}

impl Shard {
    /// Creates the state before the first connection. Only the first thread gets the listener.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub(crate) fn new(shared: Arc<Shared>, index: usize, listener: Option<OwnedFd>) -> std::io::Result<Self> {
        let handle = Arc::clone(&shared.handles[index]);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakers = handle.channels.shard.descriptor();
        epoll::add(&epoll, wakers, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        if let Some(listener) = &listener {
            epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        }
        let mut seed = [0; 8];
        getrandom(&mut seed, GetRandomFlags::empty())?;
        Ok(Self {
            wheel: Wheel::new(Instant::now()),
            handle,
            index,
            epoll,
            listener,
            accepted: 0,
            connections: Connections::default(),
            due: VecDeque::new(),
            pool: Pool::default(),
            buffer: vec![0; MAXIMAL_MESSAGE + 16 + READ_BYTES],
            scratch: Vec::with_capacity(4096),
            requests: Vec::new(),
            abandoned: Vec::new(),
            responses: Vec::new(),
            // Must not be 0, because xorshift would then return 0 forever.
            random: u64::from_ne_bytes(seed) | 1,
            counters: Counters::default(),
            drain_deadline: None,
            shared,
        })
    }

    /// Runs until the gateway stops and the last connection has ended.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let round_started = self.wait(&mut events);
            self.counters.rounds += 1;
            for event in events.drain(..) {
                self.handle_epoll_event(&event, round_started);
            }
            self.receive_items(round_started);
            self.visit_due();
            self.stop_if_requested();
            self.post();
            if self.is_finished() {
                break;
            }
            if self.due.is_empty() {
                self.sleep_until(round_started + MIN_ROUND_TIME);
            }
        }
        self.handle.channels.is_closed.store(true, std::sync::atomic::Ordering::SeqCst);
        self.handle.channels.inference.wake();
    }

    /// Publishes the results of a round: requests and abandoned requests to the inference thread, and the counters.
    fn post(&mut self) {
        let channels = &self.handle.channels;
        channels.requests.post(&mut self.requests, &channels.inference);
        // Posted after the requests, so that the inference thread always knows an abandoned request.
        channels.abandoned.post(&mut self.abandoned, &channels.inference);
        *lock(&self.handle.counters) = self.counters;
    }

    /// Rests until `time`, and handles responses that arrive meanwhile: once per round of the inference thread, which
    /// this thread's own requests cause. New requests wait until the rest is over, so that the two threads don't wake
    /// each other all the time.
    fn sleep_until(&mut self, time: Instant) {
        while self.handle.channels.shard.sleep_until(time) {
            self.counters.rounds += 1;
            self.receive_items(Instant::now());
            *lock(&self.handle.counters) = self.counters;
        }
    }

    /// Waits for events or the next visit; not at all if visits are left over. Returns the time of the wake-up.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> Instant {
        let now = Instant::now();
        let next = if self.due.is_empty() { self.wheel.next_due() } else { Some(now) };
        let timeout =
            next.into_iter().chain(self.drain_deadline).min().map(|due| timespec(due.saturating_duration_since(now)));
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Instant::now(),
            Err(error) => panic!("epoll refuses to wait: {error}"),
        }
    }

    fn handle_epoll_event(&mut self, event: &epoll::Event, now: Instant) {
        match event.data.u64() {
            WAKER => {}
            LISTENER => self.accept(now),
            key => self.handle_readiness(key, event.flags, now),
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let Some(listener) = &self.listener else { return };
            // Without file descriptors, connections wait in the backlog; the next round tries again.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = rustix::net::accept_with(listener, flags) else { return };
            let index = self.accepted % self.shared.handles.len();
            self.accepted += 1;
            if index == self.index {
                self.register(socket, now);
            } else {
                let handle = &self.shared.handles[index];
                handle.sockets.post(&mut vec![socket], &handle.channels.shard);
            }
        }
    }

    /// Handles items from other threads: accepted sockets and responses.
    fn receive_items(&mut self, now: Instant) {
        self.handle.channels.shard.clear();
        let mut sockets = Vec::new();
        self.handle.sockets.take(&mut sockets);
        for socket in sockets {
            self.register(socket, now);
        }
        let mut responses = std::mem::take(&mut self.responses);
        self.handle.channels.responses.take(&mut responses);
        for response in responses.drain(..) {
            self.handle_response(response);
        }
        self.responses = responses;
    }

    fn visit_due(&mut self) {
        self.wheel.take_due(Instant::now(), &mut self.due);
        for _ in 0..VISITS_PER_ROUND {
            let Some(key) = self.due.pop_front() else { break };
            self.visit(key, Instant::now());
        }
    }

    /// Returns a random duration from 0 to `limit`, both inclusive.
    fn random_time(&mut self, limit: Duration) -> Duration {
        // xorshift64. It only spreads sessions and needs no cryptographic quality.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_nanos(self.random % (limit.as_nanos() as u64 + 1))
    }
}
