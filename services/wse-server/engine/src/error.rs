//! Why a server didn't start.

use std::net::SocketAddr;

use crate::config::ConfigError;

/// Why a server didn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration makes no sense.
    #[error("the configuration is refused")]
    Config(#[from] ConfigError),
    /// The address can't be listened on.
    #[error("failed to listen on {address}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Something else that the kernel refused.
    #[error("failed to {step}")]
    Resource {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}
