//! What a server is told before it starts, and whether that makes sense.
//!
//! Defaults are those of the protocol's published reference, except that we listen on loopback.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::{
    keys::{self, JwtKey, KeyError},
    presence::PresenceConfig,
    recovery::RecoveryConfig,
};

/// A shard's number takes one byte of a [`crate::ConnectionKey`].
const MAXIMAL_SHARDS: usize = 256;
/// Offsets into a batch's blob are 32 bits wide; a message far below that leaves room for its neighbours.
const MAXIMAL_MESSAGE_BYTES: usize = 1 << 30;

/// Messages of one topic that are kept for recovery: far more than anyone replays.
const MAXIMAL_LOG: usize = 1 << 24;

/// Everything a [`crate::Server`] can be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port to listen on; 0 lets the kernel pick.
    pub port: u16,
    /// How many connections may be open; one more is answered 503.
    pub max_connections: usize,
    /// Who may connect; without it the application decides, and greets its clients itself.
    pub jwt: Option<JwtConfig>,
    /// Where messages go.
    pub delivery: Delivery,
    /// What happens when the application doesn't keep up.
    pub inbound_overflow: InboundOverflow,
    /// How many messages the application may hold, queued ones included.
    pub max_inbound_queue_size: usize,
    /// How many bytes the application may hold, queued ones included.
    pub max_inbound_queue_bytes: usize,
    /// The largest message in bytes, after joining fragments and after inflating; beyond it the connection is closed with 1009.
    pub max_message_size: usize,
    /// How often each connection gets a keep-alive ping.
    pub ping_interval: Duration,
    /// How long a connection may stay without a text or binary frame before it is closed with 4408.
    pub idle_timeout: Duration,
    /// How long a client may take to send its request.
    pub handshake_timeout: Duration,
    /// How many connections may be here without having been let in: their request isn't whole, or it was refused. One
    /// more, and the oldest of them makes way.
    pub max_handshakes: usize,
    /// How many of these may come from one address (IPv6: one network of 64 bits); 0 switches the limit off, which behind
    /// a proxy is right: all clients have its address.
    pub max_handshakes_per_peer: usize,
    /// How many bytes may be promised to large messages that aren't whole yet. Connections beyond it wait for their turn.
    pub max_partial_bytes: usize,
    /// How many bytes may wait for a slow client before messages to it are dropped; 0 switches the limit off.
    pub max_outbound_queue_bytes: usize,
    /// How many bytes may wait for all slow clients together; beyond it, what is for them is dropped as above.
    pub max_outbound_bytes: usize,
    /// How fast events may go to one connection.
    pub rate_limit: RateLimit,
    /// How many bytes of publications may be in memory, because not every listener has taken them, before publishers wait;
    /// 0: they never do, and it is `max_outbound_queue_bytes` that bounds what waits for a slow listener.
    pub max_publish_backlog_bytes: usize,
    /// How many topics and patterns a connection may have; 0 switches the limit off.
    pub max_subscriptions_per_connection: usize,
    /// How much of what was published is kept for clients that come back; nothing, if this isn't set.
    pub recovery: Option<RecoveryConfig>,
    /// Whether it is known who is there, and how; not, if this isn't set.
    pub presence: Option<PresenceConfig>,
    /// The receive buffer asked for each connection's socket, in bytes: it bounds what is in flight towards a paused server.
    pub receive_buffer_bytes: usize,
    /// The send buffer asked for each connection's socket, in bytes: what is on its way to a client at once. A fraction of it
    /// where many are connected. A larger one is for clients that are far away: it is what they can get per round trip.
    pub send_buffer_bytes: usize,
    /// Whether other processes may listen on the port too, so that the kernel spreads connections over all of them.
    pub share_port: bool,
    /// How many threads serve connections; `None` is one per CPU that this process may use (affinity and cgroup quota).
    pub shards: Option<usize>,
    /// Where `/metrics`, `/stats` and the others are served.
    pub metrics: Option<(IpAddr, u16)>,
    /// The name under which the service reports.
    pub service_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            max_connections: 1000,
            jwt: None,
            delivery: Delivery::Queue,
            inbound_overflow: InboundOverflow::Backpressure,
            max_inbound_queue_size: 131_072,
            max_inbound_queue_bytes: 64 << 20,
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

/// How fast events may go to one connection: as many at once as its bucket holds, and then as many as come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// The most events at once.
    pub capacity: f64,
    /// Events per second.
    pub refill_per_second: f64,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { capacity: 100_000.0, refill_per_second: 10_000.0 }
    }
}

/// Who may connect: bearers of a token that one of the keys verifies.
#[derive(Clone, Debug)]
pub struct JwtConfig {
    /// What verifies tokens. A token's header chooses by `kid` and `alg`; a key without an id takes every `kid`.
    pub keys: Vec<JwtKey>,
    /// The `iss` that a token must carry.
    pub issuer: Option<String>,
    /// The `aud` that a token must carry.
    pub audience: Option<String>,
    /// The cookie that holds the token.
    pub cookie_name: String,
}

impl JwtConfig {
    /// Tokens that one of `keys` verifies, in the cookie `access_token`, whoever issued them.
    pub fn new(keys: Vec<JwtKey>) -> Self {
        Self { keys, issuer: None, audience: None, cookie_name: "access_token".into() }
    }
}

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// To the application, which drains them.
    Queue,
    /// Nowhere: they are parsed, validated and counted as dropped (`discarded`).
    Discard,
    /// Back to their senders, as they came, without a look at what they mean; no keep-alive pings come between them. For
    /// conformance tests.
    Echo,
}

/// What happens when the application holds all that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundOverflow {
    /// Sockets are not read until it lets go: nothing is lost, clients wait.
    Backpressure,
    /// Further messages are dropped and counted (`inbound_overflow`).
    Drop,
}

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The idle timeout would fire before the first ping could be answered.
    #[error("ping_interval ({ping_interval:?}) must be shorter than idle_timeout ({idle_timeout:?})")]
    PingNotBeforeIdle {
        /// As configured.
        ping_interval: Duration,
        /// As configured.
        idle_timeout: Duration,
    },
    /// The keys that verify tokens.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A size, count or duration that must not be 0 is 0.
    #[error("{name} must be greater than 0")]
    Zero {
        /// Which one.
        name: &'static str,
    },
    /// A rate limit that is no number, or one that lets no event through.
    #[error("{name} is {value}: it must be a number, and at least {least}")]
    Rate {
        /// Which one.
        name: &'static str,
        /// As configured.
        value: f64,
        /// The least that makes sense.
        least: f64,
    },
    /// A value beyond what the engine can count to.
    #[error("{name} is {value}, more than {limit}")]
    TooLarge {
        /// Which one.
        name: &'static str,
        /// As configured.
        value: usize,
        /// The most that is possible.
        limit: usize,
    },
}

impl Config {
    /// Checks that the values make sense together; [`crate::Server::start`] does so first of all.
    ///
    /// # Errors
    /// Names the first value that doesn't.
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
            ("shards", self.shards.unwrap_or(1), MAXIMAL_SHARDS),
            ("max_message_size", self.max_message_size, MAXIMAL_MESSAGE_BYTES),
            ("receive_buffer_bytes", self.receive_buffer_bytes, i32::MAX as usize),
            ("send_buffer_bytes", self.send_buffer_bytes, i32::MAX as usize),
            ("recovery_buffer_size", self.recovery.as_ref().map_or(1, |recovery| recovery.buffer_size), MAXIMAL_LOG),
        ] {
            if value > limit {
                return Err(ConfigError::TooLarge { name, value, limit });
            }
        }
        for (name, value, least) in [
            ("rate_limit_capacity", self.rate_limit.capacity, 1.0),
            ("rate_limit_refill", self.rate_limit.refill_per_second, 0.0),
        ] {
            if !value.is_finite() || value < least {
                return Err(ConfigError::Rate { name, value, least });
            }
        }
        if self.ping_interval >= self.idle_timeout {
            let (ping_interval, idle_timeout) = (self.ping_interval, self.idle_timeout);
            return Err(ConfigError::PingNotBeforeIdle { ping_interval, idle_timeout });
        }
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
    fn a_ping_that_comes_too_late_is_refused() {
        let config = Config { ping_interval: Duration::from_secs(60), ..Config::default() };
        assert!(matches!(config.validate(), Err(ConfigError::PingNotBeforeIdle { .. })));
    }

    #[test]
    fn a_server_that_nobody_could_enter_is_refused() {
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
    fn a_rate_limit_that_lets_nothing_through_is_refused() {
        let limited = |capacity, refill_per_second| {
            Config { rate_limit: RateLimit { capacity, refill_per_second }, ..Config::default() }.validate()
        };
        assert_eq!(limited(1.0, 0.0), Ok(()));
        let refused = |name, value, least| Err(ConfigError::Rate { name, value, least });
        assert_eq!(limited(0.5, 1.0), refused("rate_limit_capacity", 0.5, 1.0));
        assert_eq!(limited(5.0, -1.0), refused("rate_limit_refill", -1.0, 0.0));
        assert_eq!(limited(f64::INFINITY, 1.0), refused("rate_limit_capacity", f64::INFINITY, 1.0));
        assert!(limited(f64::NAN, 1.0).is_err() && limited(5.0, f64::NAN).is_err());
    }

    #[test]
    fn a_logged_configuration_keeps_its_secret() {
        let config = JwtConfig::new(vec![JwtKey::secret(b"a very secret secret, 32 bytes!!").unwrap()]);
        let logged = format!("{config:?}");
        assert!(logged.contains("Hs256") && !logged.contains("secret,") && !logged.contains("97, 32"), "{logged}");
    }
}
