//! A worker process and a coordinator: registration, trials on kept connections, rows, results, the end of the run.

mod gateway;

use std::{
    collections::HashMap,
    process::Command,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Query, State},
    http::StatusCode,
    routing::{get, post, put},
};
use bench_format::{
    result::{Witness, WorkerResult},
    trial::{Assignment, Clock, Next, Ready, Registration, Release, TrialId},
};
use gateway::{Flaw, Gateway};

#[derive(Default)]
struct Observed {
    trials: Vec<Assignment>,
    registrations: Vec<Registration>,
    ready: Vec<Ready>,
    samples: Vec<(HashMap<String, String>, Bytes)>,
    results: Vec<WorkerResult>,
}

type Shared = Arc<Mutex<Observed>>;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn assignment(gateway: &Gateway, workload: &str, sessions: u32) -> Assignment {
    let alone = gateway.assignment(sessions);
    let trial = TrialId { workload: workload.parse().unwrap(), ..alone.trial.clone() };
    Assignment { run: "a run".into(), trial, keep_connections: true, samples: true, ..alone }
}

async fn next(State(observed): State<Shared>) -> Json<Next> {
    let mut observed = observed.lock().unwrap();
    if observed.trials.is_empty() { Json(Next::Finished) } else { Json(Next::Trial(observed.trials.remove(0))) }
}

async fn ready(State(observed): State<Shared>, Json(ready): Json<Ready>) -> Json<Release> {
    let problem = ready.problem.clone();
    observed.lock().unwrap().ready.push(ready);
    Json(match problem {
        Some(reason) => Release::Abandoned { reason },
        None => Release::Start { start_at_unix_ns: now_ns() + 50_000_000, publisher_ahead_ns: 0 },
    })
}

async fn samples(State(observed): State<Shared>, Query(of): Query<HashMap<String, String>>, rows: Bytes) -> StatusCode {
    observed.lock().unwrap().samples.push((of, rows));
    StatusCode::NO_CONTENT
}

async fn result(State(observed): State<Shared>, Json(result): Json<WorkerResult>) -> StatusCode {
    observed.lock().unwrap().results.push(result);
    StatusCode::NO_CONTENT
}

async fn register(State(observed): State<Shared>, Json(registration): Json<Registration>) -> StatusCode {
    observed.lock().unwrap().registrations.push(registration);
    StatusCode::NO_CONTENT
}

fn coordinator(trials: Vec<Assignment>) -> (String, Shared, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let observed = Arc::new(Mutex::new(Observed { trials, ..Observed::default() }));
    let app = Router::new()
        .route("/v1/workers", post(register))
        .route("/v1/workers/0/next", get(next))
        .route("/v1/workers/0/ready", post(ready))
        .route("/v1/workers/0/samples", put(samples))
        .route("/v1/workers/0/result", put(result))
        .route("/v1/clock", get(async || Json(Clock { unix_ns: now_ns() })))
        .with_state(Arc::clone(&observed));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, observed, runtime)
}

fn work(url: &str) -> Option<i32> {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_stt-loadgen"));
    worker.args(["--coordinator", url, "--worker", "0"]).status().unwrap().code()
}

#[test]
fn a_worker_carries_out_trials_on_kept_connections_until_the_run_is_over() {
    let gateway = Gateway::start(Flaw::None);
    let trials = [2, 4, 3].map(|sessions| assignment(&gateway, "sessions", sessions));
    let (url, observed, _runtime) = coordinator(trials.to_vec());
    assert_eq!(work(&url), Some(0));
    let observed = observed.lock().unwrap();
    assert_eq!(observed.registrations[0].workloads.keys().collect::<Vec<_>>(), ["sessions"]);
    assert_eq!(observed.ready.iter().map(|ready| ready.open).collect::<Vec<_>>(), [2, 4, 3]);
    // Connections that had to be opened; those of the protocol checks are counted apart.
    assert_eq!(observed.results.iter().map(|result| result.connections.open).collect::<Vec<_>>(), [2, 2, 0]);
    let checked = observed.results.iter().map(|result| result.conformance.as_ref().map(|check| check.opened));
    assert_eq!(checked.collect::<Vec<_>>(), [Some(2); 3]);
    for (result, sessions) in observed.results.iter().zip([2, 4, 3]) {
        assert_eq!(result.witness, Witness::Reply);
        assert_eq!((result.messages.delivered, result.messages.lost), (result.messages.due, 0));
        assert_eq!(result.window.due, sessions * 20);
        assert_eq!(result.conformance.as_ref().map(|check| check.before.len() + check.after.len()), Some(0));
    }
    for ((of, rows), result) in observed.samples.iter().zip(&observed.results) {
        let named = [of["run"].clone(), of["trial"].clone(), of["attempt"].clone()];
        assert_eq!(named, [result.run.clone(), result.trial.to_string(), "1".into()]);
        let text = String::from_utf8(zstd::decode_all(&rows[..]).unwrap()).unwrap();
        assert_eq!(text.lines().count() as u64, result.histograms["newest_ns"].count + 1);
    }
    assert_eq!(observed.samples.len(), 3);
}

#[test]
fn a_worker_expects_the_passes_of_its_assignment_or_its_own() {
    let gateway = Gateway::with_passes(Flaw::None, 2);
    let reported = |passes: &str| Assignment {
        settings: [("CPU_PASSES".to_owned(), passes.to_owned())].into(),
        keep_connections: false,
        ..assignment(&gateway, "sessions", 2)
    };
    let unset = Assignment { settings: Default::default(), ..reported("") };
    let (url, observed, _runtime) = coordinator(vec![reported("2"), unset, reported("2"), reported("many")]);
    assert_eq!(work(&url), Some(0));
    let observed = observed.lock().unwrap();
    let clean: Vec<bool> = observed.results.iter().map(|result| result.failures == Default::default()).collect();
    assert_eq!(clean, [true, false, true]);
    assert!(
        observed.results[1].failures.window.contains_key("content/cpu_passes"),
        "{:?}",
        observed.results[1].failures
    );
    let problem = observed.ready[3].problem.as_ref().unwrap();
    assert!(problem.contains("the service's CPU_PASSES is \"many\", and a worker can verify 1 to 64"), "{problem}");
}

#[test]
fn a_trial_that_makes_no_sense_is_reported_at_the_barrier_and_the_worker_goes_on() {
    let gateway = Gateway::start(Flaw::None);
    let trials = vec![assignment(&gateway, "throughput", 1), assignment(&gateway, "sessions", 1)];
    let (url, observed, _runtime) = coordinator(trials);
    assert_eq!(work(&url), Some(0));
    let observed = observed.lock().unwrap();
    assert!(observed.ready[0].problem.as_ref().unwrap().contains("throughput"));
    assert_eq!(observed.results.len(), 1);
}
