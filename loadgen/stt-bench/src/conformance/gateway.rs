//! The gateway under test: one that we start, once per stage with an environment of its own, or one that runs already.

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

/// Longest that a gateway may take to print its ready line.
const READY: Duration = Duration::from_secs(30);
/// Lines of its standard error that are kept to be shown.
const LAST_WORDS: usize = 12;

/// How the gateway was told to behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `FLUSH_INTERVAL_MS`
    pub interval: Duration,
    /// `INFERENCE_TIMEOUT_MS`
    pub timeout: Duration,
    /// `CPU_PASSES`
    pub passes: u32,
    /// `MODEL_DELAY_MS`
    pub model_delay_ms: u64,
    /// `MAX_BUFFERED_FRAMES`
    pub buffered_frames: u32,
}

impl Settings {
    /// The product's defaults.
    pub const DEFAULT: Settings = Settings {
        interval: Duration::from_millis(1000),
        timeout: Duration::from_millis(2000),
        passes: 4,
        model_delay_ms: 75,
        buffered_frames: 200,
    };

    /// Those of a stage. Unlike the defaults wherever a case can do without: so it shows that they are heeded.
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

/// A gateway, as cases see it.
#[derive(Debug)]
pub struct Gateway {
    /// `host:port` of the WebSocket.
    pub address: String,
    /// Its metrics port.
    pub metrics: Option<Readings>,
    /// How it was told to behave.
    pub settings: Settings,
    /// Whether it asks our scripted inference.
    pub scripted: bool,
    /// Where we started it.
    pub process: Option<Process>,
}

/// A command to start a gateway with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Added to our own environment.
    pub environment: Vec<(String, String)>,
}

impl Gateway {
    /// Starts one for a stage, and waits for its ready line.
    ///
    /// # Errors
    /// Why there is no gateway, with its last words.
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
        let words = listen(child.stderr.take().expect("standard error was asked for"));
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
            Err(why) => {
                // Its words come with its end.
                let _ = child.kill().await;
                return Err(with_last_words(why, &words));
            }
        };
        // What it prints later must not block it.
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
                words,
            }),
        })
    }
}

/// A process that we started.
#[derive(Debug)]
pub struct Process {
    /// The one of the ready line.
    pid: u32,
    /// The one that we started.
    root: u32,
    child: tokio::sync::Mutex<Child>,
    words: Words,
}

type Words = Arc<Mutex<VecDeque<String>>>;

impl Process {
    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or("the ready line names no process")?;
        kill_process(pid, signal).map_err(|error| format!("failed to send {signal:?} to process {pid:?}: {error}"))
    }

    /// Sends a signal to it, to what we started, and to all that they have started: a gateway may be several processes.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal_all(&self, signal: Signal) -> Result<(), String> {
        family::signal(self.root, signal)?;
        if self.pid == self.root { Ok(()) } else { family::signal(self.pid, signal) }
    }

    /// How it ended, if it did within that time.
    pub async fn ended(&self, within: Duration) -> Option<ExitStatus> {
        timeout(within, async { self.child.lock().await.wait().await }).await.ok()?.ok()
    }

    /// A reason, with what it last wrote to standard error.
    pub fn with_last_words(&self, why: String) -> String {
        with_last_words(why, &self.words)
    }

    /// Ends it, with all that it has started.
    pub async fn kill(&self) {
        let mut child = self.child.lock().await;
        // Once it was waited for, its number may be another process's.
        if matches!(child.try_wait(), Ok(None)) {
            // What stands still can't start anew what has died. A stopped process dies of this too.
            let _ = self.signal_all(Signal::STOP);
            let _ = self.signal_all(Signal::KILL);
            let _ = child.kill().await;
        }
    }
}

fn with_last_words(why: String, words: &Words) -> String {
    let words = words.lock().expect("no holder of this lock can panic");
    match words.is_empty() {
        true => why,
        false => format!("{why}; it said: {}", Vec::from_iter(words.iter().cloned()).join(" | ")),
    }
}

/// Keeps the last lines of a stream.
fn listen(stream: impl AsyncRead + Unpin + Send + 'static) -> Words {
    let words = Words::default();
    let kept = words.clone();
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
    words
}
