//! The HTTP routes. A request to `/infer` is refused, or numbered, computed and answered when it is due, unless a fault
//! was drawn for its number.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, FromRequest, Request, State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode, Version, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::{sync::Semaphore, time::Sleep};

use crate::{
    compute::{self, Audio, InferenceResult},
    config::Config,
    faults::{Fault, Faults},
    gather::Gatherer,
    latency::Model,
    metrics::Metrics,
};

/// Largest body that is accepted, in bytes.
const BODY_LIMIT: usize = 2 * 1024 * 1024;
/// Largest number of samples over all passes of one request; it takes about half a second of a core.
const STEP_LIMIT: u64 = 1 << 28;

/// The state that all requests share.
pub(crate) struct Simulator {
    default_passes: u32,
    model: Model,
    faults: Faults,
    permits: Semaphore,
    next_number: AtomicU64,
    gatherer: Gatherer,
    /// Counters and histograms of the requests, which `/metrics` shows.
    pub(crate) metrics: Metrics,
    /// Whether new connections are accepted; `/readyz` reports it.
    pub(crate) accepting: AtomicBool,
}

impl Simulator {
    /// Creates a simulator that has received no request.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        // One computing thread is enough for four threads of HTTP.
        let computing = config.threads().div_ceil(4);
        Ok(Self {
            default_passes: config.cpu_passes,
            model: Model::new(config),
            faults: Faults::new(&config.faults, config.model_seed)?,
            permits: Semaphore::new(config.model_max_concurrent.get().min(Semaphore::MAX_PERMITS)),
            next_number: AtomicU64::new(0),
            gatherer: Gatherer::start(computing)?,
            metrics: Metrics::default(),
            accepting: AtomicBool::new(true),
        })
    }
}

/// The router with all paths.
pub(crate) fn router(simulator: Arc<Simulator>) -> Router {
    Router::new()
        .route("/infer", post(infer).layer(DefaultBodyLimit::max(BODY_LIMIT)))
        .route("/health", get(|| async { "ok" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(simulator)
}

async fn ready(State(simulator): State<Arc<Simulator>>) -> impl IntoResponse {
    match simulator.accepting.load(Relaxed) {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
    }
}

async fn metrics(State(simulator): State<Arc<Simulator>>) -> impl IntoResponse {
    let text = simulator.metrics.exposition(simulator.gatherer.work());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

async fn infer(State(simulator): State<Arc<Simulator>>, request: Request) -> Response {
    let version = usize::from(request.version() >= Version::HTTP_2);
    simulator.metrics.requests[version].fetch_add(1, Relaxed);
    let passes = passes(request.headers()).unwrap_or(simulator.default_passes);
    let body = Bytes::from_request(request, &()).await;
    let body = match accept(body, passes) {
        Ok(body) => body,
        Err(refusal) => {
            simulator.metrics.refused.fetch_add(1, Relaxed);
            return *refusal;
        }
    };
    let in_flight = simulator.metrics.enter();
    // The semaphore is fair: requests get permits in the order of their arrival.
    let permit = simulator.permits.acquire().await.expect("the semaphore is never closed");
    let response = simulator.serve(body, passes).await;
    drop(permit);
    in_flight.done();
    response
}

/// The number of passes in the header; `None` if it is missing or not a number.
fn passes(headers: &HeaderMap) -> Option<u32> {
    headers.get("x-cpu-passes")?.to_str().ok()?.parse().ok()
}

/// The body if it can be computed, otherwise the response that refuses it.
fn accept(body: Result<Bytes, BytesRejection>, passes: u32) -> Result<Bytes, Box<Response>> {
    let body = body.map_err(|rejection| Box::new(rejection.into_response()))?;
    let Ok(audio) = Audio::new(&body) else {
        return Err(bad_request("body length must be even (i16 PCM)"));
    };
    let steps = u64::from(passes) * audio.len() as u64;
    if steps > STEP_LIMIT {
        let samples = audio.len();
        let reason = format!("{passes} passes over {samples} samples are {steps} steps; the limit is {STEP_LIMIT}");
        return Err(bad_request(reason));
    }
    Ok(body)
}

fn bad_request(reason: impl IntoResponse) -> Box<Response> {
    Box::new((StatusCode::BAD_REQUEST, reason).into_response())
}

impl Simulator {
    /// Answers a request at its due time. The request has been received completely and holds a permit.
    async fn serve(&self, body: Bytes, passes: u32) -> Response {
        let received = Instant::now();
        let number = self.next_number.fetch_add(1, Relaxed);
        let mut latency = self.model.latency(number);
        let fault = self.faults.for_request(number);
        if let Some(fault) = fault {
            self.metrics.faults[fault.index()].fetch_add(1, Relaxed);
        }
        match fault {
            Some(Fault::Stall(None)) => std::future::pending().await,
            Some(Fault::Stall(Some(delay))) => latency += delay,
            Some(Fault::Status(status)) => {
                sleep_until(received + latency).await;
                let status = StatusCode::from_u16(status).expect("the flag was checked");
                return (status, "injected fault").into_response();
            }
            Some(Fault::Reset) => {
                sleep_until(received + latency).await;
                return reset();
            }
            _ => {}
        }
        match self.compute(body, passes, received + latency).await {
            Some(result) => {
                self.metrics.answered.fetch_add(1, Relaxed);
                respond(&result, fault)
            }
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    /// The result, at its due time or later. `None` if the computation failed, which would be a bug.
    async fn compute(&self, body: Bytes, passes: u32, due: Instant) -> Option<InferenceResult> {
        let audio = Audio::new(&body).ok()?;
        let (result, ready) = if Gatherer::accepts(audio, passes) {
            let computed = self.gatherer.submit(body, passes, due);
            sleep_until(due).await;
            computed.await.ok()?
        } else {
            // Long requests run on separate threads, so that they don't delay others.
            let computed = tokio::task::spawn_blocking(move || {
                let result = Audio::new(&body).map(|audio| compute::infer(audio, passes));
                result.map(|result| (result, Instant::now()))
            });
            sleep_until(due).await;
            computed.await.ok()?.ok()?
        };
        if ready > due {
            self.metrics.late.fetch_add(1, Relaxed);
        }
        Some(result)
    }
}

async fn sleep_until(due: Instant) {
    tokio::time::sleep_until(due.into()).await;
}

/// The response with the result, changed by the fault if there is one.
fn respond(result: &InferenceResult, fault: Option<Fault>) -> Response {
    let mut json = serde_json::to_vec(result).expect("a result has only numbers and text");
    match fault {
        Some(Fault::Malformed) => json.truncate(json.len() / 2),
        Some(Fault::UnknownField) => {
            json.pop();
            json.extend(b",\"fault\":true}");
        }
        _ => {}
    }
    let body = match fault {
        Some(Fault::SlowBody(duration)) => Body::new(Trickle::new(json.into(), duration)),
        _ => json.into(),
    };
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Marks a response that must become a reset, which [`crate::connection`] does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reset;

fn reset() -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(Reset);
    response
}

/// A body that is sent byte by byte.
struct Trickle {
    remaining: Bytes,
    step: Duration,
    wait: Pin<Box<Sleep>>,
}

impl Trickle {
    fn new(body: Bytes, duration: Duration) -> Self {
        let step = duration / body.len().max(1) as u32;
        Self { remaining: body, step, wait: Box::pin(tokio::time::sleep(step)) }
    }
}

impl http_body::Body for Trickle {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.remaining.is_empty() {
            return Poll::Ready(None);
        }
        std::task::ready!(self.wait.as_mut().poll(context));
        // Counted from the deadline and not from now, because the timer's own delay would add up over the bytes.
        let next = self.wait.deadline() + self.step;
        self.wait.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(self.remaining.split_to(1)))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining.len() as u64)
    }
}
