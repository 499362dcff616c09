//! Load on WebSocket services that can be accounted for; knows nothing of any family of services.
//!
//! In the order in which a trial walks through it:
//!
//! | module | does |
//! | --- | --- |
//! | [`coordinator`] | fetches an assignment, holds at the barrier, uploads the result |
//! | [`trial`] | carries an assignment out: threads, window, result |
//! | [`workload`] | what a family of services adds |
//! | [`preflight`] | what the machine must allow |
//! | [`connect`] | addresses, sockets, the upgrade |
//! | [`Pattern`] | how load is offered |
//! | [`schedule`], [`phases`] | when what is due; pure |
//! | `load_thread`, `thread_plan` | one thread and its connections; holds the loop |
//! | `session` | one WebSocket |
//! | [`frame`], [`replies`] | what is on the wire, and which question an answer belongs to; pure |
//! | [`receiver`] | what a connection received of a service that publishes; pure |
//! | [`recorder`] | histograms |
//! | [`peer`] | one blocking connection, for checks of a protocol |
//! | [`evidence`] | how the generator itself fared |
//! | [`progress`] | what a person sees meanwhile |

pub mod assembly;
pub mod clock;
pub mod connect;
mod context;
pub mod coordinator;
mod error;
pub mod evidence;
pub mod frame;
mod load_thread;
mod pattern;
pub mod peer;
pub mod phases;
pub mod preflight;
pub mod progress;
pub mod receiver;
pub mod recorder;
pub mod replies;
pub mod schedule;
mod session;
mod thread_plan;
pub mod trial;
pub mod workload;

pub use error::Error;
pub use pattern::{Pattern, Publishing};
