//! Why a worker could not produce a result.

use std::{io, net::SocketAddr};

/// Every variant ends the trial. What happens to a single connection or message is counted, not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service's address can't be resolved.
    #[error("failed to resolve {address:?}; expected host:port")]
    Resolve {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused something that a worker can't do without.
    #[error("failed to {what}")]
    Kernel {
        /// What the worker asked for.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No connection could be opened.
    #[error("none of {wanted} connections to {address} could be opened: {reasons}")]
    NothingOpen {
        /// How many were attempted.
        wanted: u32,
        /// Where.
        address: SocketAddr,
        /// Reasons and their counts.
        reasons: String,
    },
    /// The coordinator called the trial off.
    #[error("the trial was abandoned: {reason}")]
    Abandoned {
        /// The coordinator's words.
        reason: String,
    },
    /// The trial can't be carried out as it is described.
    #[error("{0}")]
    Assignment(String),
    /// A thread of the worker died.
    #[error("a load thread panicked; its message is above")]
    ThreadDied,
    /// The coordinator can't be reached or doesn't understand us.
    #[error("failed to {what} at {url}")]
    Coordinator {
        /// The request, in words.
        what: &'static str,
        /// Its URL.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The coordinator refused a request.
    #[error("the coordinator answered {status} to {what} at {url}: {body}")]
    Refused {
        /// The request, in words.
        what: &'static str,
        /// Its URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        body: String,
    },
}
