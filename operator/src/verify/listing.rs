//! Compares the trials that `run.json` lists with the folders of trials.

use std::collections::BTreeSet;

use bench_format::{
    Name,
    run::{RunState, TrialEntry, TrialState},
    trial::TrialId,
};

use super::{Bundle, report::Check};
use crate::{step, store};

/// Number of parts of a path up to the folder of a trial.
const PARTS: usize = 5;

pub(super) fn check(bundle: &Bundle<'_>) -> Check {
    let mut check = Check::new("trials");
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (index, entry) in bundle.run.trials.iter().enumerate() {
        if !known.insert(entry.trial.to_string()) {
            check.find("run.json", format!("trials[{index}]: {} is listed twice", entry.trial));
        }
        state(bundle, index, entry, &mut check);
    }
    let folders: BTreeSet<String> = bundle.files.keys().filter_map(|path| folder_of(path)).collect();
    for folder in folders.iter().filter(|folder| !known.contains(*folder)) {
        check.find(format!("trials/{folder}"), "run.json lists no such trial");
    }
    contracts(bundle, &mut check);
    check.summary = format!("{} listed in run.json, {} folders", known.len(), folders.len());
    check
}

/// Checks that a trial has a result if and only if it is finished, and that a finished run has no open trial.
fn state(bundle: &Bundle<'_>, index: usize, entry: &TrialEntry, check: &mut Check) {
    let result = format!("trials/{}/result.json", entry.trial);
    match (&entry.state, bundle.files.contains_key(&result)) {
        (TrialState::Finished { .. }, false) => check.find(result, "missing, but run.json says that it is finished"),
        (TrialState::Finished { .. }, true) | (_, false) => {}
        (_, true) => check.find("run.json", format!("trials[{index}]: it is not finished, but {result} exists")),
    }
    if bundle.run.state == RunState::Finished && step::is_open(&entry.state) {
        check.find("run.json", format!("trials[{index}]: {} was not measured, but the run is finished", entry.trial));
    }
}

/// The trial's folder that a file is in, without `trials/`; `None` for files elsewhere. A file that is in `trials` but
/// in no trial's folder has its own path.
fn folder_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix("trials/")?;
    let folder: Vec<&str> = rest.split('/').take(PARTS - 1).collect();
    let folder = folder.join("/");
    let in_a_trial = folder.len() < rest.len() && folder.parse::<TrialId>().is_ok();
    Some(if in_a_trial { folder } else { rest.into() })
}

/// Checks that the results of the contract's checks can be read and belong to services of the run.
fn contracts(bundle: &Bundle<'_>, check: &mut Check) {
    for path in bundle.files.keys().filter(|path| path.starts_with("conformance/")) {
        let name = path.strip_prefix("conformance/").and_then(|name| name.strip_suffix(".json"));
        let Some(name) = name.and_then(|name| Name::new(name).ok()) else {
            check.find(path, "no file of the check of a contract");
            continue;
        };
        match store::read_contract(bundle.folder, &name) {
            Ok(Some(file)) if file.service == name => {}
            Ok(_) => check.find(path, "it has the results of another service"),
            Err(error) => check.find(path, driver::http::chain(&error)),
        }
    }
}
