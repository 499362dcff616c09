//! What a check is, and its result.

use std::{future::Future, pin::Pin, time::Duration};

use serde::Serialize;

use super::{
    finding::{Evidence, Trouble, Verdict},
    level::{Exceptions, Level},
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
    /// From which level on it is checked.
    pub level: Level,
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
    /// Not as the contract says, as was declared.
    Excepted,
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
    /// From which level on it is checked.
    pub level: Level,
    /// What became of it.
    pub status: Status,
    /// Where the gateway is excepted: what it does instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
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
        let Case { name, proves, level, .. } = *case;
        Self { name, proves, level, status, instead: None, reason, evidence, seconds: took.as_secs_f64() }
    }

    /// The same in the light of what was declared: a failure is as expected, and a pass is none.
    pub fn excepted(self, exceptions: &Exceptions) -> Self {
        let Some(instead) = exceptions.get(self.name).cloned() else { return self };
        let (status, evidence) = match self.status {
            Status::Passed => (Status::Failed, self.evidence.map(|evidence| needless(&evidence))),
            Status::Failed => (Status::Excepted, self.evidence),
            status => (status, self.evidence),
        };
        Self { status, evidence, instead: Some(instead), ..self }
    }
}

/// What is wrong with an exception of a case that passes.
fn needless(evidence: &Evidence) -> Evidence {
    let expected = "a failure, as there is an exception".into();
    let seen = format!("it passes ({}): the exception isn't needed any more, remove it", evidence.seen);
    Evidence { expected, seen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{
        cases::CASES,
        finding::{failed, passed},
    };

    #[test]
    fn an_exception_turns_a_failure_into_an_excepted_one_and_a_pass_into_a_failure() {
        let case = CASES.iter().find(|case| case.name == "unmasked").unwrap();
        let result =
            |verdict, exceptions: &Exceptions| CaseResult::new(case, verdict, Duration::ZERO).excepted(exceptions);
        let exceptions = Exceptions::from([("unmasked".into(), "it ends the connection".into())]);
        let wrong = result(Err(failed("Close 1002", "the end")), &exceptions);
        assert_eq!((wrong.status, wrong.instead.as_deref()), (Status::Excepted, Some("it ends the connection")));
        let right = result(passed("Close 1002", "Close 1002"), &exceptions);
        assert_eq!(right.status, Status::Failed);
        assert!(right.evidence.unwrap().seen.contains("remove it"));
        let none = Exceptions::new();
        assert_eq!(result(Err(failed("Close 1002", "the end")), &none).status, Status::Failed);
        assert_eq!(result(passed("Close 1002", "Close 1002"), &none).status, Status::Passed);
        assert_eq!(result(Err(Trouble::Skipped("why".into())), &exceptions).status, Status::Skipped);
    }
}
