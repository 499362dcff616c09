//! A simulator in its own process, and a client for both versions of HTTP.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Pid, Signal, kill_process};
use service_contract::Started;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

/// Longer than the slowest machine needs; reached only if an expected event doesn't occur.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Flags without modelled latency.
pub(crate) const NO_DELAY: &str = "--model-delay-ms=0 --model-batch-wait-max-ms=0";

/// The simulator's process; it is killed when it is dropped.
pub(crate) struct Service {
    child: Child,
    pub(crate) address: String,
}

impl Service {
    /// Starts the simulator with these flags and waits until it is ready.
    pub(crate) fn start(flags: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_inference-sim"))
            .args(["--port", "0"])
            .args(flags.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped"))
            .read_line(&mut line)
            .expect("the service prints its ready line");
        let started: Started = serde_json::from_str(&line).expect("the ready line is valid");
        assert_eq!((started.event.as_str(), started.pid), ("ready", child.id()));
        Self { child, address: started.address }
    }

    /// Sends SIGTERM to the simulator.
    pub(crate) fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the process runs");
    }

    /// Waits until the process ends and returns its exit code.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        let started_at = Instant::now();
        while started_at.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait().expect("the process is a child") {
                return status.code();
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("the program didn't exit");
    }

    /// Opens a TCP connection to the program and starts HTTP of this version on it.
    pub(crate) async fn connect(&self, version: Version) -> Connection {
        let stream = TokioIo::new(TcpStream::connect(&self.address).await.expect("the service listens"));
        match version {
            Version::Http1 => {
                let (sender, connection) = http1::handshake(stream).await.expect("HTTP/1.1 needs no handshake");
                tokio::spawn(connection);
                Connection::Http1(sender)
            }
            Version::Http2 => {
                let handshake = http2::handshake(TokioExecutor::new(), stream);
                let (sender, connection) = handshake.await.expect("the service supports HTTP/2");
                tokio::spawn(connection);
                Connection::Http2(sender)
            }
        }
    }

    /// Status and body of a GET request.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let mut connection = self.connect(Version::Http1).await;
        let request = Request::get(path).header("host", &self.address).body(Full::default()).expect("a plain request");
        let Reply { status, body, .. } = connection.send(request).await.expect("a response arrives");
        (status, String::from_utf8(body.into()).expect("the output is text"))
    }

    /// Value of a counter from `/metrics`.
    pub(crate) async fn counter(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().expect("the value is a number")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

pub(crate) const VERSIONS: [Version; 2] = [Version::Http1, Version::Http2];

/// A client connection, by the version of HTTP that it speaks.
pub(crate) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_length: Option<String>,
    pub(crate) body: Bytes,
    /// Time from sending the request to the end of the body.
    pub(crate) after: Duration,
}

impl Connection {
    /// Sends a request to `/infer`.
    pub(crate) async fn infer(&mut self, body: &[u8], passes: &str) -> hyper::Result<Reply> {
        let request = Request::post("http://inference/infer")
            .header("host", "inference")
            .header("x-cpu-passes", passes)
            .body(Bytes::copy_from_slice(body).into())
            .expect("a plain request");
        self.send(request).await
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Reply> {
        let sent = Instant::now();
        let exchange = async {
            let response = match self {
                Connection::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
                Connection::Http2(sender) => sender.send_request(request).await?,
            };
            reply(response, sent).await
        };
        timeout(TIMEOUT, exchange).await.expect("a response or an error arrives in time")
    }
}

async fn reply(response: Response<Incoming>, sent: Instant) -> hyper::Result<Reply> {
    let status = response.status().as_u16();
    let content_length = response.headers().get("content-length");
    let content_length = content_length.map(|length| length.to_str().expect("the value is a number").to_owned());
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Reply { status, content_length, body, after: sent.elapsed() })
}

/// Frame number `sequence` of session `session`, as the protocol defines it.
pub(crate) fn frame(session: u64, sequence: u64) -> Vec<u8> {
    let base = sequence * 320 + session;
    (base..base + 320).flat_map(|index| ((index * 17 % 20_000) as i16 - 10_000).to_le_bytes()).collect()
}
