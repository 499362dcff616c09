//! The gateway under test and its process. This program starts it once per stage, each process with its own
//! environment, or it runs already. A started gateway prints a ready line; its last lines of standard error are kept
//! for reports.

use std::{
    collections::VecDeque,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use bench_format::service::Started;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::{family, readings::Readings, stage::Stage};

/// Time limit for a started gateway to print its ready line.
const READY: Duration = Duration::from_secs(30);
/// Number of last lines of standard error that are kept for reports.
const LAST_WORDS: usize = 12;

/// Settings of a gateway, from its environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `FLUSH_INTERVAL_MS`: interval between two ticks of a session.
    pub interval: Duration,
    /// `INFERENCE_TIMEOUT_MS`: time limit of a request to the inference.
    pub timeout: Duration,
    /// `CPU_PASSES`: passes over the audio that the gateway requests of the inference.
    pub passes: u32,
    /// `MODEL_DELAY_MS`, in milliseconds: each partial repeats it, and it has no other effect.
    pub model_delay_ms: u64,
    /// `MAX_BUFFERED_FRAMES`: frames that may wait per session, beside the batch in flight.
    pub buffered_frames: u32,
}

impl Settings {
    /// Defaults of the product.
    pub const DEFAULT: Settings = Settings {
        interval: Duration::from_millis(1000),
        timeout: Duration::from_millis(2000),
        passes: 4,
        model_delay_ms: 75,
        buffered_frames: 200,
    };

    /// Settings of a stage. They differ from the defaults where the cases permit it, which shows that the gateway uses
    /// its settings.
    pub fn of(stage: Stage) -> Self {
        let milliseconds = Duration::from_millis;
        let short = Self { passes: 2, model_delay_ms: 33, ..Self::DEFAULT };
        match stage {
            Stage::Scripted => Self { interval: milliseconds(200), timeout: milliseconds(800), ..short },
            Stage::Accounts => {
                Self { interval: milliseconds(100), timeout: milliseconds(12_000), buffered_frames: 50, ..short }
            }
            Stage::Slow => Self { interval: milliseconds(50), ..short },
            Stage::Stall => Self { interval: milliseconds(200), ..short },
            Stage::Wire | Stage::Drain | Stage::Last => Self::DEFAULT,
        }
    }

    fn environment(&self) -> [(&'static str, String); 8] {
        [
            ("PORT", "0".into()),
            ("METRICS_PORT", "0".into()),
            ("FLUSH_PHASE_JITTER_MS", "0".into()),
            ("FLUSH_INTERVAL_MS", self.interval.as_millis().to_string()),
            ("INFERENCE_TIMEOUT_MS", self.timeout.as_millis().to_string()),
            ("CPU_PASSES", self.passes.to_string()),
            ("MODEL_DELAY_MS", self.model_delay_ms.to_string()),
            ("MAX_BUFFERED_FRAMES", self.buffered_frames.to_string()),
        ]
    }
}

/// A running gateway, as cases use it.
#[derive(Debug)]
pub struct Gateway {
    /// `host:port` of the WebSocket.
    pub address: String,
    /// Client of its metrics port; none if the address is not known.
    pub metrics: Option<Readings>,
    /// Settings with which it runs.
    pub settings: Settings,
    /// Whether it sends its inference requests to our scripted inference.
    pub scripted: bool,
    /// Its process, if this program started it.
    pub process: Option<Process>,
}

/// Command that starts a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name or path of the executable.
    pub program: String,
    /// Command-line arguments, without the program's name.
    pub arguments: Vec<String>,
    /// Environment variables in addition to those inherited from this program. A stage's settings and `INFERENCE_URL`
    /// override them.
    pub environment: Vec<(String, String)>,
}

impl Gateway {
    /// Starts a gateway with the settings of a stage, and waits up to 30 seconds for its ready line. `inference` is the
    /// value of `INFERENCE_URL`.
    ///
    /// # Errors
    /// Fails if the process cannot be started, ends early, or prints no valid ready line in time. The text has its last
    /// lines of standard error.
    pub async fn start(command: &Launch, stage: Stage, inference: &str) -> Result<Self, String> {
        let settings = Settings::of(stage);
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .envs(settings.environment())
            .env("INFERENCE_URL", inference)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("failed to start {}: {error}", command.program))?;
        let root = child.id();
        let description = listen(child.stderr.take().expect("standard error was asked for"));
        let mut lines = BufReader::new(child.stdout.take().expect("standard output was asked for")).lines();
        let line = timeout(READY, lines.next_line()).await;
        let started = match line {
            Ok(Ok(Some(line))) => serde_json::from_str::<Started>(&line)
                .map_err(|error| format!("its first line is no ready line of services/README.md: {error}: {line}")),
            Ok(Ok(None)) => Err("it ended without a ready line".into()),
            Ok(Err(error)) => Err(format!("failed to read its standard output: {error}")),
            Err(_) => Err(format!("it printed no ready line within {READY:?}")),
        };
        let started = match started {
            Ok(started) => started,
            Err(reason) => {
                // The wait for its end lets the rest of its standard error arrive.
                let _ = child.kill().await;
                return Err(with_last_output(reason, &description));
            }
        };
        // Standard output is read on, so that a full pipe does not block the gateway.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            address: started.address,
            metrics: Some(Readings::new(&format!("http://{}", started.metrics_address))),
            settings,
            scripted: true,
            process: Some(Process {
                pid: started.pid,
                root: root.unwrap_or(started.pid),
                child: tokio::sync::Mutex::new(child),
                description,
            }),
        })
    }
}

/// Process of a gateway that this program started.
#[derive(Debug)]
pub struct Process {
    /// Pid of the ready line. It may differ from `root`, since a gateway may have several processes.
    pid: u32,
    /// Pid of the process that this program spawned.
    root: u32,
    child: tokio::sync::Mutex<Child>,
    description: RecentOutput,
}

type RecentOutput = Arc<Mutex<VecDeque<String>>>;

impl Process {
    /// Sends a signal to the process of the ready line only.
    ///
    /// # Errors
    /// Fails if the pid is not valid, or the process has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or("the ready line names no process")?;
        kill_process(pid, signal).map_err(|error| format!("failed to send {signal:?} to process {pid:?}: {error}"))
    }

    /// Sends a signal to the spawned process, the process of the ready line and all their descendants: a gateway may
    /// have several processes.
    ///
    /// # Errors
    /// Fails if one of the two processes has ended.
    pub fn signal_all(&self, signal: Signal) -> Result<(), String> {
        family::signal(self.root, signal)?;
        if self.pid == self.root { Ok(()) } else { family::signal(self.pid, signal) }
    }

    /// Waits up to this time for the spawned process to end; none if it still runs.
    pub async fn ended(&self, within: Duration) -> Option<ExitStatus> {
        timeout(within, async { self.child.lock().await.wait().await }).await.ok()?.ok()
    }

    /// Appends its last lines of standard error to a reason.
    pub fn with_last_output(&self, reason: String) -> String {
        with_last_output(reason, &self.description)
    }

    /// Kills the process and all its descendants, and waits for its end. Does nothing if it has ended.
    pub async fn kill(&self) {
        let mut child = self.child.lock().await;
        // After the wait for a process, its pid may belong to another process.
        if matches!(child.try_wait(), Ok(None)) {
            // Stopped first, so that a supervisor cannot restart killed workers. SIGKILL also ends stopped processes.
            let _ = self.signal_all(Signal::STOP);
            let _ = self.signal_all(Signal::KILL);
            let _ = child.kill().await;
        }
    }
}

fn with_last_output(reason: String, description: &RecentOutput) -> String {
    let description = description.lock().expect("no holder of this lock can panic");
    match description.is_empty() {
        true => reason,
        false => format!("{reason}; its output: {}", Vec::from_iter(description.iter().cloned()).join(" | ")),
    }
}

/// Reads a stream in a task, and keeps its last lines.
fn listen(stream: impl AsyncRead + Unpin + Send + 'static) -> RecentOutput {
    let description = RecentOutput::default();
    let kept = description.clone();
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut kept = kept.lock().expect("no holder of this lock can panic");
            if kept.len() == LAST_WORDS {
                kept.pop_front();
            }
            kept.push_back(line);
        }
    });
    description
}
