//! The settings of a server, and the check that they make sense.
//!
//! Defaults are those of the protocol's published reference, except that the server listens on loopback.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::{
    keys::{self, JwtKey, KeyError},
    origin::{self, OriginError},
    presence::PresenceConfig,
    recovery::RecoveryConfig,
};

/// Most shards: the number of a shard takes one byte of a [`crate::ConnectionKey`].
const MAX_SHARDS: usize = 256;
/// Upper limit of `max_message_size`, in bytes. Offsets into a batch's blob are 32 bits wide, and one blob holds
/// several messages.
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// Most messages of one topic that are kept for recovery: far more than any client replays.
const MAX_LOG: usize = 1 << 24;

/// The settings of a [`crate::Server`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port to listen on; with 0 the kernel picks one.
    pub port: u16,
    /// The most open connections; a further one is answered with status 503.
    pub max_connections: usize,
    /// Which tokens admit a client. Without it every client is admitted, and the application checks it and sends its
    /// `server_ready`.
    pub jwt: Option<JwtConfig>,
    /// The origins of other web pages that may use a user's cookie, such as `https://app.example`; pages of the same host
    /// always may, and `*` allows all. A request with a token in its cookie and another `Origin` is answered with status
    /// 403. Without keys that verify tokens, requests with any cookie are checked, but only if the list isn't empty.
    pub allowed_origins: Vec<String>,
    /// Whether a connection is closed, with code 4401, when its token has expired. The moment is the token's `exp` and
    /// the 30 s for which it still admits clients, and at most 5 s later. Otherwise a connection outlives its token.
    pub disconnect_at_expiry: bool,
    /// Where received messages go.
    pub delivery: Delivery,
    /// What happens to a connection whose messages find no room.
    pub inbound_overflow: InboundOverflow,
    /// The most messages and events that the application may hold, queued ones included.
    pub max_inbound_queue_size: usize,
    /// The most bytes that the application may hold, queued ones included.
    pub max_inbound_queue_bytes: usize,
    /// The most messages of one connection that the application may hold, and the same part of the bytes; 0 is a
    /// sixteenth, at least 1024 messages. Beyond it `inbound_overflow` applies to this connection, and the others go
    /// on. A few messages of a connection still fit when others have filled the queue.
    pub max_inbound_per_connection: usize,
    /// The rate limit on messages from one connection to the application; `None` for no limit. A client that is faster
    /// waits: its socket isn't read meanwhile, but pings that have arrived are answered.
    pub inbound_rate_limit: Option<RateLimit>,
    /// The largest message in bytes, after fragments are joined and compressed data is inflated. A larger one closes
    /// the connection with 1009.
    pub max_message_size: usize,
    /// The interval between keep-alive pings to a connection.
    pub ping_interval: Duration,
    /// How long a connection may send no text or binary frame before it is closed with 4408.
    pub idle_timeout: Duration,
    /// How long a client may take to send its request.
    pub handshake_timeout: Duration,
    /// The most connections that are not admitted: their request is incomplete or was refused. One more closes the
    /// oldest of them.
    pub max_handshakes: usize,
    /// The most of these from one address (IPv6: from one /64 network); 0 switches the limit off. Switch it off
    /// behind a proxy, because all clients then have the proxy's address.
    pub max_handshakes_per_peer: usize,
    /// The most bytes reserved for large messages that are incomplete. A connection beyond it waits until room is free;
    /// with [`InboundOverflow::Backpressure`] also one that begins such a message while the application has no room.
    pub max_partial_bytes: usize,
    /// The most bytes that may wait for one slow client before messages to it are dropped; 0 switches the limit off.
    pub max_outbound_queue_bytes: usize,
    /// The most bytes that may wait for all slow clients together; beyond it messages to them are dropped as well.
    pub max_outbound_bytes: usize,
    /// The rate limit on events to one connection.
    pub rate_limit: RateLimit,
    /// The most bytes of publications in memory that some subscriber hasn't taken. Beyond it publishers wait. With 0
    /// publishers never wait, and `max_outbound_queue_bytes` alone bounds what waits for a slow subscriber.
    pub max_publish_backlog_bytes: usize,
    /// The most topics and patterns of one connection; 0 switches the limit off.
    pub max_subscriptions_per_connection: usize,
    /// How many publications are kept for clients that reconnect; `None` keeps none.
    pub recovery: Option<RecoveryConfig>,
    /// The settings of presence; `None` switches it off.
    pub presence: Option<PresenceConfig>,
    /// The receive buffer requested for each connection's socket, in bytes. It bounds what is in flight towards a
    /// paused server.
    pub receive_buffer_bytes: usize,
    /// The send buffer requested for each connection's socket, in bytes: how much is on its way to a client at once.
    /// Where many clients are connected the server requests less for new ones. Distant clients need a larger one,
    /// because they get at most one buffer per round trip.
    pub send_buffer_bytes: usize,
    /// Whether other processes may listen on the port too; the kernel then spreads connections over all of them.
    pub share_port: bool,
    /// How many threads serve connections; `None` is one per CPU that this process may use (affinity and cgroup quota).
    pub shards: Option<usize>,
    /// The address of the metrics port, which serves `/metrics`, `/stats` and the health pages; `None` for no such
    /// port.
    pub metrics: Option<(IpAddr, u16)>,
    /// The service name in reports.
    pub service_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            max_connections: 1000,
            jwt: None,
            allowed_origins: Vec::new(),
            disconnect_at_expiry: false,
            delivery: Delivery::Queue,
            inbound_overflow: InboundOverflow::Backpressure,
            max_inbound_queue_size: 131_072,
            max_inbound_queue_bytes: 64 << 20,
            max_inbound_per_connection: 0,
            inbound_rate_limit: None,
            max_message_size: 1 << 20,
            ping_interval: Duration::from_secs(25),
            idle_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            max_handshakes: 4096,
            max_handshakes_per_peer: 0,
            max_partial_bytes: 64 << 20,
            max_outbound_queue_bytes: 16 << 20,
            max_outbound_bytes: 256 << 20,
            rate_limit: RateLimit::default(),
            max_publish_backlog_bytes: 0,
            max_subscriptions_per_connection: 0,
            recovery: None,
            presence: None,
            share_port: false,
            receive_buffer_bytes: 64 << 10,
            send_buffer_bytes: 128 << 10,
            shards: None,
            metrics: None,
            service_name: "wse-server".into(),
        }
    }
}

/// A token bucket: how many events one connection may get (or messages it may send) at once, and how fast that allowance
/// comes back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// The size of the bucket, in events; at least 1.
    pub capacity: f64,
    /// Events per second that come back; at least 0.
    pub refill_per_second: f64,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { capacity: 100_000.0, refill_per_second: 10_000.0 }
    }
}

/// Which tokens admit a client: those that one of the keys verifies.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// The keys that verify tokens. A token's header chooses by `kid` and `alg`; a key without an id takes every `kid`.
    pub keys: Vec<JwtKey>,
    /// The `iss` claim that a token must carry; `None` accepts any.
    pub issuer: Option<String>,
    /// The `aud` claim that a token must carry; `None` accepts any.
    pub audience: Option<String>,
    /// The name of the cookie that holds the token.
    pub cookie_name: String,
}

impl JwtConfig {
    /// Accepts tokens that one of `keys` verifies, from any issuer, in the cookie `access_token`.
    pub fn new(keys: Vec<JwtKey>) -> Self {
        Self { keys, issuer: None, audience: None, cookie_name: "access_token".into() }
    }
}

/// Where received messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// To the application, which drains them.
    Queue,
    /// To no one: messages are parsed, validated and counted as dropped (`discarded`).
    Discard,
    /// Back to their senders, unchanged and uninterpreted; no keep-alive pings are sent. For conformance tests.
    Echo,
}

/// What happens to a connection whose messages find no room: it has its share of what the application may hold, or
/// others have filled the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundOverflow {
    /// Its socket is not read until the application releases some: nothing is lost, the client waits.
    Backpressure,
    /// Its further messages are dropped and counted (`inbound_overflow`).
    Drop,
    /// Its oldest messages that wait for the application are dropped and counted (`inbound_overflow`).
    DropOldest,
    /// It is closed with 1013. The message that found no room is dropped and counted (`inbound_overflow`).
    Disconnect,
}

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The idle timeout would expire before the first ping can be answered.
    #[error("ping_interval ({ping_interval:?}) must be shorter than idle_timeout ({idle_timeout:?})")]
    PingNotBeforeIdle {
        /// The value of `ping_interval` that was configured.
        ping_interval: Duration,
        /// The value of `idle_timeout` that was configured.
        idle_timeout: Duration,
    },
    /// The keys that verify tokens are unusable.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// An allowed origin is none.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// A size, count or duration that must not be 0 is 0.
    #[error("{name} must be greater than 0")]
    Zero {
        /// Name of the setting that is 0.
        name: &'static str,
    },
    /// A value of the rate limit is not finite or too small.
    #[error("{name} is {value}: it must be a number, and at least {minimum}")]
    Rate {
        /// Name of the setting in the rate limit.
        name: &'static str,
        /// The value that was configured.
        value: f64,
        /// The smallest value that is accepted.
        minimum: f64,
    },
    /// A value is larger than the engine supports.
    #[error("{name} is {value}, more than {limit}")]
    TooLarge {
        /// Name of the setting that is too large.
        name: &'static str,
        /// The value that was configured.
        value: usize,
        /// The largest value that is accepted.
        limit: usize,
    },
}

impl Config {
    /// Checks that the values make sense together. [`crate::Server::start`] does so before anything else.
    ///
    /// # Errors
    /// A [`ConfigError`] for the first value that doesn't.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (name, value) in [
            ("max_connections", self.max_connections),
            ("max_inbound_queue_size", self.max_inbound_queue_size),
            ("max_inbound_queue_bytes", self.max_inbound_queue_bytes),
            ("max_message_size", self.max_message_size),
            ("max_handshakes", self.max_handshakes),
            ("max_partial_bytes", self.max_partial_bytes),
            ("max_outbound_bytes", self.max_outbound_bytes),
            ("receive_buffer_bytes", self.receive_buffer_bytes),
            ("send_buffer_bytes", self.send_buffer_bytes),
            ("shards", self.shards.unwrap_or(1)),
            ("recovery_buffer_size", self.recovery.as_ref().map_or(1, |recovery| recovery.buffer_size)),
            ("presence_max_data_size", self.presence.as_ref().map_or(1, |presence| presence.max_data_size)),
            ("ping_interval", self.ping_interval.as_nanos().min(1) as usize),
            ("handshake_timeout", self.handshake_timeout.as_nanos().min(1) as usize),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        for (name, value, limit) in [
            ("shards", self.shards.unwrap_or(1), MAX_SHARDS),
            ("max_message_size", self.max_message_size, MAX_MESSAGE_BYTES),
            ("receive_buffer_bytes", self.receive_buffer_bytes, i32::MAX as usize),
            ("send_buffer_bytes", self.send_buffer_bytes, i32::MAX as usize),
            ("recovery_buffer_size", self.recovery.as_ref().map_or(1, |recovery| recovery.buffer_size), MAX_LOG),
        ] {
            if value > limit {
                return Err(ConfigError::TooLarge { name, value, limit });
            }
        }
        for (name, value, minimum) in [
            ("rate_limit_capacity", self.rate_limit.capacity, 1.0),
            ("rate_limit_refill", self.rate_limit.refill_per_second, 0.0),
        ] {
            if !value.is_finite() || value < minimum {
                return Err(ConfigError::Rate { name, value, minimum });
            }
        }
        if let Some(limit) = self.inbound_rate_limit {
            for (name, value, minimum) in [
                ("inbound_rate_limit_capacity", limit.capacity, 1.0),
                // Less than a message in a quarter of an hour would keep a client waiting as if for ever.
                ("inbound_rate_limit_refill", limit.refill_per_second, 0.001),
            ] {
                if !value.is_finite() || value < minimum {
                    return Err(ConfigError::Rate { name, value, minimum });
                }
            }
        }
        if self.ping_interval >= self.idle_timeout {
            let (ping_interval, idle_timeout) = (self.ping_interval, self.idle_timeout);
            return Err(ConfigError::PingNotBeforeIdle { ping_interval, idle_timeout });
        }
        self.allowed_origins.iter().try_for_each(|given| origin::check(given))?;
        Ok(self.jwt.as_ref().map_or(Ok(()), |jwt| keys::check(&jwt.keys))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn a_ping_interval_not_below_the_idle_timeout_is_refused() {
        let config = Config { ping_interval: Duration::from_secs(60), ..Config::default() };
        assert!(matches!(config.validate(), Err(ConfigError::PingNotBeforeIdle { .. })));
    }

    #[test]
    fn a_server_that_could_admit_no_client_is_refused() {
        let config = Config { jwt: Some(JwtConfig::new(Vec::new())), ..Config::default() };
        assert_eq!(config.validate(), Err(ConfigError::Keys(KeyError::None)));
    }

    #[test]
    fn zero_and_absurd_sizes_are_refused() {
        let zero = Config { max_message_size: 0, ..Config::default() };
        assert_eq!(zero.validate(), Err(ConfigError::Zero { name: "max_message_size" }));
        let shards = Config { shards: Some(300), ..Config::default() };
        assert_eq!(shards.validate(), Err(ConfigError::TooLarge { name: "shards", value: 300, limit: 256 }));
    }

    #[test]
    fn a_rate_limit_that_allows_no_message_is_refused() {
        let limited = |capacity, refill_per_second| {
            Config { rate_limit: RateLimit { capacity, refill_per_second }, ..Config::default() }.validate()
        };
        assert_eq!(limited(1.0, 0.0), Ok(()));
        let refused = |name, value, minimum| Err(ConfigError::Rate { name, value, minimum });
        assert_eq!(limited(0.5, 1.0), refused("rate_limit_capacity", 0.5, 1.0));
        assert_eq!(limited(5.0, -1.0), refused("rate_limit_refill", -1.0, 0.0));
        assert_eq!(limited(f64::INFINITY, 1.0), refused("rate_limit_capacity", f64::INFINITY, 1.0));
        assert!(limited(f64::NAN, 1.0).is_err() && limited(5.0, f64::NAN).is_err());
    }

    #[test]
    fn a_logged_configuration_contains_no_secret() {
        let config = JwtConfig::new(vec![JwtKey::secret(b"a very secret secret, 32 bytes!!").unwrap()]);
        let logged = format!("{config:?}");
        assert!(logged.contains("Hs256") && !logged.contains("secret,") && !logged.contains("97, 32"), "{logged}");
    }
}
