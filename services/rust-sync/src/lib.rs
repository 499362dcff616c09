//! A streaming speech-to-text gateway without an async runtime. `services/README.md` ("Gateways") is its contract.
//!
//! Audio is needed once per flush interval, so no thread wakes up for each of the fifty frames per second. A WebSocket
//! thread visits a session's socket a few times per second, the last time right before the flush tick, and reads many
//! frames with one system call. The batch then moves to the inference thread, which sends it as a request, and returns
//! with the response.
//!
//! The modules, in the order in which a frame passes them:
//!
//! | file | what |
//! | --- | --- |
//! | [`config`] | settings |
//! | [`gateway`] | listens, starts the threads, stops them |
//! | `shard` | a WebSocket thread: its connections, when each is visited, reading and writing |
//! | [`wheel`] | timer wheel of the connections that are due (no I/O) |
//! | [`protocol`] | frames, HTTP requests, messages (no I/O) |
//! | [`session`] | sequence numbers, batches, flush ticks, the one request in flight (no I/O) |
//! | [`mailbox`] | queues between threads |
//! | [`inference`] | an inference thread: connections, requests, responses |
//! | [`shared`] | state that threads share |
//! | [`metrics`] | the books |
//! | [`port`] | the metrics port |

pub mod config;
pub mod gateway;
pub mod inference;
pub mod mailbox;
pub mod metrics;
pub mod port;
pub mod protocol;
pub mod session;
mod shard;
pub mod shared;
pub mod wheel;

pub use config::Config;
pub use gateway::Gateway;
