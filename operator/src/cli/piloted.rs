//! What the analysis says about the pilots of a run: which are not steady, and the tables for the user.

use std::{path::Path, str::FromStr};

use anyhow::{Context, bail};
use bench_format::{run::Run, trial::TrialId};
use serde::Deserialize;

use crate::{climb::PilotJudge, pilot, report};

/// Asks the analysis which of a run's pilots are not steady; `None` for a run without pilots.
pub(super) fn judge<'a>(analysis: &'a str, root: &'a Path, run: &Run) -> Option<PilotJudge<'a>> {
    let judge = |bundle: &Path| {
        let words = ["steady".into(), "--json".into(), "--".into(), bundle.into()];
        not_steady(&report::output(analysis, root, &words)?)
    };
    pilot::has_pilots(run).then(|| PilotJudge(Box::new(judge)))
}

/// Prints what the pilots of a finished bundle show, as JSON if `json`. Returns 0 if the plan's warm-up suffices for all, 1 if it doesn't,
/// and 2 if something could not be measured.
pub(super) fn print(analysis: &str, json: bool, root: &Path, bundle: &Path) -> anyhow::Result<u8> {
    let format = json.then(|| "--json".into());
    let words: Vec<_> = ["steady".into()].into_iter().chain(format).chain(["--".into(), bundle.into()]).collect();
    report::analyse(analysis, root, &words)
}

/// What the analysis prints, as far as it is needed here.
#[derive(Debug, Deserialize)]
struct Printed {
    ladders: Vec<PrintedLadder>,
}

#[derive(Debug, Deserialize)]
struct PrintedLadder {
    pilots: Vec<PrintedPilot>,
}

#[derive(Debug, Deserialize)]
struct PrintedPilot {
    trial: String,
    state: String,
}

fn not_steady(json: &[u8]) -> anyhow::Result<Vec<TrialId>> {
    let Printed { ladders } = serde_json::from_slice(json).context("the analysis printed no JSON of pilots")?;
    let pilots = ladders.iter().flat_map(|ladder| &ladder.pilots).filter(|pilot| pilot.state == "not-steady");
    pilots
        .map(|pilot| match TrialId::from_str(&pilot.trial) {
            Ok(trial) => Ok(trial),
            Err(error) => bail!("the analysis printed a trial that is none: {}: {error}", pilot.trial),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pilots_without_a_steady_state_are_made_again() {
        let pilot = |service: &str, state: &str| {
            format!(r#"{{"trial": "{service}/throughput/standard/100-p1-r1", "state": "{state}", "start_seconds": 3}}"#)
        };
        let states = ["steady", "not-steady", "ended-by-itself", "not-measured"];
        let pilots: Vec<String> =
            ["a", "b", "c", "d"].iter().zip(states).map(|(name, state)| pilot(name, state)).collect();
        let json = format!(r#"{{"run": "r", "ladders": [{{"pilots": [{}]}}]}}"#, pilots.join(","));
        let found = not_steady(json.as_bytes()).unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b/throughput/standard/100-p1-r1"]);
    }

    #[test]
    fn output_that_names_no_trial_is_refused() {
        for json in ["", "{}", r#"{"ladders": [{"pilots": [{"trial": "x", "state": "not-steady"}]}]}"#] {
            assert!(not_steady(json.as_bytes()).is_err(), "{json}");
        }
    }
}
