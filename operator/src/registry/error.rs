//! Why a registry can't be used.

use std::path::PathBuf;

/// Why a registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("failed to read the registry {path}; give another with --registry")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no registry.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Place and reason.
        message: String,
    },
    /// A service names a protocol that isn't there.
    #[error("{path}: services.{service}.protocol: no protocol \"{protocol}\"; known: {known}")]
    UnknownProtocol {
        /// The file.
        path: PathBuf,
        /// The service.
        service: String,
        /// What it asks for.
        protocol: String,
        /// What there is.
        known: String,
    },
    /// A protocol names an inference simulator that isn't there.
    #[error("{path}: protocols.{protocol}.inference: no inference \"{inference}\"; known: {known}")]
    UnknownInference {
        /// The file.
        path: PathBuf,
        /// The protocol.
        protocol: String,
        /// What it asks for.
        inference: String,
        /// What there is.
        known: String,
    },
    /// A service or an inference simulator has no command.
    #[error("{path}: {place}.command: empty; it is the program and its arguments")]
    NoCommand {
        /// The file.
        path: PathBuf,
        /// Its table.
        place: String,
    },
    /// An entry is like another one that isn't there, or that is itself like another.
    #[error("{path}: services.{service}.like: {message}")]
    Like {
        /// The file.
        path: PathBuf,
        /// The service.
        service: String,
        /// What is wrong with which value, and the way out.
        message: String,
    },
    /// A value that makes no sense.
    #[error("{path}: services.{service}.{field}: {message}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The service.
        service: String,
        /// The field in its table.
        field: String,
        /// What is wrong with which value, and the way out.
        message: String,
    },
}
