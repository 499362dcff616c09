//! The verdict of a case or of a part of it, and short constructors for it.

use std::fmt;

use serde::Serialize;

/// Result of a check: the evidence of a pass, or why it did not pass.
pub type Verdict = Result<Evidence, NotPassed>;

/// What was expected and what was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What the contract requires, as a sentence for people.
    pub expected: String,
    /// What the gateway did, as text for people.
    pub seen: String,
}

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotPassed {
    /// The gateway does not behave as the contract says.
    Failed(Evidence),
    /// The case could not be run, for this reason.
    Skipped(String),
}

/// Returns the verdict of a case that passed.
///
/// # Errors
/// Never: it returns a `Result` so that it can be the last expression of a case.
pub fn passed(expected: impl Into<String>, observed: impl Into<String>) -> Verdict {
    Ok(Evidence { expected: expected.into(), seen: observed.into() })
}

/// Creates the error of a case that failed.
pub fn failed(expected: impl Into<String>, observed: impl Into<String>) -> NotPassed {
    NotPassed::Failed(Evidence { expected: expected.into(), seen: observed.into() })
}

/// Fails with the observed value unless the condition `holds`.
///
/// # Errors
/// [`NotPassed::Failed`] with this evidence if `holds` is false.
pub fn ensure(holds: bool, expected: impl Into<String>, observed: impl fmt::Display) -> Result<(), NotPassed> {
    if holds { Ok(()) } else { Err(failed(expected, observed.to_string())) }
}
