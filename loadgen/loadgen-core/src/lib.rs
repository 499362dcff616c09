//! The parts of a load generator that every protocol shares. Messages are accounted for one by one.
//!
//! This crate knows no protocol beyond WebSocket; a [`workload::Workload`] adds that. In the order in which a trial
//! passes through the modules:
//!
//! | module | does |
//! | --- | --- |
//! | [`coordinator`] | fetches an assignment, holds at the barrier, uploads the result |
//! | [`trial`] | runs an assignment: threads, window, result |
//! | [`workload`] | what a protocol adds |
//! | [`preflight`] | checks and raises the machine's limits |
//! | [`connect`] | addresses, sockets, the upgrade |
//! | [`Pattern`] | how load is offered |
//! | [`schedule`], [`phases`] | when each message is due; pure |
//! | `load_thread`, `thread_plan` | one thread with its connections and event loop |
//! | `session` | one WebSocket |
//! | `timers` | when connections that aren't ready continue by themselves; pure |
//! | `turnover` | counts of connections that come and go under load |
//! | [`tls`] | its encryption |
//! | [`outbox`] | what a protocol sends besides the load; pure |
//! | [`deflate`] | its compression; pure |
//! | [`frame`], [`replies`] | frames on the wire, and the matching of replies to messages; pure |
//! | [`receiver`] | what a connection received from a service that publishes; pure |
//! | [`recorder`] | histograms |
//! | [`peer`] | one blocking connection, for protocol checks |
//! | [`evidence`] | CPU, memory and clock of the generator itself |
//! | [`live`] | what the load threads have done so far, for a display |
//! | [`progress`] | a progress line on the terminal |

pub mod assembly;
pub mod clock;
pub mod connect;
mod context;
pub mod coordinator;
pub mod deflate;
mod error;
pub mod evidence;
pub mod frame;
pub mod live;
mod load_thread;
pub mod outbox;
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
mod timers;
pub mod tls;
pub mod trial;
mod turnover;
pub mod workload;

pub use error::Error;
pub use load_thread::CLOSE_TIMEOUT_NS;
pub use pattern::{Pattern, Publishing};
