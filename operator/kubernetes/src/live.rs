//! The current status of the operator and its run, which the live page, `/api/status`, the metrics and the probes
//! serve. The climb writes it; all others only read it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bench_format::{
    result::TrialResult,
    run::{CapacityEstimate, CrashCause, Run, RunState, Search, TrialState},
    timeline::TimelineStep,
    trial::TrialId,
};
use driver::clock;
use operator::{
    assert, print,
    search::so_far::SoFar,
    watcher::{Terminal, Watcher},
};
use serde::{Deserialize, Serialize};

/// The response of `/api/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of ws-ladder that the operator runs.
    pub version: String,
    /// Whether the plan and the cluster file are valid, the results can be written and the coordinator listens.
    pub ready: bool,
    /// Why the operator isn't ready, one line for each reason.
    pub not_ready: Vec<String>,
    /// Id of the requested run; empty when there is none.
    pub run_id: String,
    /// Name of the plan.
    pub plan: String,
    /// What the operator does.
    pub state: State,
    /// The state as a message for users, with what they can do.
    #[serde(alias = "words")]
    pub description: String,
    /// The last failure since the operator started.
    pub last_problem: Option<Problem>,
    /// The current tier: `service/workload/variant/tier`.
    pub tier: Option<String>,
    /// The current step, and since when it runs.
    pub step: Option<Step>,
    /// Number of trials that were interrupted and repeated since the operator started.
    pub interruptions: u32,
    /// Every trial of the run. A search adds its trials one by one.
    pub trials: Vec<TrialStatus>,
    /// Every search of the run.
    #[serde(default)]
    pub searches: Vec<SearchStatus>,
    /// `pass`, `fail` or `invalid` over all trials; absent until the run has ended.
    pub standing: Option<String>,
    /// The time spent between trials, as text.
    pub overhead: String,
}

/// What the operator does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It reads its files and connects to the cluster.
    #[default]
    Starting,
    /// It waits, because another operator holds the Lease.
    Waiting,
    /// No run is requested, or the requested run can't be climbed.
    Idle,
    /// It climbs the run.
    Climbing,
    /// It has a run to climb, but the results can't be written.
    Blocked,
    /// The run has ended.
    Finished,
    /// It restores everything and ends.
    Stopping,
}

/// A failure, as the status reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Time of the failure, in RFC 3339 format.
    pub at: String,
    /// Message of the failure.
    #[serde(alias = "words")]
    pub description: String,
}

/// The current step of the climb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The kind of the step.
    pub step: TimelineStep,
    /// Id of the trial that the step belongs to, if any.
    pub trial: Option<String>,
    /// Start of the step, in nanoseconds since the Unix epoch.
    pub since_unix_ns: u64,
}

/// The status of one trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialStatus {
    /// Id of the trial.
    pub trial: String,
    /// `pending`, `started`, `finished` or `failed`.
    pub state: String,
    /// `valid` or `invalid`; absent until the trial has ended.
    pub validity: Option<String>,
    /// `pass`, `fail` or `invalid`; absent until the trial has ended.
    pub standing: Option<String>,
    /// The standing and the key figure, as in a line of `ladder run`, or why there is no result.
    #[serde(alias = "words")]
    pub description: String,
}

/// The status of one search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchStatus {
    /// The search: `service/workload/variant`.
    pub search: String,
    /// `pass`, `fail` or `invalid`; absent until the search has its result.
    pub standing: Option<String>,
    /// The result as in the line of `ladder search`, or what the search does and has found so far.
    pub description: String,
    /// The largest load at which a trial passed so far.
    pub passed: Option<u32>,
    /// The smallest load at which a trial failed so far.
    pub failed: Option<u32>,
    /// The capacity with its interval; absent until the search has its result, and in a result without one.
    pub capacity: Option<CapacityEstimate>,
    /// The confirmed load; absent until the search has its result, and where none was confirmed.
    pub confirmed: Option<u32>,
}

impl SearchStatus {
    fn of(search: &Search, known: Option<SoFar>) -> Self {
        let found = search.found.as_ref();
        let so_far = known.map(print::search::so_far).unwrap_or_default();
        Self {
            search: print::search::name(search),
            standing: found.map(|_| assert::of_search(search).as_str().to_owned()),
            description: found.map_or(so_far, print::search::description),
            passed: known.and_then(|known| known.passed),
            failed: known.and_then(|known| known.failed),
            capacity: found.and_then(|found| found.capacity.as_ref()?.estimate),
            confirmed: found.and_then(|found| found.confirmed),
        }
    }
}

/// Figures of a trial that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedFigures {
    /// Messages per second that the witness confirms as delivered.
    pub delivered_per_second: Option<f64>,
    /// Histogram without its unit, percentile (`p99`) and value in nanoseconds.
    pub percentiles: Vec<(String, String, u64)>,
}

impl EndedFigures {
    fn of(result: &TrialResult) -> Self {
        let each = result.percentiles.iter().flat_map(|(histogram, percentiles)| {
            let name = histogram.as_str().trim_end_matches("_ns").to_owned();
            percentiles.iter().filter_map(move |(at, ns)| Some((name.clone(), at.clone(), (*ns)?)))
        });
        Self { delivered_per_second: result.figures.delivered_per_second, percentiles: each.collect() }
    }
}

/// The shared status; clones refer to the same one.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    status: Status,
    /// The texts of ended trials, by trial id, so that no result file has to be read while a trial runs.
    description: BTreeMap<String, String>,
    /// Their figures, for the metrics.
    figures: BTreeMap<String, EndedFigures>,
    /// What the searches that go on have found so far, by name.
    so_far: BTreeMap<String, SoFar>,
}

impl Live {
    /// The status of an operator that just started.
    pub fn new() -> Self {
        let live = Self::default();
        live.change(|status| {
            status.version = env!("CARGO_PKG_VERSION").into();
            status.description = "starting".into();
        });
        live
    }

    /// A copy of the current status.
    pub fn status(&self) -> Status {
        self.lock().status.clone()
    }

    /// The figures of the run's trials that have ended, by trial id.
    pub fn figures(&self) -> BTreeMap<String, EndedFigures> {
        let inner = self.lock();
        let ended = inner.status.trials.iter().filter(|trial| trial.standing.is_some());
        ended.filter_map(|trial| Some((trial.trial.clone(), inner.figures.get(&trial.trial)?.clone()))).collect()
    }

    /// Changes the status while its lock is held.
    pub fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock().status);
    }

    /// Replaces the reasons why the operator isn't ready; without any it is.
    pub fn set_not_ready(&self, reasons: Vec<String>) {
        self.change(|status| (status.ready, status.not_ready) = (reasons.is_empty(), reasons));
    }

    /// Sets the state and its message, and logs a change.
    pub fn set_status(&self, state: State, description: &str) {
        let mut inner = self.lock();
        let status = &mut inner.status;
        if status.state != state || status.description != description {
            eprintln!("ladder: {description}");
        }
        (status.state, status.description) = (state, description.into());
    }

    /// Records a failure, and logs it if it differs from the last one.
    pub fn problem(&self, description: &str) {
        let problem = Problem { at: clock::rfc3339(clock::unix_ns()), description: description.into() };
        let before = self.lock().status.last_problem.replace(problem);
        if before.is_none_or(|before| before.description != description) {
            eprintln!("ladder: {description}");
        }
    }

    /// Records the text of a trial that ended before this operator started.
    pub fn remember(&self, result: &TrialResult) {
        let mut inner = self.lock();
        inner.description.insert(result.trial.to_string(), print::description(result));
        inner.figures.insert(result.trial.to_string(), EndedFigures::of(result));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock. Even then the status would be consistent.
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
        let Inner { status, description, so_far, .. } = &mut *inner;
        status.run_id = run.id.to_string();
        status.plan.clone_from(&run.plan.name);
        status.trials = run.trials.iter().map(|entry| trial_status(&entry.trial, &entry.state, description)).collect();
        let of_search = |search| SearchStatus::of(search, so_far.get(&print::search::name(search)).copied());
        status.searches = run.searches.iter().map(of_search).collect();
        let ended = run.state == RunState::Finished;
        if ended {
            (status.step, status.tier) = (None, None);
        }
        status.standing = ended.then(|| assert::of_run(run).as_str().to_owned());
    }

    fn result(&self, result: &TrialResult) {
        Terminal.result(result);
        self.remember(result);
    }

    fn searching(&self, search: &Search, so_far: SoFar) {
        let mut inner = self.lock();
        let name = print::search::name(search);
        if let Some(known) = inner.status.searches.iter_mut().find(|known| known.search == name) {
            *known = SearchStatus::of(search, Some(so_far));
        }
        inner.so_far.insert(name, so_far);
    }

    fn found(&self, search: &Search) {
        Terminal.found(search);
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        self.problem(&Terminal::failed_line(trial, reason));
    }

    fn crashed(&self, trial: &TrialId, cause: CrashCause, reason: &str) {
        self.problem(&Terminal::crashed_line(trial, cause, reason));
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        self.change(|status| status.interruptions += 1);
        self.problem(&Terminal::interrupted_line(trial, reason));
    }
}

fn trial_status(trial: &TrialId, state: &TrialState, known: &BTreeMap<String, String>) -> TrialStatus {
    let trial = trial.to_string();
    let known = known.get(&trial).cloned().unwrap_or_default();
    let (name, description) = match state {
        TrialState::Pending => ("pending", String::new()),
        TrialState::Started { attempt } => ("started", format!("attempt {attempt}")),
        TrialState::Finished { .. } => ("finished", known),
        TrialState::Crashed { cause, reason } => ("crashed", format!("{}: {reason}", cause.as_str())),
        TrialState::Failed { reason } => ("failed", reason.clone()),
    };
    let ended = !operator::step::is_open(state);
    let standing = assert::of_state(state);
    let validity = if standing == assert::Standing::Invalid { "invalid" } else { "valid" };
    TrialStatus {
        trial,
        state: name.into(),
        validity: ended.then(|| validity.into()),
        standing: ended.then(|| standing.as_str().into()),
        description,
    }
}

#[cfg(test)]
mod tests {
    use bench_format::{result::Validity, run::SearchStep};

    use super::*;

    fn trial() -> TrialId {
        TrialId {
            service: bench_format::Name::from_static("ours"),
            workload: bench_format::Name::from_static("throughput"),
            variant: bench_format::Name::from_static("batch"),
            tier: 100,
            process: 1,
            repeat: 1,
        }
    }

    #[test]
    fn a_trial_has_its_figure_only_after_its_end() {
        let trial = trial();
        let known = [(trial.to_string(), "valid, 12 delivered/s".to_owned())].into();
        let pending = trial_status(&trial, &TrialState::Pending, &known);
        assert_eq!((pending.standing, pending.description.as_str()), (None, ""));
        let state = TrialState::Finished { validity: Validity::Valid, passed: Some(true) };
        let finished = trial_status(&trial, &state, &known);
        assert_eq!(
            (finished.standing.as_deref(), finished.description.as_str()),
            (Some("pass"), "valid, 12 delivered/s")
        );
    }

    #[test]
    fn a_search_has_its_bracket_while_it_goes_on_and_its_capacity_at_the_end() {
        let mut run = crate::cluster_file::fixture::searching();
        let live = Live::new();
        live.run(&run);
        let begun = SearchStatus { search: "wse-server/throughput/batch".into(), ..SearchStatus::default() };
        assert_eq!(live.status().searches, [begun]);
        let so_far = SoFar { step: SearchStep::Round, trials: 3, passed: Some(40), failed: Some(60) };
        live.searching(&run.searches[0], so_far);
        let [now] = &live.status().searches[..] else { panic!("no search") };
        assert_eq!((now.passed, now.failed, now.standing.as_deref()), (Some(40), Some(60), None));
        assert_eq!(now.description, "rounds, 3 trials ended, passed up to 40, failed from 60");
        run.searches[0].found = Some(crate::cluster_file::fixture::found());
        live.run(&run);
        let [ended] = &live.status().searches[..] else { panic!("no search") };
        assert_eq!((ended.standing.as_deref(), ended.confirmed, ended.passed), (Some("pass"), Some(48), Some(40)));
        assert_eq!(ended.capacity.map(|capacity| capacity.load), Some(50.0));
        assert!(ended.description.starts_with("P >= 0.5 at 50.0 ["), "{}", ended.description);
    }

    #[test]
    fn the_current_step_sets_the_tier() {
        let live = Live::new();
        let trial = trial();
        live.step(TimelineStep::StartWorkers, Some(&trial));
        assert_eq!(live.status().tier.as_deref(), Some("ours/throughput/batch/100"));
    }
}
