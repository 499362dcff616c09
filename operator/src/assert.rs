//! `ladder assert`: turns verdicts into an exit code and JUnit XML, for a pipeline.
//!
//! An invalid trial outweighs a failed one, because it says nothing about the service.

use std::{fmt::Write, path::Path};

use bench_format::{
    Name,
    comparison::{Comparison, ComparisonEnd},
    contract::ContractOutcome,
    result::Validity,
    run::{Run, Search, SearchFound, TrialState},
    trial::TrialId,
};

use crate::{print, store};

/// The result of a trial or a whole run, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Valid, and passed its objectives if it has any.
    Pass,
    /// Valid, but an objective was missed, or the service ended under load.
    Fail,
    /// Invalid, not measured, or unreadable.
    Invalid,
}

impl Standing {
    /// The exit code: 0 for pass, 1 for fail, 2 for invalid.
    pub fn exit_code(self) -> u8 {
        self as u8
    }

    /// The name in the output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Invalid => "invalid",
        }
    }
}

/// The standing of one trial, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asserted {
    /// Id of the trial. A search has an id with process and repeat 0.
    pub trial: TrialId,
    /// Whether the trial passed, failed or is not usable.
    pub standing: Standing,
    /// The measured figure, or why the trial is not usable.
    pub description: String,
}

/// The standing of a run, from its `run.json` only.
pub fn of_run(run: &Run) -> Standing {
    if let Some(comparison) = &run.comparison {
        return of_comparison(comparison);
    }
    let trials = run.trials.iter().filter(|entry| entry.search.is_none()).map(|entry| of_state(&entry.state));
    trials.chain(run.searches.iter().map(of_search)).max().unwrap_or(Standing::Invalid)
}

/// The standing of a comparison: it fails if B is shown to be worse. A trial of it that doesn't count was measured again.
fn of_comparison(comparison: &Comparison) -> Standing {
    match comparison.progress.end {
        None | Some(ComparisonEnd::NotComparable { .. }) => Standing::Invalid,
        Some(_) if print::compare::is_worse(comparison) => Standing::Fail,
        Some(_) => Standing::Pass,
    }
}

/// A comparison as a line among trials: B at the load of the pairs, with process and repeat 0.
fn asserted_comparison(comparison: &Comparison) -> Asserted {
    let Comparison { b, workload, variant, tier, .. } = comparison;
    let (workload, variant) = (workload.clone(), variant.clone());
    let trial = TrialId { service: b.service.clone(), workload, variant, tier: *tier, process: 0, repeat: 0 };
    Asserted { trial, standing: of_comparison(comparison), description: print::compare::description(comparison) }
}

/// The standing of a search. Its own trials fail by design; it passes if a load is confirmed.
pub fn of_search(search: &Search) -> Standing {
    match &search.found {
        Some(found) if found.confirmed.is_some() => Standing::Pass,
        Some(found) if found.given_up_at.is_none() => Standing::Fail,
        _ => Standing::Invalid,
    }
}

/// A search as a line among trials. Its tier is the load that was confirmed, failed, or could not be measured.
fn asserted_search(search: &Search) -> Asserted {
    let Search { service, workload, variant, found } = search;
    let load = |found: &SearchFound| found.confirmed.or(found.first_solid_fail).or(found.given_up_at);
    let trial = TrialId {
        service: service.clone(),
        workload: workload.clone(),
        variant: variant.clone(),
        tier: found.as_ref().and_then(load).unwrap_or(0),
        process: 0,
        repeat: 0,
    };
    let description = found.as_ref().map_or("not finished; resume the run".into(), print::search::description);
    Asserted { trial, standing: of_search(search), description }
}

/// The standing of a trial's state in `run.json`.
pub fn of_state(state: &TrialState) -> Standing {
    match state {
        TrialState::Finished { validity: Validity::Valid, passed: Some(false) } | TrialState::Crashed { .. } => {
            Standing::Fail
        }
        TrialState::Finished { validity: Validity::Valid, .. } => Standing::Pass,
        _ => Standing::Invalid,
    }
}

/// The standing of every trial of a bundle. A trial whose `run.json` and `result.json` disagree is invalid.
///
/// # Errors
/// When the bundle's `run.json` is missing or can't be parsed.
pub fn bundle(folder: &Path) -> Result<Vec<Asserted>, store::Error> {
    let run = store::read_run(folder)?;
    if let Some(comparison) = &run.comparison {
        let broken = [&comparison.a, &comparison.b].into_iter().find_map(|side| of_contract(folder, &side.service));
        let asserted = asserted_comparison(comparison);
        let (standing, description) = broken.unwrap_or((asserted.standing, asserted.description));
        return Ok(vec![Asserted { standing, description, trial: asserted.trial }]);
    }
    let tiers = run.trials.iter().filter(|entry| entry.search.is_none());
    let asserted = tiers.map(|entry| {
        let (standing, description) = match &entry.state {
            TrialState::Finished { .. } => of_contract(folder, &entry.trial.service)
                .unwrap_or_else(|| of_result(folder, &entry.trial, of_state(&entry.state))),
            TrialState::Crashed { cause, reason } => (Standing::Fail, format!("{}: {reason}", cause.as_str())),
            TrialState::Failed { reason } => (Standing::Invalid, format!("not measured: {reason}")),
            TrialState::Pending => (Standing::Invalid, "not climbed yet".into()),
            TrialState::Started { .. } => (Standing::Invalid, "interrupted; resume the run".into()),
        };
        Asserted { trial: entry.trial.clone(), standing, description }
    });
    Ok(asserted.chain(run.searches.iter().map(asserted_search)).collect())
}

/// Invalid, with the reason, if the service broke its contract after its trials; `None` where it kept the contract or
/// was not checked.
fn of_contract(folder: &Path, service: &Name) -> Option<(Standing, String)> {
    let after = match store::read_contract(folder, service) {
        Ok(file) => file?.after?,
        Err(error) => return Some((Standing::Invalid, error.to_string())),
    };
    let failed: Vec<&str> = after.failed().map(|case| case.name.as_str()).collect();
    let description = format!("its service broke its contract after its last trial ({})", failed.join(", "));
    (after.outcome != ContractOutcome::Passed).then_some((Standing::Invalid, description))
}

fn of_result(folder: &Path, trial: &TrialId, claimed: Standing) -> (Standing, String) {
    let result = match store::read_result(folder, trial) {
        Ok(result) => result,
        Err(error) => return (Standing::Invalid, error.to_string()),
    };
    let passed = result.verdict.as_ref().map(|verdict| verdict.passed);
    let seen = of_state(&TrialState::Finished { validity: result.validity.clone(), passed });
    if seen != claimed {
        let description = format!("run.json has {}, result.json has {}", claimed.as_str(), seen.as_str());
        return (Standing::Invalid, description);
    }
    let description = match seen {
        Standing::Pass => print::key_figure(&result),
        Standing::Fail => objectives_that_fail(&result),
        Standing::Invalid => print::standing(&result),
    };
    (seen, description)
}

fn objectives_that_fail(result: &bench_format::result::TrialResult) -> String {
    let judged = result.verdict.iter().flat_map(|verdict| &verdict.objectives).filter(|judged| !judged.passed);
    let description = judged.map(|judged| {
        let figure = serde_json::to_string(&judged.objective.figure).unwrap_or_default();
        let most = judged.objective.at_most.map(|bound| format!(" at most {bound}")).unwrap_or_default();
        let least = judged.objective.at_least.map(|bound| format!(" at least {bound}")).unwrap_or_default();
        let seen = judged.seen.map_or("n/a".into(), |seen| format!("{seen}"));
        format!("{}{most}{least}, measured {seen}", figure.replace('"', ""))
    });
    description.collect::<Vec<_>>().join("; ")
}

/// One line of text per trial.
pub fn lines(asserted: &[Asserted]) -> String {
    let mut text = String::new();
    for Asserted { trial, standing, description } in asserted {
        let separator = if description.is_empty() { "" } else { ": " };
        writeln!(text, "{:7} {trial}{separator}{description}", standing.as_str())
            .expect("a string takes all that is written");
    }
    text
}

/// The worst standing; invalid for an empty list.
pub fn worst(asserted: &[Asserted]) -> Standing {
    asserted.iter().map(|trial| trial.standing).max().unwrap_or(Standing::Invalid)
}

/// The run's name for JUnit XML: that of the bundle's folder.
pub fn run_name(bundle: &Path) -> &str {
    bundle.file_name().and_then(|name| name.to_str()).unwrap_or("run")
}

/// JUnit XML with a test suite for each ladder of a service. A failed trial is a failure, an invalid one an error.
pub fn junit(run: &str, asserted: &[Asserted]) -> String {
    let count = |trials: &[&Asserted], standing| trials.iter().filter(|trial| trial.standing == standing).count();
    let suite_of = |trial: &TrialId| format!("{}/{}/{}", trial.service, trial.workload, trial.variant);
    let mut suites: Vec<(String, Vec<&Asserted>)> = Vec::new();
    for trial in asserted {
        let name = suite_of(&trial.trial);
        match suites.iter_mut().find(|(suite, _)| *suite == name) {
            Some((_, trials)) => trials.push(trial),
            None => suites.push((name, vec![trial])),
        }
    }
    let mut xml = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\">\n", escape(run));
    for (suite, trials) in suites {
        let (failures, errors) = (count(&trials, Standing::Fail), count(&trials, Standing::Invalid));
        let name = escape(&suite);
        xml += &format!(
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\">\n",
            trials.len()
        );
        for trial in trials {
            let case = format!("{}-p{}-r{}", trial.trial.tier, trial.trial.process, trial.trial.repeat);
            let (case, description) = (escape(&case), escape(&trial.description));
            let inner = match trial.standing {
                Standing::Pass => format!("<system-out>{description}</system-out>"),
                Standing::Fail => format!("<failure message=\"{description}\"/>"),
                Standing::Invalid => format!("<error message=\"{description}\"/>"),
            };
            xml += &format!("    <testcase classname=\"{name}\" name=\"{case}\">{inner}</testcase>\n");
        }
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

/// Escapes text for XML content and attributes. XML 1.0 doesn't allow control characters other than white space, so
/// they are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            character if character.is_control() && character != '\t' => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::coordinator::upload::fixture::trial;

    fn asserted(standing: Standing, description: &str) -> Asserted {
        Asserted { trial: trial(), standing, description: description.into() }
    }

    #[test]
    fn the_worst_trial_decides_and_an_empty_list_is_not_a_pass() {
        let (pass, fail, invalid) = (Standing::Pass, Standing::Fail, Standing::Invalid);
        let of = |standings: &[Standing]| {
            let trials: Vec<Asserted> = standings.iter().map(|standing| asserted(*standing, "")).collect();
            worst(&trials).exit_code()
        };
        assert_eq!([of(&[pass]), of(&[pass, fail]), of(&[invalid, fail]), of(&[])], [0, 1, 2, 2]);
    }

    #[test]
    fn junit_is_valid_xml_for_every_text() {
        let description = "p99 < 5 & \"late\"\nline \u{1b}[1m";
        let trials =
            [asserted(Standing::Fail, description), asserted(Standing::Invalid, "a"), asserted(Standing::Pass, "b")];
        let xml = junit("run <1>", &trials);
        let document = roxmltree::Document::parse(&xml).unwrap();
        let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
        let counts = ["tests", "failures", "errors"].map(|name| suite.attribute(name).unwrap());
        assert_eq!(counts, ["3", "1", "1"]);
        let failure = document.descendants().find(|node| node.has_tag_name("failure")).unwrap();
        assert_eq!(failure.attribute("message"), Some("p99 < 5 & \"late\"\nline \u{fffd}[1m"));
    }

    #[test]
    fn a_trial_is_a_line() {
        let lines = lines(&[asserted(Standing::Fail, "too slow"), asserted(Standing::Pass, "")]);
        assert_eq!(
            lines,
            "fail    ours/throughput/standard/20-p1-r1: too slow\npass    ours/throughput/standard/20-p1-r1\n"
        );
    }
}
