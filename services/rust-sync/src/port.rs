//! The metrics port: HTTP on a thread of its own, one request per connection.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{metrics::Counters, protocol::http::answer, shared::Shared};

/// Who takes longer to ask, or to take the answer, is not answered.
const PATIENCE: Duration = Duration::from_secs(2);
/// Requests that are answered side by side.
const MAXIMAL_CLIENTS: usize = 32;
const MAXIMAL_REQUEST: usize = 8 << 10;
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metrics port; it is served until the process ends.
#[derive(Debug)]
pub struct MetricsPort {
    /// Where it listens.
    pub address: SocketAddr,
}

impl MetricsPort {
    /// Listens, and answers from now on.
    ///
    /// # Errors
    /// The address can't be listened on, or there is no thread left.
    pub fn start(wanted: SocketAddr, shared: Arc<Shared>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(wanted)?;
        let address = listener.local_addr()?;
        std::thread::Builder::new().name("metrics".into()).spawn(move || serve(&listener, &shared))?;
        Ok(Self { address })
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptors left, say. Others may be closed meanwhile.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= MAXIMAL_CLIENTS {
            clients.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (shared, ours) = (Arc::clone(shared), Arc::clone(&clients));
        let answered = std::thread::Builder::new().name("metrics-client".into()).spawn(move || {
            // A client that is gone needs no answer.
            let _ = respond(stream, &shared);
            ours.fetch_sub(1, Ordering::Relaxed);
        });
        if answered.is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn respond(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::with_capacity(1024);
    let mut chunk = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut chunk)?;
        if read == 0 || request.len() > MAXIMAL_REQUEST {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..read]);
    }
    stream.write_all(&route(&request, shared))?;
    stream.shutdown(Shutdown::Write)
}

fn route(request: &[u8], shared: &Shared) -> Vec<u8> {
    let line = String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next().unwrap_or_default());
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let text = |status, body: &str| answer(status, "", "text/plain", body);
    match path.split('?').next().unwrap_or_default() {
        "/healthz" | "/readyz" | "/stats" | "/metrics" if method != "GET" => {
            answer("405 Method Not Allowed", "Allow: GET\r\n", "text/plain", "only GET\n")
        }
        "/healthz" => text("200 OK", "ok\n"),
        "/readyz" if shared.is_stopping() => text("503 Service Unavailable", "stopping\n"),
        "/readyz" => text("200 OK", "ready\n"),
        "/stats" => {
            let stats = read(shared).service_stats(shared.uptime());
            answer("200 OK", "", "application/json", &serde_json::to_string(&stats).expect("counters become JSON"))
        }
        "/metrics" => answer("200 OK", "", PROMETHEUS_TEXT, &read(shared).prometheus(shared.uptime())),
        _ => text("404 Not Found", "there are /healthz, /readyz, /stats and /metrics\n"),
    }
}

fn read(shared: &Shared) -> Counters {
    Counters::sum(&shared.counters())
}
