//! Test support: the gateway as a process, a client that writes and reads single frames, and a scripted inference.

mod client;
mod inference;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use service_contract::{ServiceStats, Started};

pub(crate) use client::{BINARY, CLOSE, Client, PING, PONG, TEXT};
pub(crate) use inference::{Inference, Reply};

/// Time limit of every wait; it is reached only when a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running gateway process. Dropping it kills the process.
pub(crate) struct Gateway {
    process: Child,
    started: Started,
}

impl Gateway {
    /// Starts a gateway for the inference at this URL, with further environment variables.
    pub(crate) fn start(inference: &str, settings: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rust-axum-plain"))
            .envs([("PORT", "0"), ("METRICS_PORT", "0"), ("INFERENCE_URL", inference), ("FLUSH_INTERVAL_MS", "100")])
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the gateway starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { started: serde_json::from_str(&line).expect("the ready line"), process }
    }

    /// Opens a connection and upgrades it.
    pub(crate) fn connect(&self) -> Client {
        let socket = TcpStream::connect(&self.started.address).unwrap();
        Client::upgrade(socket)
    }

    /// Opens a connection and sends the start message.
    pub(crate) fn session(&self) -> Client {
        let mut client = self.connect();
        client.send(TEXT, br#"{"type":"start"}"#);
        client
    }

    /// Sends a raw HTTP request to the client port and returns the whole response.
    pub(crate) fn http(&self, request: &str) -> String {
        exchange(&self.started.address, request)
    }

    /// Sends a `GET` to the metrics port and returns the whole response.
    pub(crate) fn metrics_port(&self, path: &str) -> String {
        exchange(&self.started.metrics_address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    /// Reads `/stats` and checks that its books balance.
    pub(crate) fn stats(&self) -> ServiceStats {
        let response = self.metrics_port("/stats");
        let stats: ServiceStats = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
        let (messages, inference) = (&stats.messages, stats.inference.as_ref().unwrap());
        let dropped: u64 = messages.dropped.values().sum();
        assert_eq!(messages.received, messages.consumed + messages.delivered + dropped + messages.queued, "{stats:?}");
        let failed: u64 = inference.failed.values().sum();
        assert_eq!(inference.requests, inference.answered + failed + inference.abandoned + inference.in_flight);
        stats
    }

    /// Polls `/stats` until `looks_right` holds.
    pub(crate) fn stats_when(&self, mut looks_right: impl FnMut(&ServiceStats) -> bool) -> ServiceStats {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = self.stats();
            if looks_right(&stats) {
                return stats;
            }
            assert!(Instant::now() < deadline, "still {stats:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGTERM to the process.
    pub(crate) fn terminate(&self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), rustix::process::Signal::TERM)
            .unwrap();
    }

    /// Waits for the process to end and returns its exit status; `None` if a signal ended it.
    pub(crate) fn exit_code(mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn exchange(address: &str, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).unwrap();
    response
}
