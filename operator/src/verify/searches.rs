//! Decides each search again from the results of its trials, and compares its outcome with `run.json`.

use bench_format::run::{Run, RunState, Search, SearchFound, TrialEntry};
use driver::http::chain;

use super::{Bundle, difference, planned, report::Check};
use crate::{
    plan::Ladder,
    search::{
        course::{Course, FinishedTrial, Step},
        turns::searches_in_turn,
    },
    search_trial,
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
    let course = Course { service: &search.service, ladder: &ladder, search: wire };
    let finished: Result<Vec<FinishedTrial>, String> =
        entries.iter().map(|entry| finished(bundle, entry, &ladder)).collect();
    match course.next(&finished?, in_turn(run, entries.last().copied())).map_err(|error| chain(&error))? {
        Step::SearchResult(found) => Ok(*found),
        Step::Measure(_, entry) => Err(format!("it would have measured {} before its outcome", entry.trial)),
    }
}

/// Number of searches that had made a trial on a fresh process when the search with this last trial had its result.
fn in_turn(run: &Run, last: Option<&TrialEntry>) -> u32 {
    let measured = run.trials.iter().position(|entry| Some(entry) == last).map_or(&[][..], |last| &run.trials[..=last]);
    searches_in_turn(measured)
}

fn finished(bundle: &Bundle<'_>, entry: &TrialEntry, ladder: &Ladder) -> Result<FinishedTrial, String> {
    let purpose = entry.search.ok_or("it has a trial of no search")?;
    let thresholds = &bundle.run.plan.validity;
    let summary = search_trial::summary(bundle.folder, entry, &purpose, ladder, thresholds);
    Ok(FinishedTrial { load: entry.trial.tier, purpose, summary: summary.map_err(|error| chain(&error))? })
}
