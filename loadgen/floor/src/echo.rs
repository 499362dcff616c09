//! The echo: the server writes each message back. With a rate it is an open loop with fixed due times; without a rate,
//! each connection sends when its last message has come back.

use std::{collections::VecDeque, os::fd::OwnedFd};

use anyhow::{Context, bail};
use bench_format::histogram::Recorder;
use loadgen_core::{
    clock::monotonic_ns,
    schedule::{ConstantRate, Schedule, Share},
    trial::sleep_until,
};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, read, write},
    net::{Shutdown, shutdown},
};

use crate::{
    figure::{Figure, percentiles},
    load::Echo,
    processes::Measured,
    side::LoadSide,
    sockets::{Listening, Poll, SocketAddr, Target},
    window::{Counters, Reading, Window},
};

/// Largest read, in bytes.
const READ_BUFFER: usize = 64 << 10;
/// In an open loop, replies are read after at most this many due messages.
const DUE_PER_TURN: usize = 64;
/// Longest time for the last replies after the window, in nanoseconds.
const DRAIN_NS: u64 = 10_000_000_000;

/// The side that writes back.
pub struct EchoServer {
    echo: Echo,
    listening: Listening,
    sockets: Vec<OwnedFd>,
}

impl EchoServer {
    pub(crate) fn new(echo: Echo, listening: Listening) -> Self {
        Self { echo, listening, sockets: Vec::new() }
    }
}

impl LoadSide for EchoServer {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.sockets = self.listening.accept_all(self.echo.connections)?;
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let mut poll = Poll::watching(&self.sockets, EventFlags::IN)?;
        let mut buffer = vec![0; READ_BUFFER];
        let mut counters = Counters::default();
        let mut window = Window::new(start_ns, self.echo.timing);
        let (_, to_ns) = window.edges_ns();
        let (mut over, mut client_done) = (false, false);
        // Messages in flight at the end of the window still need their replies.
        while !over || !client_done {
            let now = monotonic_ns();
            over = over || window.is_over(now, counters);
            if now >= to_ns + DRAIN_NS {
                bail!("the client was not done {} s after the window", DRAIN_NS / 1_000_000_000);
            }
            // A process that wakes late handles both edges in a row, without waiting in between.
            let until_ns = if over { to_ns + DRAIN_NS } else { window.next_edge_ns() };
            for nth in 0..poll.wait(until_ns)? {
                client_done |=
                    self.write_back(poll.event(nth).0, &mut buffer, &mut counters)? == ReadOutcome::EndOfStream;
            }
            if client_done && monotonic_ns() < to_ns {
                bail!("the client closed a connection before its time");
            }
        }
        Ok(window.reading())
    }
}

/// The result of reading from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadOutcome {
    Data,
    /// The client has all its replies and has shut down its side.
    EndOfStream,
}

impl EchoServer {
    #[inline]
    fn write_back(&self, index: usize, buffer: &mut [u8], counters: &mut Counters) -> anyhow::Result<ReadOutcome> {
        let socket = &self.sockets[index];
        let length = match read(socket, &mut *buffer) {
            Ok(0) => return Ok(ReadOutcome::EndOfStream),
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(ReadOutcome::Data),
            Err(errno) => return Err(errno).context("failed to read"),
        };
        counters.calls += 1;
        counters.bytes += length as u64;
        write_all_or_fail(socket, &buffer[..length])?;
        Ok(ReadOutcome::Data)
    }
}

/// Writes all bytes or fails: no side may let replies pile up here.
fn write_all_or_fail(socket: &OwnedFd, bytes: &[u8]) -> anyhow::Result<()> {
    match write(socket, bytes) {
        Ok(length) if length == bytes.len() => Ok(()),
        Ok(length) => bail!("a socket took {length} of {} bytes; lower --rate or --size", bytes.len()),
        Err(Errno::AGAIN) => bail!("a socket took none of {} bytes; lower --rate or --size", bytes.len()),
        Err(errno) => Err(errno).context("failed to write"),
    }
}

/// The side that sends and waits for the replies.
pub struct EchoClient {
    echo: Echo,
    target: Target,
    sockets: Vec<OwnedFd>,
}

impl EchoClient {
    pub(crate) fn new(echo: Echo, address: SocketAddr) -> Self {
        Self { echo, target: Target::new(address), sockets: Vec::new() }
    }
}

impl LoadSide for EchoClient {
    fn connect(&mut self) -> anyhow::Result<()> {
        self.sockets = self.target.connect_all(self.echo.connections)?;
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let poll = Poll::watching(&self.sockets, EventFlags::IN)?;
        let reading = ClientState::new(&self.echo, &self.sockets, poll, start_ns).run(start_ns)?;
        // Signals the server that there is no message left to send; the connection stays open.
        shutdown(&self.sockets[0], Shutdown::Write).context("failed to shut down a connection")?;
        Ok(reading)
    }
}

/// The state of the client under load.
struct ClientState<'a> {
    sockets: &'a [OwnedFd],
    poll: Poll,
    window: Window,
    counters: Counters,
    message: Vec<u8>,
    buffer: Vec<u8>,
    flights: Vec<Flight>,
    /// Number of messages without a reply.
    outstanding: u64,
    schedule: Option<Schedule>,
    response: Recorder,
    delay: Recorder,
}

/// The messages in flight on one connection.
#[derive(Clone, Default)]
struct Flight {
    /// Due times of unanswered messages, in order.
    due_ns: VecDeque<u64>,
    /// Bytes of the next reply received so far.
    bytes: usize,
}

impl<'a> ClientState<'a> {
    fn new(echo: &Echo, sockets: &'a [OwnedFd], poll: Poll, start_ns: u64) -> Self {
        let alone = Share { index: 0, of: 1 };
        Self {
            sockets,
            poll,
            window: Window::new(start_ns, echo.timing),
            counters: Counters::default(),
            message: vec![b'x'; echo.size as usize],
            buffer: vec![0; READ_BUFFER],
            flights: vec![Flight::default(); sockets.len()],
            outstanding: 0,
            schedule: echo.rate.map(|rate| Schedule::Constant(ConstantRate::new(rate, alone))),
            response: Recorder::new(),
            delay: Recorder::new(),
        }
    }

    fn run(mut self, start_ns: u64) -> anyhow::Result<Reading> {
        sleep_until(start_ns);
        let (_, to_ns) = self.window.edges_ns();
        let mut next_socket = 0;
        let mut due = self.next_due(start_ns);
        if due.is_none() {
            for index in 0..self.sockets.len() {
                self.send(index, monotonic_ns())?;
            }
        }
        let mut over = false;
        loop {
            let now = monotonic_ns();
            over = over || self.window.is_over(now, self.counters);
            // Every due message is sent, however late, and answered.
            if over && self.outstanding == 0 && due.is_none_or(|due_ns| due_ns >= to_ns) {
                break;
            }
            if now >= to_ns + DRAIN_NS {
                bail!("{} messages were not echoed within {} s", self.outstanding, DRAIN_NS / 1_000_000_000);
            }
            let mut burst = 0;
            while let Some(due_ns) = due.filter(|due_ns| *due_ns <= now && *due_ns < to_ns && burst < DUE_PER_TURN) {
                self.send(next_socket, due_ns)?;
                next_socket = (next_socket + 1) % self.sockets.len();
                due = self.next_due(start_ns);
                burst += 1;
            }
            let edge_ns = if over { to_ns + DRAIN_NS } else { self.window.next_edge_ns() };
            let due_ns = due.filter(|due_ns| *due_ns < to_ns).unwrap_or(u64::MAX);
            for nth in 0..self.poll.wait(edge_ns.min(due_ns))? {
                self.receive(self.poll.event(nth).0, to_ns)?;
            }
        }
        let mut reading = self.window.reading();
        reading.response = Some(self.response.encode());
        reading.delay = self.schedule.is_some().then(|| self.delay.encode());
        Ok(reading)
    }

    fn next_due(&mut self, start_ns: u64) -> Option<u64> {
        self.schedule.as_mut().map(|schedule| start_ns + schedule.next_due_ns())
    }

    fn in_window(&self, moment_ns: u64) -> bool {
        let (from_ns, to_ns) = self.window.edges_ns();
        (from_ns..to_ns).contains(&moment_ns)
    }

    fn send(&mut self, index: usize, due_ns: u64) -> anyhow::Result<()> {
        write_all_or_fail(&self.sockets[index], &self.message)?;
        if self.schedule.is_some() && self.in_window(due_ns) {
            self.delay.record(monotonic_ns().saturating_sub(due_ns));
        }
        self.flights[index].due_ns.push_back(due_ns);
        self.outstanding += 1;
        Ok(())
    }

    fn receive(&mut self, index: usize, to_ns: u64) -> anyhow::Result<()> {
        let length = match read(&self.sockets[index], &mut self.buffer[..]) {
            Ok(0) => bail!("the server closed a connection before its time"),
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno).context("failed to read"),
        };
        let now = monotonic_ns();
        self.counters.calls += 1;
        self.counters.bytes += length as u64;
        self.flights[index].bytes += length;
        while self.flights[index].bytes >= self.message.len() {
            self.flights[index].bytes -= self.message.len();
            let Some(due_ns) = self.flights[index].due_ns.pop_front() else {
                bail!("an echo of a message that was not sent")
            };
            self.outstanding -= 1;
            self.counters.units += 1;
            if self.in_window(due_ns) {
                self.response.record(now.saturating_sub(due_ns));
            }
            if self.schedule.is_none() && now < to_ns {
                self.send(index, now)?;
            }
        }
        Ok(())
    }
}

/// CPU time of both sides per message that came back in the window, and the response time.
pub(crate) fn figures(measured: &Measured) -> Vec<Figure> {
    let Measured { server, client, .. } = measured;
    let messages = client.units as f64;
    let cpu = |reading: &Reading| (client.units > 0).then(|| reading.cpu_ns as f64 / messages);
    let rate = (client.duration_ns > 0).then(|| messages * 1e9 / client.duration_ns as f64);
    let mut figures = vec![
        Figure { name: "server_cpu", unit: "ns/message", value: cpu(server) },
        Figure { name: "client_cpu", unit: "ns/message", value: cpu(client) },
        Figure { name: "rate", unit: "messages/s", value: rate },
    ];
    let replies = client.response.as_ref().map(|response| (response.count + response.overflow) as f64);
    figures.push(Figure { name: "answered", unit: "messages", value: replies });
    figures.extend(percentiles(["response_p50", "response_p99"], client.response.as_ref()));
    figures.extend(
        client.delay.as_ref().into_iter().flat_map(|delay| percentiles(["delay_p50", "delay_p99"], Some(delay))),
    );
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use process_usage::KernelMemory;

    #[test]
    fn the_cpu_of_both_sides_is_divided_by_the_echoed_messages() {
        let client = Reading { duration_ns: 1_000_000_000, cpu_ns: 800, units: 4, ..Reading::default() };
        let server = Reading { cpu_ns: 400, units: 0, ..Reading::default() };
        let (kernel_before, kernel_open) = (KernelMemory::default(), KernelMemory::default());
        let figures = figures(&Measured { server, client, kernel_before, kernel_open });
        let values: Vec<_> = figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [Some(100.0), Some(200.0), Some(4.0), None, None, None]);
    }
}
