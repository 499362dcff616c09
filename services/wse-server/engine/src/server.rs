//! The server as its owner sees it: started, asked, sent to, stopped. The work is done by the threads it starts.

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
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

pub use self::{
    drain::{Farewell, FarewellError},
    presence::JoinError,
};
use crate::{
    cluster::{Cluster, Mesh},
    config::{Config, ConfigError},
    frame::{self, Opcode},
    http,
    inbound::{Batch, Inbound},
    jwt::Gate,
    key::ConnectionKey,
    keys::{JwtKey, KeyError},
    limits::{Held, Waker},
    links::Links,
    listen,
    outbound::{Command, Mailbox},
    presence::Presence,
    publications::Publications,
    recipients::Recipients,
    recovery::Recovery,
    redis::Redis,
    registry::Registry,
    shard::Shard,
    stats::{Book, DropReason},
    topics::Topics,
};
use service_contract::{ApplicationStats, ConnectionBooks, ServiceStats};

/// How long a shard may take to tell its books.
const BOOKS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all shards may take to survey their connections; a health check that waits for long is none.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(1);
/// Topics with a line of their own on the metrics port.
const SHOWN_TOPICS: usize = 50;

/// Why a server didn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration makes no sense.
    #[error("the configuration is refused")]
    Config(#[from] ConfigError),
    /// The address can't be listened on.
    #[error("failed to listen on {address}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Something else that the kernel refused.
    #[error("failed to {step}")]
    Resource {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// The application's own counters, to be told beside the engine's. Called from a thread that may block.
pub trait ApplicationSource: Send + Sync {
    /// All connections together; `None` while nothing was counted.
    fn totals(&self) -> Option<ApplicationStats>;
    /// By connection id, closed ones included.
    fn connections(&self) -> HashMap<String, ApplicationStats>;
}

/// What the shards, the metrics port and the owner share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) gate: Option<Gate>,
    pub(crate) inbound: Arc<Inbound>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) recipients: Recipients,
    pub(crate) links: Arc<Links>,
    pub(crate) cluster: OnceLock<Arc<Mesh>>,
    pub(crate) topics: Topics,
    pub(crate) publications: Publications,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) presence: Option<Presence>,
    /// The way to other instances through Redis, once the application has asked for it.
    pub(crate) redis: Mutex<Option<Arc<Redis>>>,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) wakers: Vec<Arc<Waker>>,
    /// Open connections of all shards, touched when one opens or closes.
    pub(crate) open: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// Nobody is let in any more.
    pub(crate) draining: AtomicBool,
    /// Books of shards that have ended.
    pub(crate) last_books: Mutex<Vec<Book>>,
    /// Messages that the application found malformed when it touched them; the shards count what they see themselves.
    malformed_when_touched: AtomicU64,
    application: RwLock<Option<Arc<dyn ApplicationSource>>>,
    started: Instant,
}

impl Shared {
    fn new(config: Config, shards: usize) -> std::io::Result<Self> {
        let wakers = (0..shards).map(|_| Waker::new().map(Arc::new)).collect::<std::io::Result<Vec<_>>>()?;
        let held = Held::new(config.max_inbound_queue_size, config.max_inbound_queue_bytes, wakers.clone());
        let (registry, links) = (Arc::new(Registry::default()), Arc::new(Links::default()));
        Ok(Self {
            gate: config.jwt.as_ref().map(Gate::new),
            inbound: Arc::new(Inbound::new(shards, held, Arc::clone(&registry))),
            registry,
            recipients: Recipients::new(config.rate_limit),
            topics: Topics::new(shards, config.max_subscriptions_per_connection, Arc::clone(&links)),
            links,
            cluster: OnceLock::new(),
            publications: Publications::new(config.max_publish_backlog_bytes),
            recovery: config.recovery.clone().map(Recovery::new),
            presence: config.presence.clone().map(Presence::new),
            redis: Mutex::default(),
            mailboxes: wakers.iter().map(|waker| Mailbox::new(Arc::clone(waker))).collect(),
            wakers,
            open: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            last_books: Mutex::default(),
            malformed_when_touched: AtomicU64::new(0),
            application: RwLock::new(None),
            started: Instant::now(),
            config,
        })
    }

    fn application(&self) -> Option<Arc<dyn ApplicationSource>> {
        self.application.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `/readyz`.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_running() && !self.draining.load(Ordering::SeqCst)
    }

    /// Until it is told to stop.
    pub(crate) fn is_running(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }
}

/// A running server. Share it behind an [`Arc`]; dropping it stops it.
pub struct Server {
    pub(crate) shared: Arc<Shared>,
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
    /// Binds and starts: threads `wse-shard-N`, and `wse-metrics` if there is a metrics port. When it returns, clients can connect.
    ///
    /// # Errors
    /// A configuration that makes no sense, an address that can't be listened on, or a lack of descriptors or threads.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.validate()?;
        let shards = config.shards.unwrap_or_else(usable_cpus);
        let listeners = listen::bind(&config, shards)?;
        let address = listeners.address;
        let step = "create event descriptors";
        let shared = Shared::new(config, shards).map_err(|source| StartError::Resource { step, source })?;
        let shared = Arc::new(shared);
        let metrics = match shared.config.metrics {
            Some((host, port)) => Some(http::MetricsPort::start(Arc::clone(&shared), SocketAddr::new(host, port))?),
            None => None,
        };
        let server = Self {
            metrics_address: metrics.as_ref().map(http::MetricsPort::address),
            shared,
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
        let thread = std::thread::Builder::new()
            .name(format!("wse-shard-{index}"))
            .spawn(move || shard.run())
            .map_err(failed("start a shard's thread"))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the metrics port listens, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// Whether it accepts connections.
    pub fn is_running(&self) -> bool {
        self.shared.is_running()
    }

    /// Leaves the cluster, closes all connections with 1001, gives them two seconds to take what was sent and to say goodbye, and joins the
    /// threads. What was received and not drained can still be drained. Calling it again does nothing.
    pub fn stop(&self) {
        if !self.shared.stopping.swap(true, Ordering::SeqCst) {
            tracing::info!(address = %self.address, "stopping");
        }
        let redis = self.shared.redis();
        redis.iter().for_each(|redis| redis.stop());
        drop(self.cluster.lock().unwrap_or_else(PoisonError::into_inner).take());
        for mailbox in &self.shared.mailboxes {
            mailbox.put(Command::Stop);
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a shard panicked");
            }
        }
        // Handing on what comes may have waited for the shards.
        redis.iter().for_each(|redis| redis.join());
        self.shared.inbound.close();
        drop(self.metrics.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Takes what is ready, up to `max_messages`; waits up to `timeout` for the first. Empty after the timeout, after
    /// [`Server::wake_drain`], and at once when the server has stopped and everything was taken.
    pub fn drain_batch(&self, max_messages: usize, timeout: Duration) -> Batch {
        self.shared.inbound.drain(max_messages, timeout)
    }

    /// Makes a waiting [`Server::drain_batch`] return early; if none is waiting, the next one that would wait.
    pub fn wake_drain(&self) {
        self.shared.inbound.wake_drain();
    }

    /// The id of a connection; see the crate's documentation for how long it is known.
    pub fn connection_id(&self, key: ConnectionKey) -> Option<Arc<str>> {
        let id = self.shared.registry.id(key)?;
        let mut buffer = uuid::Uuid::encode_buffer();
        Some(Arc::from(&*id.hyphenated().encode_lower(&mut buffer)))
    }

    /// Sends `text` to one connection. Returns whether that connection is known; whether the client takes it shows in the counters.
    pub fn send_text(&self, connection: &str, text: &str) -> bool {
        self.send(connection, Opcode::Text, text.as_bytes())
    }

    /// Sends `bytes` as one binary message; otherwise like [`Server::send_text`].
    pub fn send_bytes(&self, connection: &str, bytes: &[u8]) -> bool {
        self.send(connection, Opcode::Binary, bytes)
    }

    fn send(&self, connection: &str, opcode: Opcode, payload: &[u8]) -> bool {
        let Some(key) = self.shared.registry.key(connection) else { return false };
        self.shared.mailboxes[key.shard()].put(Command::Send(key, frame::encode(opcode, payload)))
    }

    /// Closes a connection with 4000. Returns whether it is known.
    pub fn disconnect(&self, connection: &str) -> bool {
        let Some(key) = self.shared.registry.key(connection) else { return false };
        self.shared.mailboxes[key.shard()].put(Command::Disconnect(key))
    }

    /// How many connections are open.
    pub fn connection_count(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The ids of all open connections, in no order.
    pub fn connections(&self) -> Vec<String> {
        self.shared.registry.open_ids()
    }

    /// How many messages and events wait to be drained.
    pub fn inbound_queue_depth(&self) -> usize {
        self.shared.totals().depth
    }

    /// How many messages were dropped because the application held all that it may.
    pub fn inbound_dropped_count(&self) -> u64 {
        self.shared.totals().counters.dropped[DropReason::InboundOverflow as usize]
    }

    /// One consistent reading of all counters.
    pub fn stats(&self) -> ServiceStats {
        self.shared.stats()
    }

    /// The books of each connection. Closed ones are told once and then forgotten, here as on the metrics port.
    pub fn connection_books(&self) -> ConnectionBooks {
        self.shared.connection_books()
    }

    /// What `/metrics` tells.
    pub fn prometheus_text(&self) -> String {
        self.shared.prometheus_text()
    }

    /// The application touched `messages` of [`crate::Kind::Json`] that are no JSON.
    pub fn count_malformed(&self, messages: u64) {
        self.shared.malformed_when_touched.fetch_add(messages, Ordering::Relaxed);
    }

    /// From now on, tokens pass by `keys` alone; connections that are open stay. For the rotation of keys without a restart.
    ///
    /// # Errors
    /// When there is no key, too many, or two with one id; the old ones stay then. When the server checks no tokens at all.
    pub fn replace_jwt_keys(&self, keys: &[JwtKey]) -> Result<(), KeyError> {
        self.shared.gate.as_ref().ok_or(KeyError::NoGate)?.replace(keys)
    }

    /// From now on the application's counters are told beside the engine's.
    pub fn set_application_stats(&self, source: Arc<dyn ApplicationSource>) {
        *self.shared.application.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// CPUs that this process may use: its affinity and its cgroup's quota, whichever is less.
fn usable_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_and_its_batches_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Server>();
        shared::<Batch>();
    }
}
