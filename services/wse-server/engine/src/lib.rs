//! The WSE engine: WebSocket connections on one side, batches of messages for an application on the other.
//!
//! In the order a message meets them: [`config`] says what to do; [`server`] binds and owns the threads, `hub` is what they share; `shard` is one
//! of them, with its own epoll, listener and connections; [`handshake`], [`jwt`] and `keys` let a client in; [`frame`] and
//! [`receive`] take messages off the wire in place; [`format`], [`json`] and [`msgpack`] find out what they are;
//! `intake` collects them in arenas; [`inbound`] hands them over; `outbound` writes what the application sends, `topics`
//! knows to whom, `publications` how much of it waits, `recovery` what was published before, `presence` who is there,
//! `links` where else it goes: [`cluster`] over links of its own, [`redis`] through that;
//! [`events`] completes events, `recipients` knows how fast, how and whether they go (`pace`, `dedup`, [`encryption`]);
//! [`stats`] and `http` say what became of everything, `quality` how good a connection is.
//!
//! The engine knows nothing of Python. Whatever binds it to a language converts types and nothing else.
//!
//! # Who is who
//!
//! Messages name their connection by a [`ConnectionKey`], an integer that is unique for the server's life. Its id, the
//! UUID text that the client was told, comes twice: as the `message_type` of the [`Kind::Connect`],
//! [`Kind::AuthConnect`] and [`Kind::Disconnect`] entries, and from [`Server::connection_id`], which resolves a key from
//! before its connect entry is drained until the batch with its disconnect entry was dropped.
//!
//! # What bounds memory
//!
//! Everything that was received and that the application hasn't let go of (queued, or in a [`Batch`] that lives) counts
//! against `max_inbound_queue_size` and `max_inbound_queue_bytes`. Beyond them a shard stops reading, or drops and
//! counts, as [`InboundOverflow`] says. Each shard looks at the limit whenever it has handed over what it collected (4096
//! messages at most) and stops in the middle of a read; so the limit can be exceeded by what the other shards collect meanwhile. Events
//! of connections are never dropped; beyond twice the limit nobody is let in.

mod clock;
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
mod farewell;
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
mod outbound;
mod pace;
mod presence;
mod presence_change;
mod priority;
mod publications;
mod quality;
mod random;
pub mod receive;
mod recipients;
mod recovery;
#[doc(hidden)]
pub mod redis;
mod registry;
mod sending;
mod server;
mod shard;
mod stats;
mod topics;

pub use self::{
    cluster::{
        ClusterConfig, ClusterError, ClusterLetter, ClusterPeer, ClusterStats, ClusterTiming, TlsError, TlsFiles,
    },
    config::{Config, ConfigError, Delivery, InboundOverflow, JwtConfig, RateLimit},
    envelope::{Hello, Ping, with_category},
    error::StartError,
    farewell::{Farewell, FarewellError},
    inbound::{Batch, Entry, Kind, Message, Segment},
    key::ConnectionKey,
    keys::{JwtAlgorithm, JwtKey, KeyError},
    links::LinkStats,
    presence::{Member, PresenceConfig, PresenceError},
    priority::Level,
    quality::{Grade, Grades, Penalties, Quality},
    recovery::{Position, Recovered, RecoveryConfig},
    redis::{AddressError, RedisDeadLetter, RedisError, RedisStats, RedisTimes},
    sending::Outgoing,
    server::{ApplicationSource, JoinError, Server},
    stats::{ClusterHealth, HealthSnapshot, RedisHealth},
    topics::{TopicAcl, TopicError},
};
