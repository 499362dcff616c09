//! Compares a trial with the plan in `run.json`: its load, window and terms, its seed, and which workers took part. Pure.

use std::{collections::BTreeMap, path::Path};

use bench_format::{
    plan::WireLadder,
    run::{Run, TrialEntry},
    trial_file::TrialFile,
    websocket::Counters,
};

use serde::Serialize;
use serde_json::Value;

use super::difference;
use crate::{pilot, plan::Ladder, rejudge::TrialFiles, seed::seed};

/// A field of a trial, with the value that the trial has and the one that the run gives.
type Field = (&'static str, Value, Value);

/// The ladder that a trial belongs to, with the plan's defaults applied.
///
/// # Errors
/// Why the plan has no such trial, or can't be computed with.
pub(super) fn ladder(run: &Run, entry: &TrialEntry) -> Result<Ladder, String> {
    let trial = &entry.trial;
    let has = |ladder: &&WireLadder| {
        let climbs = ladder.services.is_empty() || ladder.services.iter().any(|name| trial.service == name.as_str());
        let loads = entry.search.is_some() || ladder.tiers.contains(&trial.tier);
        trial.workload == ladder.workload.as_str() && trial.variant == ladder.variant.as_str() && climbs && loads
    };
    let plan = &run.plan;
    let wire =
        plan.ladders.iter().find(has).filter(|_| plan.services.iter().any(|name| trial.service == name.as_str()));
    let wire = wire.ok_or_else(|| format!("{trial} is not a trial of its plan"))?;
    if entry.search.is_some_and(|search| !(0.0..=86_400.0).contains(&search.window_seconds)) {
        return Err(format!("the window of {trial} is not a length of time"));
    }
    if entry.pilot.is_some_and(|pilot| !pilot::has_length(&pilot)) {
        return Err(format!("the window of {trial} is not a length of time"));
    }
    let ladder = Ladder::of_bundle(wire, plan, Path::new("run.json"))
        .map_err(|mistakes| mistakes.to_string().replace('\n', "; "))?;
    Ok(ladder.for_trial(entry))
}

/// The first field of `trial.json` that the plan gives otherwise.
pub(super) fn differs(run: &Run, entry: &TrialEntry, ladder: &Ladder, trial: &TrialFile) -> Option<String> {
    let window_ns = ladder.window.as_nanos() as u64;
    let described = run.plan.websocket.as_ref().and_then(|section| section.services.get(entry.trial.service.as_str()));
    let counters = described.and_then(|service| service.counters.as_ref()).map(Counters::reported);
    let workers = run.plan.workers_for(ladder.connections_at(entry.trial.tier), ladder.replicas);
    let fields: [Field; 9] = [
        ("run", value(&trial.run), value(&run.id)),
        ("trial", value(&trial.trial), value(&entry.trial)),
        ("workers", value(&trial.workers), value(&workers)),
        ("load", value(&trial.load), value(&ladder.load)),
        ("message", value(&trial.message), value(&ladder.message)),
        ("objectives", value(&trial.objectives), value(&ladder.objectives)),
        ("counters", value(&trial.counters), value(&counters)),
        ("thresholds", value(&trial.thresholds), value(&run.plan.validity)),
        // Programs that compute with floats may cut off a nanosecond.
        ("window_ns", value(&trial.window_ns), value(&closest(window_ns, trial.window_ns))),
    ];
    fields.into_iter().find_map(|(name, stored, planned)| {
        let found = difference::first(&stored, &planned)?;
        let dot = if found.field.is_empty() || found.field.starts_with('[') { "" } else { "." };
        Some(format!("{name}{dot}{}: it has {}, and the plan gives {}", found.field, found.stored, found.computed))
    })
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("our types have no map keys but strings")
}

/// `planned`, or `stored` if it is at most one nanosecond off.
fn closest(planned: u64, stored: u64) -> u64 {
    if planned.abs_diff(stored) <= 1 { stored } else { planned }
}

/// Whether a trial's seed is the one that the plan's seed gives, or how it differs; `None` if the trial has none.
pub(super) fn seed_of(run: &Run, trial: &TrialFile) -> Option<Result<(), String>> {
    let (stored, planned) = (trial.seed?, seed(run.plan.seed, &trial.trial));
    let differs = || format!("seed: it has {stored}, and the plan's seed gives {planned}");
    Some(if stored == planned { Ok(()) } else { Err(differs()) })
}

/// The first worker's file that doesn't belong to the trial, with the reason.
pub(super) fn foreign_worker(
    folder: &str,
    files: &BTreeMap<String, u64>,
    trial: &TrialFiles,
) -> Option<(String, String)> {
    let TrialFiles { trial, uploads, .. } = trial;
    uploads.iter().enumerate().find_map(|(index, upload)| {
        let place = format!("{folder}/workers/{}.json", upload.worker);
        let wrong = |what: &str| Some((place.clone(), format!("it is not of this trial: {what}")));
        match () {
            () if !files.contains_key(&place) => wrong("no file has this worker's name"),
            () if upload.worker >= trial.workers => wrong(&format!("the trial has {} workers", trial.workers)),
            () if index > 0 && uploads[index - 1].worker == upload.worker => {
                wrong("another file is of this worker, too")
            }
            () if upload.run != trial.run => wrong("its run is another one"),
            () if upload.trial != trial.trial => wrong("its trial is another one"),
            () if upload.attempt != trial.attempt => wrong("its attempt is another one"),
            () => None,
        }
    })
}

/// The first worker whose program `run.json` doesn't have among its versions.
pub(super) fn foreign_program(run: &Run, trial: &TrialFiles) -> Option<String> {
    let known = |program: &str| {
        run.versions.iter().any(|(name, version)| program == version || program == format!("{name} {version}"))
    };
    let upload = trial.uploads.iter().find(|upload| !known(&upload.evidence.program))?;
    let (worker, program) = (upload.worker, &upload.evidence.program);
    Some(format!("worker {worker} is {program:?}, and the versions in run.json don't have it"))
}
