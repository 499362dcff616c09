//! A worker process and a coordinator: registration, two trials, results, the end of the run.

mod service;

use std::{
    process::Command,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post, put},
};
use bench_format::{
    plan::{Load, Message},
    result::{Witness, WorkerResult},
    trial::{Assignment, Clock, Next, Ready, Registration, Release, TrialId},
};
use service::{Flaw, SECRET, Service};

#[derive(Default)]
struct Observed {
    trials: Vec<Assignment>,
    registrations: Vec<Registration>,
    ready: Vec<Ready>,
    results: Vec<WorkerResult>,
}

type Shared = Arc<Mutex<Observed>>;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn assignment(port: u16, workload: &str, messages_per_connection: Option<u32>) -> Assignment {
    Assignment {
        run: "r".into(),
        trial: TrialId {
            service: bench_format::Name::from_static("s"),
            workload: workload.parse().unwrap(),
            variant: bench_format::Name::from_static("standard"),
            tier: 2,
            process: 1,
            repeat: 1,
        },
        attempt: 1,
        worker: 0,
        workers: 1,
        address: format!("127.0.0.1:{port}"),
        connections: 2,
        first_connection: 0,
        seed: 1,
        load: Load::Closed { messages_per_connection, in_flight: 4 },
        message: Message::default(),
        warmup_ns: 0,
        window_ns: 200_000_000,
        drain_ns: 2_000_000_000,
        late_after_ns: None,
        keep_connections: false,
        settings: Default::default(),
        websocket: None,
        samples: false,
        protocol_check: true,
    }
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

fn coordinator(trials: Vec<Assignment>) -> (String, Shared, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let observed = Arc::new(Mutex::new(Observed { trials, ..Observed::default() }));
    let app = Router::new()
        .route(
            "/v1/workers",
            post(async |State(observed): State<Shared>, Json(registration): Json<Registration>| {
                observed.lock().unwrap().registrations.push(registration);
                StatusCode::NO_CONTENT
            }),
        )
        .route("/v1/workers/{worker}/next", get(next))
        .route("/v1/workers/{worker}/ready", post(ready))
        .route(
            "/v1/workers/{worker}/result",
            put(async |State(observed): State<Shared>, Json(result): Json<WorkerResult>| {
                observed.lock().unwrap().results.push(result);
                StatusCode::NO_CONTENT
            }),
        )
        .route("/v1/clock", get(async || Json(Clock { unix_ns: now_ns() })))
        .with_state(Arc::clone(&observed));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, observed, runtime)
}

fn work(url: &str) -> Option<i32> {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_wse-bench"));
    let status = worker.args(["--coordinator", url, "--worker", "0"]).env("WSE_BENCH_SECRET", SECRET).status().unwrap();
    status.code()
}

#[test]
fn a_worker_follows_the_coordinator_until_the_run_is_over() {
    let service = Service::start(Flaw::None);
    let trials = vec![
        assignment(service.port, "ping-latency", Some(3)),
        assignment(service.port, "throughput", None),
        assignment(service.port, "connection-storm", None),
    ];
    let (url, observed, _runtime) = coordinator(trials);
    assert_eq!(work(&url), Some(0));
    let observed = observed.lock().unwrap();
    let known =
        ["connection-storm", "ping-latency", "throughput", "fanout-broadcast", "fanout-redis", "fanout-cluster"];
    let registered = &observed.registrations[0].workloads;
    assert_eq!(registered.len(), known.len());
    assert!(known.iter().all(|name| registered.contains_key(*name)), "{registered:?}");
    let [pings, flood, storm] = &observed.results[..] else { panic!("{} results", observed.results.len()) };
    assert_eq!((pings.witness, pings.messages.delivered), (Witness::Reply, 6));
    assert_eq!((flood.witness, flood.messages.delivered), (Witness::Application, 0));
    let load = flood.books.iter().filter(|book| book.sent > 0);
    assert!(flood.messages.sent > 0 && load.clone().all(|book| book.sequence_sum > 0));
    assert_eq!((load.count(), storm.connections.open), (2, 2));
    for result in [pings, flood, storm] {
        let check = result.conformance.as_ref().unwrap();
        assert_eq!((&check.before, &check.after, check.opened), (&vec![], &vec![], 2));
        // The check's own connections are in the books, beside the load's two, but not in the counts of connections.
        assert_eq!((result.connections.attempted, result.books.len()), (2, 4));
    }
    assert_eq!(observed.ready.iter().map(|ready| ready.open).collect::<Vec<_>>(), [2, 2, 0]);
}

#[test]
fn a_trial_that_makes_no_sense_is_reported_at_the_barrier_and_the_worker_goes_on() {
    let service = Service::start(Flaw::None);
    let trials = vec![assignment(service.port, "battle-load", None), assignment(service.port, "ping-latency", Some(1))];
    let (url, observed, _runtime) = coordinator(trials);
    assert_eq!(work(&url), Some(0));
    let observed = observed.lock().unwrap();
    assert!(observed.ready[0].problem.as_ref().unwrap().contains("battle-load"));
    assert_eq!(observed.results.len(), 1);
}
