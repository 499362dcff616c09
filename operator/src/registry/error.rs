//! Errors of reading a registry.

use std::path::PathBuf;

/// Why a registry can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("failed to read the registry {path}; give another with --registry")]
    Read {
        /// Path of the registry file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is not valid TOML, or doesn't have the structure of a registry.
    #[error("{path}: {message}")]
    Parse {
        /// Path of the registry file.
        path: PathBuf,
        /// Place and reason, as the parser reports them.
        message: String,
    },
    /// A service names an unknown protocol.
    #[error("{path}: services.{service}.protocol: no protocol \"{protocol}\"; known: {known}")]
    UnknownProtocol {
        /// Path of the registry file.
        path: PathBuf,
        /// Name of the service.
        service: String,
        /// The protocol that the service names.
        protocol: String,
        /// Names of the known protocols.
        known: String,
    },
    /// A protocol names an unknown inference service.
    #[error("{path}: protocols.{protocol}.inference: no inference \"{inference}\"; known: {known}")]
    UnknownInference {
        /// Path of the registry file.
        path: PathBuf,
        /// Name of the protocol.
        protocol: String,
        /// The unknown inference service.
        inference: String,
        /// Names of the known inference services.
        known: String,
    },
    /// A service or an inference service has an empty command.
    #[error("{path}: {place}.command: empty; it is the program and its arguments")]
    NoCommand {
        /// Path of the registry file.
        path: PathBuf,
        /// Table of the entry, such as `services.<name>`.
        place: String,
    },
    /// The `like` of a service names an unknown entry, or one that has a `like` itself.
    #[error("{path}: services.{service}.like: {message}")]
    Like {
        /// Path of the registry file.
        path: PathBuf,
        /// Name of the service.
        service: String,
        /// What is wrong with which value, and how to fix it.
        message: String,
    },
    /// A value is out of range or empty.
    #[error("{path}: services.{service}.{field}: {message}")]
    Value {
        /// Path of the registry file.
        path: PathBuf,
        /// Name of the service.
        service: String,
        /// The field in the service's table.
        field: String,
        /// What is wrong with which value, and how to fix it.
        message: String,
    },
}
