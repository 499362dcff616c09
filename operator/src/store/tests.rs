//! Tests of the store: kills, locks, and what a bundle has at any moment.

use std::fs;

use bench_format::{
    SCHEMA,
    result::Validity,
    run::{RunState, TrialEntry, TrialState},
};

use driver::measure::fixture::measured;

use super::{files::KilledDisk, *};
use crate::{plan::check::fixture, verify};

fn run(id: &'static str) -> Run {
    let entry = |repeat| TrialEntry::pending(TrialId { repeat, ..measured().trial.trial });
    Run { trials: (1..=2).map(entry).collect(), ..fixture::run(id, fixture::minimal()) }
}

/// Climbs all trials of a run into a store, in the order that the climb uses.
fn climb<F: Files>(store: &Store<F>, run: &mut Run) -> Result<(), Error> {
    run.state = RunState::Running;
    for index in 0..run.trials.len() {
        let trial = run.trials[index].trial.clone();
        run.trials[index].state = TrialState::Started { attempt: 1 };
        store.save_run(run)?;
        store.begin_trial(&trial)?;
        let mut measured = measured();
        measured.trial.trial = trial;
        store.save_trial(&measured, &measured.judge().unwrap())?;
        run.trials[index].state = TrialState::Finished { validity: Validity::Valid, passed: None };
        store.save_run(run)?;
    }
    run.state = RunState::Finished;
    store.save_ended_run(run)
}

/// Asserts what must hold in a bundle at any moment.
fn assert_consistent(folder: &Path) -> Run {
    let run = read_run(folder).unwrap();
    for entry in &run.trials {
        if matches!(entry.state, TrialState::Finished { .. }) {
            assert_eq!(read_result(folder, &entry.trial).unwrap().trial, entry.trial);
        }
    }
    if run.state == RunState::Finished {
        let (list, walk) = (read_list(folder).unwrap().unwrap(), manifest::walk(folder).unwrap());
        assert_eq!(verify::files::compare(folder, &list, &walk), []);
    }
    run
}

#[test]
fn a_kill_between_any_two_steps_leaves_a_bundle_that_can_be_resumed() {
    let mut deaths = 0;
    for steps in 0.. {
        let results = tempfile::tempdir().unwrap();
        let folder = results.path().join("run");
        drop(Store::create(results.path(), &run("run")).unwrap());
        let store = Store { folder: folder.clone(), files: KilledDisk::after(steps), _lock: None };
        let survived = climb(&store, &mut run("run")).is_ok();
        let interrupted = assert_consistent(&folder);
        let open = interrupted.trials.iter().filter(|entry| crate::step::is_open(&entry.state)).count();
        assert_eq!(open == 0, interrupted.trials.iter().all(|e| matches!(e.state, TrialState::Finished { .. })));
        let (store, mut resumed) = Store::open(results.path(), &Name::from_static("run")).unwrap();
        climb(&store, &mut resumed).unwrap();
        let whole = assert_consistent(&folder);
        assert_eq!(whole.state, RunState::Finished);
        assert!(whole.trials.iter().all(|e| matches!(e.state, TrialState::Finished { .. })));
        if survived {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 20, "only {deaths} steps were tried");
}

#[test]
fn a_trial_whose_result_was_written_before_run_json_could_be_is_finished() {
    let results = tempfile::tempdir().unwrap();
    let id = Name::from_static("run");
    let mut begun = run("run");
    let mut measured = measured();
    let store = Store::create(results.path(), &begun).unwrap();
    measured.trial.trial = begun.trials[0].trial.clone();
    begun.trials.iter_mut().for_each(|entry| entry.state = TrialState::Started { attempt: measured.trial.attempt });
    store.save_run(&begun).unwrap();
    store.begin_trial(&measured.trial.trial).unwrap();
    store.save_trial(&measured, &measured.judge().unwrap()).unwrap();
    drop(store);
    let states = |run: Run| run.trials.into_iter().map(|entry| entry.state).collect::<Vec<_>>();
    let found = states(Store::open(results.path(), &id).unwrap().1);
    assert!(matches!(found[0], TrialState::Finished { .. }), "{found:?}");
    assert_eq!(found[1], TrialState::Started { attempt: measured.trial.attempt }, "it has no result");

    // The result of an attempt before this one doesn't count.
    begun.trials[0].state = TrialState::Started { attempt: measured.trial.attempt + 1 };
    fs::write(results.path().join("run/run.json"), run_text(&begun)).unwrap();
    let found = states(Store::open(results.path(), &id).unwrap().1);
    assert_eq!(found[0], TrialState::Started { attempt: measured.trial.attempt + 1 });
}

#[test]
fn a_run_of_the_same_name_is_not_overwritten() {
    let results = tempfile::tempdir().unwrap();
    drop(Store::create(results.path(), &run("a")).unwrap());
    let description = Store::create(results.path(), &run("a")).unwrap_err().to_string();
    assert!(description.contains("resume it with --resume a"), "{description}");
}

#[test]
fn two_ladders_never_write_one_run() {
    let results = tempfile::tempdir().unwrap();
    let _first = Store::create(results.path(), &run("a")).unwrap();
    assert!(matches!(Store::open(results.path(), &Name::from_static("a")), Err(Error::InUse(_))));
}

#[test]
fn a_run_of_a_newer_program_is_refused_with_the_reason() {
    let results = tempfile::tempdir().unwrap();
    let newer = Run { schema: SCHEMA + 1, ..run("a") };
    drop(Store::create(results.path(), &newer).unwrap());
    let description = Store::open(results.path(), &Name::from_static("a")).unwrap_err().to_string();
    assert!(description.contains("is newer than"), "{description}");
}

#[test]
fn the_files_of_an_interrupted_attempt_are_removed() {
    let results = tempfile::tempdir().unwrap();
    let store = Store::create(results.path(), &run("a")).unwrap();
    let trial = measured().trial.trial;
    store.begin_trial(&trial).unwrap();
    let rubbish = store.trial_folder(&trial).join("workers/0.json");
    std::fs::write(&rubbish, "half").unwrap();
    store.begin_trial(&trial).unwrap();
    assert!(!rubbish.exists() && rubbish.parent().unwrap().is_dir());
}
