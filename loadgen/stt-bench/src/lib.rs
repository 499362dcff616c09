//! Load generator, conformance test and inference benchmark for speech-to-text gateways.
//!
//! The load generator's modules, in the order in which a trial passes through them:
//!
//! | module | does |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`hand`], [`coordinated`] | a run by hand; a worker that takes assignments from a coordinator |
//! | [`trial`] | one trial of one worker: connections, barrier, load, result |
//! | `smoke` | checks the gateway's protocol before and after the load |
//! | `schedule` | when each session starts, and where its frames fall within 20 ms; pure |
//! | `load_thread` | one thread with its sessions; it sends each frame when it is due |
//! | `session` | one WebSocket |
//! | [`audio`], [`expected`] | the audio that is sent, and the inference result that it must produce; pure |
//! | [`protocol`] | parses the gateways' messages; pure |
//! | [`coverage`], `verify` | whether every frame is answered exactly once, and correctly; pure |
//! | `deferred`, `context` | partials that are not judged yet; what a thread's sessions share, and the judgement |
//! | [`samples`] | raw rows, one for each partial |
//! | `outcome`, [`summary`] | a worker's result; the summary of a run by hand |
//!
//! [`inferbench`] measures inference without a gateway; [`conformance`] checks gateways against their contract.

mod books;
pub mod cli;
pub mod conformance;
mod context;
pub mod coordinated;
mod counters;
pub mod coverage;
mod deferred;
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

pub use load_thread::SessionTimeouts;
pub use stt_audio::{audio, expected};
