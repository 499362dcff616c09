//! What a case found, or a part of one.

use std::fmt;

use serde::Serialize;

/// How a check ends when nothing went wrong, or what went wrong.
pub type Verdict = Result<Evidence, Trouble>;

/// What was expected and what was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What the contract asks for.
    pub expected: String,
    /// What came.
    pub seen: String,
}

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The gateway does something else than the contract says.
    Failed(Evidence),
    /// The case could not be run, and why.
    Skipped(String),
}

/// A case that passed.
///
/// # Errors
/// Never: it is the last expression of a case.
pub fn passed(expected: impl Into<String>, seen: impl Into<String>) -> Verdict {
    Ok(Evidence { expected: expected.into(), seen: seen.into() })
}

/// A case that failed.
pub fn failed(expected: impl Into<String>, seen: impl Into<String>) -> Trouble {
    Trouble::Failed(Evidence { expected: expected.into(), seen: seen.into() })
}

/// Fails unless `holds`.
///
/// # Errors
/// When it doesn't hold.
pub fn ensure(holds: bool, expected: impl Into<String>, seen: impl fmt::Display) -> Result<(), Trouble> {
    if holds { Ok(()) } else { Err(failed(expected, seen.to_string())) }
}
