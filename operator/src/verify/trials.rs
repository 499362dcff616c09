//! Judges each finished trial again, and compares what is stored with what its workers' files give.

use std::collections::BTreeSet;

use bench_format::{
    result::TrialResult,
    run::{TrialEntry, TrialState},
};
use driver::http::chain;
use judge::Judged;

use super::{
    Bundle, difference, planned,
    report::{Check, Finding, counted},
};
use crate::{
    rejudge::{self, TrialFiles},
    store::{
        self,
        files::{LARGEST, read},
        hlog, json_text,
    },
};

/// Largest sum of the files by which one trial is judged, in bytes. They are in memory together.
const LARGEST_TRIAL: u64 = 4 * LARGEST;
/// Schema of the first bundles that have `trial.json`.
const WITH_TRIAL_FILES: u32 = 2;

/// What was checked so far.
#[derive(Default)]
struct Counts {
    judged: usize,
    unbalanced: usize,
    logs: usize,
    without_logs: usize,
    without_seed: usize,
    programs: BTreeSet<String>,
}

/// The checks that need a trial to be judged again, over all finished trials.
struct Trials<'a> {
    bundle: &'a Bundle<'a>,
    note: String,
    results: Check,
    logs: Check,
    plan: Check,
    versions: Check,
    counts: Counts,
}

pub(super) fn check(bundle: &Bundle<'_>) -> Vec<Check> {
    let mut trials = Trials {
        bundle,
        note: bundle.note(),
        results: Check::new("results"),
        logs: Check { optional: true, ..Check::new("histograms") },
        plan: Check { optional: true, ..Check::new("plan") },
        versions: Check::new("versions"),
        counts: Counts::default(),
    };
    for (index, entry) in bundle.run.trials.iter().enumerate() {
        if matches!(entry.state, TrialState::Finished { .. }) {
            trials.trial(index, entry);
        }
    }
    trials.into_checks()
}

impl Trials<'_> {
    fn trial(&mut self, index: usize, entry: &TrialEntry) {
        let folder = format!("trials/{}", entry.trial);
        let judged = match self.judge(&folder) {
            Ok(Some(judged)) => judged,
            Ok(None) => return,
            Err(reason) => return self.results.find(folder, reason),
        };
        let (files, judged) = judged;
        self.counts.judged += 1;
        self.counts.unbalanced += usize::from(!judged.result.books.balance());
        self.result(&folder, &judged.result);
        self.state(index, entry, &judged.result);
        self.logs(&folder, &judged);
        self.plan(&folder, entry, &files);
        self.versions(&folder, &files);
    }

    /// Reads and judges a trial; `None` if its bundle is too old for that, which is noted.
    fn judge(&mut self, folder: &str) -> Result<Option<(TrialFiles, Judged)>, String> {
        let prefix = format!("{folder}/");
        let of_trial = self.bundle.files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let bytes: u64 = of_trial.filter(|(path, _)| path.ends_with(".json")).map(|(_, bytes)| bytes).sum();
        if bytes > LARGEST_TRIAL {
            return Err(format!("its files have {bytes} bytes; at most {LARGEST_TRIAL} are judged"));
        }
        match TrialFiles::read(&self.bundle.folder.join(folder)) {
            Err(rejudge::Error::NoTrialFile(_)) if self.bundle.run.schema < WITH_TRIAL_FILES => {
                let reason = "no trial.json, without which it can't be judged: it is from before schema 2";
                self.results.not_checked.push(format!("{folder}: {reason}"));
                Ok(None)
            }
            Err(error) => Err(chain(&error)),
            Ok(files) => {
                let judged = files.judge().map_err(|error| chain(&error))?;
                Ok(Some((files, judged)))
            }
        }
    }

    fn result(&mut self, folder: &str, computed: &TrialResult) {
        let place = format!("{folder}/result.json");
        let stored = match read(&self.bundle.folder.join(&place), LARGEST) {
            Ok(stored) => stored,
            Err(error) => return self.results.find(place, format!("failed to read it: {error}")),
        };
        if stored == json_text(computed) {
            return;
        }
        let value = match serde_json::from_slice::<TrialResult>(&stored).and_then(|_| serde_json::from_slice(&stored)) {
            Ok(value) => value,
            Err(error) => return self.results.find(place, format!("it is not a result: {error}")),
        };
        if let Some(difference) = difference::first(&value, computed) {
            self.results.find(place, format!("{difference}{}", self.note));
        }
    }

    /// Compares the state in `run.json` with the result.
    fn state(&mut self, index: usize, entry: &TrialEntry, computed: &TrialResult) {
        let stored = serde_json::to_value(&entry.state).expect("our types have no map keys but strings");
        if let Some(difference) = difference::first(&stored, &store::state_of(computed)) {
            self.results.find("run.json", format!("trials[{index}].state.{difference}{}", self.note));
        }
    }

    /// Compares the histograms of each second with those of the workers' files.
    fn logs(&mut self, folder: &str, judged: &Judged) {
        let prefix = format!("{folder}/");
        let is_log = |path: &&String| path.starts_with(&prefix) && path.ends_with(".hlog");
        let mut stored: BTreeSet<String> = self.bundle.files.keys().filter(is_log).cloned().collect();
        if stored.is_empty() && !judged.merged.intervals.is_empty() {
            self.counts.without_logs += 1;
            return;
        }
        for (name, intervals) in &judged.merged.intervals {
            let place = format!("{folder}/{name}.hlog");
            if !stored.remove(&place) {
                self.logs.find(place, "missing, but the workers' files have its values");
                continue;
            }
            let computed = hlog::write(name, &judged.result, intervals);
            match read(&self.bundle.folder.join(&place), LARGEST) {
                Err(error) => self.logs.find(place, format!("failed to read it: {error}")),
                Ok(stored) => match different_line(&stored, &computed) {
                    Some(line) => self.logs.find(place, format!("line {line} is not what the workers' files give")),
                    None => self.counts.logs += 1,
                },
            }
        }
        let unknown = |place| Finding { place, reason: "the workers' files have no such histogram".into() };
        self.logs.findings.extend(stored.into_iter().map(unknown));
    }

    fn plan(&mut self, folder: &str, entry: &TrialEntry, files: &TrialFiles) {
        let run = self.bundle.run;
        let place = format!("{folder}/trial.json");
        match planned::ladder(run, entry) {
            Err(reason) => self.plan.find("run.json", reason),
            Ok(ladder) => {
                if let Some(reason) = planned::differs(run, entry, &ladder, &files.trial) {
                    self.plan.find(&place, reason);
                }
            }
        }
        match planned::seed_of(run, &files.trial) {
            Some(Err(reason)) => self.plan.find(&place, reason),
            Some(Ok(())) => {}
            None => self.counts.without_seed += 1,
        }
        if let Some((place, reason)) = planned::foreign_worker(folder, self.bundle.files, files) {
            self.plan.find(place, reason);
        }
    }

    fn versions(&mut self, folder: &str, files: &TrialFiles) {
        if let Some(reason) = planned::foreign_program(self.bundle.run, files) {
            self.versions.find(folder, reason);
        }
        self.counts.programs.extend(files.uploads.iter().map(|upload| upload.evidence.program.clone()));
    }

    fn into_checks(self) -> Vec<Check> {
        let Self { mut results, mut logs, mut plan, mut versions, counts, .. } = self;
        let judged = counted(counts.judged, "trial");
        results.summary = match results.findings.len() {
            0 => format!("{judged} judged again: the same results"),
            count => format!("{judged} judged again, {}", counted(count, "difference")),
        };
        logs.summary = format!("{} merged again: the same values", counted(counts.logs, "file"));
        if counts.without_logs > 0 {
            logs.not_checked.push(format!("{} without .hlog files", counted(counts.without_logs, "trial")));
        }
        plan.summary = format!("{judged}: load, window, terms and workers are the plan's");
        match counts.without_seed {
            0 => plan.summary += ", and so is the seed",
            count => {
                plan.not_checked.push(format!("the seed of {}, whose trial.json has none", counted(count, "trial")))
            }
        }
        let programs: Vec<String> = counts.programs.into_iter().collect();
        versions.summary = format!("workers by run.json: {}", programs.join(", "));
        let mut books = Check::new("books");
        books.summary = match counts.unbalanced {
            0 => format!("balanced in {judged}"),
            count => format!("balanced in {} of {judged}; the others are invalid", counts.judged - count),
        };
        vec![results, books, logs, plan, versions]
    }
}

/// The number of the first line, from 1, in which two logs differ; histograms are compared by their counts.
fn different_line(stored: &[u8], computed: &[u8]) -> Option<usize> {
    let (stored, computed) = (String::from_utf8_lossy(stored), String::from_utf8_lossy(computed));
    let (mut a, mut b) = (stored.split('\n'), computed.split('\n'));
    (1..).find_map(|line| match (a.next(), b.next()) {
        (None, None) => Some(None),
        (Some(a), Some(b)) if same_line(a, b) => None,
        _ => Some(Some(line)),
    })?
}

fn same_line(a: &str, b: &str) -> bool {
    a == b
        || a.rsplit_once(',')
            .zip(b.rsplit_once(','))
            .is_some_and(|((a, stored), (b, computed))| a == b && difference::same_counts(stored, computed))
}
