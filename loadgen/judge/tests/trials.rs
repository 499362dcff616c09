//! Judges the measured trials in `tests/trials` again and compares each result with the stored one.
//!
//! A changed rule shows as a difference. `JUDGE_WRITE=1 cargo test -p judge --test trials` writes new results, and
//! `git diff` then shows the effect of the change. The folders come from `plans/self-test/judged.yaml`, and are named after
//! workload, variant and service; those whose connections come and go are without what other programs used meanwhile
//! (`machine`).

use std::{fs, path::Path};

use bench_format::{
    histogram::{Histogram, Recorder},
    result::{ServiceFile, WorkerResult},
    trial_file::TrialFile,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

fn read<T: DeserializeOwned>(path: &Path) -> T {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn judged(folder: &Path) -> Value {
    let mut names: Vec<_> = fs::read_dir(folder.join("workers")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let uploads: Vec<WorkerResult> = names.iter().map(|path| read(path)).collect();
    let trial: TrialFile = read(&folder.join("trial.json"));
    let service: ServiceFile = read(&folder.join("service.json"));
    let judged = judge::judge(&trial, &uploads.iter().collect::<Vec<_>>(), &service).unwrap();
    // Written and read again, as the stored result was: the last digit of a number may change on the way.
    serde_json::from_str(&serde_json::to_string(&judged.result).unwrap()).unwrap()
}

/// The result with its histograms compressed by this build, because the compression depends on the library's features.
fn compressed_here(mut result: Value) -> Value {
    for histogram in result["histograms"].as_object_mut().unwrap().values_mut() {
        let read: Histogram = serde_json::from_value(histogram.clone()).unwrap();
        *histogram = serde_json::to_value(Recorder::decode(&read).unwrap().encode()).unwrap();
    }
    result
}

#[test]
fn every_stored_trial_is_judged_as_before() {
    let trials = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trials");
    let mut folders: Vec<_> = fs::read_dir(trials).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(folders.len() >= 22, "only {} trials are kept", folders.len());
    for folder in folders {
        let (result, path) = (judged(&folder), folder.join("result.json"));
        if std::env::var_os("JUDGE_WRITE").is_some() {
            fs::write(&path, format!("{result:#}\n")).unwrap();
        }
        let stored = compressed_here(read(&path));
        let (result, stored) = (result.as_object().unwrap(), stored.as_object().unwrap());
        for (name, value) in stored {
            assert_eq!(&result[name], value, "{}: {name}", folder.display());
        }
        assert_eq!(result.len(), stored.len(), "{}", folder.display());
    }
}
