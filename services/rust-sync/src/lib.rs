//! A streaming speech-to-text gateway without an async runtime: `services/README.md`, "Gateways", is its contract.
//!
//! Audio is wanted once per second per session, so nobody wakes for each of its fifty frames. A WebSocket thread visits a
//! session's socket a few times per second, the last time right before its flush tick, and takes many frames with one
//! system call. The batch then travels to a thread of its own that speaks to the inference, and comes back with the answer.
//!
//! In the order in which a frame walks:
//!
//! | file | what |
//! | --- | --- |
//! | [`config`] | settings |
//! | [`gateway`] | listens, starts the threads, ends them |
//! | `shard` | a WebSocket thread: its connections, who is visited when, what is read and written |
//! | [`wheel`] | who is due (pure) |
//! | [`protocol`] | frames, requests, messages (pure) |
//! | [`session`] | numbers, batches, flush ticks, the one request in flight (pure) |
//! | [`mailbox`] | from thread to thread |
//! | [`inference`] | an inference thread: connections, requests, answers |
//! | [`shared`] | what threads share |
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
