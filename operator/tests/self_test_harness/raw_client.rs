//! A WebSocket client that can break every rule, and a service started from the registry.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bench_format::service::{ServiceStats, Started};
use operator::registry::Registry;
use rustix::process::{Pid, Signal, kill_process};

use crate::run::{POLL_INTERVAL, checkout, programs, stats};

/// Longest wait for an expected event.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// A frame with a mask of zeros, which leaves the payload readable.
pub(crate) fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first_byte];
    match payload.len() {
        length @ 0..=125 => frame.push(0x80 | length as u8),
        length @ 126..=65_535 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// A final text frame with this payload, as a client sends it.
pub(crate) fn text(payload: &str) -> Vec<u8> {
    frame(0x81, payload.as_bytes())
}

/// A valid upgrade request with this token.
pub(crate) fn upgrade_request(token: &str) -> String {
    format!(
        "GET /wse HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: access_token={token}\r\n\r\n"
    )
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// With a Close frame of this code; 1005 if it has none.
    Closed(u16),
    /// Without a Close frame.
    Cut,
    /// Not at all: the server accepted what it should have refused.
    Served,
}

/// A connection after the HTTP response.
pub(crate) struct RawClient {
    stream: TcpStream,
    read: Vec<u8>,
}

impl RawClient {
    /// Sends a request. Returns the status code, or `None` when the server closed the connection without a response.
    pub(crate) fn request(started: &Started, request: &[u8]) -> (Option<u16>, Self) {
        let mut stream = TcpStream::connect(&started.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The server may refuse before everything is written.
        let _ = stream.write_all(request);
        let mut client = Self { stream, read: Vec::new() };
        let status = client.head().and_then(|head| head.split(' ').nth(1)?.parse().ok());
        (status, client)
    }

    /// An upgraded connection whose `server_ready` was read.
    pub(crate) fn open(started: &Started, token: &str) -> Self {
        let (status, mut client) = Self::request(started, upgrade_request(token).as_bytes());
        assert_eq!(status, Some(101));
        let ready = client.message().expect("no first frame");
        assert!(ready.contains("\"server_ready\""), "{ready}");
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // The server may close the connection while it is written to; only the way it ends counts.
        let _ = self.stream.write_all(bytes);
    }

    /// Whether the service still responds to a ping.
    pub(crate) fn responds_to_ping(&mut self) -> Result<(), ConnectionEnd> {
        self.send(&text(r#"{"t":"ping","p":{"timestamp":4711}}"#));
        loop {
            let message = self.message()?;
            if message.contains("\"PONG\"") && message.contains(":4711,") {
                return Ok(());
            }
        }
    }

    /// Reads until the connection ends, or until the server responds as if it had accepted the client.
    pub(crate) fn end(&mut self) -> ConnectionEnd {
        loop {
            match self.message() {
                Ok(message) if message.contains("\"PONG\"") || message.contains("\"server_ready\"") => {
                    return ConnectionEnd::Served;
                }
                Ok(_) => {}
                Err(end) => return end,
            }
        }
    }

    /// The next data message as text.
    fn message(&mut self) -> Result<String, ConnectionEnd> {
        loop {
            let (opcode, payload) = self.frame().ok_or(ConnectionEnd::Cut)?;
            match opcode {
                8 => {
                    return Err(ConnectionEnd::Closed(
                        payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code)),
                    ));
                }
                1 | 2 => return Ok(String::from_utf8_lossy(&payload).into_owned()),
                _ => {}
            }
        }
    }

    /// The next frame; server frames are not masked.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let head = self.take(2)?;
        let length = match head[1] {
            126 => self.take(2)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            127 => self.take(8)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            length => usize::from(length),
        };
        Some((head[0] & 0x0f, self.take(length)?))
    }

    /// The head of an HTTP response.
    fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.take(1)?);
        }
        String::from_utf8(head).ok()
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        while self.read.len() < count {
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.read.extend_from_slice(&buffer[..read]),
                // Silence is a fault: a refused client must get a Close frame or be disconnected.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("nothing was received within {TIMEOUT:?}")
                }
                Err(_) => return None,
            }
        }
        Some(self.read.drain(..count).collect())
    }
}

/// A service that is started in the same way as `ladder` starts it.
pub(crate) struct RunningService {
    child: Child,
    pub(crate) started: Started,
}

impl RunningService {
    /// Starts a service of the registry with additional environment variables.
    pub(crate) fn start(name: &str, environment: &BTreeMap<&str, &str>) -> Self {
        let registry = Registry::load(&checkout().join("services/services.toml")).unwrap();
        let service = &registry.services[name];
        // The registry replaces `{bin}` by our own folder; the programs may be in another one.
        let own = operator::registry::own_folder().to_string_lossy().into_owned();
        let command: Vec<String> =
            service.command.iter().map(|word| word.replace(&own, &programs().to_string_lossy())).collect();
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .envs(&service.env)
            .envs(environment)
            .current_dir(&registry.root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {command:?} ({error}); is everything built?"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("{name} gave no ready line but {line:?}; `just self-test` builds what it needs")
        });
        Self { child, started }
    }

    /// Polls `/stats` until `is` returns true; panics after [`TIMEOUT`].
    pub(crate) fn stats_when(&self, what: &str, is: impl Fn(&ServiceStats) -> bool) -> ServiceStats {
        let begun = Instant::now();
        loop {
            let stats = stats(&self.started.metrics_address).expect("the service responds");
            if is(&stats) {
                return stats;
            }
            assert!(begun.elapsed() < TIMEOUT, "no {what}: {stats:?}");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// The peak resident memory of the service, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.started.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Sends SIGTERM and returns whether the service exits with success within five seconds, as the contract requires.
    pub(crate) fn terminate(mut self) -> bool {
        kill_process(Pid::from_raw(self.started.pid as i32).unwrap(), Signal::TERM).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }
}

impl Drop for RunningService {
    fn drop(&mut self) {
        // Both calls fail when the process has ended, which is the usual case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
