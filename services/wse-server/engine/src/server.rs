//! The server's public API: starting, querying, sending and stopping. The work itself is done by the threads that it
//! starts.

mod cluster;
mod drain;
mod presence;
mod redis;
mod reports;
mod topics;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use service_contract::{ApplicationStats, ServiceStats};

pub use self::presence::JoinError;
use crate::{
    cluster::{Cluster, Mesh},
    config::Config,
    error::StartError,
    failure::outcome,
    frame::{self, Opcode},
    http::{self, Pages},
    hub::Hub,
    inbound::Batch,
    key::ConnectionKey,
    keys::{JwtKey, KeyError},
    listen,
    outbound::Command,
    redis::Redis,
    shard::Shard,
    stats::DropReason,
};

/// How long a shard may take to report its books.
const BOOKS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all shards together may take to grade their connections; a health check must not wait longer.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(1);
/// How many topics the metrics list by name.
const LISTED_TOPICS: usize = 50;

/// The application's own counters, which are reported next to the engine's. Both methods are called from a thread that
/// may block.
pub trait ApplicationSource: Send + Sync {
    /// The counters of all connections together; `None` while nothing was counted.
    fn totals(&self) -> Option<ApplicationStats>;
    /// The counters by connection id, including closed connections.
    fn connections(&self) -> HashMap<String, ApplicationStats>;
}

/// What the server's HTTP pages and its API need in addition to the hub: the links to other instances, and the
/// application's own counters.
struct Instance {
    hub: Arc<Hub>,
    cluster: OnceLock<Arc<Mesh>>,
    /// The link through Redis; `None` until the application connects it.
    redis: Mutex<Option<Arc<Redis>>>,
    /// Messages that the application found to be malformed when it parsed them. The shards count those that they find
    /// themselves.
    malformed_when_parsed: AtomicU64,
    application: RwLock<Option<Arc<dyn ApplicationSource>>>,
}

impl Instance {
    fn new(hub: Arc<Hub>) -> Self {
        Self {
            hub,
            cluster: OnceLock::new(),
            redis: Mutex::default(),
            malformed_when_parsed: AtomicU64::new(0),
            application: RwLock::new(None),
        }
    }

    fn application(&self) -> Option<Arc<dyn ApplicationSource>> {
        self.application.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A running server. Share it behind an [`Arc`]; dropping it stops it.
pub struct Server {
    pub(crate) shared: Arc<Hub>,
    instance: Arc<Instance>,
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    metrics: Mutex<Option<http::MetricsPort>>,
    cluster: Mutex<Option<Cluster>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the ports and starts the threads `wse-shard-N`, and `wse-metrics` if a metrics port is configured. When it
    /// returns, clients can connect.
    ///
    /// # Errors
    /// Returns a [`StartError`] if the configuration is invalid, an address can't be listened on, or descriptors or
    /// threads can't be created.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.validate()?;
        let shards = config.shards.unwrap_or_else(usable_cpus);
        let listeners = listen::bind(&config, shards)?;
        let address = listeners.address;
        let step = "create event descriptors";
        let shared = Hub::new(config, shards).map_err(|source| StartError::Resource { step, source })?;
        let shared = Arc::new(shared);
        let instance = Arc::new(Instance::new(Arc::clone(&shared)));
        let metrics = match shared.config.metrics {
            Some((host, port)) => Some(http::MetricsPort::start(instance.clone(), SocketAddr::new(host, port))?),
            None => None,
        };
        let server = Self {
            metrics_address: metrics.as_ref().map(http::MetricsPort::address),
            shared,
            instance,
            address,
            threads: Mutex::default(),
            metrics: Mutex::new(metrics),
            cluster: Mutex::default(),
        };
        // If one of them fails, dropping `server` ends the others.
        for (index, listener) in listeners.sockets.into_iter().enumerate() {
            server.spawn_shard(index, listener)?;
        }
        tracing::info!(%address, shards, "listening");
        Ok(server)
    }

    fn spawn_shard(&self, index: usize, listener: std::os::fd::OwnedFd) -> Result<(), StartError> {
        let failed = |step| move |source| StartError::Resource { step, source };
        let shard = Shard::new(index, Arc::clone(&self.shared), listener).map_err(failed("set up a shard"))?;
        let hub = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(format!("wse-shard-{index}"))
            .spawn(move || {
                if let Some(reason) = outcome(|| shard.run()) {
                    hub.lose_shard(index, &reason);
                }
            })
            .map_err(failed("start a shard's thread"))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// The address on which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the metrics port; `None` if none is configured.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Whether the server accepts connections; false once it stops.
    pub fn is_running(&self) -> bool {
        self.shared.is_running()
    }

    /// Whether clients are admitted and all threads of the server run. `/readyz` reports the same.
    pub fn is_ready(&self) -> bool {
        self.shared.unready().is_none()
    }

    /// Why the server can't serve all its clients: one of its shards has ended. It admits no more clients then. Stop it
    /// and end the process with an error, so that it is started again.
    pub fn failure(&self) -> Option<&str> {
        self.shared.failures.shard()
    }

    /// Leaves the cluster, closes all connections with code 1001, gives clients two seconds to read what was sent and
    /// to complete the close handshake, and joins the threads. Messages that were received and not drained can still be
    /// drained. A second call does nothing.
    pub fn stop(&self) {
        if !self.shared.stopping.swap(true, Ordering::SeqCst) {
            tracing::info!(address = %self.address, "stopping");
        }
        let redis = self.instance.redis();
        redis.iter().for_each(|redis| redis.stop());
        drop(self.cluster.lock().unwrap_or_else(PoisonError::into_inner).take());
        for mailbox in &self.shared.mailboxes {
            mailbox.put(Command::Stop);
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A shard's panic is caught and reported when it happens.
            let _ = thread.join();
        }
        // The Redis thread may have waited for the shards to take publications.
        redis.iter().for_each(|redis| redis.join());
        self.shared.inbound.close();
        drop(self.metrics.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Takes up to `max_messages` inbound messages, and waits up to `timeout` for the first. The batch is empty after
    /// the timeout, after [`Server::wake_drain`], and without waiting when the server has stopped and everything was
    /// taken.
    pub fn drain_batch(&self, max_messages: usize, timeout: Duration) -> Batch {
        self.shared.inbound.drain(max_messages, timeout)
    }

    /// Makes a waiting [`Server::drain_batch`] return early. If none waits, the next one that would wait returns at
    /// once.
    pub fn wake_drain(&self) {
        self.shared.inbound.wake_drain();
    }

    /// The id of a connection; the crate's documentation says how long it is known.
    pub fn connection_id(&self, key: ConnectionKey) -> Option<Arc<str>> {
        let id = self.shared.registry.id(key)?;
        let mut buffer = uuid::Uuid::encode_buffer();
        Some(Arc::from(&*id.hyphenated().encode_lower(&mut buffer)))
    }

    /// Sends `text` to one connection. Returns whether the connection is known; whether its client takes the message
    /// only shows in the counters.
    pub fn send_text(&self, connection: &str, text: &str) -> bool {
        self.send(connection, Opcode::Text, text.as_bytes())
    }

    /// Sends `bytes` as one binary message; otherwise the same as [`Server::send_text`].
    pub fn send_bytes(&self, connection: &str, bytes: &[u8]) -> bool {
        self.send(connection, Opcode::Binary, bytes)
    }

    fn send(&self, connection: &str, opcode: Opcode, payload: &[u8]) -> bool {
        let Some(key) = self.shared.registry.key(connection) else { return false };
        self.shared.mailboxes[key.shard()].put(Command::Send(key, frame::encode(opcode, payload)))
    }

    /// Closes a connection with code 4000. Returns whether it is known.
    pub fn disconnect(&self, connection: &str) -> bool {
        let Some(key) = self.shared.registry.key(connection) else { return false };
        self.shared.mailboxes[key.shard()].put(Command::Disconnect(key))
    }

    /// The number of open connections.
    pub fn connection_count(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The ids of all open connections, in no particular order.
    pub fn connections(&self) -> Vec<String> {
        self.shared.registry.open_ids()
    }

    /// The number of messages and events that wait to be drained.
    pub fn inbound_queue_depth(&self) -> usize {
        self.instance.totals().depth
    }

    /// The number of messages that were dropped because the inbound queue was full.
    pub fn inbound_dropped_count(&self) -> u64 {
        self.instance.totals().counters.dropped[DropReason::InboundOverflow as usize]
    }

    /// One consistent reading of all counters.
    pub fn stats(&self) -> ServiceStats {
        self.instance.stats()
    }

    /// The text of `/metrics`.
    pub fn prometheus_text(&self) -> String {
        self.instance.metrics()
    }

    /// Counts `messages` of [`crate::Kind::Json`] that the application found to be invalid JSON.
    pub fn count_malformed(&self, messages: u64) {
        self.instance.malformed_when_parsed.fetch_add(messages, Ordering::Relaxed);
    }

    /// Replaces the keys that verify tokens, so that keys can be rotated without a restart. Open connections stay.
    ///
    /// # Errors
    /// Returns a [`KeyError`] if there are no keys, too many, or two with the same id, and if the server checks no
    /// tokens. The old keys stay then.
    pub fn replace_jwt_keys(&self, keys: &[JwtKey]) -> Result<(), KeyError> {
        self.shared.gate.as_ref().ok_or(KeyError::NoGate)?.replace(keys)
    }

    /// Sets the source of the application's counters, which are reported next to the engine's from now on.
    pub fn set_application_stats(&self, source: Arc<dyn ApplicationSource>) {
        *self.instance.application.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How many CPUs this process may use, the lower of its affinity and its cgroup's quota; at most 256, the limit of
/// shards.
fn usable_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_panics_makes_the_server_unready_and_nobody_waits_for_it() {
        let loopback = std::net::Ipv4Addr::LOCALHOST.into();
        let config = Config { shards: Some(2), metrics: Some((loopback, 0)), ..Config::default() };
        let server = Server::start(config).unwrap();
        assert!(server.is_ready() && server.failure().is_none());
        server.shared.mailboxes[1].put(Command::Panic);
        // The drain waits for less than its minute: the loss of the shard ends it.
        let started = std::time::Instant::now();
        while server.failure().is_none() {
            server.drain_batch(1, Duration::from_secs(60));
        }
        assert!(started.elapsed() < Duration::from_secs(60));
        assert_eq!(server.failure(), Some("shard 1 has ended: it panicked: a test asked for it"));
        assert!(!server.is_ready() && !server.shared.mailboxes[1].put(Command::Stop));
        let (status, body) = page(server.metrics_address().unwrap(), "/readyz");
        assert_eq!((status.as_str(), body.as_str()), ("503", "shard 1 has ended: it panicked: a test asked for it\n"));
        assert_eq!(page(server.metrics_address().unwrap(), "/healthz").0, "503");
        server.stop();
    }

    /// Status and body of a page of the metrics port.
    fn page(address: SocketAddr, path: &str) -> (String, String) {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head[9..12].to_owned(), body.to_owned())
    }

    #[test]
    fn a_server_and_its_batches_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Server>();
        shared::<Batch>();
    }
}
