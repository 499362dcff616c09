//! Links to other instances through Redis Pub/Sub.
//!
//! A topic is the channel `wse:<topic>`; a publication there has a [`header`] in front of its text. Outbound, `outbox`
//! numbers and queues publications and `publisher` writes them. `interest` knows the topics that clients of this
//! instance need, `subscriber` subscribes to them and hands on the messages that arrive, `inbox` finds out which of
//! these are new, and `history` keeps them for clients that reconnect. `dead_letters` holds the dead letters. [`resp`] is the
//! wire format. It is our own because a client library that queues inbound messages without a bound could not stop
//! reading, and because of the cost per message.

mod address;
mod connection;
mod dead_letters;
pub mod header;
mod history;
mod inbox;
mod interest;
mod outbox;
mod publisher;
mod recent;
pub mod resp;
mod subscriber;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::sync_channel,
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    runtime,
    sync::{mpsc, watch},
};
use wse_utilities::breaker::BreakerConfig;

use self::{
    address::Address,
    interest::Interest,
    outbox::{Loss, Outbox},
    publisher::Query,
};
pub use self::{address::AddressError, dead_letters::RedisDeadLetter};
pub use crate::links::RedisStats;
use crate::{
    hub::Hub,
    links::{Carrier, Publication},
    lock::lock,
    stats::labelled,
};

/// What the channel of a topic begins with.
const CHANNEL: &str = "wse:";
/// What the key of a topic's list of dead letters begins with.
const DEAD_LETTERS: &str = "wse:dlq:";
/// How long a stopping server waits for Redis to take what was published.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeouts and pauses of the connections to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisTiming {
    /// Limit for a connection attempt, including the first commands and their replies.
    pub connect: Duration,
    /// Limit for a reply; beyond it the connection is considered lost.
    pub reply: Duration,
    /// How long a subscriber receives nothing before it sends a PING.
    pub heartbeat: Duration,
    /// The pause before the first attempt to reconnect; each further pause is half as long again.
    pub first_retry: Duration,
    /// The longest pause between two attempts.
    pub longest_retry: Duration,
    /// The pauses between checks whether there is a connection, for a publication that finds none. Together they are
    /// the time that it waits; then it is given up.
    pub attempts: [Duration; 2],
    /// The circuit breaker that suspends connection attempts after repeated failures.
    pub breaker: BreakerConfig,
}

impl Default for RedisTiming {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            reply: Duration::from_secs(2),
            heartbeat: Duration::from_secs(5),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(60),
            attempts: [Duration::from_millis(100), Duration::from_millis(200)],
            breaker: BreakerConfig {
                failure_threshold: 10,
                reset_timeout: Duration::from_secs(60),
                success_threshold: 3,
            },
        }
    }
}

impl RedisTiming {
    /// How long a publication waits for a connection.
    fn connection_wait(&self) -> Duration {
        self.attempts.iter().sum()
    }
}

/// Why a request that needs Redis fails.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// The URL is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The server is connected to a Redis already.
    #[error("this server is connected to a Redis already")]
    AlreadyConnected,
    /// The server was never connected to a Redis.
    #[error("this server was never connected to a Redis: call connect_redis() first")]
    NotConnected,
    /// The server has stopped.
    #[error("this server has stopped")]
    Stopped,
    /// Redis refused the request, or there is no connection to it; the text says which.
    #[error("failed to replay dead letters: {0}")]
    Replay(String),
    /// The kernel refused to start a thread or to set up its event loop.
    #[error("failed to start a thread for Redis")]
    Thread(#[from] std::io::Error),
}

/// What the two connections share: the one that publishes and the one that subscribes.
struct Inner {
    address: Address,
    times: RedisTiming,
    /// The number by which other instances know this one, drawn when the link starts.
    origin: u64,
    outbox: Outbox,
    interest: Interest,
    queries: mpsc::UnboundedSender<Query>,
    received: Mutex<inbox::Books>,
    /// Whether the publishing connection is open.
    publishes: AtomicBool,
    /// Whether the subscribing connection is open.
    receives: AtomicBool,
    reconnects: AtomicU64,
    errors: AtomicU64,
    stop: watch::Sender<bool>,
}

/// The link through Redis: its shared state and its two threads.
pub(crate) struct Redis {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Redis {
    /// Starts the threads `wse-redis-out` and `wse-redis-in`, which connect, and adds this to the server's links.
    ///
    /// # Errors
    /// [`RedisError::Address`] for an invalid URL, [`RedisError::Thread`] if a thread can't be started. A connection
    /// that fails is not an error: the threads try again.
    pub(crate) fn start(shared: &Arc<Hub>, url: &str, times: RedisTiming) -> Result<Self, RedisError> {
        let address = Address::parse(url)?;
        let (queries, query_receiver) = mpsc::unbounded_channel();
        let origin = crate::random::id(crate::clock::now_millis()).as_u64_pair().1;
        let inner = Arc::new(Inner {
            address,
            times,
            origin,
            outbox: Outbox::new(origin, shared.config.max_outbound_queue_bytes, shared.publications.clone()),
            interest: Interest::default(),
            queries,
            received: Mutex::default(),
            publishes: AtomicBool::new(false),
            receives: AtomicBool::new(false),
            reconnects: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            stop: watch::Sender::new(false),
        });
        let redis = Self { inner: Arc::clone(&inner), threads: Mutex::default() };
        let carrier: Arc<dyn Carrier> = inner.clone();
        shared.links.add(Arc::clone(&carrier));
        shared.topics.announce_topics(&*carrier);
        let started = redis.spawn("wse-redis-out", publisher::run(inner.clone(), query_receiver));
        let started = started.and_then(|()| redis.spawn("wse-redis-in", subscriber::run(inner, Arc::clone(shared))));
        started.inspect_err(|_| {
            redis.stop();
            redis.join();
        })?;
        Ok(redis)
    }

    fn spawn(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        // One thread each, as handing on messages may wait for the shards, which publishing must not do.
        let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(work);
            // Doesn't wait for a DNS lookup that is still running.
            runtime.shutdown_background();
        })?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Whether both connections are open.
    pub(crate) fn is_connected(&self) -> bool {
        self.inner.publishes.load(Ordering::SeqCst) && self.inner.receives.load(Ordering::SeqCst)
    }

    /// The counters of publications in both directions.
    pub(crate) fn stats(&self) -> RedisStats {
        let (books, dead_letters) = self.inner.outbox.books();
        let received = *lock(&self.inner.received);
        RedisStats {
            connected: u64::from(self.is_connected()),
            published: books.published,
            sent: books.sent,
            dropped: labelled(&Loss::LABELS, &books.dropped),
            queued: books.queued,
            received: received.received,
            delivered: received.delivered,
            lost: received.lost,
            duplicates: received.duplicates,
            malformed: received.malformed,
            reconnects: self.inner.reconnects.load(Ordering::Relaxed),
            publish_errors: self.inner.errors.load(Ordering::Relaxed),
            dead_letters: dead_letters as u64,
        }
    }

    /// The dead letters that the application hasn't fetched yet; each is returned once.
    pub(crate) fn dead_letters(&self) -> Vec<RedisDeadLetter> {
        self.inner.outbox.fetch_dead_letters()
    }

    /// Publishes the oldest `limit` dead letters of a topic again that Redis keeps. Returns how many.
    ///
    /// # Errors
    /// [`RedisError::Stopped`] if the publishing thread has ended; [`RedisError::Replay`] if Redis refused, if there is
    /// no connection, or if no reply came in time.
    pub(crate) fn replay(&self, topic: &str, limit: usize) -> Result<usize, RedisError> {
        let (reply, replied) = sync_channel(1);
        let query = Query::Replay(topic.into(), limit, reply);
        self.inner.queries.send(query).map_err(|_| RedisError::Stopped)?;
        match replied.recv_timeout(self.inner.reply_wait()) {
            Ok(replayed) => replayed.map_err(RedisError::Replay),
            Err(_) => Err(RedisError::Replay("no reply in time".into())),
        }
    }

    /// Ends both threads: what is queued is still published, up to [`STOP_TIMEOUT`]. [`Redis::join`] waits for their end.
    pub(crate) fn stop(&self) {
        self.inner.stop.send_replace(true);
    }

    /// Waits for both threads to end.
    pub(crate) fn join(&self) {
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            if thread.join().is_err() {
                tracing::error!("a thread for Redis panicked");
            }
        }
    }
}

impl Inner {
    /// How long a thread waits for a reply, including the replies to commands before its own.
    fn reply_wait(&self) -> Duration {
        self.times.connect + 2 * self.times.reply
    }
}

impl Carrier for Inner {
    fn publish(&self, topic: &str, publications: &[Publication<'_>]) {
        self.outbox.publish(topic, publications);
    }

    fn set_interest(&self, topic: &str, is_interested: bool) {
        self.interest.set_interest(topic, is_interested);
    }

    /// The number of subscribers by name that PUBSUB NUMSUB reports, without this instance. Pattern subscribers aren't
    /// counted.
    fn audience(&self, topic: &str) -> usize {
        let (reply, replied) = sync_channel(1);
        match self.queries.send(Query::Audience(topic.into(), reply)) {
            Ok(()) => replied.recv_timeout(self.reply_wait()).unwrap_or(0),
            Err(_) => 0,
        }
    }
}
