//! One session: one task from the upgrade to the last byte. Sessions share only the state in `gateway`.
//!
//! A session waits for the start message, runs, and closes. While it runs, no task waits for its socket: a wake-up for
//! each of 50 frames per second costs more than all other work, and audio is needed only once per interval. Therefore
//! the socket leaves Tokio's reactor and is read at each tick, and in between often enough to reply to pings and Close
//! frames. [`request`] sends the waiting audio to the inference and its result to the client.

mod request;

use std::{
    io::{self, ErrorKind},
    net,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    select,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use self::request::{PendingRequest, response};
use crate::{
    backlog::Backlog,
    close_reason::CloseReason,
    gateway::Gateway,
    inbox::{Event, Inbox, Violation},
    inference::Connection,
    outbox::Outbox,
    protocol::{Close, Kind, Opcode},
    schedule::Schedule,
    socket::{Socket, with_scratch},
};

/// Time limit for the close handshake, including the bytes that wait before the Close frame.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit for a session's last batch when the gateway stops, without [`LINGER`].
const DRAIN: Duration = Duration::from_millis(2_900);
/// Maximum of reads per visit, of 64 KiB each, so that a client that floods does not block the thread's other sessions.
const MAX_VISIT_READS: usize = 4;

/// The state of one client's session.
pub(crate) struct Session {
    gateway: Arc<Gateway>,
    connection: Connection,
    inbox: Inbox,
    outbox: Outbox,
    backlog: Backlog,
    /// `None` before the start message.
    schedule: Option<Schedule>,
    /// The request in flight. The `Option` enforces the contract's rule of one per session.
    pending: Option<PendingRequest>,
    /// Deadline for the session to end; set when the gateway stops.
    drain: Option<Instant>,
}

impl Session {
    fn new(gateway: Arc<Gateway>) -> Self {
        Self {
            connection: gateway.inference.assign_connection(),
            inbox: Inbox::new(gateway.batch_frames()),
            gateway,
            outbox: Outbox::default(),
            backlog: Backlog::default(),
            schedule: None,
            pending: None,
            drain: None,
        }
    }

    /// Serves a session on the upgraded `socket`, including the close handshake. `early` holds bytes that arrived
    /// together with the upgrade request.
    pub(crate) async fn run(gateway: Arc<Gateway>, socket: TcpStream, early: &[u8], stop: CancellationToken) {
        let mut session = Self::new(gateway);
        let (reason, socket) = match session.open(&socket, early, &stop).await {
            Ok(()) => match socket.into_std() {
                Ok(socket) => (session.serve(&socket, &stop).await, TcpStream::from_std(socket)),
                Err(error) => (CloseReason::Error, Err(error)),
            },
            Err(reason) => (reason, Ok(socket)),
        };
        session.record_end(&reason);
        if let (Some(close), Ok(socket)) = (reason.close(), socket) {
            // The result doesn't matter: the session has ended in any case.
            let _ = timeout(LINGER, session.close_handshake(socket, &close)).await;
        }
    }

    /// Waits for the start message. The socket is still registered with the reactor.
    async fn open(&mut self, socket: &TcpStream, early: &[u8], stop: &CancellationToken) -> Result<(), CloseReason> {
        self.push(early, Instant::now())?;
        while self.schedule.is_none() {
            select! {
                ready = socket.readable() => {
                    ready.map_err(|_| CloseReason::Error)?;
                    self.read(socket)?;
                }
                ready = socket.writable(), if !self.outbox.is_empty() => ready.map_err(|_| CloseReason::Error)?,
                () = stop.cancelled() => return Err(CloseReason::Shutdown),
            }
            self.write(socket)?;
        }
        Ok(())
    }

    /// The session's event loop: responses of the inference, scheduled visits, and the stop of the gateway.
    async fn serve(&mut self, socket: &net::TcpStream, stop: &CancellationToken) -> CloseReason {
        let mut stopped = pin!(stop.cancelled());
        let mut alarm = pin!(sleep_until(self.next_visit(Instant::now())));
        loop {
            let result = select! {
                result = response(&mut self.pending) => {
                    self.complete(result);
                    Ok(())
                }
                () = &mut alarm => {
                    let result = self.visit(socket);
                    alarm.as_mut().reset(self.next_visit(Instant::now()));
                    result
                }
                () = &mut stopped, if self.drain.is_none() => {
                    let result = self.begin_drain(socket);
                    alarm.as_mut().reset(self.next_visit(Instant::now()));
                    result
                }
            };
            if let Err(reason) = result.and_then(|()| self.continue_drain()).and_then(|()| self.write(socket)) {
                return reason;
            }
        }
    }

    /// When the next visit is due.
    fn next_visit(&self, now: Instant) -> Instant {
        let schedule = self.schedule.as_ref().expect("a session that is served has started");
        self.drain.unwrap_or_else(|| schedule.next_visit(now))
    }

    /// Handles the alarm: reads the socket, runs a tick if one is due, and checks the deadlines.
    fn visit(&mut self, socket: &impl Socket) -> Result<(), CloseReason> {
        if self.drain.is_some() {
            return Err(CloseReason::Shutdown);
        }
        let now = Instant::now();
        if self.outbox.is_stalled(now) {
            return Err(CloseReason::SlowConsumer);
        }
        let lateness = self.schedule.as_mut().and_then(|schedule| schedule.tick(now));
        self.read(socket)?;
        if let Some(lateness) = lateness {
            self.tick(lateness);
        }
        Ok(())
    }

    /// Reads available bytes, at most [`MAX_VISIT_READS`] times.
    fn read(&mut self, socket: &impl Socket) -> Result<(), CloseReason> {
        with_scratch(|scratch| {
            for _ in 0..MAX_VISIT_READS {
                match socket.try_read(scratch) {
                    Ok(0) => return Err(CloseReason::Eof),
                    Ok(read) => {
                        self.push(&scratch[..read], Instant::now())?;
                        if read < scratch.len() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return Err(CloseReason::Error),
                }
            }
            Ok(())
        })
    }

    /// Parses bytes that were read at `now`, handles the messages and counts the frames.
    fn push(&mut self, bytes: &[u8], now: Instant) -> Result<(), CloseReason> {
        self.inbox.push(bytes);
        let before = self.inbox.frames();
        let result = self.handle_events(now);
        self.count_read(self.inbox.frames() - before, bytes.len(), now);
        result
    }

    /// Handles the events that the inbox has parsed. Audio stays in the inbox.
    fn handle_events(&mut self, now: Instant) -> Result<(), CloseReason> {
        loop {
            match self.inbox.next().map_err(CloseReason::Violation)? {
                None => return Ok(()),
                Some(Event::Frame) => {}
                Some(Event::Start) => self.start(now),
                Some(Event::Ping(payload)) => self.outbox.push(Opcode::Pong, &payload, now),
                Some(Event::Close(close)) => return Err(CloseReason::Client(close)),
            }
        }
    }

    /// Handles the start message, which was read at `now`.
    fn start(&mut self, now: Instant) {
        self.schedule = Some(self.gateway.schedule(now));
        self.gateway.books.update(|counts| {
            counts.received += 1;
            counts.consumed += 1;
        });
    }

    /// Counts what was read, and drops the oldest frames if more than `max_buffered_frames` wait.
    fn count_read(&mut self, frames: u64, bytes: usize, now: Instant) {
        self.backlog.add(frames, now);
        let excess = self.backlog.waiting().saturating_sub(self.gateway.max_buffered_frames);
        if excess > 0 {
            self.inbox.drop_oldest(excess);
            self.backlog.drop_oldest(excess);
        }
        self.gateway.books.update(|counts| {
            counts.bytes_received += bytes as u64;
            counts.received += frames;
            counts.waiting = counts.waiting + frames - excess;
            counts.drop(Kind::Overflow.name(), excess);
        });
    }

    /// Handles a tick that runs `lateness` after it was due.
    fn tick(&mut self, lateness: Duration) {
        let frames = self.inbox.frames();
        self.gateway.books.update(|counts| {
            counts.lateness.record(lateness);
            match (&self.pending, frames) {
                (Some(_), _) => counts.ticks.skipped += 1,
                (None, 0) => counts.ticks.empty += 1,
                (None, _) => counts.ticks.flushed += 1,
            }
        });
        if self.pending.is_none() {
            self.report_overflow(lateness);
            self.flush(lateness);
        }
    }

    /// Writes waiting bytes, as many as the socket takes.
    fn write(&mut self, socket: &impl Socket) -> Result<(), CloseReason> {
        while !self.outbox.is_empty() {
            match socket.try_write(self.outbox.bytes()) {
                Ok(written) => {
                    self.outbox.advance(written, Instant::now());
                    self.gateway.books.update(|counts| counts.bytes_sent += written as u64);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(CloseReason::Error),
            }
        }
        if self.outbox.is_full() { Err(CloseReason::SlowConsumer) } else { Ok(()) }
    }

    /// Starts the drain when the gateway stops. Bytes that the client has sent by now are still read, later ones are
    /// not.
    fn begin_drain(&mut self, socket: &impl Socket) -> Result<(), CloseReason> {
        self.drain = Some(Instant::now() + DRAIN);
        self.read(socket)
    }

    /// Sends the remaining audio once no request is in flight. Returns `CloseReason::Shutdown` when nothing is left;
    /// does nothing before the stop.
    fn continue_drain(&mut self) -> Result<(), CloseReason> {
        if self.drain.is_none() || self.pending.is_some() {
            return Ok(());
        }
        self.report_overflow(Duration::ZERO);
        self.flush(Duration::ZERO);
        if self.pending.is_some() { Ok(()) } else { Err(CloseReason::Shutdown) }
    }

    /// Moves the session's frames and its connection to their final counters. A request in flight is abandoned.
    fn record_end(&mut self, reason: &CloseReason) {
        let waiting = self.inbox.frames();
        let pending = self.pending.take();
        self.gateway.books.update(|counts| {
            counts.waiting -= waiting;
            counts.drop("closed", waiting);
            if let Some(pending) = &pending {
                let frames = pending.taken.span.frames;
                counts.in_flight -= frames;
                counts.requests_in_flight -= 1;
                counts.abandoned += 1;
                counts.drop("closed", frames);
            }
            if let CloseReason::Violation(Violation { is_message: true, .. }) = reason {
                counts.received += 1;
                counts.drop("protocol", 1);
            }
            counts.open -= 1;
            *counts.closed.entry(reason.label()).or_default() += 1;
        });
    }

    /// Writes the waiting bytes, the Close frame and the end of the stream, then reads and discards what the client
    /// sends. If bytes were left unread, the kernel would reset the connection and the Close frame might be lost.
    async fn close_handshake(mut self, mut socket: TcpStream, close: &Close) -> io::Result<()> {
        let mut bytes = self.outbox.take();
        close.put(&mut bytes);
        let mut remaining = &bytes[..];
        while !remaining.is_empty() {
            let written = socket.write_buf(&mut remaining).await?;
            self.gateway.books.update(|counts| counts.bytes_sent += written as u64);
        }
        socket.shutdown().await?;
        let mut discarded = vec![0; 4 << 10];
        while socket.read(&mut discarded).await? > 0 {}
        Ok(())
    }
}
