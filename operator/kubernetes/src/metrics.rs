//! `/metrics` for Prometheus: the status as numbers, computed for each scrape.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use driver::clock::unix_ns;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};

use crate::{
    live::{EndedFigures, Status},
    trial_view::{TrialView, WorkerView},
};

/// The content type of the output of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    state: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StandingLabel {
    standing: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabel {
    step: String,
}

mod searches;
mod trials;

/// What a scrape reads.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// The operator and its run.
    pub status: Status,
    /// Figures of the run's trials that have ended, by trial id.
    pub figures: BTreeMap<String, EndedFigures>,
    /// The trial that runs.
    pub trial: Option<TrialView>,
    /// What each of them has done in that trial.
    pub workers: Vec<WorkerView>,
}

/// The readings as OpenMetrics text.
pub fn text(readings: &Readings) -> String {
    let status = &readings.status;
    let mut registry = Registry::with_prefix("ladder");
    let info = [("version", status.version.clone()), ("run", status.run_id.clone()), ("plan", status.plan.clone())];
    registry.register("operator", "The operator and its requested run", Info::new(info.to_vec()));
    let ready: Gauge = Gauge::default();
    ready.set(i64::from(status.ready));
    registry.register("ready", "Whether the operator could climb", ready);
    let doing = Family::<StateLabel, Gauge>::default();
    doing.get_or_create_owned(&StateLabel { state: serialized_name(&status.state) }).set(1);
    registry.register("state", "What the operator does", doing);
    let trials = Family::<StateLabel, Gauge>::default();
    for state in ["pending", "started", "finished", "crashed", "failed"] {
        let count = status.trials.iter().filter(|trial| trial.state == state).count();
        trials.get_or_create_owned(&StateLabel { state: state.into() }).set(count as i64);
    }
    registry.register("trials", "Trials of the run by state", trials);
    let standings = Family::<StandingLabel, Gauge>::default();
    for standing in ["pass", "fail", "invalid"] {
        let count = status.trials.iter().filter(|trial| trial.standing.as_deref() == Some(standing)).count();
        standings.get_or_create_owned(&StandingLabel { standing: standing.into() }).set(count as i64);
    }
    registry.register("ended_trials", "Trials that have ended, by standing", standings);
    let interruptions: Gauge = Gauge::default();
    interruptions.set(status.interruptions.into());
    registry.register(
        "interruptions",
        "Trials that were interrupted and repeated since the operator started",
        interruptions,
    );
    let since = Family::<StepLabel, Gauge<f64, AtomicU64>>::default();
    if let Some(step) = &status.step {
        let seconds = unix_ns().saturating_sub(step.since_unix_ns) as f64 / 1e9;
        since.get_or_create_owned(&StepLabel { step: serialized_name(&step.step) }).set(seconds);
    }
    registry.register("step_seconds", "How long the current step has taken so far", since);
    searches::register(&mut registry, &status.searches);
    trials::register(&mut registry, readings);
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written");
    text
}

fn serialized_name<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{State, TrialStatus};

    #[test]
    fn trials_are_counted_by_state_and_standing() {
        let trial = |state: &str, standing: Option<&str>| TrialStatus {
            trial: "a".into(),
            state: state.into(),
            validity: None,
            standing: standing.map(Into::into),
            description: String::new(),
        };
        let status = Status {
            state: State::Climbing,
            ready: true,
            run_id: "r\"1".into(),
            trials: vec![trial("finished", Some("pass")), trial("finished", Some("pass")), trial("pending", None)],
            ..Status::default()
        };
        let text = text(&Readings { status, ..Readings::default() });
        for line in [
            "ladder_ready 1",
            "ladder_state{state=\"climbing\"} 1",
            "ladder_trials{state=\"finished\"} 2",
            "ladder_trials{state=\"failed\"} 0",
            "ladder_ended_trials{standing=\"pass\"} 2",
            "run=\"r\\\"1\"",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
