//! Both ports, the upgrade, and shutdown.

use std::{
    fs,
    net::SocketAddr,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::{Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{
            ALLOW, CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
    serve::ListenerExt,
};
use bench_format::histogram::Recorder;
use hyper_util::rt::TokioIo;
use serde_json::json;
use service_contract::Started;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{
    books::Books,
    config::{Config, Flaw},
    inference::Inference,
    session,
};
use crate::delay::{Delays, uniform};

/// Length of the listen queue.
const BACKLOG: u32 = 16_384;
/// How long all sessions together may take to end.
const STOP_TIMEOUT: Duration = Duration::from_millis(4500);

/// The state that sessions and both ports share.
pub struct Shared {
    pub(super) config: Config,
    pub(super) books: Books,
    pub(super) inference: Inference,
    accepting: AtomicBool,
    /// Counter for numbers that differ from session to session: sequences of delays, phases and chances.
    streams: AtomicU64,
    /// Number of sessions that were opened, by which some fall silent.
    sessions: AtomicU64,
    stop: watch::Sender<bool>,
}

impl Shared {
    /// The delays of the next session.
    pub(super) fn delays(&self) -> Delays {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let milliseconds = Duration::from_millis;
        match self.config.flaw {
            Flaw::Delay => {
                let (shortest, tail) = (milliseconds(self.config.delay_ms), milliseconds(self.config.tail_ms));
                Delays::new(shortest, tail, self.config.seed, stream)
            }
            _ => Delays::none(),
        }
    }

    /// Whether the flaw `racy-two-in-flight` affects the next session; it affects one in three.
    pub(super) fn is_racy(&self) -> bool {
        self.config.flaw == Flaw::RacyTwoInFlight
            && uniform(self.config.seed, self.streams.fetch_add(1, Ordering::Relaxed)) < 1.0 / 3.0
    }

    /// Whether the next session falls silent. Of any hundred sessions in a row as many do as the percentage says.
    pub(super) fn is_silent(&self) -> bool {
        let percent = u64::from(self.config.silent_percent);
        let before = self.sessions.fetch_add(1, Ordering::Relaxed);
        (before + 1) * percent / 100 > before * percent / 100
    }

    /// The offset of a session's schedule.
    pub(super) fn phase(&self) -> Duration {
        let jitter = Duration::from_millis(self.config.flush_phase_jitter_ms);
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        // Fractional parts of multiples of the golden ratio: evenly spread for any number of sessions.
        jitter.mul_f64((stream as f64 * 0.618_033_988_749_895).fract())
    }
}

/// A gateway that listens on its two ports.
pub struct Gateway {
    shared: Arc<Shared>,
    address: SocketAddr,
    metrics_address: SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Gateway {
    /// Binds both ports and starts to serve them.
    ///
    /// # Errors
    /// When a port can't be bound, the inference's client can't be created, or the folder for evidence can't be
    /// written.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let listener = listen(SocketAddr::new(config.host, config.port))?;
        let metrics_listener = listen(SocketAddr::new(config.host, config.metrics_port))?;
        let (address, metrics_address) = (listener.local_addr()?, metrics_listener.local_addr()?);
        let shared = Arc::new(Shared {
            books: Books::new(format!("self-test-gateway-{}", config.flaw.name())),
            inference: Inference::new(&config).context("failed to create a client for the inference service")?,
            accepting: AtomicBool::new(true),
            streams: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            stop: watch::Sender::new(false),
            config,
        });
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let serving = tokio::spawn(axum::serve(listener, clients(shared.clone())).into_future());
        tokio::spawn(axum::serve(metrics_listener, metrics(shared.clone())).into_future());
        let gateway = Self { shared, address, metrics_address, serving };
        gateway.write_evidence("ready", &gateway.started())?;
        Ok(gateway)
    }

    /// The line that is printed when the gateway is ready.
    pub fn started(&self) -> Started {
        Started {
            event: "ready".into(),
            address: self.address.to_string(),
            metrics_address: self.metrics_address.to_string(),
            pid: process::id(),
        }
    }

    /// Accepts no more clients, ends the sessions, and writes the evidence. With the flaw `abrupt-end` the process
    /// exits at once.
    ///
    /// # Errors
    /// When the evidence can't be written.
    pub async fn stop(self) -> anyhow::Result<()> {
        if self.shared.config.flaw == Flaw::AbruptEnd {
            process::exit(0);
        }
        self.shared.accepting.store(false, Ordering::Release);
        self.serving.abort();
        self.shared.stop.send_replace(true);
        let deadline = Instant::now() + STOP_TIMEOUT;
        // A session drops its receiver when its counters are in the books and its last messages are sent.
        while self.shared.stop.receiver_count() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
        let (newest, oldest) = {
            let book = self.shared.books.open();
            (book.newest.encode(), book.oldest.encode())
        };
        self.write_evidence("recorded", &newest)?;
        self.write_evidence("recorded-oldest", &oldest)
    }

    fn write_evidence(&self, content_name: &str, content: &impl serde::Serialize) -> anyhow::Result<()> {
        let Some(folder) = &self.shared.config.evidence else { return Ok(()) };
        let name = format!("gateway-{}-{content_name}.json", self.shared.config.flaw.name());
        let write = || {
            let temporary = folder.join(format!(".{name}"));
            fs::write(&temporary, serde_json::to_vec(content)?)?;
            anyhow::Ok(fs::rename(temporary, folder.join(&name))?)
        };
        write().with_context(|| format!("failed to write {name} into {}", folder.display()))
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("failed to bind {address}"))?;
    socket.listen(BACKLOG).with_context(|| format!("failed to listen on {address}"))
}

/// The routes of the port for clients.
fn clients(shared: Arc<Shared>) -> Router {
    let refuse = || async { (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]) };
    let name = format!("self-test-gateway-{}", shared.config.flaw.name());
    let health = move || async move { Json(json!({"ok": true, "runtime": name})) };
    Router::new()
        .route("/health", get(health).fallback(refuse))
        .route("/ws/stt", get(upgrade).fallback(refuse))
        .with_state(shared)
}

/// The routes of the metrics port.
fn metrics(shared: Arc<Shared>) -> Router {
    let recorded = |pick: fn(&super::books::Book) -> &Recorder| {
        move |State(shared): State<Arc<Shared>>| async move { Json(pick(&shared.books.open()).encode()) }
    };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/stats", get(|State(shared): State<Arc<Shared>>| async move { Json(shared.books.stats()) }))
        .route("/recorded", get(recorded(|book| &book.newest)))
        .route("/recorded-oldest", get(recorded(|book| &book.oldest)))
        .route("/metrics", get(exposition))
        .with_state(shared)
}

async fn ready(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    match shared.accepting.load(Ordering::Acquire) {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
    }
}

async fn exposition(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], shared.books.exposition())
}

/// The key of a valid upgrade request; `None` for any other request.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let has = |name, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let is_upgrade = has(UPGRADE, "websocket") && has(CONNECTION, "upgrade") && has(SEC_WEBSOCKET_VERSION, "13");
    headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_upgrade).map(|key| key.as_bytes())
}

async fn upgrade(State(shared): State<Arc<Shared>>, mut request: Request) -> Response {
    let reject = |reason: &str| *shared.books.open().connections.rejected.entry(reason.into()).or_default() += 1;
    let Some(key) = key(request.headers()) else {
        reject("handshake");
        return (StatusCode::UPGRADE_REQUIRED, [(SEC_WEBSOCKET_VERSION, "13")], "no WebSocket upgrade\n")
            .into_response();
    };
    if !shared.accepting.load(Ordering::Acquire) {
        reject("draining");
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let accept = derive_accept_key(key);
    let (upgraded, stop) = (hyper::upgrade::on(&mut request), shared.stop.subscribe());
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            session::run(TokioIo::new(upgraded), shared, stop).await;
        }
    });
    let headers = [(UPGRADE, "websocket".to_owned()), (CONNECTION, "Upgrade".into()), (SEC_WEBSOCKET_ACCEPT, accept)];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}
