//! Other instances of the service, reached through Redis Pub/Sub.
//!
//! A topic is the channel `wse:<topic>`; what stands in front of a publication there is [`header`]'s. [`outbox`] numbers and
//! queues what is published, `publisher` writes it; [`interest`] knows what is wanted, `subscriber` says so and hands on what
//! comes, after [`inbox`] has looked whether it is new; `past` is what is kept of it for clients that come back. [`letters`] are what was given up. [`resp`] is the wire format: ours,
//! because a client that queues messages without a bound on their way in could not stop reading, and because of what each of
//! them may cost here.

mod address;
mod connection;
pub mod header;
mod inbox;
mod interest;
mod letters;
mod outbox;
mod past;
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
    publisher::Ask,
};
pub use self::{address::AddressError, letters::RedisDeadLetter};
pub use crate::links::RedisStats;
use crate::{
    hub::Hub,
    links::{Carrier, Publication},
    lock::lock,
    stats::labelled,
};

/// What a topic's channel begins with.
const CHANNEL: &str = "wse:";
/// What the name of a topic's list of dead letters begins with.
const DEAD_LETTERS: &str = "wse:dlq:";
/// How long a stopping server waits for Redis to take what was published.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long things may take that have to do with Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisTimes {
    /// To connect, the first question and answer included.
    pub connect: Duration,
    /// An answer, before the connection is taken for lost.
    pub answer: Duration,
    /// How long a subscriber hears nothing before it asks whether somebody is there.
    pub heartbeat: Duration,
    /// The pause before a lost connection is made again; each further one is half as much longer.
    pub first_retry: Duration,
    /// The longest of these.
    pub longest_retry: Duration,
    /// The pauses between looks whether there is a connection, for a publication that finds none: one look more than pauses,
    /// and it is given up.
    pub attempts: [Duration; 2],
    /// When a connection isn't even tried.
    pub breaker: BreakerConfig,
}

impl Default for RedisTimes {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            answer: Duration::from_secs(2),
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

impl RedisTimes {
    /// How long a publication waits for a connection.
    fn patience(&self) -> Duration {
        self.attempts.iter().sum()
    }
}

/// Why there is no Redis.
#[derive(Debug, thiserror::Error)]
pub enum RedisError {
    /// The URL is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The server has one.
    #[error("this server is connected to a Redis already")]
    Twice,
    /// The server has none.
    #[error("this server was never connected to a Redis: call connect_redis() first")]
    Never,
    /// The server has stopped.
    #[error("this server has stopped")]
    Stopped,
    /// Redis, or the way there, doesn't do what is asked.
    #[error("failed to replay dead letters: {0}")]
    Replay(String),
    /// Something that the kernel refused.
    #[error("failed to start a thread for Redis")]
    Thread(#[from] std::io::Error),
}

/// What both connections share.
struct Inner {
    address: Address,
    times: RedisTimes,
    /// This instance, as others know it.
    origin: u64,
    outbox: Outbox,
    interest: Interest,
    asks: mpsc::UnboundedSender<Ask>,
    received: Mutex<inbox::Books>,
    /// Whether there is a connection that publishes, and one that receives.
    publishes: AtomicBool,
    receives: AtomicBool,
    reconnects: AtomicU64,
    errors: AtomicU64,
    stop: watch::Sender<bool>,
}

/// See the module.
pub(crate) struct Redis {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Redis {
    /// Begins to connect, in threads `wse-redis-out` and `wse-redis-in`, and becomes one of the server's links.
    pub(crate) fn start(shared: &Arc<Hub>, url: &str, times: RedisTimes) -> Result<Self, RedisError> {
        let address = Address::parse(url)?;
        let (asks, asked) = mpsc::unbounded_channel();
        let origin = crate::random::id(crate::clock::now_millis()).as_u64_pair().1;
        let inner = Arc::new(Inner {
            address,
            times,
            origin,
            outbox: Outbox::new(origin, shared.config.max_outbound_queue_bytes, shared.publications.clone()),
            interest: Interest::default(),
            asks,
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
        shared.topics.tell_wanted(&*carrier);
        let started = redis.spawn("wse-redis-out", publisher::run(inner.clone(), asked));
        let started = started.and_then(|()| redis.spawn("wse-redis-in", subscriber::run(inner, Arc::clone(shared))));
        started.inspect_err(|_| {
            redis.stop();
            redis.join();
        })?;
        Ok(redis)
    }

    fn spawn(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
        // One thread each: handing on may wait for the shards, and publishing must not.
        let runtime = runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(work);
            // A name that is still being looked up is not waited for.
            runtime.shutdown_background();
        })?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Whether both connections are there.
    pub(crate) fn is_connected(&self) -> bool {
        self.inner.publishes.load(Ordering::SeqCst) && self.inner.receives.load(Ordering::SeqCst)
    }

    /// What became of publications.
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

    /// The last dead letters, once.
    pub(crate) fn dead_letters(&self) -> Vec<RedisDeadLetter> {
        self.inner.outbox.fetch_letters()
    }

    /// Publishes a topic's dead letters again that Redis keeps, the oldest `limit`. Returns how many.
    pub(crate) fn replay(&self, topic: &str, limit: usize) -> Result<usize, RedisError> {
        let (answer, answered) = sync_channel(1);
        let ask = Ask::Replay(topic.into(), limit, answer);
        self.inner.asks.send(ask).map_err(|_| RedisError::Stopped)?;
        match answered.recv_timeout(self.inner.patience()) {
            Ok(replayed) => replayed.map_err(RedisError::Replay),
            Err(_) => Err(RedisError::Replay("no answer came".into())),
        }
    }

    /// Takes no more after what is there; [`Redis::join`] waits until that is out.
    pub(crate) fn stop(&self) {
        self.inner.stop.send_replace(true);
    }

    /// Waits for the threads to end.
    pub(crate) fn join(&self) {
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            if thread.join().is_err() {
                tracing::error!("a thread for Redis panicked");
            }
        }
    }
}

impl Inner {
    /// How long a thread waits for an answer: to what is before it, too.
    fn patience(&self) -> Duration {
        self.times.connect + 2 * self.times.answer
    }
}

impl Carrier for Inner {
    fn publish(&self, topic: &str, publications: &[Publication<'_>]) {
        self.outbox.publish(topic, publications);
    }

    fn want(&self, topic: &str, wanted: bool) {
        self.interest.want(topic, wanted);
    }

    /// As PUBSUB NUMSUB counts them: those who have it by its name, without ourselves. Whoever has a pattern isn't seen.
    fn audience(&self, topic: &str) -> usize {
        let (answer, answered) = sync_channel(1);
        match self.asks.send(Ask::Audience(topic.into(), answer)) {
            Ok(()) => answered.recv_timeout(self.patience()).unwrap_or(0),
            Err(_) => 0,
        }
    }
}
