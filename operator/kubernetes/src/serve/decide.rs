//! Decides what to do about the requested run, from the stored runs. Pure.

use bench_format::{
    Name,
    plan::WirePlan,
    run::{Run, RunState},
};
use operator::{retry, secrets::masked_plan};

/// What to do about the requested run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// No run is requested.
    Idle,
    /// Begin the requested run with its plan.
    Begin,
    /// Resume the run, with the plan that it began with.
    Resume,
    /// Measure the failed trials of the run again.
    Retry,
    /// The run has ended.
    Ended,
    /// The run began with another plan. A run keeps its plan, so it can't be resumed with this one.
    PlanChanged,
    /// The run was replaced by another one.
    Superseded,
}

/// Whether a run has failed trials that this request measures again. A request is followed once, so that a restart of the
/// operator doesn't repeat it.
pub(super) fn is_to_be_retried(run: &Run, request: &str) -> bool {
    let is_new = !request.is_empty() && !run.retries.iter().any(|known| known == request);
    is_new && retry::failed_trials(&mut run.clone()) > 0
}

/// Decides about the requested run.
pub(super) fn decide(run_id: &str, request: &str, plan: &WirePlan, stored: &[Run]) -> Decision {
    if run_id.is_empty() {
        return Decision::Idle;
    }
    let Some(run) = stored.iter().find(|run| run.id == run_id) else { return Decision::Begin };
    match run.state {
        RunState::Finished if is_to_be_retried(run, request) && same(&run.plan, plan) => Decision::Retry,
        RunState::Finished | RunState::Failed => Decision::Ended,
        RunState::Superseded => Decision::Superseded,
        RunState::Running if same(&run.plan, plan) => Decision::Resume,
        RunState::Running => Decision::PlanChanged,
    }
}

/// The interrupted runs that will not be resumed any more.
pub(super) fn superseded<'a>(run_id: &str, decision: Decision, stored: &'a [Run]) -> Vec<&'a Name> {
    let replaced = |run: &&Run| match run.id == run_id {
        true => decision == Decision::PlanChanged,
        // While no run is requested, an interrupted run can still be requested again.
        false => !run_id.is_empty(),
    };
    let interrupted = stored.iter().filter(|run| run.state == RunState::Running);
    interrupted.filter(replaced).map(|run| &run.id).collect()
}

fn same(a: &WirePlan, b: &WirePlan) -> bool {
    // A stored plan has no secrets.
    let value = |plan| serde_json::to_value(masked_plan(plan)).ok();
    value(a) == value(b)
}

#[cfg(test)]
mod tests {
    use bench_format::run::{TrialEntry, TrialState};

    use super::*;
    use crate::cluster_file::fixture::{inputs, run};

    #[test]
    fn each_state_of_a_run_leads_to_a_decision() {
        use Decision::{Begin, Ended, Idle, Resume, Superseded};
        let stored = [run("done", RunState::Finished), run("cut", RunState::Running), run("old", RunState::Superseded)];
        let plan = inputs().plan.wire;
        for (id, expected) in [("", Idle), ("new", Begin), ("done", Ended), ("cut", Resume), ("old", Superseded)] {
            assert_eq!(decide(id, "", &plan, &stored), expected, "{id}");
        }
    }

    #[test]
    fn a_run_is_never_continued_by_another_plan() {
        let mut changed = run("cut", RunState::Running);
        changed.plan.repeats = 7;
        let stored = [changed];
        let decision = decide("cut", "", &inputs().plan.wire, &stored);
        assert_eq!(
            (decision, superseded("cut", decision, &stored)),
            (Decision::PlanChanged, vec![&Name::from_static("cut")])
        );
    }

    #[test]
    fn a_run_whose_stored_plan_has_no_secrets_is_resumed() {
        let mut plan = inputs().plan.wire;
        plan.ladders[0].service_env.insert("JWT_SECRET".into(), "secret".into());
        let stored = [Run { plan: masked_plan(&plan), ..run("cut", RunState::Running) }];
        assert_eq!(decide("cut", "", &plan, &stored), Decision::Resume);
    }

    #[test]
    fn failed_trials_are_measured_again_once_for_each_request() {
        let plan = inputs().plan.wire;
        let reason = "no room".into();
        let failed = TrialEntry {
            state: TrialState::Failed { reason },
            ..TrialEntry::pending(inputs().plan.trials()[0].clone())
        };
        let ended = Run { trials: vec![failed], ..run("done", RunState::Finished) };
        let decided = |request: &str, run: &Run| decide("done", request, &plan, std::slice::from_ref(run));
        assert_eq!((decided("", &ended), decided("failed", &ended)), (Decision::Ended, Decision::Retry));
        let retried = Run { retries: vec!["failed".into()], ..ended.clone() };
        assert_eq!((decided("failed", &retried), decided("failed-2", &retried)), (Decision::Ended, Decision::Retry));
        assert_eq!(decided("failed", &run("done", RunState::Finished)), Decision::Ended, "nothing failed");
        let mut other_plan = ended;
        other_plan.plan.repeats = 7;
        assert_eq!(decided("failed", &other_plan), Decision::Ended, "a run keeps its plan");
    }

    #[test]
    fn only_a_newer_run_supersedes_an_interrupted_one() {
        let stored = [run("done", RunState::Finished), run("cut", RunState::Running)];
        assert_eq!(superseded("new", Decision::Begin, &stored), [&Name::from_static("cut")]);
        assert_eq!(superseded("", Decision::Idle, &stored), Vec::<&Name>::new());
        assert_eq!(superseded("cut", Decision::Resume, &stored), Vec::<&Name>::new());
    }
}
