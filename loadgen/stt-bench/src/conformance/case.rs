//! The definition of a conformance case, and its result after a run.

use std::{future::Future, pin::Pin, time::Duration};

use serde::Serialize;

use super::{
    finding::{Evidence, NotPassed, Verdict},
    level::{Exceptions, Level},
    scene::Scene,
    stage::{Need, Stage},
};

/// One check of the contract, with its own result.
#[derive(Clone, Copy)]
pub struct Case {
    /// Unique name, as results, `--only` and the table of flaws use it.
    pub name: &'static str,
    /// What a gateway shows by passing the case, as a sentence for the report.
    pub proves: &'static str,
    /// Lowest level at which the case is checked.
    pub level: Level,
    /// Stage, and thereby the gateway process, in which the case runs.
    pub stage: Stage,
    /// Conditions without which the case is skipped.
    pub needs: &'static [Need],
    /// Maximum number of tries. A case about time is tried three times: a busy machine is late once, and a wrong
    /// gateway is wrong each time.
    pub tries: u32,
    /// Starts the check on a scene; called once per try.
    pub run: fn(Scene) -> Running,
}

/// Future of a check that has started.
pub type Running = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// Outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The gateway behaves as the contract says.
    Passed,
    /// The gateway does not behave as the contract says, or an exception is declared for a case that passes.
    Failed,
    /// The gateway does not behave as the contract says, and an exception declares this.
    Excepted,
    /// The case was not run: the run lacked something that it needs.
    Skipped,
}

/// Result of one case on one gateway, as the JSON file has it.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Name of the case.
    pub name: &'static str,
    /// What a gateway shows by passing the case.
    pub proves: &'static str,
    /// Lowest level at which the case is checked.
    pub level: Level,
    /// Outcome of the case, after declared exceptions are applied.
    pub status: Status,
    /// Declared exception: what the gateway does instead. None if no exception is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// Why the case was skipped; none if it was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was expected and what was observed; none if the case was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Duration of the case including repeated tries, in seconds.
    pub seconds: f64,
}

impl CaseResult {
    /// Creates the result from a verdict, before exceptions are applied.
    pub fn new(case: &Case, verdict: Verdict, duration: Duration) -> Self {
        let (status, reason, evidence) = match verdict {
            Ok(evidence) => (Status::Passed, None, Some(evidence)),
            Err(NotPassed::Failed(evidence)) => (Status::Failed, None, Some(evidence)),
            Err(NotPassed::Skipped(reason)) => (Status::Skipped, Some(reason), None),
        };
        let Case { name, proves, level, .. } = *case;
        Self { name, proves, level, status, instead: None, reason, evidence, seconds: duration.as_secs_f64() }
    }

    /// Applies declared exceptions: a declared failure is excepted, and a pass despite a declaration fails.
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

/// Evidence that the exception of a passing case is not needed.
fn needless(evidence: &Evidence) -> Evidence {
    let expected = "a failure, as there is an exception".into();
    let observed = format!("it passes ({}): the exception isn't needed any more, remove it", evidence.seen);
    Evidence { expected, seen: observed }
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
        assert_eq!(result(Err(NotPassed::Skipped("why".into())), &exceptions).status, Status::Skipped);
    }
}
