//! The fake worker: posts a fixed number of messages per connection and uploads its books to the coordinator.

use std::{convert::Infallible, env, time::Duration};

use bench_format::{
    SCHEMA,
    environment::Environment,
    histogram::Recorder,
    result::{Interval, Witness, WorkerBook, WorkerResult},
    terms::Terms,
    trial::{Assignment, Next, Progress, Ready, Registration, Release},
};
use reqwest::Client;

use super::service::Sent;

/// Number of messages of each connection.
pub const MESSAGES: u64 = 10;

/// Works until the coordinator reports the end of the run. The flaw is in `FAKE_WORKER_FLAW`, the arguments in
/// `FAKE_ARGUMENTS`.
pub fn run() {
    let arguments = env::var("FAKE_ARGUMENTS").unwrap();
    let parts: Vec<&str> = arguments.split(' ').collect();
    let after = |flag: &str| parts[parts.iter().position(|word| *word == flag).unwrap() + 1];
    let token = env::var("COORDINATOR_TOKEN").unwrap();
    let worker =
        Worker { coordinator: after("--coordinator").into(), index: after("--worker").parse().unwrap(), token };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(worker.run(&env::var("FAKE_WORKER_FLAW").unwrap_or_default()));
}

pub struct Worker {
    pub coordinator: String,
    pub index: u32,
    pub token: String,
}

impl Worker {
    async fn run(&self, flaw: &str) {
        let http = client_with(&self.token);
        if flaw == "silent" {
            std::future::pending::<()>().await;
        }
        self.register(&http, std::process::id()).await;
        loop {
            match self.next(&http, 20_000).await {
                Next::Wait => {}
                Next::Finished => return,
                Next::Trial(assignment) => {
                    let start_at_unix_ns = self.ready(&http, &assignment).await;
                    eprintln!("worker {} was released", self.index);
                    if flaw == "dies" || (flaw == "second-dies" && self.index == 1) {
                        eprintln!("worker {} dies as configured", self.index);
                        std::process::exit(5);
                    }
                    let load = load(&http, &assignment, start_at_unix_ns);
                    let result = tokio::select! {
                        result = load => result,
                        never = self.report_progress(&http, &assignment, flaw) => match never {},
                    };
                    self.deliver(&http, &result).await;
                }
            }
        }
    }

    pub async fn register(&self, http: &Client, pid: u32) {
        let registration = Registration {
            worker: self.index,
            pid,
            started_at_unix_ns: 0,
            program: "fake-worker 1".into(),
            workloads: [("throughput".to_owned(), terms())].into(),
        };
        let url = format!("{}/v1/workers", self.coordinator);
        http.post(url).json(&registration).send().await.unwrap().error_for_status().unwrap();
    }

    pub async fn next(&self, http: &Client, wait_ms: u64) -> Next {
        let url = format!("{}/v1/workers/{}/next?wait_ms={wait_ms}", self.coordinator, self.index);
        http.get(url).send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    /// Waits at the barrier and returns the start, in nanoseconds since the Unix epoch.
    pub async fn ready(&self, http: &Client, assignment: &Assignment) -> u64 {
        let url = format!("{}/v1/workers/{}/ready", self.coordinator, self.index);
        let ready = ready(assignment);
        loop {
            match http.post(&url).json(&ready).send().await.unwrap().json().await.unwrap() {
                Release::Wait => {}
                Release::Start { start_at_unix_ns, .. } => return start_at_unix_ns,
                Release::Abandoned { reason } => panic!("abandoned: {reason}"),
            }
        }
    }

    /// Reports progress ten times a second: 1000 messages per second; with the flaw "old", never.
    async fn report_progress(&self, http: &Client, assignment: &Assignment, flaw: &str) -> Infallible {
        for round in 1_u64.. {
            if flaw == "old" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let sent = round * 100;
            let progress = Progress { sent, answered: sent, latencies: vec![(40, sent)], ..progress(assignment) };
            self.progress(http, &progress).await;
        }
        std::future::pending().await
    }

    pub async fn progress(&self, http: &Client, progress: &Progress) -> reqwest::Response {
        let url = format!("{}/v1/workers/{}/progress", self.coordinator, self.index);
        http.post(url).json(progress).send().await.unwrap()
    }

    pub async fn deliver(&self, http: &Client, result: &WorkerResult) -> reqwest::Response {
        let url = format!("{}/v1/workers/{}/result", self.coordinator, self.index);
        http.put(url).json(result).send().await.unwrap()
    }
}

fn terms() -> Terms {
    Terms { witness: Witness::Application, late_by: Some("response".into()), ..Terms::default() }
}

pub fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

/// A client that presents a coordinator's token with each request.
pub fn client_with(token: &str) -> Client {
    let headers = [("authorization".parse().unwrap(), format!("Bearer {token}").parse().unwrap())];
    Client::builder().no_proxy().default_headers(headers.into_iter().collect()).build().unwrap()
}

pub fn ready(assignment: &Assignment) -> Ready {
    Ready {
        run: assignment.run.clone(),
        trial: assignment.trial.clone(),
        attempt: assignment.attempt,
        open: assignment.connections,
        problem: None,
    }
}

/// The report of a worker that has opened its connections and sent nothing.
pub fn progress(assignment: &Assignment) -> Progress {
    Progress {
        run: assignment.run.clone(),
        trial: assignment.trial.clone(),
        attempt: assignment.attempt,
        open: assignment.connections.into(),
        due: 0,
        sent: 0,
        answered: 0,
        errors: 0,
        latencies: vec![],
        cpu_ns: 0,
        cpu_limit: 1.0,
    }
}

/// Records responses of 1 ms up to `FAKE_CAPACITY` connections, and of 500 ms above it; or of as many milliseconds as the
/// service's setting `FAKE_RESPONSE_MS` says.
fn note_responses(result: &mut WorkerResult, assignment: &Assignment) {
    let number = |text: String| text.parse::<u32>().ok();
    let set = assignment.settings.get("FAKE_RESPONSE_MS").cloned().and_then(number);
    let capacity = env::var("FAKE_CAPACITY").ok().and_then(number);
    let by_capacity = capacity.map(|capacity| if assignment.connections > capacity { 500 } else { 1 });
    let Some(response_ms) = set.or(by_capacity).map(u64::from) else { return };
    let mut recorder = Recorder::new();
    recorder.record_n(response_ms * 1_000_000, 1000);
    result.histograms.insert(bench_format::Name::from_static("response_ns"), recorder.encode());
}

/// Posts each connection's messages at the start of the window and waits for its end.
async fn load(http: &Client, assignment: &Assignment, start_at_unix_ns: u64) -> WorkerResult {
    let until = start_at_unix_ns + assignment.warmup_ns;
    tokio::time::sleep(Duration::from_nanos(until.saturating_sub(driver::clock::unix_ns()))).await;
    let mut result = empty_result(assignment, start_at_unix_ns);
    note_responses(&mut result, assignment);
    for connection in assignment.first_connection..assignment.first_connection + assignment.connections {
        // Connection ids differ between service processes.
        let id = format!("{}-{connection}", assignment.trial);
        let sequence_sum = (1..=MESSAGES).sum();
        let sent = Sent { id: id.clone(), sent: MESSAGES, sequence_sum, unnumbered: 1 };
        let url = format!("http://{}/send", assignment.address);
        if http.post(url).json(&sent).send().await.is_ok() {
            result.books.push(WorkerBook { id, sent: MESSAGES, sequence_sum, unnumbered: 1, ..Default::default() });
        }
    }
    let sent = result.books.len() as u64 * MESSAGES;
    (result.messages.due, result.messages.sent, result.window.due, result.window.sent) = (sent, sent, sent, sent);
    result.window.writes = sent;
    let end = until + assignment.window_ns;
    tokio::time::sleep(Duration::from_nanos(end.saturating_sub(driver::clock::unix_ns()))).await;
    result
}

/// A result without messages.
pub fn empty_result(assignment: &Assignment, start_at_unix_ns: u64) -> WorkerResult {
    let mut recorder = Recorder::new();
    (1..=500).for_each(|value| recorder.record(value * 1000));
    let histograms: std::collections::BTreeMap<_, _> =
        [(bench_format::Name::from_static("delay_ns"), recorder.encode())].into();
    let mut result = WorkerResult {
        schema: SCHEMA,
        run: assignment.run.clone(),
        trial: assignment.trial.clone(),
        attempt: assignment.attempt,
        worker: assignment.worker,
        witness: Witness::Application,
        connections: Default::default(),
        turnover: None,
        messages: Default::default(),
        window: Default::default(),
        intervals: vec![Interval {
            sent: 0,
            start_ns: 0,
            duration_ns: 1_000_000_000,
            failed: 0,
            histograms: histograms.clone(),
        }],
        histograms,
        books: vec![],
        failures: Default::default(),
        error_samples: vec![],
        conformance: None,
        evidence: Default::default(),
        environment: Environment::read(),
    };
    (result.connections.attempted, result.connections.open) =
        (assignment.connections.into(), assignment.connections.into());
    (result.window.duration_ns, result.window.cpu_ns) = (assignment.window_ns, assignment.window_ns / 10);
    (result.evidence.cpu_limit, result.evidence.start_at_unix_ns) = (1.0, start_at_unix_ns);
    result.evidence.program = "fake-worker 1".into();
    result
}
