//! Why a worker could not produce a result.

use std::{io, net::SocketAddr};

/// An error that ends the trial. Failures of single connections or messages are counted instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service's address can't be resolved.
    #[error("failed to resolve {address:?}; expected host:port")]
    Resolve {
        /// The address as given.
        address: String,
        /// The error that the resolver returned for the address.
        source: io::Error,
    },
    /// The kernel refused a request that the worker depends on.
    #[error("failed to {action}")]
    Kernel {
        /// The operation that failed.
        action: &'static str,
        /// The kernel's error, as the operation returned it.
        source: io::Error,
    },
    /// No connection could be opened.
    #[error("none of {requested} connections to {address} could be opened: {reasons}")]
    NothingOpen {
        /// Number of connections attempted.
        requested: u32,
        /// Address of the service.
        address: SocketAddr,
        /// Reasons with their counts.
        reasons: String,
    },
    /// The coordinator cancelled the trial.
    #[error("the trial was abandoned: {reason}")]
    Abandoned {
        /// The reason that the coordinator gave.
        reason: String,
    },
    /// The assignment can't be run; contains the reason.
    #[error("{0}")]
    Assignment(String),
    /// A load thread of the worker panicked.
    #[error("a load thread panicked; its message is above")]
    ThreadDied,
    /// A request to the coordinator failed on the network or could not be built.
    #[error("failed to {action} at {url}")]
    Coordinator {
        /// The purpose of the request.
        action: &'static str,
        /// URL of the request.
        url: String,
        /// The HTTP client's error.
        source: reqwest::Error,
    },
    /// The coordinator refused a request.
    #[error("the coordinator answered {status} to {action} at {url}: {body}")]
    Refused {
        /// The purpose of the request.
        action: &'static str,
        /// URL of the request.
        url: String,
        /// HTTP status of the response.
        status: u16,
        /// Body of the response.
        body: String,
    },
}
