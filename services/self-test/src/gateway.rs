//! A speech-to-text gateway with known behaviour, against which `stt-conformance` and the harness are tested.
//!
//! It keeps the contract of `services/README.md`, "Gateways", and has at most one [`Flaw`], which must be found. It
//! shares no code with the other gateways, so that it can't share their mistakes.
//!
//! In the order in which audio passes through them:
//!
//! | file | what |
//! | --- | --- |
//! | [`config`] | flags, variables, and the flaws |
//! | [`server`] | both ports, the upgrade, shutdown |
//! | [`wire`] | WebSocket frames, in both directions |
//! | [`session`] | one session: frames in, ticks, batches, messages out |
//! | [`schedule`] | when ticks are due (pure) |
//! | [`inference`] | one request to the inference |
//! | [`messages`] | partials and error frames (pure) |
//! | [`outbox`] | the bytes that wait to be written |
//! | [`books`] | the counters, for `/stats` and `/metrics` |

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
