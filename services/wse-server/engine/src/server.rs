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
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use service_contract::{ApplicationStats, ConnectionBooks, ServiceStats};

pub use self::presence::JoinError;
use crate::{
    cluster::{Cluster, Mesh},
    config::Config,
    error::StartError,
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

/// How long a shard may take to tell its books.
const BOOKS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long all shards may take to survey their connections; a health check that waits for long is none.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(1);
/// Topics with a line of their own on the metrics port.
const SHOWN_TOPICS: usize = 50;

/// The application's own counters, to be told beside the engine's. Called from a thread that may block.
pub trait ApplicationSource: Send + Sync {
    /// All connections together; `None` while nothing was counted.
    fn totals(&self) -> Option<ApplicationStats>;
    /// By connection id, closed ones included.
    fn connections(&self) -> HashMap<String, ApplicationStats>;
}

/// What a server's pages and its owner ask beside the hub: ways to other instances, and the application's own counters.
struct Instance {
    hub: Arc<Hub>,
    cluster: OnceLock<Arc<Mesh>>,
    /// The way to other instances through Redis, once the application has asked for it.
    redis: Mutex<Option<Arc<Redis>>>,
    /// Messages that the application found malformed when it touched them; the shards count what they see themselves.
    malformed_when_touched: AtomicU64,
    application: RwLock<Option<Arc<dyn ApplicationSource>>>,
}

impl Instance {
    fn new(hub: Arc<Hub>) -> Self {
        Self {
            hub,
            cluster: OnceLock::new(),
            redis: Mutex::default(),
            malformed_when_touched: AtomicU64::new(0),
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
        let redis = self.instance.redis();
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
        self.instance.totals().depth
    }

    /// How many messages were dropped because the application held all that it may.
    pub fn inbound_dropped_count(&self) -> u64 {
        self.instance.totals().counters.dropped[DropReason::InboundOverflow as usize]
    }

    /// One consistent reading of all counters.
    pub fn stats(&self) -> ServiceStats {
        self.instance.stats()
    }

    /// The books of each connection. Closed ones are told once and then forgotten, here as on the metrics port.
    pub fn connection_books(&self) -> ConnectionBooks {
        self.instance.connections()
    }

    /// What `/metrics` tells.
    pub fn prometheus_text(&self) -> String {
        self.instance.metrics()
    }

    /// The application touched `messages` of [`crate::Kind::Json`] that are no JSON.
    pub fn count_malformed(&self, messages: u64) {
        self.instance.malformed_when_touched.fetch_add(messages, Ordering::Relaxed);
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
        *self.instance.application.write().unwrap_or_else(PoisonError::into_inner) = Some(source);
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
