//! What a check is, and its result.

use std::{future::Future, pin::Pin, time::Duration};

use serde::Serialize;

use super::{
    finding::{Evidence, Trouble, Verdict},
    scene::Scene,
    stage::{Need, Stage},
};

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
