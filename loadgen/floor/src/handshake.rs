//! The handshake: connect, a request, an answer. No token is verified, no header read, no key hashed.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use bench_format::histogram::Recorder;
use loadgen_core::{clock::monotonic_ns, trial::sleep_until};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, read, write},
};

use crate::{
    cli::Handshake,
    echo::percentiles,
    end::End,
    ends::Measured,
    report::Figure,
    sockets::{Listening, PATIENCE_NS, Poll, SocketAddr, Target, check_connected},
    window::{Counters, Reading, Window},
};

/// The longest request or answer is shorter, in bytes.
const READ_BUFFER: usize = 8 << 10;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// The listener's place among the connections' indices.
const LISTENER: usize = usize::MAX;

const REQUEST: &str = "GET /wse HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const RESPONSE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A request of this length: what it lacks stands in a header.
fn request(size: u32) -> Vec<u8> {
    let padding = (size as usize).saturating_sub(REQUEST.len() + "Cookie: \r\n\r\n".len());
    format!("{REQUEST}Cookie: {}\r\n\r\n", "x".repeat(padding)).into_bytes()
}

/// An answer of this length: what it lacks follows the head.
fn response(size: u32) -> Vec<u8> {
    let mut bytes = RESPONSE.as_bytes().to_vec();
    bytes.resize((size as usize).max(bytes.len()), b'x');
    bytes
}

/// The end that answers.
pub struct Answerer {
    handshake: Handshake,
    listening: Listening,
    sockets: Vec<OwnedFd>,
}

impl Answerer {
    pub(crate) fn new(handshake: Handshake, listening: Listening) -> Self {
        Self { handshake, listening, sockets: Vec::new() }
    }

    /// Takes what a connection has sent; whether it has its answer now.
    fn answer(&self, index: usize, response: &[u8], buffer: &mut [u8]) -> anyhow::Result<bool> {
        let socket = &self.sockets[index];
        match read(socket, &mut *buffer) {
            Ok(0) => bail!("the client closed a connection before its answer"),
            // Small enough for one segment, so the end of the head comes with its beginning.
            Ok(length) if buffer[..length].ends_with(END_OF_HEAD) => match write(socket, response) {
                Ok(length) if length == response.len() => Ok(true),
                Ok(length) => bail!("a new socket took {length} of {} bytes", response.len()),
                Err(errno) => Err(errno).context("failed to answer"),
            },
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno).context("failed to read a request"),
        }
    }
}

impl End for Answerer {
    fn connect(&mut self) -> anyhow::Result<()> {
        // Connections are the load itself.
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let wanted = u64::from(self.handshake.connections);
        let response = response(self.handshake.response_size);
        let mut buffer = vec![0; READ_BUFFER];
        let mut poll = Poll::new()?;
        poll.add(self.listening.socket(), LISTENER, EventFlags::IN)?;
        sleep_until(start_ns);
        let deadline_ns = start_ns + PATIENCE_NS;
        let mut counters = Counters::default();
        let mut window = Window::until_done();
        while counters.units < wanted {
            let ready = poll.wait(deadline_ns)?;
            if ready == 0 && monotonic_ns() >= deadline_ns {
                bail!("answered {} of {wanted} handshakes in {} s", counters.units, PATIENCE_NS / 1_000_000_000);
            }
            for nth in 0..ready {
                let (index, _) = poll.event(nth);
                if index != LISTENER {
                    counters.units += u64::from(self.answer(index, &response, &mut buffer)?);
                    continue;
                }
                while let Some(socket) = self.listening.accept()? {
                    // Watched like any connection that is to be served, whether or not its request is there already.
                    let index = self.sockets.len();
                    self.sockets.push(socket);
                    counters.units += u64::from(self.answer(index, &response, &mut buffer)?);
                    poll.add(&self.sockets[index], index, EventFlags::IN | EventFlags::ET)?;
                }
            }
        }
        window.end(counters);
        Ok(window.reading())
    }
}

/// The end that asks.
pub struct Opener {
    handshake: Handshake,
    target: Target,
    attempts: Vec<Attempt>,
}

struct Attempt {
    socket: OwnedFd,
    begun_ns: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// Bytes of the answer that are there.
    Waiting(usize),
    Done,
}

impl Opener {
    pub(crate) fn new(handshake: Handshake, address: SocketAddr) -> Self {
        Self { handshake, target: Target::new(address), attempts: Vec::new() }
    }

    fn begin(&mut self, poll: &Poll) -> anyhow::Result<()> {
        let (begun_ns, index) = (monotonic_ns(), self.attempts.len());
        let socket = self.target.begin(index)?;
        // Edge-triggered, so that it need not be told when only answers matter.
        poll.add(&socket, index, EventFlags::IN | EventFlags::OUT | EventFlags::ET)?;
        self.attempts.push(Attempt { socket, begun_ns, stage: Stage::Connecting });
        Ok(())
    }
}

impl Attempt {
    /// Goes on as far as the kernel allows; whether it is done now.
    fn step(&mut self, flags: EventFlags, request: &[u8], answer: usize, buffer: &mut [u8]) -> anyhow::Result<bool> {
        match self.stage {
            Stage::Connecting => {
                check_connected(&self.socket)?;
                match write(&self.socket, request) {
                    Ok(length) if length == request.len() => self.stage = Stage::Waiting(0),
                    Ok(length) => bail!("a new socket took {length} of {} bytes", request.len()),
                    Err(errno) => return Err(errno).context("failed to send a request"),
                }
                Ok(false)
            }
            Stage::Waiting(before) if flags.contains(EventFlags::IN) => match read(&self.socket, &mut *buffer) {
                Ok(0) => bail!("the server closed a connection before it had answered"),
                Ok(length) if before + length < answer => {
                    self.stage = Stage::Waiting(before + length);
                    Ok(false)
                }
                Ok(_) => {
                    self.stage = Stage::Done;
                    Ok(true)
                }
                Err(Errno::AGAIN | Errno::INTR) => Ok(false),
                Err(errno) => Err(errno).context("failed to read an answer"),
            },
            Stage::Waiting(_) | Stage::Done => Ok(false),
        }
    }
}

impl End for Opener {
    fn connect(&mut self) -> anyhow::Result<()> {
        // Connections are the load itself.
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let (wanted, in_flight) = (self.handshake.connections as usize, self.handshake.in_flight as usize);
        let request = request(self.handshake.request_size);
        let answer = response(self.handshake.response_size).len();
        let mut buffer = vec![0; READ_BUFFER];
        let mut response = Recorder::new();
        let mut poll = Poll::new()?;
        sleep_until(start_ns);
        let deadline_ns = start_ns + PATIENCE_NS;
        let mut counters = Counters::default();
        let mut window = Window::until_done();
        while (counters.units as usize) < wanted {
            while self.attempts.len() < wanted.min(counters.units as usize + in_flight) {
                self.begin(&poll)?;
            }
            let ready = poll.wait(deadline_ns)?;
            if ready == 0 && monotonic_ns() >= deadline_ns {
                bail!("{} of {wanted} handshakes in {} s", counters.units, PATIENCE_NS / 1_000_000_000);
            }
            for nth in 0..ready {
                let (index, flags) = poll.event(nth);
                let attempt = &mut self.attempts[index];
                if attempt.step(flags, &request, answer, &mut buffer)? {
                    counters.units += 1;
                    response.record(monotonic_ns().saturating_sub(attempt.begun_ns));
                }
            }
        }
        window.end(counters);
        Ok(Reading { response: Some(response.encode()), ..window.reading() })
    }
}

/// CPU of both ends for each handshake, and how long it took.
pub(crate) fn figures(measured: &Measured) -> Vec<Figure> {
    let cpu = |reading: &Reading| (reading.units > 0).then(|| reading.cpu_ns as f64 / 1e3 / reading.units as f64);
    let Measured { server, client, .. } = measured;
    let rate = (client.duration_ns > 0).then(|| client.units as f64 * 1e9 / client.duration_ns as f64);
    let mut figures = vec![
        Figure { name: "server_cpu", unit: "us/handshake", value: cpu(server) },
        Figure { name: "client_cpu", unit: "us/handshake", value: cpu(client) },
        Figure { name: "rate", unit: "handshakes/s", value: rate },
    ];
    figures.extend(percentiles(["handshake_p50", "handshake_p99"], client.response.as_ref()));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_as_long_as_asked_and_end_as_http_does() {
        for size in [200, 390, 4096] {
            let request = request(size);
            assert_eq!((request.len(), request.ends_with(END_OF_HEAD)), (size as usize, true));
            assert_eq!(request.windows(4).filter(|four| *four == END_OF_HEAD).count(), 1);
        }
        assert_eq!([129, 500].map(|size| response(size).len()), [129, 500]);
        assert!(response(129).ends_with(END_OF_HEAD));
    }

    #[test]
    fn an_answer_in_parts_is_one_handshake() {
        let listening = Listening::plain().unwrap();
        let mut poll = Poll::new().unwrap();
        let handshake = Handshake { connections: 1, in_flight: 1, request_size: 200, response_size: 129 };
        let mut opener = Opener::new(handshake, listening.address());
        opener.begin(&poll).unwrap();
        let server = listening.accept_all(1).unwrap().remove(0);
        let (request, mut buffer) = (request(200), vec![0; READ_BUFFER]);
        let attempt = &mut opener.attempts[0];
        assert!(!attempt.step(EventFlags::OUT, &request, 129, &mut buffer).unwrap());
        for (part, done) in [(&response(129)[..100], false), (&response(129)[100..], true)] {
            write(&server, part).unwrap();
            poll.wait(monotonic_ns() + PATIENCE_NS).unwrap();
            assert_eq!(attempt.step(EventFlags::IN, &request, 129, &mut buffer).unwrap(), done);
        }
        assert_eq!(attempt.stage, Stage::Done);
        drop(server);
        assert!(!attempt.step(EventFlags::IN, &request, 129, &mut buffer).unwrap());
    }

    #[test]
    fn a_connection_that_ends_before_its_answer_is_an_error() {
        let listening = Listening::plain().unwrap();
        let mut poll = Poll::new().unwrap();
        let handshake = Handshake { connections: 1, in_flight: 1, request_size: 200, response_size: 129 };
        let mut opener = Opener::new(handshake, listening.address());
        opener.begin(&poll).unwrap();
        let attempt = &mut opener.attempts[0];
        let (request, mut buffer) = (request(200), vec![0; READ_BUFFER]);
        let server = listening.accept_all(1).unwrap().remove(0);
        attempt.step(EventFlags::OUT, &request, 129, &mut buffer).unwrap();
        // Read in full first: closing with unread bytes would be a reset.
        read(&server, &mut buffer[..]).unwrap();
        drop(server);
        poll.wait(monotonic_ns() + PATIENCE_NS).unwrap();
        let words = attempt.step(EventFlags::IN, &request, 129, &mut buffer).unwrap_err().to_string();
        assert!(words.contains("before it had answered"), "{words}");
    }
}
