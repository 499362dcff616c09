//! The fake service: counts what workers post to it, and reports its counters on the same port.

use std::{
    collections::BTreeMap,
    env, fs,
    sync::{Arc, Mutex},
    time::Instant,
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use bench_format::service::{ApplicationStats, ConnectionBook, ConnectionBooks, ServiceStats, Started};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// The body of a worker's request: one connection with everything that it sent.
#[derive(Serialize, Deserialize)]
pub struct Sent {
    pub id: String,
    pub sent: u64,
    pub sequence_sum: u64,
    pub unnumbered: u64,
}

struct Counters {
    started: Instant,
    stats: ServiceStats,
    books: BTreeMap<String, ConnectionBook>,
    /// Whether the sequence sum omits 1, so that it doesn't match the delivered messages.
    is_liar: bool,
}

type Shared = Arc<Mutex<Counters>>;

/// Serves until it is killed. The flaw is in `FAKE_FLAW`; the process id is written to the file in `FAKE_PID_FILE`.
pub fn run() {
    let flaw = env::var("FAKE_FLAW").unwrap_or_default();
    eprintln!("this service is {flaw}");
    for name in ["INFERENCE_URL", "MODEL_SEED", "FAKE_SETTING"] {
        if let Ok(value) = env::var(name) {
            eprintln!("{name}={value}");
        }
    }
    if let Ok(path) = env::var("FAKE_PID_FILE") {
        fs::write(path, std::process::id().to_string()).unwrap();
    }
    match flaw.as_str() {
        "never-ready" => std::process::exit(3),
        "slow-start" => std::thread::sleep(std::time::Duration::from_millis(200)),
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(flaw == "liar", flaw == "dies"));
}

async fn serve(is_liar: bool, dies: bool) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stats = ServiceStats {
        service: env::var("FAKE_NAME").unwrap_or_default(),
        version: "fake 1".into(),
        application: Some(ApplicationStats::default()),
        ..ServiceStats::default()
    };
    let counters = Counters { started: Instant::now(), stats, books: BTreeMap::new(), is_liar };
    let sending = if dies { post(die) } else { post(send) };
    let app = Router::new()
        .route("/readyz", get(|| async { StatusCode::OK }))
        .route("/stats", get(stats_of))
        .route("/stats/connections", get(connections))
        .route("/send", sending)
        .with_state(Arc::new(Mutex::new(counters)));
    let started =
        Started { event: "ready".into(), address: address.clone(), metrics_address: address, pid: std::process::id() };
    // A line break first, because the test harness has begun a line.
    println!("\n{}", serde_json::to_string(&started).unwrap());
    axum::serve(listener, app).await.unwrap();
}

async fn stats_of(State(shared): State<Shared>) -> Json<ServiceStats> {
    let counters = shared.lock().unwrap();
    Json(ServiceStats { uptime_seconds: counters.started.elapsed().as_secs_f64(), ..counters.stats.clone() })
}

async fn connections(State(shared): State<Shared>) -> Json<ConnectionBooks> {
    let books = std::mem::take(&mut shared.lock().unwrap().books);
    Json(ConnectionBooks { connections: books.into_values().collect(), cursor: None })
}

async fn send(State(shared): State<Shared>, Json(sent): Json<Sent>) {
    let mut counters = shared.lock().unwrap();
    let omitted = u64::from(counters.is_liar);
    let stats = &mut counters.stats;
    stats.connections.accepted += 1;
    stats.messages.received += sent.sent + sent.unnumbered;
    stats.messages.consumed += sent.unnumbered;
    stats.messages.delivered += sent.sent;
    let application =
        ApplicationStats { delivered: sent.sent, sequence_sum: sent.sequence_sum - omitted, unnumbered: 0 };
    if let Some(totals) = &mut stats.application {
        totals.delivered += application.delivered;
        totals.sequence_sum = totals.sequence_sum.wrapping_add(application.sequence_sum);
    }
    let book = ConnectionBook {
        id: sent.id.clone(),
        received: sent.sent + sent.unnumbered,
        consumed: sent.unnumbered,
        application: Some(application),
        ..ConnectionBook::default()
    };
    counters.books.insert(sent.id, book);
}

async fn die() {
    eprintln!("dying as configured");
    std::process::exit(9);
}
