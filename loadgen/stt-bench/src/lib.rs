//! Load on speech-to-text gateways, and tests of their protocol.
//!
//! The load generator, in the order in which a trial walks through it:
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`hand`], [`coordinated`] | a run by hand; work for a coordinator |
//! | [`trial`] | one trial of one worker: connections, barrier, load, result |
//! | `smoke` | does the gateway still speak its protocol? |
//! | `schedule` | when each session starts, and where its frames fall; pure |
//! | `load_thread` | one thread and its sessions: the pace |
//! | `session` | one WebSocket |
//! | [`audio`], [`expected`] | what is sent, and what must be said about it; pure |
//! | [`protocol`] | what gateways say; pure |
//! | [`coverage`], `verify` | whether every frame is answered once, and rightly; pure |
//! | `answers`, `context` | answers until they are judged; what the sessions of a thread share, and the judgement |
//! | [`samples`] | raw rows |
//! | `outcome`, [`summary`] | a worker's result; what a person reads |
//!
//! [`inferbench`] measures inference alone; [`conformance`] checks gateways against their contract.

mod answers;
mod books;
pub mod cli;
pub mod conformance;
mod context;
pub mod coordinated;
mod counters;
pub mod coverage;
pub mod error_samples;
pub mod hand;
pub mod inferbench;
mod load_thread;
mod metrics;
mod outcome;
pub mod protocol;
pub mod samples;
mod schedule;
mod session;
mod smoke;
pub mod summary;
pub mod trial;
mod verify;

pub use load_thread::Patience;
pub use stt_audio::{audio, expected};
