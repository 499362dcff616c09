//! The worker's side of the coordinator's protocol: register, next, ready, samples, result.
//!
//! A repeated request has the effect of one (`docs/PROTOCOL.md` explains why), so a request that fails on the network
//! is sent again. All calls block: load threads run beside them and need no runtime.

mod work;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    process, thread,
    time::{Duration, Instant},
};

use bench_format::{
    result::WorkerResult,
    terms::Terms,
    trial::{Assignment, Clock, ClockOffset, DrainRelease, Next, Progress, Ready, Registration, Release, WindowOver},
};
use bytes::Bytes;
use reqwest::{Method, StatusCode, Url};
use tokio::runtime::Runtime;

pub use self::work::{WorkerOutput, work};
use crate::{
    clock::{monotonic_ns, unix_ns},
    error::Error,
    live::{Counters, LiveReport},
    trial::{Gate, StartAt},
};

/// Time-out of a request. It is longer than the 20 s for which the coordinator may hold a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time-out of a progress report, because the main thread has to read at the edges of the window.
const PROGRESS_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the coordinator may be unreachable. It is long enough to restart it on another node.
const RETRY_TIMEOUT: Duration = Duration::from_secs(300);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection is kept for the next request: less than the coordinator keeps it.
const IDLE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One worker's client of a coordinator.
pub struct Coordinator {
    url: String,
    worker: u32,
    client: reqwest::Client,
    runtime: Runtime,
    retry_timeout: Duration,
    token: Option<String>,
}

impl Coordinator {
    /// Creates a client for a base URL such as `http://127.0.0.1:8080`. No request is sent yet.
    ///
    /// # Errors
    /// - [`Error::Kernel`] if the client's runtime can't be started
    /// - [`Error::Coordinator`] if the HTTP client can't be built
    pub fn new(url: &str, worker: u32) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::Kernel { action: "start a runtime for the coordinator's client", source })?;
        let url = url.trim_end_matches('/').to_owned();
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .timeout(REQUEST_TIMEOUT)
            .connect_timeout(LONGEST_PAUSE)
            .pool_idle_timeout(IDLE)
            .build()
            .map_err(|source| Error::Coordinator { action: "build a client", url: url.clone(), source })?;
        Ok(Self { url, worker, client, runtime, retry_timeout: RETRY_TIMEOUT, token: None })
    }

    /// Sets the bearer token that the client presents. An empty token counts as none.
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token.filter(|token| !token.is_empty());
        self
    }

    /// Sets how long the coordinator may be unreachable, instead of five minutes.
    pub fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// What this process registers with, as a worker that starts now: its program and version, and the workloads that it
    /// supports.
    pub fn registration(&self, program: &str, workloads: BTreeMap<String, Terms>) -> Registration {
        Registration {
            worker: self.worker,
            pid: process::id(),
            started_at_unix_ns: unix_ns(),
            program: program.into(),
            workloads,
        }
    }

    /// Registers this worker with the coordinator.
    ///
    /// # Errors
    /// [`Error::Coordinator`] or [`Error::Refused`] if the request still fails when patience ends, or fails in a way
    /// that repeating it can't change. This holds for all other requests, too.
    pub fn register(&self, registration: &Registration) -> Result<(), Error> {
        self.send_with_retries("register", Method::POST, "/v1/workers", Body::json(registration)).map(|_| ())
    }

    /// Waits for the next trial; `None` if the run is over.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn next(&self) -> Result<Option<Assignment>, Error> {
        let path = format!("/v1/workers/{}/next", self.worker);
        loop {
            match self.fetch::<Next>("request the next trial", Method::GET, &path, Body::None)? {
                Next::Wait => thread::sleep(FIRST_PAUSE),
                Next::Trial(assignment) => return Ok(Some(assignment)),
                Next::Finished => return Ok(None),
            }
        }
    }

    /// Waits at the barrier. Returns the start of the load, in nanoseconds since the Unix epoch by the coordinator's
    /// clock, and how far the clock by which the service publishes is ahead of that, in nanoseconds.
    ///
    /// # Errors
    /// [`Error::Abandoned`] if the trial is cancelled, otherwise as for [`Self::register`].
    pub fn ready(&self, ready: &Ready) -> Result<(u64, i64), Error> {
        let path = format!("/v1/workers/{}/ready", self.worker);
        loop {
            match self.fetch("report ready", Method::POST, &path, Body::json(ready))? {
                Release::Wait => thread::sleep(FIRST_PAUSE / 10),
                Release::Start { start_at_unix_ns, publisher_ahead_ns } => {
                    return Ok((start_at_unix_ns, publisher_ahead_ns));
                }
                Release::Abandoned { reason } => return Err(Error::Abandoned { reason }),
            }
        }
    }

    /// Reports that the worker finished its load early, and waits until the service has been read at the end of the
    /// window.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn window_over(&self, over: &WindowOver) -> Result<(), Error> {
        let path = format!("/v1/workers/{}/window-over", self.worker);
        while self.fetch::<DrainRelease>("report the window's end", Method::POST, &path, Body::json(over))?
            == DrainRelease::Wait
        {
            thread::sleep(FIRST_PAUSE / 10);
        }
        Ok(())
    }

    /// Reports what the worker has done so far, for a display. A lost report isn't sent again; `Break` means that the
    /// coordinator takes none: it is an old one, there is no display, or the trial is over.
    pub fn progress(&self, progress: &Progress) -> ControlFlow<()> {
        let url = format!("{}/v1/workers/{}/progress", self.url, self.worker);
        let body = Body::json(progress);
        match self.send_once("report progress", Method::POST, &url, &body, Some(PROGRESS_TIMEOUT)) {
            Ok(_) | Err(Error::Coordinator { .. }) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    /// Uploads raw rows, compressed with zstd. They must come before the result, which ends the trial for this worker.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn upload_samples(&self, assignment: &Assignment, zstd: Vec<u8>) -> Result<(), Error> {
        let (trial, attempt) = (assignment.trial.to_string(), assignment.attempt.to_string());
        let of = [("run", assignment.run.as_str()), ("trial", &trial), ("attempt", &attempt)];
        let query = Url::parse_with_params("http://any", of).expect("a constant is a URL");
        let path = format!("/v1/workers/{}/samples?{}", self.worker, query.query().unwrap_or_default());
        self.send_with_retries("upload the samples", Method::PUT, &path, Body::Zstd(zstd.into())).map(|_| ())
    }

    /// Uploads the result of this worker's trial.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn upload(&self, result: &WorkerResult) -> Result<(), Error> {
        let path = format!("/v1/workers/{}/result", self.worker);
        self.send_with_retries("upload the result", Method::PUT, &path, Body::json(result)).map(|_| ())
    }

    /// Measures how far the coordinator's clock is ahead of ours, by the shortest of several round trips.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn clock_offset(&self) -> Result<ClockOffset, Error> {
        let mut best: Option<ClockOffset> = None;
        for _ in 0..ClockOffset::ROUND_TRIPS {
            let (sent_ns, sent_unix_ns) = (monotonic_ns(), unix_ns());
            let clock: Clock = self.fetch("read the clock", Method::GET, "/v1/clock", Body::None)?;
            best = Some(ClockOffset::of_round_trip(sent_unix_ns, monotonic_ns() - sent_ns, clock).or_surer(best));
        }
        Ok(best.expect("there was at least one round trip"))
    }

    fn fetch<T: serde::de::DeserializeOwned>(
        &self,
        action: &'static str,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<T, Error> {
        let bytes = self.send_with_retries(action, method, path, body)?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Refused {
            action,
            url: format!("{}{path}", self.url),
            status: 200,
            body: format!("{error} in {}", String::from_utf8_lossy(&bytes)),
        })
    }

    /// Sends a request until there is a response. A time-out, a lost connection or a server error is tried again.
    fn send_with_retries(
        &self,
        action: &'static str,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<Vec<u8>, Error> {
        let url = format!("{}{path}", self.url);
        let deadline = Instant::now() + self.retry_timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.send_once(action, method.clone(), &url, &body, None) {
                Ok(bytes) => return Ok(bytes),
                Err(error) if !is_transient(&error) || Instant::now() + pause > deadline => return Err(error),
                Err(error) => error,
            };
            eprintln!("{error}; retrying in {pause:?}");
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends a request once, with another time-out than the usual one if `timeout` is given.
    fn send_once(
        &self,
        action: &'static str,
        method: Method,
        url: &str,
        body: &Body,
        timeout: Option<Duration>,
    ) -> Result<Vec<u8>, Error> {
        let failed = |source| Error::Coordinator { action, url: url.to_owned(), source };
        let request = self.client.request(method, url);
        let mut request = match body {
            Body::None => request,
            Body::Json(bytes) => request.header("content-type", "application/json").body(bytes.clone()),
            Body::Zstd(bytes) => request.header("content-type", "application/zstd").body(bytes.clone()),
        };
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        self.runtime.block_on(async {
            let response = request.send().await.map_err(failed)?;
            let status = response.status();
            let bytes = response.bytes().await.map_err(failed)?.to_vec();
            if status.is_success() {
                return Ok(bytes);
            }
            let body = String::from_utf8_lossy(&bytes).into_owned();
            Err(Error::Refused { action, url: url.to_owned(), status: status.as_u16(), body })
        })
    }
}

/// The body of a request. It is shared, because a request may be sent more than once.
enum Body {
    None,
    Json(Bytes),
    Zstd(Bytes),
}

impl Body {
    fn json(value: &impl serde::Serialize) -> Self {
        Self::Json(serde_json::to_vec(value).expect("a worker's messages are plain data").into())
    }
}

fn is_transient(error: &Error) -> bool {
    match error {
        Error::Coordinator { source, .. } => !source.is_builder(),
        Error::Refused { status, .. } => {
            *status >= 500 || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].iter().any(|s| s == status)
        }
        _ => false,
    }
}

/// The coordinator as the barrier of one trial.
pub struct CoordinatorGate<'a> {
    coordinator: &'a Coordinator,
    assignment: &'a Assignment,
}

impl<'a> CoordinatorGate<'a> {
    /// Creates the barrier for an assignment.
    pub fn new(coordinator: &'a Coordinator, assignment: &'a Assignment) -> Self {
        Self { coordinator, assignment }
    }
}

impl Gate for CoordinatorGate<'_> {
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        let Assignment { run, trial, attempt, .. } = self.assignment;
        // Measured before the barrier, because there may be no time afterwards.
        let clock = self.coordinator.clock_offset()?;
        let ready = Ready { run: run.clone(), trial: trial.clone(), attempt: *attempt, open, problem };
        // The coordinator decides whether a worker without open connections goes on: in a probe, that is a result.
        let (unix_ns, publisher_ahead_ns) = self.coordinator.ready(&ready)?;
        let ClockOffset { ahead_ns, uncertainty_ns } = clock;
        Ok(StartAt { unix_ns, clock_offset_ns: -ahead_ns, clock_uncertainty_ns: uncertainty_ns, publisher_ahead_ns })
    }

    fn progress(&mut self, report: &LiveReport) -> ControlFlow<()> {
        let Assignment { run, trial, attempt, .. } = self.assignment;
        let Counters { open, due, sent, answered, errors } = report.counters;
        self.coordinator.progress(&Progress {
            run: run.clone(),
            trial: trial.clone(),
            attempt: *attempt,
            open,
            due,
            sent,
            answered,
            errors,
            latencies: report.latencies.clone(),
            cpu_ns: report.cpu_ns,
            cpu_limit: report.cpu_limit,
        })
    }

    fn window_over(&mut self) {
        let Assignment { run, trial, attempt, .. } = self.assignment;
        let over = WindowOver { run: run.clone(), trial: trial.clone(), attempt: *attempt };
        if let Err(error) = self.coordinator.window_over(&over) {
            // The coordinator no longer needs the connections; it accepts or refuses the result when that is uploaded.
            eprintln!("{error}");
        }
    }
}
