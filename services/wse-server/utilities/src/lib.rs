//! Functions and types that applications of the WSE protocol use beside the server. The crate has no sockets and no
//! Python. Callers pass the time, except to [`tokens`], which reads the system clock to check when a token is valid.
//!
//! - [`crypto`] derives keys and encrypts messages, [`duplex`] those of one connection in order; [`signing`] computes digests and signatures; [`tokens`] creates and
//!   verifies JSON Web Tokens.
//! - [`breaker`] stops calls to a dependency that keeps failing; [`bucket`] limits a rate; [`priority`] orders messages
//!   by urgency.
//! - [`sequencer`] numbers outgoing events and detects duplicate ids; [`order`] restores the order of incoming events.
//! - [`compression`] compresses messages.
//! - [`transform`] converts an application's events into envelopes ([`instant`] is their timestamp); [`filter`] tests
//!   events against criteria ([`pattern`] has their regular expressions, [`filter_json`] applies them to JSON).

pub mod breaker;
pub mod bucket;
pub mod compression;
pub mod crypto;
pub mod duplex;
pub mod filter;
pub mod filter_json;
pub mod instant;
pub mod order;
pub mod pattern;
pub mod priority;
pub mod sequencer;
pub mod signing;
pub mod tokens;
pub mod transform;
