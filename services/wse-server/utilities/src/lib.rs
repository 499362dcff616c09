//! What an application of the WSE protocol needs beside the server. No sockets, no clock of its own, no Python.
//!
//! - [`crypto`] agrees on a key and seals messages with it; [`signing`] digests and signs them; [`tokens`] says who one is.
//! - [`breaker`] stops calling what keeps failing; [`bucket`] limits a rate; [`priority`] decides what goes first.
//! - [`sequencer`] numbers what goes out and knows what came before; [`order`] puts what comes in back in order.
//! - [`compression`] makes messages smaller.
//! - [`transform`] makes envelopes of an application's events ([`instant`] is their time), [`filter`] looks for those that
//!   meet criteria ([`pattern`] are their regular expressions, [`filter_json`] their values where those are JSON).

pub mod breaker;
pub mod bucket;
pub mod compression;
pub mod crypto;
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
