//! One session, from its upgrade to its last byte: one task, nothing shared but the books.
//!
//! A session opens, runs, and says farewell. While it runs nobody waits for its socket: a wake-up for each of 50 frames
//! per second costs more than all the rest, and audio is wanted once per interval. So the socket leaves tokio's reactor,
//! is read when its tick comes, and in between often enough for pings and closes. [`flight`] takes what waits to the
//! inference, and its answer to the client.

mod flight;

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

use self::flight::{Flight, answer};
use crate::{
    backlog::Backlog,
    end::End,
    gateway::Gateway,
    inbox::{Event, Inbox, Violation},
    inference::Lane,
    outbox::Outbox,
    protocol::{Close, Kind, Opcode},
    schedule::Schedule,
    socket::{Socket, with_scratch},
};

/// How long a violation, a close and the end of a drained session may take to reach the client.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a session may take to end by itself when the gateway stops, without the farewell.
const DRAIN: Duration = Duration::from_millis(2_900);
/// Reads of one visit at most, of 64 KiB each: a client that floods doesn't keep the thread from others.
const VISIT_READS: usize = 4;

/// One session.
pub(crate) struct Session {
    gateway: Arc<Gateway>,
    lane: Lane,
    inbox: Inbox,
    outbox: Outbox,
    backlog: Backlog,
    /// Present from the start message on.
    schedule: Option<Schedule>,
    /// At most one request: there is no place for another.
    flight: Option<Flight>,
    /// By when the session must have ended, once the gateway stops.
    drain: Option<Instant>,
}

impl Session {
    fn new(gateway: Arc<Gateway>) -> Self {
        Self {
            lane: gateway.inference.lane(),
            inbox: Inbox::new(gateway.batch_frames()),
            gateway,
            outbox: Outbox::default(),
            backlog: Backlog::default(),
            schedule: None,
            flight: None,
            drain: None,
        }
    }

    /// Serves a session on `socket`, which was upgraded, until it has ended and its client knows. `early` are bytes that
    /// came with the request for the upgrade.
    pub(crate) async fn run(gateway: Arc<Gateway>, socket: TcpStream, early: &[u8], stop: CancellationToken) {
        let mut session = Self::new(gateway);
        let (end, socket) = match session.open(&socket, early, &stop).await {
            Ok(()) => match socket.into_std() {
                Ok(socket) => (session.serve(&socket, &stop).await, TcpStream::from_std(socket)),
                Err(error) => (End::Error, Err(error)),
            },
            Err(end) => (end, Ok(socket)),
        };
        session.account(&end);
        if let (Some(close), Ok(socket)) = (end.close(), socket) {
            // However it goes, nothing of the session is left to do.
            let _ = timeout(FAREWELL, session.farewell(socket, &close)).await;
        }
    }

    /// Waits for the start message.
    async fn open(&mut self, socket: &TcpStream, early: &[u8], stop: &CancellationToken) -> Result<(), End> {
        self.push(early, Instant::now())?;
        while self.schedule.is_none() {
            select! {
                ready = socket.readable() => {
                    ready.map_err(|_| End::Error)?;
                    self.read(socket)?;
                }
                ready = socket.writable(), if !self.outbox.is_empty() => ready.map_err(|_| End::Error)?,
                () = stop.cancelled() => return Err(End::Shutdown),
            }
            self.write(socket)?;
        }
        Ok(())
    }

    /// The session's loop: one event, and what follows from it.
    async fn serve(&mut self, socket: &net::TcpStream, stop: &CancellationToken) -> End {
        let mut stopped = pin!(stop.cancelled());
        let mut alarm = pin!(sleep_until(self.wake(Instant::now())));
        loop {
            let done = select! {
                answer = answer(&mut self.flight) => {
                    self.land(answer);
                    Ok(())
                }
                () = &mut alarm => {
                    let done = self.visit(socket);
                    alarm.as_mut().reset(self.wake(Instant::now()));
                    done
                }
                () = &mut stopped, if self.drain.is_none() => {
                    let done = self.begin_drain(socket);
                    alarm.as_mut().reset(self.wake(Instant::now()));
                    done
                }
            };
            if let Err(end) = done.and_then(|()| self.continue_drain()).and_then(|()| self.write(socket)) {
                return end;
            }
        }
    }

    /// When the session is to be visited next.
    fn wake(&self, now: Instant) -> Instant {
        let schedule = self.schedule.as_ref().expect("a session that is served has started");
        self.drain.unwrap_or_else(|| schedule.wake(now))
    }

    /// Something is due: a look at the socket, a tick, or the end of patience.
    fn visit(&mut self, socket: &impl Socket) -> Result<(), End> {
        if self.drain.is_some() {
            return Err(End::Shutdown);
        }
        let now = Instant::now();
        if self.outbox.is_stalled(now) {
            return Err(End::SlowConsumer);
        }
        let lateness = self.schedule.as_mut().and_then(|schedule| schedule.tick(now));
        self.read(socket)?;
        if let Some(lateness) = lateness {
            self.tick(lateness);
        }
        Ok(())
    }

    /// Reads what the socket has, up to a limit.
    fn read(&mut self, socket: &impl Socket) -> Result<(), End> {
        with_scratch(|scratch| {
            for _ in 0..VISIT_READS {
                match socket.try_read(scratch) {
                    Ok(0) => return Err(End::Eof),
                    Ok(read) => {
                        self.push(&scratch[..read], Instant::now())?;
                        if read < scratch.len() {
                            break;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return Err(End::Error),
                }
            }
            Ok(())
        })
    }

    /// Takes bytes that were read at `now`, and acts on what they say.
    fn push(&mut self, bytes: &[u8], now: Instant) -> Result<(), End> {
        self.inbox.push(bytes);
        let before = self.inbox.frames();
        let end = self.understand(now);
        self.admit(self.inbox.frames() - before, bytes.len(), now);
        end
    }

    /// Acts on what the client said; its audio stays in the inbox.
    fn understand(&mut self, now: Instant) -> Result<(), End> {
        loop {
            match self.inbox.next().map_err(End::Violation)? {
                None => return Ok(()),
                Some(Event::Frame) => {}
                Some(Event::Start) => self.start(now),
                Some(Event::Ping(payload)) => self.outbox.put(Opcode::Pong, &payload, now),
                Some(Event::Close(close)) => return Err(End::Client(close)),
            }
        }
    }

    /// The client said start, at `now`.
    fn start(&mut self, now: Instant) {
        self.schedule = Some(self.gateway.schedule(now));
        self.gateway.books.with(|counts| {
            counts.received += 1;
            counts.consumed += 1;
        });
    }

    /// Books what was read, and drops the oldest frames if too many wait now.
    fn admit(&mut self, frames: u64, bytes: usize, now: Instant) {
        self.backlog.arrived(frames, now);
        let excess = self.backlog.waiting().saturating_sub(self.gateway.max_buffered_frames);
        if excess > 0 {
            self.inbox.drop_oldest(excess);
            self.backlog.overflow(excess);
        }
        self.gateway.books.with(|counts| {
            counts.bytes_received += bytes as u64;
            counts.received += frames;
            counts.waiting = counts.waiting + frames - excess;
            counts.drop(Kind::Overflow.name(), excess);
        });
    }

    /// A tick that ran so late.
    fn tick(&mut self, lateness: Duration) {
        let frames = self.inbox.frames();
        self.gateway.books.with(|counts| {
            counts.lateness.record(lateness);
            match (&self.flight, frames) {
                (Some(_), _) => counts.ticks.skipped += 1,
                (None, 0) => counts.ticks.empty += 1,
                (None, _) => counts.ticks.flushed += 1,
            }
        });
        if self.flight.is_none() {
            self.report_overflow(lateness);
            self.flush(lateness);
        }
    }

    /// Writes what waits, as far as the socket takes it.
    fn write(&mut self, socket: &impl Socket) -> Result<(), End> {
        while !self.outbox.is_empty() {
            match socket.try_write(self.outbox.bytes()) {
                Ok(written) => {
                    self.outbox.advance(written, Instant::now());
                    self.gateway.books.with(|counts| counts.bytes_sent += written as u64);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(End::Error),
            }
        }
        if self.outbox.is_full() { Err(End::SlowConsumer) } else { Ok(()) }
    }

    /// The gateway stops: what the client has sent by now still counts, and nothing after it.
    fn begin_drain(&mut self, socket: &impl Socket) -> Result<(), End> {
        self.drain = Some(Instant::now() + DRAIN);
        self.read(socket)
    }

    /// What a session still has to do once the gateway stops.
    fn continue_drain(&mut self) -> Result<(), End> {
        if self.drain.is_none() || self.flight.is_some() {
            return Ok(());
        }
        self.report_overflow(Duration::ZERO);
        self.flush(Duration::ZERO);
        if self.flight.is_some() { Ok(()) } else { Err(End::Shutdown) }
    }

    /// Closes the books of the session.
    fn account(&mut self, end: &End) {
        let waiting = self.inbox.frames();
        let flight = self.flight.take();
        self.gateway.books.with(|counts| {
            counts.waiting -= waiting;
            counts.drop("closed", waiting);
            if let Some(flight) = &flight {
                let frames = flight.taken.span.frames;
                counts.in_flight -= frames;
                counts.requests_in_flight -= 1;
                counts.abandoned += 1;
                counts.drop("closed", frames);
            }
            if let End::Violation(Violation { whole_message: true, .. }) = end {
                counts.received += 1;
                counts.drop("protocol", 1);
            }
            counts.open -= 1;
            *counts.closed.entry(end.reason()).or_default() += 1;
        });
    }

    /// Sends the close frame behind what still waits, and the end of the stream behind that; then throws away what
    /// comes: bytes left unread would make the kernel reset the connection, and the close frame might be lost.
    async fn farewell(mut self, mut socket: TcpStream, close: &Close) -> io::Result<()> {
        let mut bytes = self.outbox.take();
        close.put(&mut bytes);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written = socket.write_buf(&mut rest).await?;
            self.gateway.books.with(|counts| counts.bytes_sent += written as u64);
        }
        socket.shutdown().await?;
        let mut scrap = vec![0; 4 << 10];
        while socket.read(&mut scrap).await? > 0 {}
        Ok(())
    }
}
