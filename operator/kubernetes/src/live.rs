//! How the operator and its run stand at this moment: what the page, `/api/status`, the metrics and the probes tell. The climb
//! writes it, everybody else reads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bench_format::{
    result::TrialResult,
    run::{Run, RunState, TrialState},
    timeline::TimelineStep,
    trial::TrialId,
};
use driver::clock;
use operator::{
    assert, print,
    watcher::{Terminal, Watcher},
};
use serde::{Deserialize, Serialize};

/// `/api/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of ws-ladder.
    pub version: String,
    /// Plan and cluster file are valid, the results can be written, the coordinator listens.
    pub ready: bool,
    /// Why it isn't ready, a line each.
    pub not_ready: Vec<String>,
    /// The run that was ordered; empty: none.
    pub run_id: String,
    /// The plan's name.
    pub plan: String,
    /// What the operator does.
    pub state: State,
    /// The same for people, with what they can do.
    pub words: String,
    /// The last thing that went wrong.
    pub last_problem: Option<Problem>,
    /// The tier at hand: `service/workload/variant/tier`.
    pub tier: Option<String>,
    /// The step at hand, and since when.
    pub step: Option<Step>,
    /// Trials that were interrupted and repeated since the operator started.
    pub interruptions: u32,
    /// Every trial of the run.
    pub trials: Vec<TrialStatus>,
    /// `pass`, `fail` or `invalid` over all trials; absent until the run has ended.
    pub standing: Option<String>,
    /// What was spent between trials, in words.
    pub overhead: String,
}

/// What the operator does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It reads its files and finds the cluster.
    #[default]
    Starting,
    /// Another operator holds the Lease.
    Waiting,
    /// No run is ordered, or the one that is can't be climbed as it is ordered.
    Idle,
    /// It climbs.
    Climbing,
    /// It would climb, but the results can't be written.
    Blocked,
    /// The run has ended.
    Finished,
    /// It puts everything back and ends.
    Stopping,
}

/// Something that went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// When, RFC 3339.
    pub at: String,
    /// What.
    pub words: String,
}

/// A step of the climb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Which.
    pub step: TimelineStep,
    /// Its trial.
    pub trial: Option<String>,
    /// Since when, unix nanoseconds.
    pub since_unix_ns: u64,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialStatus {
    /// Which.
    pub trial: String,
    /// `pending`, `started`, `finished`, `failed`.
    pub state: String,
    /// `valid` or `invalid`; absent until it has ended.
    pub validity: Option<String>,
    /// `pass`, `fail` or `invalid`; absent until it has ended.
    pub standing: Option<String>,
    /// How it stands and its figure, as a line of `ladder run` says it, or why it has none.
    pub words: String,
}

/// The one place that everybody looks at.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    status: Status,
    /// What is said of ended trials, so that nobody has to read results while a trial runs.
    words: BTreeMap<String, String>,
}

impl Live {
    /// Of an operator that just started.
    pub fn new() -> Self {
        let live = Self::default();
        live.change(|status| {
            status.version = env!("CARGO_PKG_VERSION").into();
            status.words = "starting".into();
        });
        live
    }

    /// How things stand.
    pub fn status(&self) -> Status {
        self.lock().status.clone()
    }

    /// Changes how things stand.
    pub fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock().status);
    }

    /// Says what the operator does now, in the log too.
    pub fn say(&self, state: State, words: &str) {
        let mut inner = self.lock();
        let status = &mut inner.status;
        if status.state != state || status.words != words {
            eprintln!("ladder: {words}");
        }
        (status.state, status.words) = (state, words.into());
    }

    /// Notes something that went wrong, in the log too.
    pub fn problem(&self, words: &str) {
        let problem = Problem { at: clock::rfc3339(clock::unix_ns()), words: words.into() };
        let before = self.lock().status.last_problem.replace(problem);
        if before.is_none_or(|before| before.words != words) {
            eprintln!("ladder: {words}");
        }
    }

    /// Remembers what is said of a trial that ended before this operator started.
    pub fn remember(&self, result: &TrialResult) {
        let mut inner = self.lock();
        inner.words.insert(result.trial.to_string(), print::words(result));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock; if it did, the status would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watcher for Live {
    fn step(&self, step: TimelineStep, trial: Option<&TrialId>) {
        self.change(|status| {
            let since_unix_ns = clock::unix_ns();
            status.step = Some(Step { step, trial: trial.map(ToString::to_string), since_unix_ns });
            status.tier = trial.map(|trial| {
                let TrialId { service, workload, variant, tier, .. } = trial;
                format!("{service}/{workload}/{variant}/{tier}")
            });
        });
    }

    fn run(&self, run: &Run) {
        let mut inner = self.lock();
        let Inner { status, words } = &mut *inner;
        status.run_id.clone_from(&run.id);
        status.plan.clone_from(&run.plan.name);
        status.trials = run.trials.iter().map(|entry| trial_status(&entry.trial, &entry.state, words)).collect();
        let ended = run.state == RunState::Finished;
        if ended {
            (status.step, status.tier) = (None, None);
        }
        status.standing = ended.then(|| assert::of_run(run).word().to_owned());
    }

    fn result(&self, result: &TrialResult) {
        Terminal.result(result);
        self.remember(result);
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        self.problem(&format!("{trial}: failed: {reason}"));
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        self.change(|status| status.interruptions += 1);
        self.problem(&format!("{trial}: interrupted, to be repeated: {reason}"));
    }
}

fn trial_status(trial: &TrialId, state: &TrialState, known: &BTreeMap<String, String>) -> TrialStatus {
    let trial = trial.to_string();
    let known = known.get(&trial).cloned().unwrap_or_default();
    let (name, words) = match state {
        TrialState::Pending => ("pending", String::new()),
        TrialState::Started { attempt } => ("started", format!("attempt {attempt}")),
        TrialState::Finished { .. } => ("finished", known),
        TrialState::Failed { reason } => ("failed", reason.clone()),
    };
    let ended = !operator::step::is_open(state);
    let standing = assert::of_state(state);
    let validity = if standing == assert::Standing::Invalid { "invalid" } else { "valid" };
    TrialStatus {
        trial,
        state: name.into(),
        validity: ended.then(|| validity.into()),
        standing: ended.then(|| standing.word().into()),
        words,
    }
}

#[cfg(test)]
mod tests {
    use bench_format::result::Validity;

    use super::*;

    fn trial() -> TrialId {
        TrialId {
            service: "ours".into(),
            workload: "throughput".into(),
            variant: "batch".into(),
            tier: 100,
            process: 1,
            repeat: 1,
        }
    }

    #[test]
    fn a_trial_shows_its_figure_only_once_it_has_ended() {
        let trial = trial();
        let known = [(trial.to_string(), "valid, 12 delivered/s".to_owned())].into();
        let pending = trial_status(&trial, &TrialState::Pending, &known);
        assert_eq!((pending.standing, pending.words.as_str()), (None, ""));
        let state = TrialState::Finished { validity: Validity::Valid, passed: Some(true) };
        let finished = trial_status(&trial, &state, &known);
        assert_eq!((finished.standing.as_deref(), finished.words.as_str()), (Some("pass"), "valid, 12 delivered/s"));
    }

    #[test]
    fn the_step_at_hand_names_its_tier() {
        let live = Live::new();
        let trial = trial();
        live.step(TimelineStep::StartWorkers, Some(&trial));
        assert_eq!(live.status().tier.as_deref(), Some("ours/throughput/batch/100"));
    }
}
