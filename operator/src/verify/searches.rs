//! Decides each search again from the results of its trials, and compares its outcome with `run.json`.

use bench_format::run::{RunState, Search, SearchFound, TrialEntry, TrialState};
use driver::http::chain;

use super::{Bundle, difference, planned, report::Check};
use crate::{
    plan::Ladder,
    search::{
        course::{Course, FinishedTrial, Step},
        losses::TrialSummary,
    },
    store,
};

pub(super) fn check(bundle: &Bundle<'_>) -> Check {
    let mut check = Check::new("searches");
    for (index, search) in bundle.run.searches.iter().enumerate() {
        match (&search.found, decide(bundle, search)) {
            (None, _) if bundle.run.state != RunState::Finished => {}
            (None, _) => check.find("run.json", format!("searches[{index}]: no outcome, but the run is finished")),
            (_, Err(reason)) => check.find("run.json", format!("searches[{index}]: {reason}")),
            (Some(found), Ok(decided)) => {
                let stored = serde_json::to_value(found).expect("our types have no map keys but strings");
                if let Some(difference) = difference::first(&stored, &decided) {
                    check.find("run.json", format!("searches[{index}].found.{difference}{}", bundle.note()));
                }
            }
        }
    }
    check.summary = match bundle.run.searches.len() {
        0 => "none".into(),
        count => format!("{count} decided again"),
    };
    check
}

/// The outcome of a search after its trials.
fn decide(bundle: &Bundle<'_>, search: &Search) -> Result<SearchFound, String> {
    let run = bundle.run;
    let of_search = |entry: &&TrialEntry| {
        let trial = &entry.trial;
        let own = (&search.service, &search.workload, &search.variant);
        entry.search.is_some() && own == (&trial.service, &trial.workload, &trial.variant)
    };
    let entries: Vec<&TrialEntry> = run.trials.iter().filter(of_search).collect();
    let first = entries.first().ok_or("it has no trials")?;
    // The window and the rate of a single trial play no part in the decisions.
    let ladder = planned::ladder(run, first)?;
    let wire = ladder.search.as_ref().ok_or("its ladder has no search")?;
    let course =
        Course { service: &search.service, ladder: &ladder, search: wire, service_process: run.plan.service_process };
    let finished: Result<Vec<FinishedTrial>, String> =
        entries.iter().map(|entry| finished(bundle, entry, &ladder)).collect();
    match course.next(&finished?).map_err(|error| chain(&error))? {
        Step::SearchResult(found) => Ok(*found),
        Step::Measure(entry) => Err(format!("it would have measured {} before its outcome", entry.trial)),
    }
}

fn finished(bundle: &Bundle<'_>, entry: &TrialEntry, ladder: &Ladder) -> Result<FinishedTrial, String> {
    let purpose = entry.search.ok_or("it has a trial of no search")?;
    let summary = match entry.state {
        TrialState::Finished { .. } => {
            let result = store::read_result(bundle.folder, &entry.trial).map_err(|error| chain(&error))?;
            TrialSummary::of(&result, &ladder.objectives, &bundle.run.plan.validity)
        }
        _ if purpose.service_ended => TrialSummary::service_ended(&ladder.objectives),
        _ => TrialSummary::not_measured(),
    };
    Ok(FinishedTrial { load: entry.trial.tier, purpose, summary })
}
