//! The formats that ws-ladder's programs exchange and the files that they write.
//!
//! This crate holds types and their arithmetic. It opens no socket, reads no clock and writes no file, except that
//! [`environment`] reads the kernel's files. The modules, in the order in which data passes them:
//!
//! | module | written by | read by |
//! | --- | --- | --- |
//! | [`plan`] | a person | the operator |
//! | [`websocket`] | a person, as a part of a plan; the coordinator | a worker |
//! | [`trial`] | the coordinator | a worker |
//! | [`terms`] | a protocol's worker, for each workload | the driver, the judge |
//! | [`trial_file`] | the driver (`trial.json`) | the judge |
//! | [`result`] | a worker ([`result::WorkerResult`]), then the operator ([`result::TrialResult`]) | the store, the analysis |
//! | [`service`] | a service's `/stats` | the operator |
//! | [`histogram`] | a worker | every program that merges or prints results |
//! | [`environment`] | each program that runs on a machine of the run | the analysis |
//! | [`pod`] | the operator in a cluster | the analysis |
//! | [`contract`] | `ladder run` | the analysis |
//! | [`comparison`] | the climb, in `run.json` | the operator, the analysis |
//! | [`timeline`] | the climb | `ladder status`, the analysis |
//! | [`run`] | the store (`run.json`) | the operator when it resumes, the analysis |
//!
//! [`buckets`] are for the display of a trial that runs, [`inflate`] bounds what files and other processes have deflated, and [`name`] checks what becomes a path.
//!
//! Every file carries a `schema` number. A field that the type doesn't know is an error, and a number above [`SCHEMA`]
//! is refused with a message that says so, so that an old program never misreads a new file.

pub mod buckets;
pub mod comparison;
pub mod contract;
pub mod environment;
pub mod histogram;
pub mod inflate;
pub mod name;
pub mod plan;
pub mod pod;
pub mod result;
pub mod run;
pub mod terms;
pub mod timeline;
pub mod trial;
pub mod trial_file;
pub mod websocket;
mod witness;

/// The types that a service publishes on its metrics port, such as `/stats`, shared with the harness.
pub use service_contract as service;

pub use name::Name;

/// The newest `schema` number that this build writes and understands.
pub const SCHEMA: u32 = 3;

/// The error for a file whose `schema` number is newer than this build.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("schema {version} is newer than {SCHEMA}, the newest this program understands; use a newer ws-ladder")]
pub struct SchemaTooNew {
    /// The `schema` number in the file.
    pub version: u32,
}

/// Refuses a file that a newer program has written.
///
/// # Errors
/// [`SchemaTooNew`] when `version` exceeds [`SCHEMA`].
pub fn check_schema(version: u32) -> Result<(), SchemaTooNew> {
    if version > SCHEMA { Err(SchemaTooNew { version }) } else { Ok(()) }
}
