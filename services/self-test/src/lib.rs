//! A service with known behaviour, against which the harness itself is tested.
//!
//! It implements enough of WSE to be loaded by `wse-bench`, keeps the contract of `services/README.md`, and has at most
//! one [`Flaw`], which a reliable harness must find. It shares no code with the engine or the load generator, because a
//! harness must not be checked by the code that it checks; of this project it uses only the contract and the result
//! types.
//!
//! In the order in which a message passes through them:
//!
//! | file | what |
//! | --- | --- |
//! | [`config`] | flags, and the flaws |
//! | [`server`] | both ports, accepting connections, shutdown |
//! | `shared` | the state that connections and the metrics port share |
//! | `upgrade` | the handshake and its token |
//! | `wire` | a socket that counts its bytes |
//! | `connection` | one WebSocket: reads, decides, replies |
//! | [`protocol`] | classifies messages and composes replies (pure) |
//! | [`disposition`] | what the flaw does with a message (pure) |
//! | [`delay`] | when a ping is answered (pure) |
//! | `publisher` | messages that the service publishes by itself |
//! | `busy` | a thread that is busy regardless of the load |
//! | `null`, [`frames`] | a reader that discards everything |
//! | [`ledger`] | the books: counters of each connection, and their sums |
//! | `metrics` | the metrics port |
//!
//! [`gateway`] is a second program, a speech-to-text gateway.

mod busy;
pub mod config;
mod connection;
pub mod delay;
pub mod disposition;
pub mod frames;
pub mod gateway;
pub mod ledger;
mod metrics;
mod null;
pub mod protocol;
mod publisher;
pub mod server;
mod shared;
mod upgrade;
mod wire;

pub use config::{Config, Flaw};
pub use server::Service;
