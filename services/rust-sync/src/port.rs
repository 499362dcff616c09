//! The metrics port: HTTP with one request per connection, served apart from the WebSocket threads.

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

/// Time limit for reading a request and for writing the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum of requests that are handled concurrently.
const MAXIMAL_CLIENTS: usize = 32;
const MAXIMAL_REQUEST: usize = 8 << 10;
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics port, which is served until the process ends.
#[derive(Debug)]
pub struct MetricsPort {
    /// The address that is bound; its port is the one that the kernel picked if the setting is 0.
    pub address: SocketAddr,
}

impl MetricsPort {
    /// Binds the port and starts its thread.
    ///
    /// # Errors
    /// When the address cannot be bound or no thread can be started.
    pub fn start(address: SocketAddr, shared: Arc<Shared>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        std::thread::Builder::new().name("metrics".into()).spawn(move || serve(&listener, &shared))?;
        Ok(Self { address })
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // For example, no file descriptors are left. Others may be closed in the meantime.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= MAXIMAL_CLIENTS {
            clients.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (shared, clients_of_thread) = (Arc::clone(shared), Arc::clone(&clients));
        let spawned = std::thread::Builder::new().name("metrics-client".into()).spawn(move || {
            // An error means that the client has disconnected.
            let _ = respond(stream, &shared);
            clients_of_thread.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn respond(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
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
    let mut parts = line.split(' ');
    let (method, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
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
