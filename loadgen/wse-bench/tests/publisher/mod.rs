//! A minimal WSE service that publishes, with one or two instances and a metrics port for each.

#![allow(unreachable_pub)]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{Json, Router, extract::State, routing::get};
use bench_format::service::{ConnectionBook, ConnectionBooks, LinkStats, LinksStats, PublisherStats, ServiceStats};
use futures_util::{SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::broadcast,
    time::{Instant, sleep, sleep_until},
};
use tokio_tungstenite::{
    accept_async,
    tungstenite::{Error, Message},
};

/// Messages per second of a publisher with a schedule.
const RATE: u64 = 200;
/// Messages at once of a publisher without a schedule; `PAUSE` follows.
const BURST: u64 = 20;
const PAUSE: Duration = Duration::from_millis(2);
/// Size of the queue, larger than any backlog of a connection in these tests.
const BACKLOG: usize = 1 << 16;

/// How the service publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// By a schedule, at [`RATE`].
    Paced,
    /// As fast as it can.
    Flood,
}

/// A service of one instance or of two.
pub struct Publisher {
    /// Port that connections go to.
    pub port: u16,
    /// Port of the publishing instance: the same when there is one instance.
    pub publishing_port: u16,
    /// Metrics URL of the instance that connections go to.
    pub stats_url: String,
    /// Metrics port of the publishing instance.
    pub publishing_metrics_port: u16,
    _runtime: Runtime,
}

struct Shared {
    mode: &'static str,
    pace: Pace,
    connections: Mutex<HashMap<String, ConnectionBook>>,
    accepted: AtomicU64,
    published: AtomicU64,
    hub: broadcast::Sender<String>,
}

impl Publisher {
    /// Starts one instance, which has no link to another.
    pub fn alone(pace: Pace) -> Self {
        Self::start("broadcast", pace)
    }

    /// Starts two instances that are connected by a link.
    pub fn pair(pace: Pace) -> Self {
        Self::start("cluster", pace)
    }

    fn start(mode: &'static str, pace: Pace) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let bind = || {
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let port = listener.local_addr().unwrap().port();
            (listener, port)
        };
        let ((sockets, port), (metrics, metrics_port)) = (bind(), bind());
        let shared = Arc::new(Shared {
            mode,
            pace,
            connections: Mutex::default(),
            accepted: AtomicU64::new(0),
            published: AtomicU64::new(0),
            hub: broadcast::channel(BACKLOG).0,
        });
        let mut pages = Router::new().route("/stats", get(stats)).route("/stats/connections", get(connections));
        let of_publisher = Router::new().route("/stats/publisher", get(publisher));
        let (mut publishing_port, mut publishing_metrics_port) = (port, metrics_port);
        if mode == "broadcast" {
            pages = pages.merge(of_publisher);
        } else {
            pages = pages.route("/stats/links", get(received));
            let (other, other_metrics);
            ((other, publishing_port), (other_metrics, publishing_metrics_port)) = (bind(), bind());
            let app = of_publisher.route("/stats", get(async || Json(ServiceStats::default())));
            let app = app.route("/stats/links", get(sent)).with_state(Arc::clone(&shared));
            runtime.spawn(async move { axum::serve(other_metrics, app).await.unwrap() });
            // The tests connect no clients to the publishing instance; connections are accepted and dropped.
            runtime.spawn(async move { while other.accept().await.is_ok() {} });
        }
        let app = pages.with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(metrics, app).await.unwrap() });
        runtime.spawn(publish(Arc::clone(&shared)));
        runtime.spawn(accept(sockets, shared));
        let stats_url = format!("http://127.0.0.1:{metrics_port}");
        Self { port, publishing_port, stats_url, publishing_metrics_port, _runtime: runtime }
    }
}

impl Shared {
    fn publishes(&self) -> bool {
        self.hub.receiver_count() > 0
    }
}

async fn stats(State(shared): State<Arc<Shared>>) -> Json<ServiceStats> {
    let mut stats = ServiceStats::default();
    stats.connections.accepted = shared.accepted.load(Ordering::Relaxed);
    for book in shared.connections.lock().unwrap().values() {
        stats.connections.open += u64::from(book.open);
        stats.messages.received += book.received;
        stats.messages.consumed += book.consumed;
        stats.messages.sent += book.sent.unwrap();
    }
    Json(stats)
}

async fn connections(State(shared): State<Arc<Shared>>) -> Json<ConnectionBooks> {
    Json(ConnectionBooks { connections: shared.connections.lock().unwrap().values().cloned().collect(), cursor: None })
}

async fn publisher(State(shared): State<Arc<Shared>>) -> Json<PublisherStats> {
    let published = shared.published.load(Ordering::Relaxed);
    Json(PublisherStats {
        mode: shared.mode.into(),
        rate_per_second: (shared.pace == Pace::Paced).then_some(RATE as f64),
        backpressure: if shared.pace == Pace::Paced { "schedule" } else { "none" }.into(),
        publishing: shared.publishes(),
        published,
        first_sequence: (published > 0).then_some(1),
        last_sequence: (published > 0).then_some(published),
        ..PublisherStats::default()
    })
}

/// The link's counters of the publishing instance.
async fn sent(State(shared): State<Arc<Shared>>) -> Json<LinksStats> {
    let published = shared.published.load(Ordering::Relaxed);
    link(LinkStats { published, sent: published, connected: 1, ..LinkStats::default() })
}

/// The link's counters of the other instance.
async fn received(State(shared): State<Arc<Shared>>) -> Json<LinksStats> {
    let received = shared.published.load(Ordering::Relaxed);
    link(LinkStats { received, delivered: received, connected: 1, ..LinkStats::default() })
}

fn link(link: LinkStats) -> Json<LinksStats> {
    Json(LinksStats { cluster: Some(link), redis: None })
}

async fn publish(shared: Arc<Shared>) {
    let (burst, pause) = match shared.pace {
        Pace::Paced => (1, Duration::from_secs(1) / RATE as u32),
        Pace::Flood => (BURST, PAUSE),
    };
    loop {
        if !shared.publishes() {
            sleep(PAUSE).await;
            continue;
        }
        let (started, due) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
        for step in 1.. {
            if !shared.publishes() {
                break;
            }
            for _ in 0..burst {
                let number = shared.published.load(Ordering::Relaxed) + 1;
                let due_us = (due + pause * (step - 1)).as_micros();
                let tick = format!(
                    r#"{{"c":"U","t":"fanout_tick","p":{{"seq":{number},"ts_us":{due_us},"s":"ES","px":5234.75,"q":2}}}}"#
                );
                // Fails without receivers: the last one may just have left.
                let _ = shared.hub.send(tick);
                shared.published.store(number, Ordering::Relaxed);
            }
            sleep_until(started + pause * step).await;
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        // A client that closes its connection ends only its own task.
        tokio::spawn(async move { serve(socket, &shared).await });
    }
}

async fn serve(socket: TcpStream, shared: &Shared) -> Result<(), Error> {
    socket.set_nodelay(true)?;
    let mut ws = accept_async(socket).await?;
    let id = format!("p{}", shared.accepted.fetch_add(1, Ordering::Relaxed));
    let ready = serde_json::json!({"c": "WSE", "t": "server_ready", "p": {"details": {"connection_id": id}}, "v": 1});
    ws.send(Message::text(ready.to_string())).await?;
    let mut hub = shared.hub.subscribe();
    let mut book = ConnectionBook { id: id.clone(), open: true, sent: Some(1), ..ConnectionBook::default() };
    let keep = |book: &ConnectionBook| drop(shared.connections.lock().unwrap().insert(id.clone(), book.clone()));
    keep(&book);
    loop {
        tokio::select! {
            biased;
            message = ws.next() => match message {
                Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                    book.received += 1;
                    book.consumed += 1;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
            tick = hub.recv() => {
                let tick = tick.expect("the hub outlives its connections, and none lags so far");
                ws.send(Message::text(tick)).await?;
                book.sent = book.sent.map(|sent| sent + 1);
            }
        }
        keep(&book);
    }
    book.open = false;
    keep(&book);
    ws.close(None).await
}
