//! A service with a known behaviour, so that the harness itself can be measured.
//!
//! It speaks just enough WSE to be loaded by `wse-bench`, keeps the contract of `services/README.md`, and has one
//! [`Flaw`] that a trustworthy harness must find. It shares no code with the engine or the generator (a harness must
//! not be checked by the code that it checks); of this project it uses only the contract and the types of the wire.
//!
//! In the order in which a message walks:
//!
//! | file | what |
//! | --- | --- |
//! | [`config`] | flags, and the flaws |
//! | [`server`] | sockets, acceptance, the end |
//! | `shared` | what connections and the metrics port have in common |
//! | `upgrade` | the handshake and its token |
//! | `wire` | a socket that counts its bytes |
//! | `connection` | one WebSocket: read, decide, answer |
//! | [`protocol`] | what a message is, and what is answered (pure) |
//! | [`fate`] | what the flaw does to it (pure) |
//! | [`delay`] | when a ping is answered (pure) |
//! | `publisher` | what a service publishes by itself |
//! | `null`, [`frames`] | the reader that throws everything away |
//! | [`ledger`] | who counted what |
//! | `metrics` | the metrics port |

pub mod config;
mod connection;
pub mod delay;
pub mod fate;
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
