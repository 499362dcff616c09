//! What ws-ladder's programs tell each other, and what they leave on disk.
//!
//! Types and their arithmetic, nothing else: no sockets, no clocks, no files. In the order in which data walks:
//!
//! | module | written by | read by |
//! | --- | --- | --- |
//! | [`plan`] | a person | the operator |
//! | [`trial`] | the coordinator | a worker |
//! | [`terms`] | a family of services, for each workload | the driver, the judge |
//! | [`trial_file`] | the driver (`trial.json`) | the judge |
//! | [`result`] | a worker ([`result::WorkerResult`]), then the operator ([`result::TrialResult`]) | the store, the analysis |
//! | [`service`] | a service's `/stats` | the operator |
//! | [`histogram`] | a worker | everyone: merging is addition |
//! | [`environment`] | whoever runs on a machine | the analysis |
//! | [`pod`] | the operator in a cluster | the analysis |
//! | [`contract`] | `ladder run` | the analysis |
//! | [`timeline`] | the climb | `ladder status`, the analysis |
//! | [`run`] | the store (`run.json`) | the operator when it resumes, the analysis |
//!
//! Every file carries a `schema` number. Unknown fields are errors, and a number newer than [`SCHEMA`] is refused
//! with a message that says so, so that an old program never half-understands a new file.

pub mod contract;
pub mod environment;
pub mod histogram;
pub mod plan;
pub mod pod;
pub mod result;
pub mod run;
pub mod terms;
pub mod timeline;
pub mod trial;
pub mod trial_file;
mod witness;

/// What a service says of itself: the types that it shares with the harness.
pub use service_contract as service;

/// The newest `schema` number that this build writes and understands.
pub const SCHEMA: u32 = 2;

/// A file whose `schema` this build doesn't understand.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("schema {found} is newer than {SCHEMA}, the newest this program understands; use a newer ws-ladder")]
pub struct SchemaTooNew {
    /// The number in the file.
    pub found: u32,
}

/// Refuses a file that a newer program wrote.
///
/// # Errors
/// [`SchemaTooNew`] when `found` exceeds [`SCHEMA`].
pub fn check_schema(found: u32) -> Result<(), SchemaTooNew> {
    if found > SCHEMA { Err(SchemaTooNew { found }) } else { Ok(()) }
}
