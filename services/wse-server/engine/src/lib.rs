//! The WSE engine: WebSocket connections on one side, batches of messages for an application on the other.
//!
//! The modules, in the order in which a message passes them:
//!
//! - [`config`] holds the settings; [`server`] binds the sockets and owns the threads; `hub` is what the threads share.
//! - `shard` is one of the threads, with its own epoll instance, listener and connections.
//! - [`handshake`], [`jwt`] and `keys` decide which clients are admitted.
//! - [`frame`] and [`receive`] take messages off the wire in place; [`mod@format`], [`json`] and [`msgpack`] classify them.
//! - `intake` collects messages in arenas; [`inbound`] hands them to the application in batches.
//! - `outbound` holds what the application sends until a socket takes it; `topics` resolves the subscribers;
//!   `publications` counts the bytes that still wait; `recovery` keeps recent publications; `presence` tracks users by
//!   topic.
//! - `links` forwards publications to other instances: [`cluster`] over its own connections, [`redis`] through Redis
//!   Pub/Sub.
//! - [`events`] completes events and encodes them; `recipients` holds what an event needs to know of its connection:
//!   format and key ([`encryption`]), rate limit (`rate_limit`), ids already sent (`dedup`).
//! - [`stats`] and `http` report the counters; `quality` scores a connection.
//!
//! The engine doesn't depend on Python. A language binding converts types and contains no logic of its own.
//!
//! # Connection identity
//!
//! Messages name their connection by a [`ConnectionKey`], an integer that is unique for the server's life. The
//! connection's id, the UUID text that the client received, is available in two places: as the `message_type` of the
//! [`Kind::Connect`], [`Kind::AuthConnect`] and [`Kind::Disconnect`] entries, and from [`Server::connection_id`]. The
//! latter resolves a key from before its connect entry is drained until the batch with its disconnect entry is dropped.
//!
//! # What bounds memory
//!
//! All data that was received and that the application still holds (queued, or in a live [`Batch`]) counts against
//! `max_inbound_queue_size` and `max_inbound_queue_bytes`. Beyond either limit a shard stops reading, or drops messages
//! and counts them, as [`InboundOverflow`] says. Each connection has a share of both, so that one that floods waits at
//! its share while the others are read, and a small reserve beyond the limits. A shard checks the limit each time it has handed over what it
//! collected (4096 messages at most), and can stop in the middle of a read. The limit can therefore be exceeded by what
//! the other shards collect in the meantime. Connection events are never dropped; beyond twice the limit no client is
//! admitted.

mod clock;
mod close_handshake;
#[doc(hidden)]
pub mod cluster;
mod config;
mod connection;
mod dedup;
#[doc(hidden)]
pub mod encryption;
mod envelope;
mod error;
pub mod events;
mod failure;
pub mod format;
pub mod frame;
#[doc(hidden)]
pub mod fuzzed;
pub mod handshake;
mod http;
mod hub;
mod inbound;
mod intake;
pub mod json;
pub mod jwt;
mod key;
mod keys;
mod limits;
mod links;
mod listen;
mod lock;
pub mod msgpack;
mod origin;
mod outbound;
mod presence;
mod presence_change;
mod priority;
mod publications;
mod quality;
mod random;
mod rate_limit;
pub mod receive;
mod recipients;
mod recovery;
#[doc(hidden)]
pub mod redis;
mod registry;
mod returns;
mod runs;
mod sending;
mod server;
mod shard;
mod stats;
mod topics;

pub use self::{
    close_handshake::{CloseHandshake, CloseHandshakeError},
    cluster::{
        ClusterConfig, ClusterDeadLetter, ClusterError, ClusterPeer, ClusterSecret, ClusterStats, ClusterTiming,
        TlsError, TlsFiles,
    },
    config::{Config, ConfigError, Delivery, InboundOverflow, JwtConfig, RateLimit},
    envelope::{ClientHello, Ping, with_category},
    error::StartError,
    inbound::{Batch, Entry, Kind, Message, Segment},
    key::ConnectionKey,
    keys::{JwtAlgorithm, JwtKey, KeyError},
    links::LinkStats,
    origin::OriginError,
    presence::{Member, PresenceConfig, PresenceError},
    priority::Level,
    quality::{Grade, Grades, Penalties, Quality},
    recovery::{Position, Recovered, RecoveryConfig},
    redis::{AddressError, RedisDeadLetter, RedisError, RedisStats, RedisTiming},
    sending::Outgoing,
    server::{ApplicationSource, JoinError, Server},
    stats::{ClusterHealth, CursorError, HealthSnapshot, RedisHealth},
    topics::{TopicAcl, TopicError},
};
