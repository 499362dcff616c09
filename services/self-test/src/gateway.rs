//! A speech-to-text gateway with a known behaviour, so that `stt-conformance` and the harness can be measured.
//!
//! It keeps the contract of `services/README.md`, "Gateways", and has one [`Flaw`] that must be found. It shares no code
//! with the other gateways: what finds their mistakes must not have been written by them.
//!
//! In the order in which audio walks:
//!
//! | file | what |
//! | --- | --- |
//! | [`config`] | flags, variables, and the flaws |
//! | [`server`] | the two ports, the upgrade, the end |
//! | [`wire`] | WebSocket frames, both ways |
//! | [`session`] | one session: frames in, ticks, batches, messages out |
//! | [`schedule`] | when ticks are due (pure) |
//! | [`inference`] | one request |
//! | [`messages`] | partials and error frames (pure) |
//! | [`outbox`] | what waits to be written |
//! | [`books`] | who counted what, and how `/metrics` says it |

pub mod books;
pub mod config;
pub mod inference;
pub mod messages;
pub mod outbox;
pub mod schedule;
pub mod server;
pub mod session;
pub mod wire;

pub use config::{Config, Flaw};
pub use server::Gateway;
