//! The bundle of a real climb, with what tests of `ladder verify` and `ladder sign` do to it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use operator::{
    signing::SigningKey,
    store::Store,
    verify::{self, Report},
};
use serde_json::Value;

use super::{Checkout, output_text};

/// The first trial's folder in the bundle.
pub const TRIAL: &str = "trials/honest/throughput/standard/4-p1-r1";
/// Exit code of a run with an invalid trial.
const INVALID: i32 = 2;

/// A checkout with the bundle `results/r` of two services, two workers and two repeats, and a key.
pub struct Setting {
    pub checkout: Checkout,
    pub bundle: PathBuf,
    pub key: SigningKey,
}

impl Setting {
    pub fn new() -> Self {
        // On a busy machine a window of 0.2 s may be read too late.
        let mut attempts = (0..5).map(|_| {
            let checkout = Checkout::new();
            checkout.service("other", "honest");
            checkout.plan("fake", "services: [honest, other]\nworkers: 2\nrepeats: 2\n", "");
            let output = checkout.run("run fake --run-id r --no-report");
            (checkout, output)
        });
        let is_over = |(_, output): &(Checkout, Output)| output.status.code() != Some(INVALID);
        let (checkout, output) = attempts.find(is_over).expect("none of five runs was valid");
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
        let key = SigningKey::create(&checkout.path("key.pem")).unwrap();
        let bundle = checkout.path("results/r");
        Self { checkout, bundle, key }
    }

    pub fn verify(&self) -> Report {
        verify::bundle(&self.bundle, None).unwrap()
    }

    /// Verifies against the key of this setting.
    pub fn verify_signed(&self) -> Report {
        verify::bundle(&self.bundle, Some(&self.key.public())).unwrap()
    }

    pub fn ladder(&self, arguments: &str) -> Output {
        self.checkout.run(arguments)
    }

    /// All files of the bundle but the lock, which is empty.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.bundle.clone()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with(".lock") {
                    let name = path.strip_prefix(&self.bundle).unwrap().to_str().unwrap().to_owned();
                    files.insert(name, fs::read(path).unwrap());
                }
            }
        }
        files
    }

    /// Changes a JSON file, and rewrites the list of files, as a forger would.
    pub fn forge(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = self.bundle.join(name);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(&path, operator::store::json_text(&value)).unwrap();
        self.write_list();
    }

    pub fn write_list(&self) {
        Store::open_folder(self.bundle.clone()).unwrap().0.write_list().unwrap();
    }
}

/// The lines of a report's findings: `check: place: reason`.
pub fn findings(report: &Report) -> Vec<String> {
    let of = |check: &verify::Check| {
        let name = check.name;
        check.findings.iter().map(move |found| format!("{name}: {}: {}", found.place, found.reason)).collect::<Vec<_>>()
    };
    report.checks.iter().flat_map(of).collect()
}

#[track_caller]
pub fn assert_found(report: &Report, expected: &str) {
    let found = findings(report);
    assert!(!report.verified() && found.iter().any(|line| line.contains(expected)), "{expected}\n{}", found.join("\n"));
}

/// Writes a file with one bit of the byte at a position flipped.
pub fn flip(path: &Path, bytes: &[u8], position: usize) {
    let mut altered = bytes.to_vec();
    altered[position] ^= 1;
    fs::write(path, altered).unwrap();
}
