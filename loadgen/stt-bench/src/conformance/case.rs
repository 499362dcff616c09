//! What a check is, and how it ends.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use serde::Serialize;

use super::scene::Scene;

/// One check, with its own result.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, as results and the table of flaws call it.
    pub name: &'static str,
    /// What a gateway that passes it has shown.
    pub proves: &'static str,
    /// In front of which gateway process it runs.
    pub stage: Stage,
    /// What it can't do without.
    pub needs: &'static [Need],
    /// How often it may be tried. What is about time is tried thrice: a busy machine is late once, and a gateway that is
    /// wrong is wrong each time.
    pub tries: u32,
    /// The check itself.
    pub run: fn(Scene) -> Running,
}

/// A check under way.
pub type Running = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// How a check ends when nothing went wrong, or what went wrong.
pub type Verdict = Result<Evidence, Trouble>;

/// Cases that share a gateway process. Where the tool starts the gateway, each stage is a process with an environment of
/// its own, and all of them run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The intervals of the product: what a client alone can see.
    Wire,
    /// Short intervals, a scripted inference.
    Scripted,
    /// Counters are read before and after, so that cases run one by one.
    Accounts,
    /// One client does not read.
    Slow,
    /// The process is stopped and continued.
    Stall,
    /// The process is told to end.
    Drain,
    /// After all others, on all processes.
    Last,
}

impl Stage {
    /// Those that have a process of their own.
    pub const PROCESSES: [Stage; 6] =
        [Stage::Wire, Stage::Scripted, Stage::Accounts, Stage::Slow, Stage::Stall, Stage::Drain];

    /// Whether its cases may run side by side.
    pub fn is_concurrent(self) -> bool {
        matches!(self, Stage::Wire | Stage::Scripted)
    }
}

/// What a case can't do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The gateway asks our scripted inference.
    Script,
    /// The gateway's metrics port.
    Metrics,
    /// We started the process, and may signal it.
    Process,
    /// The golden vectors hold for four passes only.
    FourPasses,
}

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

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As the contract says.
    Passed,
    /// Not as the contract says.
    Failed,
    /// Not run.
    Skipped,
}

/// The result of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// The case.
    pub name: &'static str,
    /// What it proves.
    pub proves: &'static str,
    /// What became of it.
    pub status: Status,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was expected and what was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl CaseResult {
    /// Of a verdict.
    pub fn new(case: &Case, verdict: Verdict, took: Duration) -> Self {
        let (status, reason, evidence) = match verdict {
            Ok(evidence) => (Status::Passed, None, Some(evidence)),
            Err(Trouble::Failed(evidence)) => (Status::Failed, None, Some(evidence)),
            Err(Trouble::Skipped(reason)) => (Status::Skipped, Some(reason), None),
        };
        let (name, proves) = (case.name, case.proves);
        Self { name, proves, status, reason, evidence, seconds: took.as_secs_f64() }
    }
}
