//! The program as a process: its ready line, its shutdown, its evidence.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bench_format::histogram::{Histogram, Recorder};
use rustix::process::{Pid, Signal, kill_process};
use service_contract::Started;

use crate::client::{Client, TIMEOUT};

struct Process {
    child: Child,
    started: Started,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started = serde_json::from_str(&line).unwrap();
        Self { child, started }
    }

    fn terminate(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let started_at = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(started_at.elapsed() < Duration::from_secs(5), "the process still runs five seconds after SIGTERM");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Has ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_self-test-service"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_process_prints_its_ready_line_serves_and_writes_evidence_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(command().env("SELF_TEST_EVIDENCE", folder.path()));
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(serde_json::from_slice::<Started>(&read("none-ready.json")).unwrap(), process.started);
    assert_eq!((process.started.event.as_str(), process.started.pid), ("ready", process.child.id()));

    let mut client = Client::open(&process.started).await;
    client.send(r#"{"t":"ping"}"#).await;
    assert_eq!(client.json().await["t"], "PONG");
    let close = tokio::spawn(async move { client.close_frame().await.map(|frame| u16::from(frame.code)) });
    process.terminate();
    assert_eq!(tokio::time::timeout(TIMEOUT, close).await.unwrap().unwrap(), Some(1001));
    let recorded: Histogram = serde_json::from_slice(&read("none-recorded.json")).unwrap();
    assert_eq!(Recorder::decode(&recorded).unwrap().count(), 1);
}

#[test]
fn a_client_that_never_sends_a_close_frame_does_not_delay_the_stop() {
    for flaw in ["none", "null"] {
        let mut process = Process::start(command().args(["--flaw", flaw]));
        let silent = std::net::TcpStream::connect(&process.started.address).unwrap();
        process.terminate();
        drop(silent);
    }
}

#[test]
fn a_port_in_use_is_named_in_the_error() {
    let in_use = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = in_use.local_addr().unwrap().port().to_string();
    let output = command().args(["--port", &port]).output().unwrap();
    let error_output = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error_output.contains(&port), "{error_output}");
}
