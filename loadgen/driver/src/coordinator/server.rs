//! The coordinator's HTTP routes (`docs/PROTOCOL.md`, "Coordinator"). All rules are in [`super::barrier`].

use std::{future::poll_fn, pin::Pin, time::Duration};

use axum::{
    Json, Router,
    body::{Body, Bytes, HttpBody, to_bytes},
    extract::{DefaultBodyLimit, Path, Query, State},
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use bench_format::{
    buckets::BUCKETS,
    trial::{Clock, DrainRelease, Next, NoTrialId, Progress, Ready, Registration, Release, WindowOver},
};
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Shared,
    barrier::{AttemptId, Barrier, Conflict},
    token,
    upload::{self, Upload},
};
use crate::{clock::unix_ns, http_server};

/// Longest time for which a request is held before the response says "ask again".
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// Largest body of a request other than results and raw rows, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// Longest time for which the body of a refused upload is read and discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves requests.
pub(super) async fn run(listener: TcpListener, shared: Shared) {
    http_server::serve(listener, app(shared)).await;
}

/// The router with all paths of the protocol.
pub fn app(shared: Shared) -> Router {
    Router::new()
        .route("/v1/workers", post(register))
        .route("/v1/workers/{worker}/next", get(next))
        .route("/v1/workers/{worker}/ready", post(ready))
        .route("/v1/workers/{worker}/window-over", post(window_over))
        .route("/v1/workers/{worker}/progress", post(progress))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .merge(
            Router::new()
                .route("/v1/workers/{worker}/result", put(result))
                .route("/v1/workers/{worker}/samples", put(samples))
                .layer(DefaultBodyLimit::disable()),
        )
        .route("/v1/clock", get(clock))
        .layer(middleware::from_fn_with_state(shared.clone(), token::check))
        .with_state(shared)
}

#[derive(Deserialize)]
struct Wait {
    wait_ms: Option<u64>,
}

impl Wait {
    fn deadline(&self) -> Instant {
        Instant::now() + self.wait_ms.map_or(LONGEST_WAIT, Duration::from_millis).min(LONGEST_WAIT)
    }
}

/// Holds a request until there is a response other than "ask again", at most until the deadline.
async fn long_poll<T>(
    shared: &Shared,
    wait: &Wait,
    inspect: impl Fn(&Barrier) -> T,
    is_wait: impl Fn(&T) -> bool,
) -> T {
    let deadline = wait.deadline();
    let mut changes = shared.changed.subscribe();
    loop {
        changes.mark_unchanged();
        let response = shared.inspect(&inspect);
        if !is_wait(&response) || timeout_at(deadline, changes.changed()).await.is_err() {
            return response;
        }
    }
}

async fn register(
    State(shared): State<Shared>,
    Json(registration): Json<Registration>,
) -> Result<StatusCode, Conflict> {
    shared.change(|barrier| barrier.register(registration))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn next(State(shared): State<Shared>, Path(worker): Path<u32>, Query(wait): Query<Wait>) -> Json<Next> {
    Json(long_poll(&shared, &wait, |barrier| barrier.next(worker), |next| matches!(next, Next::Wait)).await)
}

async fn ready(
    State(shared): State<Shared>,
    Path(worker): Path<u32>,
    Query(wait): Query<Wait>,
    Json(ready): Json<Ready>,
) -> Result<Json<Release>, Conflict> {
    let (trial, attempt) = (ready.trial.clone(), ready.attempt);
    shared.change(|barrier| barrier.ready(worker, ready))?;
    let release_for = |barrier: &Barrier| barrier.release_for(&trial, attempt);
    long_poll(&shared, &wait, release_for, |release| matches!(release, Ok(Release::Wait))).await.map(Json)
}

async fn window_over(
    State(shared): State<Shared>,
    Path(worker): Path<u32>,
    Query(wait): Query<Wait>,
    Json(over): Json<WindowOver>,
) -> Result<Json<DrainRelease>, Conflict> {
    shared.change(|barrier| barrier.window_over(worker, &over))?;
    Ok(Json(
        long_poll(
            &shared,
            &wait,
            |barrier| barrier.drain_release(&over),
            |drain_release| *drain_release == DrainRelease::Wait,
        )
        .await,
    ))
}

/// Why a report of a worker's progress is refused.
#[derive(Debug, thiserror::Error)]
enum NoProgress {
    #[error("there is no display; report no more in this trial")]
    NoDisplay,
    #[error("the latencies are not those of at most {BUCKETS} buckets, each once and in order")]
    Latencies,
}

async fn progress(
    State(shared): State<Shared>,
    Path(worker): Path<u32>,
    Json(progress): Json<Progress>,
) -> Result<StatusCode, Response> {
    let Some(live) = shared.live.get() else {
        return Err(error_response(StatusCode::NOT_FOUND, &NoProgress::NoDisplay));
    };
    let is_known = |(bucket, _): &(u32, u64)| (*bucket as usize) < BUCKETS;
    if !progress.latencies.is_sorted_by(|(a, _), (b, _)| a < b) || !progress.latencies.iter().all(is_known) {
        return Err(error_response(StatusCode::BAD_REQUEST, &NoProgress::Latencies));
    }
    // No one waits for it, so it wakes no one.
    shared.lock().takes_progress(worker, &progress, Instant::now()).map_err(IntoResponse::into_response)?;
    live.worker(worker, progress);
    Ok(StatusCode::NO_CONTENT)
}

async fn result(State(shared): State<Shared>, Path(worker): Path<u32>, body: Body) -> Result<StatusCode, Response> {
    let body = read_if(shared.inspect(|barrier| barrier.is_expected(worker)), body).await?;
    let upload = Upload::parse(body.into()).map_err(|error| error_response(StatusCode::BAD_REQUEST, &error))?;
    shared.change(|barrier| barrier.deliver(worker, upload)).map_err(IntoResponse::into_response)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The identity of raw rows. It is in the query, because the body consists of rows only.
#[derive(Deserialize)]
struct Rows {
    run: String,
    trial: String,
    attempt: u32,
}

async fn samples(
    State(shared): State<Shared>,
    Path(worker): Path<u32>,
    Query(rows): Query<Rows>,
    body: Body,
) -> Result<StatusCode, Response> {
    let trial = rows.trial.parse().map_err(|error: NoTrialId| error_response(StatusCode::BAD_REQUEST, &error))?;
    let attempt = AttemptId { run: rows.run, trial, attempt: rows.attempt };
    let body = read_if(shared.change(|barrier| barrier.takes_samples(worker, &attempt)), body).await?;
    let stored = shared.change(|barrier| barrier.deliver_samples(worker, &attempt, body.into()));
    stored.map_err(IntoResponse::into_response)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads an upload if it is expected. Otherwise the rest of the body is read and discarded, so that the client gets the
/// response and not a reset connection.
async fn read_if(expected: Result<(), Conflict>, body: Body) -> Result<Bytes, Response> {
    if let Err(conflict) = expected {
        tokio::spawn(timeout(DISCARD_TIMEOUT, discard(body)));
        return Err(conflict.into_response());
    }
    let read = to_bytes(body, upload::LARGEST).await;
    read.map_err(|error| error_response(StatusCode::PAYLOAD_TOO_LARGE, &error))
}

async fn discard(mut body: Body) {
    while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {}
}

async fn clock() -> Json<Clock> {
    Json(Clock { unix_ns: unix_ns() })
}

impl IntoResponse for Conflict {
    fn into_response(self) -> Response {
        // A worker that registers too early gets a server error, after which it retries.
        let early = matches!(self, Self::Unexpected { expected: 0, .. });
        error_response(if early { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CONFLICT }, &self)
    }
}

fn error_response(status: StatusCode, error: &dyn std::error::Error) -> Response {
    (status, Json(serde_json::json!({ "error": error.to_string() }))).into_response()
}
