//! Opens both ports, accepts clients, and shuts down.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::Context;
use futures_util::SinkExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use service_contract::Started;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::frame::coding::CloseCode},
};

use crate::{
    busy::BusyThread,
    config::{Config, Flaw},
    connection::{Connection, close},
    ledger::Ledger,
    metrics,
    null::Readers,
    protocol,
    shared::Shared,
    upgrade::{Admission, upgrade},
    wire::Wire,
};

/// Length of the listen queue: a storm opens thousands of connections at once.
const BACKLOG: u32 = 16_384;
/// WSE's close code for a missing or invalid token.
const UNAUTHENTICATED: CloseCode = CloseCode::Library(4401);
/// How long all connections together may take to end; the contract allows five seconds for the whole shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a failed accept, which usually means that no descriptor is left.
const PAUSE: Duration = Duration::from_millis(20);

/// A service that listens on its two ports.
pub struct Service {
    shared: Arc<Shared>,
    address: SocketAddr,
    metrics_address: SocketAddr,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    metrics: metrics::Server,
    readers: Option<Arc<Readers>>,
    busy: Option<BusyThread>,
}

impl Service {
    /// Binds both ports and starts to serve them.
    ///
    /// # Errors
    /// When a port can't be bound, a thread can't be started, or the folder for evidence can't be written.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        raise_open_files();
        let listener = listen(SocketAddr::new(config.host, config.port))?;
        let metrics_listener = listen(SocketAddr::new(config.host, config.metrics_port))?;
        let (address, metrics_address) = (listener.local_addr()?, metrics_listener.local_addr()?);
        let ledger = Arc::new(Ledger::new(config.flaw));
        let readers = match config.flaw {
            Flaw::Null => Some(Arc::new(Readers::start(&ledger).context("failed to start the null readers")?)),
            _ => None,
        };
        let (busy, idle) = (Duration::from_millis(config.busy_ms), Duration::from_millis(config.idle_ms));
        let busy = match config.flaw {
            Flaw::Busy => Some(BusyThread::start(busy, idle).context("failed to start the busy thread")?),
            _ => None,
        };
        let shared = Arc::new(Shared::new(config, ledger));
        let (stop, stopped) = watch::channel(false);
        let (publishing, stop_requested) = (shared.clone(), stopped.clone());
        tokio::spawn(async move {
            if let Some(publisher) = &publishing.publisher {
                publisher.run(&publishing.dispositions, stop_requested).await;
            }
        });
        let accepting = tokio::spawn(accept(listener, shared.clone(), readers.clone(), stopped));
        let metrics = metrics::serve(metrics_listener.into_std()?, shared.clone())?;
        let service = Self { shared, address, metrics_address, stop, accepting, metrics, readers, busy };
        service.write_evidence("ready.json", &service.started())?;
        Ok(service)
    }

    /// The line that is printed when the service is ready.
    pub fn started(&self) -> Started {
        Started {
            event: "ready".into(),
            address: self.address.to_string(),
            metrics_address: self.metrics_address.to_string(),
            pid: process::id(),
        }
    }

    /// Accepts no more connections, closes the open ones with 1001, and writes the evidence. The metrics port stays
    /// open until everything is counted.
    ///
    /// # Errors
    /// When the evidence can't be written, or the accepting task, a reading thread or the metrics port failed.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.shared.accepting.store(false, Ordering::Release);
        self.stop.send_replace(true);
        (&mut self.accepting).await.context("the accepting task failed")?;
        if let Some(readers) = self.readers.take().and_then(Arc::into_inner) {
            tokio::task::spawn_blocking(|| readers.stop()).await?.context("a null reader failed")?;
        }
        if let Some(busy) = self.busy.take() {
            busy.stop().map_err(|_| anyhow::anyhow!("the busy thread failed"))?;
        }
        self.write_evidence("recorded.json", &self.shared.recorded())?;
        self.metrics.stop()
    }

    /// Writes a file into the folder for evidence, if there is one. The file is renamed into place, so it is never
    /// incomplete.
    fn write_evidence(&self, name: &str, content: &impl serde::Serialize) -> anyhow::Result<()> {
        let Some(folder) = &self.shared.config.evidence else { return Ok(()) };
        // Services with different flaws may share a folder.
        let name = &format!("{}-{name}", self.shared.config.flaw.as_str());
        write_atomically(folder, name, content)
            .with_context(|| format!("failed to write {name} into {}", folder.display()))
    }
}

fn write_atomically(folder: &Path, name: &str, content: &impl serde::Serialize) -> anyhow::Result<()> {
    let temporary = folder.join(format!(".{name}"));
    fs::write(&temporary, serde_json::to_vec(content)?)?;
    fs::rename(temporary, folder.join(name))?;
    Ok(())
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("failed to bind {address}"))?;
    socket.listen(BACKLOG).with_context(|| format!("failed to listen on {address}"))
}

/// Raises the soft limit of open files to the hard limit: each connection needs a descriptor.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // A failure leaves the limit as it is; reaching it shows as failed accepts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Accepts connections until the service stops, then waits for them to end.
async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    readers: Option<Arc<Readers>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, shared.clone(), readers.clone(), stop.clone()));
            }
            Err(error) => {
                eprintln!("failed to accept a connection: {error}");
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    let closing = async { while connections.join_next().await.is_some() {} };
    if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
        eprintln!("some connections did not close within {CLOSE_TIMEOUT:?}");
    }
}

/// Serves one connection from the handshake until its book is closed.
async fn serve(stream: TcpStream, shared: Arc<Shared>, readers: Option<Arc<Readers>>, mut stop: watch::Receiver<bool>) {
    // Replies are single small packets and must leave at once. This fails only when the client is gone.
    let _ = stream.set_nodelay(true);
    let upgraded = tokio::select! {
        upgraded = upgrade(Wire::new(stream), &shared.admission_rules) => upgraded,
        _ = stop.wait_for(|stop| *stop) => Err("draining"),
    };
    let (socket, admission) = match upgraded {
        Ok(upgraded) => upgraded,
        Err(reason) => return shared.ledger.reject(reason),
    };
    if admission == Admission::Denied {
        shared.ledger.reject("auth");
        return reject_token(socket).await;
    }
    let entry = shared.ledger.accept(socket.get_ref().traffic().clone());
    let reason = match readers {
        Some(readers) => give_to_reader(socket, &entry, &readers).await,
        None => {
            let mut connection = Connection::new(socket, entry.clone(), shared.clone(), shared.delays());
            match connection.send(protocol::server_ready(&entry.id().to_string())).await {
                Ok(()) => Some(connection.run(stop).await),
                Err(_) => Some("eof"),
            }
        }
    };
    if let Some(reason) = reason {
        shared.ledger.close(&entry, reason);
    }
}

async fn reject_token(mut socket: WebSocketStream<Wire>) {
    let rejection = async {
        socket.send(Message::text(protocol::authentication_failed())).await?;
        socket.send(close(UNAUTHENTICATED, "Authentication failed")).await?;
        socket.close(None).await
    };
    // Failures are ignored: the rejection was counted already.
    let _ = timeout(Duration::from_secs(1), rejection).await;
}

/// Passes the bare socket to the null readers; returns the close reason when that failed.
async fn give_to_reader(
    mut socket: WebSocketStream<Wire>,
    entry: &Arc<crate::ledger::Entry>,
    readers: &Readers,
) -> Option<&'static str> {
    if socket.send(Message::text(protocol::server_ready(&entry.id().to_string()))).await.is_err() {
        return Some("eof");
    }
    entry.book().sent += 1;
    // Clients send nothing before server_ready, and a handshake with trailing bytes is refused, so the library has
    // buffered no bytes of the connection.
    match socket.into_inner().into_stream().into_std() {
        Ok(stream) => readers.adopt(stream, entry.clone()),
        Err(_) => return Some("error"),
    }
    None
}
