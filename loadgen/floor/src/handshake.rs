//! The handshake: connect, a request, a response, and optionally a first message and its response. No token is
//! verified, no header parsed, no key hashed.

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use bench_format::histogram::Recorder;
use loadgen_core::{clock::monotonic_ns, trial::sleep_until};
use rustix::{
    event::epoll::EventFlags,
    io::{Errno, read, write},
};

use crate::{
    figure::{Figure, percentiles},
    load::Handshake,
    processes::Measured,
    side::LoadSide,
    sockets::{Listening, Poll, SocketAddr, TIMEOUT_NS, Target, check_connected},
    window::{Counters, Reading, Window},
};

/// Size of the read buffer, in bytes; every request and response is shorter.
const READ_BUFFER: usize = 8 << 10;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// The listener's index among the indices of connections.
const LISTENER: usize = usize::MAX;

const REQUEST: &str = "GET /wse HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const RESPONSE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A request of this length, padded in a header.
fn request(size: u32) -> Vec<u8> {
    let padding = (size as usize).saturating_sub(REQUEST.len() + "Cookie: \r\n\r\n".len());
    format!("{REQUEST}Cookie: {}\r\n\r\n", "x".repeat(padding)).into_bytes()
}

/// A response of this length, padded after its head.
fn response(size: u32) -> Vec<u8> {
    let mut bytes = RESPONSE.as_bytes().to_vec();
    bytes.resize((size as usize).max(bytes.len()), b'x');
    bytes
}

/// The bytes that are sent.
struct Wire {
    request: Vec<u8>,
    response: Vec<u8>,
    /// Empty without a second round trip.
    hello: Vec<u8>,
    hello_response: Vec<u8>,
}

impl Wire {
    fn of(handshake: &Handshake) -> Self {
        Self {
            request: request(handshake.request_size),
            response: response(handshake.response_size),
            hello: vec![b'h'; handshake.hello_size as usize],
            hello_response: vec![b'h'; handshake.hello_response_size as usize],
        }
    }
}

/// Sends all bytes; a new socket has room for them.
fn send(socket: &OwnedFd, bytes: &[u8]) -> anyhow::Result<()> {
    match write(socket, bytes) {
        Ok(length) if length == bytes.len() => Ok(()),
        Ok(length) => bail!("a new socket took {length} of {} bytes", bytes.len()),
        Err(errno) => Err(errno).context("failed to write to a new socket"),
    }
}

/// The side that responds.
pub struct HandshakeResponder {
    handshake: Handshake,
    listening: Listening,
    sockets: Vec<(OwnedFd, Awaited)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Request,
    /// Number of bytes of the first message received so far.
    Hello(usize),
    Nothing,
}

impl HandshakeResponder {
    pub(crate) fn new(handshake: Handshake, listening: Listening) -> Self {
        Self { handshake, listening, sockets: Vec::new() }
    }

    /// Handles data from a connection; returns whether the connection now has its last response.
    fn respond(&mut self, index: usize, wire: &Wire, buffer: &mut [u8]) -> anyhow::Result<bool> {
        let (socket, awaited) = &mut self.sockets[index];
        let length = match read(&*socket, &mut *buffer) {
            Ok(0) if *awaited != Awaited::Nothing => bail!("the client closed a connection before its answer"),
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno).context("failed to read a request"),
        };
        match *awaited {
            // A request fits into one segment, so the end of its head arrives with its beginning.
            Awaited::Request if buffer[..length].ends_with(END_OF_HEAD) => {
                send(socket, &wire.response)?;
                *awaited = if wire.hello.is_empty() { Awaited::Nothing } else { Awaited::Hello(0) };
            }
            Awaited::Hello(received) if received + length < wire.hello.len() => {
                *awaited = Awaited::Hello(received + length)
            }
            Awaited::Hello(_) => {
                send(socket, &wire.hello_response)?;
                *awaited = Awaited::Nothing;
            }
            Awaited::Request | Awaited::Nothing => return Ok(false),
        }
        Ok(*awaited == Awaited::Nothing)
    }
}

impl LoadSide for HandshakeResponder {
    fn connect(&mut self) -> anyhow::Result<()> {
        // Opening connections is the load itself.
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let requested = u64::from(self.handshake.connections);
        let wire = Wire::of(&self.handshake);
        let mut buffer = vec![0; READ_BUFFER];
        let mut poll = Poll::new()?;
        poll.add(self.listening.socket(), LISTENER, EventFlags::IN)?;
        sleep_until(start_ns);
        let deadline_ns = start_ns + TIMEOUT_NS;
        let mut counters = Counters::default();
        let mut window = Window::until_done();
        while counters.units < requested {
            let ready = poll.wait(deadline_ns)?;
            if ready == 0 && monotonic_ns() >= deadline_ns {
                bail!("answered {} of {requested} handshakes in {} s", counters.units, TIMEOUT_NS / 1_000_000_000);
            }
            for nth in 0..ready {
                let (index, _) = poll.event(nth);
                if index != LISTENER {
                    counters.units += u64::from(self.respond(index, &wire, &mut buffer)?);
                    continue;
                }
                while let Some(socket) = self.listening.accept()? {
                    // Watched like any served connection, even if its request has arrived already.
                    let index = self.sockets.len();
                    self.sockets.push((socket, Awaited::Request));
                    counters.units += u64::from(self.respond(index, &wire, &mut buffer)?);
                    poll.add(&self.sockets[index].0, index, EventFlags::IN | EventFlags::ET)?;
                }
            }
        }
        window.end(counters);
        Ok(window.reading())
    }
}

/// The side that opens connections.
pub struct Opener {
    handshake: Handshake,
    target: Target,
    attempts: Vec<Attempt>,
}

struct Attempt {
    socket: OwnedFd,
    started_ns: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// Number of bytes of the response received so far.
    AwaitingResponse(usize),
    /// Number of bytes of the response to the first message received so far.
    AwaitingHelloResponse(usize),
    Done,
}

impl Opener {
    pub(crate) fn new(handshake: Handshake, address: SocketAddr) -> Self {
        Self { handshake, target: Target::new(address), attempts: Vec::new() }
    }

    fn start_attempt(&mut self, poll: &Poll) -> anyhow::Result<()> {
        let (started_ns, index) = (monotonic_ns(), self.attempts.len());
        let socket = self.target.start(index)?;
        // Edge-triggered, so that the registration needn't change when only responses matter.
        poll.add(&socket, index, EventFlags::IN | EventFlags::OUT | EventFlags::ET)?;
        self.attempts.push(Attempt { socket, started_ns, stage: Stage::Connecting });
        Ok(())
    }
}

impl Attempt {
    /// Continues as far as the kernel allows; returns whether the stage has changed.
    fn advance(&mut self, flags: EventFlags, wire: &Wire, buffer: &mut [u8]) -> anyhow::Result<bool> {
        let before = self.stage;
        match before {
            Stage::Connecting => {
                check_connected(&self.socket)?;
                send(&self.socket, &wire.request)?;
                self.stage = Stage::AwaitingResponse(0);
            }
            Stage::AwaitingResponse(_) | Stage::AwaitingHelloResponse(_) if flags.contains(EventFlags::IN) => {
                self.stage = match (before, self.read(buffer)?) {
                    (Stage::AwaitingResponse(received), length) if received + length < wire.response.len() => {
                        Stage::AwaitingResponse(received + length)
                    }
                    (Stage::AwaitingResponse(_), _) if !wire.hello.is_empty() => {
                        send(&self.socket, &wire.hello)?;
                        Stage::AwaitingHelloResponse(0)
                    }
                    (Stage::AwaitingHelloResponse(received), length)
                        if received + length < wire.hello_response.len() =>
                    {
                        Stage::AwaitingHelloResponse(received + length)
                    }
                    _ => Stage::Done,
                };
            }
            Stage::AwaitingResponse(_) | Stage::AwaitingHelloResponse(_) | Stage::Done => {}
        }
        Ok(self.stage != before)
    }

    /// Number of bytes read; 0 if none were there.
    fn read(&self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        match read(&self.socket, buffer) {
            Ok(0) => bail!("the server closed a connection before it had answered"),
            Ok(length) => Ok(length),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno).context("failed to read an answer"),
        }
    }
}

impl LoadSide for Opener {
    fn connect(&mut self) -> anyhow::Result<()> {
        // Opening connections is the load itself.
        Ok(())
    }

    fn run(&mut self, start_ns: u64) -> anyhow::Result<Reading> {
        let (requested, in_flight) = (self.handshake.connections as usize, self.handshake.in_flight as usize);
        let wire = Wire::of(&self.handshake);
        // The stage at which a service would have reported that it is ready. What follows isn't handshake time.
        let ready_stage = if wire.hello.is_empty() { Stage::Done } else { Stage::AwaitingHelloResponse(0) };
        let mut buffer = vec![0; READ_BUFFER];
        let mut response = Recorder::new();
        let mut poll = Poll::new()?;
        sleep_until(start_ns);
        let deadline_ns = start_ns + TIMEOUT_NS;
        let mut counters = Counters::default();
        let mut window = Window::until_done();
        while (counters.units as usize) < requested {
            while self.attempts.len() < requested.min(counters.units as usize + in_flight) {
                self.start_attempt(&poll)?;
            }
            let ready = poll.wait(deadline_ns)?;
            if ready == 0 && monotonic_ns() >= deadline_ns {
                bail!("{} of {requested} handshakes in {} s", counters.units, TIMEOUT_NS / 1_000_000_000);
            }
            for nth in 0..ready {
                let (index, flags) = poll.event(nth);
                let attempt = &mut self.attempts[index];
                if !attempt.advance(flags, &wire, &mut buffer)? {
                    continue;
                }
                counters.units += u64::from(attempt.stage == Stage::Done);
                if attempt.stage == ready_stage {
                    response.record(monotonic_ns().saturating_sub(attempt.started_ns));
                }
            }
        }
        window.end(counters);
        Ok(Reading { response: Some(response.encode()), ..window.reading() })
    }
}

/// CPU time of both sides per handshake, and the handshake's duration.
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
    fn requests_and_responses_have_the_configured_length_and_end_as_in_http() {
        for size in [200, 390, 4096] {
            let request = request(size);
            assert_eq!((request.len(), request.ends_with(END_OF_HEAD)), (size as usize, true));
            assert_eq!(request.windows(4).filter(|four| *four == END_OF_HEAD).count(), 1);
        }
        assert_eq!([129, 500].map(|size| response(size).len()), [129, 500]);
        assert!(response(129).ends_with(END_OF_HEAD));
    }

    fn handshake(hello_size: u32) -> Handshake {
        let (request_size, response_size, hello_response_size) = (200, 129, 70);
        Handshake { connections: 1, in_flight: 1, request_size, response_size, hello_size, hello_response_size }
    }

    /// An attempt whose request was sent, and the server's socket of its connection.
    fn started_attempt(opener: &mut Opener, poll: &Poll, listening: &Listening, wire: &Wire) -> OwnedFd {
        opener.start_attempt(poll).unwrap();
        let server = listening.accept_all(1).unwrap().remove(0);
        assert!(opener.attempts[0].advance(EventFlags::OUT, wire, &mut [0; 1000]).unwrap());
        server
    }

    #[test]
    fn a_response_in_parts_is_one_handshake() {
        let (listening, mut poll, wire) = (Listening::plain().unwrap(), Poll::new().unwrap(), Wire::of(&handshake(0)));
        let mut opener = Opener::new(handshake(0), listening.address());
        let server = started_attempt(&mut opener, &poll, &listening, &wire);
        let attempt = &mut opener.attempts[0];
        for (part, stage) in
            [(&wire.response[..100], Stage::AwaitingResponse(100)), (&wire.response[100..], Stage::Done)]
        {
            write(&server, part).unwrap();
            poll.wait(monotonic_ns() + TIMEOUT_NS).unwrap();
            assert!(attempt.advance(EventFlags::IN, &wire, &mut [0; 1000]).unwrap());
            assert_eq!(attempt.stage, stage);
        }
        drop(server);
        assert!(!attempt.advance(EventFlags::IN, &wire, &mut [0; 1000]).unwrap());
    }

    #[test]
    fn a_second_round_trip_is_a_hello_and_its_response() {
        let (listening, mut poll, wire) = (Listening::plain().unwrap(), Poll::new().unwrap(), Wire::of(&handshake(50)));
        let mut opener = Opener::new(handshake(50), listening.address());
        let socket = started_attempt(&mut opener, &poll, &listening, &wire);
        let mut responder = HandshakeResponder::new(handshake(50), Listening::plain().unwrap());
        responder.sockets.push((socket, Awaited::Request));
        let attempt = &mut opener.attempts[0];
        for (is_last, stage) in [(false, Stage::AwaitingHelloResponse(0)), (true, Stage::Done)] {
            assert_eq!(responder.respond(0, &wire, &mut [0; 1000]).unwrap(), is_last);
            poll.wait(monotonic_ns() + TIMEOUT_NS).unwrap();
            assert!(attempt.advance(EventFlags::IN, &wire, &mut [0; 1000]).unwrap());
            assert_eq!(attempt.stage, stage);
        }
    }

    #[test]
    fn a_connection_that_ends_before_its_response_is_an_error() {
        let (listening, mut poll, wire) = (Listening::plain().unwrap(), Poll::new().unwrap(), Wire::of(&handshake(0)));
        let mut opener = Opener::new(handshake(0), listening.address());
        let server = started_attempt(&mut opener, &poll, &listening, &wire);
        // Read everything first, because closing with unread bytes would send a reset.
        read(&server, &mut [0; 1000][..]).unwrap();
        drop(server);
        poll.wait(monotonic_ns() + TIMEOUT_NS).unwrap();
        let description = opener.attempts[0].advance(EventFlags::IN, &wire, &mut [0; 1000]).unwrap_err().to_string();
        assert!(description.contains("before it had answered"), "{description}");
    }
}
