//! The web port: serves the live page, the status and the bundles, for users, `ladder status|fetch|assert` and the
//! probes. Read-only.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use bench_format::timeline::Overhead;
use driver::http_server;
use operator::{print, store};
use serde_json::json;
use tokio::{io::AsyncReadExt, net::TcpListener, sync::Semaphore, task::spawn_blocking};

use crate::{
    live::{Live, Status},
    metrics::{self, Readings},
    trial_view::Trials,
};

pub mod files;
pub mod stream;

/// Size of the chunks in which a file is read, in bytes.
const CHUNK: usize = 64 * 1024;

/// State that the handlers share.
#[derive(Clone, Debug)]
pub struct Web {
    live: Live,
    results: Arc<PathBuf>,
    /// Set once the plan is known.
    trials: Arc<OnceLock<Trials>>,
    /// Places of readers of `/api/live`.
    readers: Arc<Semaphore>,
}

impl Web {
    /// The state for an operator whose bundles are in `results`.
    pub fn new(live: Live, results: PathBuf) -> Self {
        let readers = Arc::new(Semaphore::new(stream::MOST_READERS));
        Self { live, results: results.into(), trials: Arc::default(), readers }
    }

    fn readings(&self) -> Readings {
        let trials = self.trials.get();
        Readings {
            status: self.live.status(),
            figures: self.live.figures(),
            trial: trials.and_then(|trials| trials.view(Instant::now())),
            workers: trials.map(Trials::workers).unwrap_or_default(),
        }
    }

    /// Shows the trials of a plan from now on. The first call counts.
    pub fn show(&self, trials: Trials) {
        let _ = self.trials.set(trials);
    }
}

/// Serves the web port.
pub async fn serve(listener: TcpListener, web: Web) {
    http_server::serve(listener, routes(web)).await;
}

/// Serves the metrics port.
pub async fn serve_metrics(listener: TcpListener, web: Web) {
    let text = async |State(web): State<Web>| {
        ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&web.readings()))
    };
    http_server::serve(listener, Router::new().route("/metrics", get(text)).with_state(web)).await;
}

/// The routes of the web port.
pub fn routes(web: Web) -> Router {
    Router::new()
        .route("/", get(|| async { Html(include_str!("web/page.html")) }))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/api/status", get(status))
        .route("/api/live", get(live))
        .route("/api/runs", get(runs))
        .route("/api/runs/{id}/files", get(listing))
        .route("/results/{id}/{*path}", get(file))
        .with_state(web)
}

async fn readyz(State(web): State<Web>) -> (StatusCode, String) {
    let status = web.live.status();
    if status.ready {
        return (StatusCode::OK, "ready\n".into());
    }
    (StatusCode::SERVICE_UNAVAILABLE, status.not_ready.iter().map(|line| format!("{line}\n")).collect())
}

async fn status(State(web): State<Web>) -> Json<Status> {
    let mut status = web.live.status();
    if !status.run_id.is_empty() {
        let folder = web.results.join(&status.run_id);
        let timeline = spawn_blocking(move || store::read_timeline(&folder)).await.unwrap_or_default();
        status.overhead = print::overhead(&Overhead::of(&timeline));
    }
    Json(status)
}

async fn live(State(web): State<Web>) -> Response {
    match Arc::clone(&web.readers).try_acquire_owned() {
        Ok(place) => stream::seconds(web, place).into_response(),
        Err(_) => {
            let most = stream::MOST_READERS;
            let error = format!("{most} readers are served already; try again when one has gone, or use /api/status");
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "error": error }))).into_response()
        }
    }
}

async fn runs(State(web): State<Web>) -> Response {
    blocking(move || Ok(files::runs(&web.results))).await
}

async fn listing(State(web): State<Web>, Path(id): Path<String>) -> Response {
    blocking(move || files::list(&web.results, &id)).await
}

async fn file(State(web): State<Web>, Path((id, path)): Path<(String, String)>) -> Response {
    let kind = files::content_type(if path == "report/" { "report.html" } else { &path });
    let found = spawn_blocking(move || files::open(&web.results, &id, &path)).await.map_err(io::Error::other);
    match found.map_err(files::Error::Read).flatten() {
        Ok((file, bytes)) => {
            let headers = [
                (header::CONTENT_TYPE, kind.to_owned()),
                (header::CONTENT_LENGTH, bytes.to_string()),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            ];
            (headers, Body::from_stream(stream(tokio::fs::File::from_std(file), bytes))).into_response()
        }
        Err(error) => refused(&error),
    }
}

/// Streams the first `bytes` bytes of a file, the announced length. A file that grows meanwhile is cut there.
fn stream(file: tokio::fs::File, bytes: u64) -> impl futures::Stream<Item = io::Result<Vec<u8>>> {
    futures::stream::try_unfold((file, bytes), |(mut file, left)| async move {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        if chunk.is_empty() {
            return Ok(None);
        }
        let read = file.read(&mut chunk).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        chunk.truncate(read);
        Ok(Some((chunk, (file, left - read as u64))))
    })
}

/// Runs work that reads files on a blocking thread, and returns its result as JSON.
async fn blocking<T, W>(work: W) -> Response
where
    T: serde::Serialize + Send + 'static,
    W: FnOnce() -> Result<T, files::Error> + Send + 'static,
{
    match spawn_blocking(work).await.map_err(|error| files::Error::Read(io::Error::other(error))).flatten() {
        Ok(value) => Json(value).into_response(),
        Err(error) => refused(&error),
    }
}

fn refused(error: &files::Error) -> Response {
    let status = match error {
        files::Error::NotFound(_) => StatusCode::NOT_FOUND,
        files::Error::TooMany(_) | files::Error::Read(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use reqwest::Client;
    use serde_json::Value;
    use tempfile::TempDir;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::live::State as OperatorState;

    struct Served {
        url: String,
        live: Live,
        results: TempDir,
        _server: JoinHandle<()>,
    }

    async fn served() -> Served {
        let results = tempfile::tempdir().unwrap();
        fs::create_dir_all(results.path().join("r1/trials")).unwrap();
        fs::write(results.path().join("r1/trials/a.json"), "{\"a\":1}").unwrap();
        fs::write(results.path().join("r1/.lock"), "").unwrap();
        fs::write(results.path().join("secret"), "not yours").unwrap();
        let live = Live::new();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let web = Web::new(live.clone(), results.path().into());
        let _server = tokio::spawn(serve(listener, web));
        Served { url, live, results, _server }
    }

    async fn get(url: String) -> (u16, String) {
        let reply = Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap();
        (reply.status().as_u16(), reply.text().await.unwrap())
    }

    #[tokio::test]
    async fn an_operator_with_mistakes_in_its_plan_is_alive_and_not_ready() {
        let served = served().await;
        served
            .live
            .change(|status| status.not_ready = vec!["plan.yaml: tiers: empty".into(), "plan.yaml: why: empty".into()]);
        assert_eq!(get(format!("{}/healthz", served.url)).await.0, 200);
        let (status, body) = get(format!("{}/readyz", served.url)).await;
        assert_eq!((status, body.as_str()), (503, "plan.yaml: tiers: empty\nplan.yaml: why: empty\n"));
        served.live.change(|status| status.ready = true);
        assert_eq!(get(format!("{}/readyz", served.url)).await.0, 200);
    }

    #[tokio::test]
    async fn a_bundle_is_listed_with_its_digests_and_served() {
        let served = served().await;
        let (_, body) = get(format!("{}/api/runs/r1/files", served.url)).await;
        let listed: Value = serde_json::from_str(&body).unwrap();
        let digest = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(listed, json!([{"path": "trials/a.json", "bytes": 7, "sha256": digest}]));
        assert_eq!(get(format!("{}/results/r1/trials/a.json", served.url)).await, (200, "{\"a\":1}".into()));
    }

    #[tokio::test]
    async fn a_report_that_was_made_here_is_served_and_is_no_part_of_the_bundle() {
        let served = served().await;
        let report = |page: &str| format!("{}/results/r1/report/{page}", served.url);
        assert_eq!(get(report("")).await.0, 404);
        fs::create_dir_all(served.results.path().join("r1/report")).unwrap();
        fs::write(served.results.path().join("r1/report/report.html"), "of a laptop").unwrap();
        assert_eq!(get(report("")).await, (200, "of a laptop".into()));
        fs::remove_dir_all(served.results.path().join("r1/report")).unwrap();
        let made = served.results.path().join(".reports/r1");
        fs::create_dir_all(&made).unwrap();
        fs::write(made.join("report.html"), "made here").unwrap();
        fs::write(made.join("a.png"), "a picture").unwrap();
        for (page, expected) in [("", "made here"), ("report.html", "made here"), ("a.png", "a picture")] {
            assert_eq!(get(report(page)).await, (200, expected.into()));
        }
        std::os::unix::fs::symlink("../../secret", made.join("link")).unwrap();
        for path in ["link", "..%2F..%2Fsecret", "..%2F..%2Fr1%2Ftrials%2Fa.json"] {
            assert_eq!(get(report(path)).await.0, 404, "{path}");
        }
        assert_eq!(get(format!("{}/results/.reports/r1/report.html", served.url)).await.0, 404);
        let (_, listed) = get(format!("{}/api/runs/r1/files", served.url)).await;
        assert!(!listed.contains("report"), "{listed}");
    }

    #[tokio::test]
    async fn nothing_outside_a_bundle_is_served() {
        let served = served().await;
        std::os::unix::fs::symlink("../secret", served.results.path().join("r1/link")).unwrap();
        for path in [
            "r1/..%2Fsecret",
            "r1/%2E%2E/secret",
            "..%2F/secret",
            "%2E%2E/etc/passwd",
            "r1/link",
            "r1/.lock",
            "r1/trials",
            "r1/nothing",
        ] {
            let (status, body) = get(format!("{}/results/{path}", served.url)).await;
            assert_eq!(status, 404, "{path}: {body}");
            assert!(!body.contains("not yours"), "{path}");
        }
        let (status, _) = get(format!("{}/api/runs/..%2F..%2Fetc/files", served.url)).await;
        assert_eq!(status, 404);
    }

    #[tokio::test]
    async fn the_status_is_json_and_the_page_loads_nothing_from_elsewhere() {
        let served = served().await;
        served.live.set_status(OperatorState::Idle, "no run is requested");
        let (_, body) = get(format!("{}/api/status", served.url)).await;
        let status: Status = serde_json::from_str(&body).unwrap();
        assert_eq!((status.state, status.description.as_str()), (OperatorState::Idle, "no run is requested"));
        let (_, page) = get(served.url.clone()).await;
        assert!(page.contains("api/status") && !page.contains("src=\"http") && !page.contains("href=\"http"));
    }

    #[tokio::test]
    async fn every_second_brings_the_state_and_the_trial() {
        let served = served().await;
        served.live.set_status(OperatorState::Idle, "no run is requested");
        let client = Client::builder().no_proxy().build().unwrap();
        let mut reply = client.get(format!("{}/api/live", served.url)).send().await.unwrap();
        assert_eq!(reply.headers()["content-type"], "text/event-stream");
        let mut text = String::new();
        while text.matches("\n\n").count() < 2 {
            text.push_str(str::from_utf8(&reply.chunk().await.unwrap().unwrap()).unwrap());
        }
        let seconds: Vec<stream::Second> =
            text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        assert!(seconds.len() >= 2, "{text}");
        assert_eq!((seconds[0].state, seconds[0].description.as_str()), (OperatorState::Idle, "no run is requested"));
        assert_eq!(seconds[0].trial, None);
    }

    #[tokio::test]
    async fn readers_beyond_the_bound_are_refused_and_a_place_is_free_when_one_goes() {
        let served = served().await;
        let client = Client::builder().no_proxy().build().unwrap();
        let url = format!("{}/api/live", served.url);
        let mut readers = Vec::new();
        for _ in 0..stream::MOST_READERS {
            let reply = client.get(&url).send().await.unwrap();
            assert_eq!(reply.status().as_u16(), 200);
            readers.push(reply);
        }
        let (status, body) = get(url.clone()).await;
        assert!(status == 503 && body.contains("api/status"), "{status}: {body}");
        assert_eq!(get(format!("{}/healthz", served.url)).await.0, 200, "probes have their answer all the same");
        drop(readers);
        while client.get(&url).send().await.unwrap().status().as_u16() != 200 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn metrics_have_a_separate_port() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let _server = tokio::spawn(serve_metrics(listener, Web::new(Live::new(), "/nonexistent".into())));
        let (status, body) = get(url).await;
        assert!(status == 200 && body.contains("ladder_ready 0") && body.ends_with("# EOF\n"), "{body}");
    }
}
