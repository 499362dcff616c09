//! The error of starting a server.

use std::net::SocketAddr;

use crate::config::ConfigError;

/// Why a server didn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error("the configuration is refused")]
    Config(#[from] ConfigError),
    /// The address can't be bound.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address that was configured for the server.
        address: SocketAddr,
        /// The kernel's error, as it refused the address.
        source: std::io::Error,
    },
    /// The kernel refused another resource, for example a thread.
    #[error("failed to {step}")]
    Resource {
        /// What the server was doing, as the message continues after "failed to".
        step: &'static str,
        /// The kernel's error, as it refused the resource.
        source: std::io::Error,
    },
}
