//! The client against a coordinator in this process that is slow, fails at times and has another clock.

mod service;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::{get, post, put},
};
use bench_format::{
    result::{Witness, WorkerResult},
    trial::{Clock, DrainRelease, Next, Progress, Ready, Registration, Release, WindowOver},
};
use loadgen_core::{
    Error, Pattern,
    coordinator::{Coordinator, CoordinatorGate},
    trial::run,
};
use service::{Behaviour, Client, Service, assignment};
use tokio::runtime::Runtime;

/// How far the coordinator's clock is ahead of this machine's, in nanoseconds.
const CLOCK_AHEAD_NS: u64 = 3_600_000_000_000;

#[derive(Default)]
struct Observed {
    /// Number of requests that are first answered with 503.
    unavailable: u32,
    /// The token that a registration must present.
    token: Option<&'static str>,
    /// Number of times that `next` and `ready` first respond "wait".
    waits: u32,
    abandon: bool,
    service: String,
    registrations: Vec<Registration>,
    ready: Vec<Ready>,
    results: Vec<WorkerResult>,
    /// Number of clients that have sent a Close frame by now.
    close_count: Option<Box<dyn Fn() -> usize + Send>>,
    progress: Vec<Progress>,
    /// How reports of progress are answered.
    progress_answer: ProgressAnswer,
    /// That number each time a worker reported the end of its load.
    closes_at_window_over: Vec<usize>,
}

#[derive(Clone, Copy, Default)]
enum ProgressAnswer {
    #[default]
    Taken,
    /// As by a coordinator that doesn't know the request.
    NotFound,
    /// The request is read and never answered.
    Silence,
}

type Shared = Arc<Mutex<Observed>>;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 + CLOCK_AHEAD_NS
}

async fn register(
    State(observed): State<Shared>,
    headers: HeaderMap,
    Json(registration): Json<Registration>,
) -> StatusCode {
    let mut observed = observed.lock().unwrap();
    let presented = headers.get("authorization").map(|value| value.to_str().unwrap());
    if presented != observed.token {
        return StatusCode::UNAUTHORIZED;
    }
    if observed.unavailable > 0 {
        observed.unavailable -= 1;
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    observed.registrations.push(registration);
    StatusCode::NO_CONTENT
}

async fn next(State(observed): State<Shared>, Path(worker): Path<u32>) -> Json<Next> {
    let mut observed = observed.lock().unwrap();
    assert_eq!(worker, 3);
    if observed.waits > 0 {
        observed.waits -= 1;
        return Json(Next::Wait);
    }
    match observed.results.is_empty() {
        true => Json(Next::Trial(assignment(&observed.service, 2))),
        false => Json(Next::Finished),
    }
}

async fn ready(State(observed): State<Shared>, Json(ready): Json<Ready>) -> Json<Release> {
    let mut observed = observed.lock().unwrap();
    observed.ready.push(ready);
    if observed.abandon {
        return Json(Release::Abandoned { reason: "a worker is missing".into() });
    }
    match observed.ready.len() {
        1 => Json(Release::Wait),
        _ => Json(Release::Start { start_at_unix_ns: now_ns() + 100_000_000, publisher_ahead_ns: 0 }),
    }
}

async fn window_over(State(observed): State<Shared>, Json(over): Json<WindowOver>) -> Json<DrainRelease> {
    let mut observed = observed.lock().unwrap();
    assert_eq!((over.run.as_str(), over.attempt), ("test", 1));
    let close_count = observed.close_count.as_ref().map_or(0, |count| count());
    observed.closes_at_window_over.push(close_count);
    let is_first = observed.closes_at_window_over.len() == 1;
    Json(if is_first { DrainRelease::Wait } else { DrainRelease::Drain })
}

async fn progress(State(observed): State<Shared>, Json(progress): Json<Progress>) -> StatusCode {
    let answer = {
        let mut observed = observed.lock().unwrap();
        observed.progress.push(progress);
        observed.progress_answer
    };
    match answer {
        ProgressAnswer::Taken => StatusCode::NO_CONTENT,
        ProgressAnswer::NotFound => StatusCode::NOT_FOUND,
        ProgressAnswer::Silence => std::future::pending().await,
    }
}

async fn result(State(observed): State<Shared>, Json(result): Json<WorkerResult>) -> StatusCode {
    observed.lock().unwrap().results.push(result);
    StatusCode::NO_CONTENT
}

async fn clock() -> Json<Clock> {
    Json(Clock { unix_ns: now_ns() })
}

fn start(observed: Observed) -> (String, Shared, Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let observed = Arc::new(Mutex::new(observed));
    let app = Router::new()
        .route("/v1/workers", post(register))
        .route("/v1/workers/{worker}/next", get(next))
        .route("/v1/workers/{worker}/ready", post(ready))
        .route("/v1/workers/{worker}/window-over", post(window_over))
        .route("/v1/workers/{worker}/progress", post(progress))
        .route("/v1/workers/{worker}/result", put(result))
        .route("/v1/clock", get(clock))
        .with_state(Arc::clone(&observed));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    runtime.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, observed, runtime)
}

fn registration() -> Registration {
    Registration {
        worker: 3,
        pid: 1,
        started_at_unix_ns: 1,
        program: "test".into(),
        workloads: [("test".to_owned(), Default::default())].into(),
    }
}

#[test]
fn a_run_leads_from_registration_to_result() {
    let service = Service::start(Behaviour::Correct);
    let (url, observed, _runtime) =
        start(Observed { waits: 2, service: service.address.clone(), ..Observed::default() });
    let coordinator = Coordinator::new(&url, 3).unwrap();
    coordinator.register(&registration()).unwrap();
    while let Some(assignment) = coordinator.next().unwrap() {
        let mut gate = CoordinatorGate::new(&coordinator, &assignment);
        let pattern = Pattern::PingPong { per_connection: Some(1) };
        let client = Client { replies: true };
        let result = run(client, &assignment, pattern, Witness::Reply, "test", &mut gate).unwrap();
        coordinator.upload(&result).unwrap();
    }
    let observed = observed.lock().unwrap();
    assert_eq!((observed.registrations.len(), observed.results.len()), (1, 1));
    assert_eq!(
        observed.ready.iter().map(|ready| ready.open).collect::<Vec<_>>(),
        [2, 2],
        "the request is repeated after a wait"
    );
    // The load starts by the coordinator's clock, although this machine's is an hour behind.
    let evidence = &observed.results[0].evidence;
    assert!(evidence.start_skew_ns.abs() < 1_000_000_000, "{}", evidence.start_skew_ns);
    assert!((evidence.clock_offset_ns + CLOCK_AHEAD_NS as i64).abs() < 1_000_000_000, "{}", evidence.clock_offset_ns);
}

#[test]
fn a_load_that_ends_early_keeps_its_connections_until_the_service_was_read() {
    let service = Service::start(Behaviour::Correct);
    for pattern in [Pattern::Storm { rate_per_second: None }, Pattern::PingPong { per_connection: Some(1) }] {
        let (before, close_count) = (service.close_count()(), service.close_count());
        let (url, observed, _runtime) =
            start(Observed { close_count: Some(Box::new(close_count)), ..Observed::default() });
        let coordinator = Coordinator::new(&url, 3).unwrap();
        let assignment = assignment(&service.address, 2);
        let mut gate = CoordinatorGate::new(&coordinator, &assignment);
        run(Client { replies: true }, &assignment, pattern, Witness::Reply, "test", &mut gate).unwrap();
        assert_eq!(observed.lock().unwrap().closes_at_window_over, [before; 2], "the request is repeated after a wait");
        assert_eq!(service.close_count()(), before + 2);
    }
}

/// The result of a closed loop of two seconds, and what was reported meanwhile.
fn reported(progress_answer: ProgressAnswer) -> (WorkerResult, Vec<Progress>) {
    let service = Service::start(Behaviour::Correct);
    let (url, observed, _runtime) = start(Observed { progress_answer, ..Observed::default() });
    let coordinator = Coordinator::new(&url, 3).unwrap();
    let mut assignment = assignment(&service.address, 2);
    (assignment.warmup_ns, assignment.window_ns) = (0, 2_000_000_000);
    let mut gate = CoordinatorGate::new(&coordinator, &assignment);
    let pattern = Pattern::PingPong { per_connection: None };
    let result = run(Client { replies: true }, &assignment, pattern, Witness::Reply, "test", &mut gate).unwrap();
    let progress = std::mem::take(&mut observed.lock().unwrap().progress);
    (result, progress)
}

#[test]
fn a_worker_reports_its_progress_under_load() {
    let (result, progress) = reported(ProgressAnswer::Taken);
    assert!((2..=4).contains(&progress.len()), "{}", progress.len());
    for pair in progress.windows(2) {
        assert!(pair[0].answered < pair[1].answered && pair[0].cpu_ns < pair[1].cpu_ns, "{pair:?}");
    }
    let last = progress.last().unwrap();
    assert_eq!((last.run.as_str(), last.attempt, last.open, last.errors), ("test", 1, 2, 0));
    let timed: u64 = last.latencies.iter().map(|(_, count)| count).sum();
    assert!(0 < timed && timed <= result.histograms["response_ns"].count, "{timed}");
    assert!(last.sent <= result.messages.sent && last.answered <= last.sent, "{last:?}");
}

#[test]
fn a_coordinator_that_takes_no_progress_is_asked_once_for_each_trial() {
    let (result, progress) = reported(ProgressAnswer::NotFound);
    assert_eq!(progress.len(), 1);
    assert!(result.messages.delivered > 0);
}

#[test]
fn a_coordinator_that_does_not_answer_progress_is_asked_again_and_the_trial_has_its_result() {
    let (result, progress) = reported(ProgressAnswer::Silence);
    assert!((2..=4).contains(&progress.len()), "{}", progress.len());
    assert!(result.messages.delivered > 0 && result.messages.lost == 0, "{:?}", result.messages);
}

#[test]
fn an_unavailable_coordinator_is_retried() {
    let (url, observed, _runtime) = start(Observed { unavailable: 2, ..Observed::default() });
    Coordinator::new(&url, 3).unwrap().register(&registration()).unwrap();
    assert_eq!(observed.lock().unwrap().registrations.len(), 1);
}

#[test]
fn a_coordinator_that_stays_unavailable_is_an_error() {
    let (url, _observed, _runtime) = start(Observed { unavailable: u32::MAX, ..Observed::default() });
    let coordinator = Coordinator::new(&url, 3).unwrap().with_retry_timeout(Duration::from_millis(120));
    let error = coordinator.register(&registration()).unwrap_err();
    assert!(matches!(error, Error::Refused { status: 503, .. }), "{error}");
}

#[test]
fn a_request_for_an_unknown_path_is_not_repeated() {
    let (url, _observed, _runtime) = start(Observed::default());
    let coordinator = Coordinator::new(&format!("{url}/elsewhere"), 3).unwrap();
    let error = coordinator.next().unwrap_err();
    assert!(matches!(error, Error::Refused { status: 404, .. }), "{error}");
}

#[test]
fn the_clocks_offset_is_within_its_own_uncertainty() {
    let (url, _observed, _runtime) = start(Observed::default());
    let clock = Coordinator::new(&url, 3).unwrap().clock_offset().unwrap();
    let error_ns = (clock.ahead_ns - CLOCK_AHEAD_NS as i64).unsigned_abs();
    assert!(error_ns <= clock.uncertainty_ns, "{error_ns} ns off, {} ns allowed", clock.uncertainty_ns);
}

#[test]
fn an_abandoned_trial_closes_its_connections() {
    let service = Service::start(Behaviour::Correct);
    let (url, _observed, _runtime) = start(Observed { abandon: true, ..Observed::default() });
    let coordinator = Coordinator::new(&url, 3).unwrap();
    let assignment = assignment(&service.address, 2);
    let mut gate = CoordinatorGate::new(&coordinator, &assignment);
    let error = run(Client { replies: false }, &assignment, Pattern::Flood, Witness::Application, "test", &mut gate);
    assert!(matches!(error, Err(Error::Abandoned { reason }) if reason == "a worker is missing"));
    assert!(
        service.books().values().all(|book| book.closed_by_client),
        "each connection was closed with a Close frame"
    );
}

#[test]
fn the_token_is_sent_and_a_refusal_is_not_retried() {
    let (url, observed, _runtime) = start(Observed { token: Some("Bearer s3cret"), ..Observed::default() });
    let coordinator = |token: Option<&str>| Coordinator::new(&url, 3).unwrap().with_token(token.map(Into::into));
    let refused = coordinator(None).register(&registration()).unwrap_err();
    assert!(matches!(refused, Error::Refused { status: 401, .. }), "{refused}");
    coordinator(Some("s3cret")).register(&registration()).unwrap();
    assert_eq!(observed.lock().unwrap().registrations.len(), 1);
}
