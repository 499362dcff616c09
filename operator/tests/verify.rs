//! Tests of `ladder verify` and `ladder sign` on bundles of real climbs: one altered byte anywhere is found and named,
//! and so is what a forger changes who writes the list of files anew.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use fakes::{Checkout, output_text};
use operator::{
    signing::{SigningKey, bundle::sign},
    store::{
        Store,
        manifest::{MANIFEST, PUBLIC_KEY, SIGNATURE},
    },
    verify::{self, Report},
};
use serde_json::Value;

mod fakes;

const TRIAL: &str = "trials/honest/throughput/standard/4-p1-r1";

/// A checkout with the bundle `results/r` of two services, two workers and two repeats, and a key.
struct Setting {
    checkout: Checkout,
    bundle: PathBuf,
    key: SigningKey,
}

impl Setting {
    fn new() -> Self {
        let checkout = Checkout::new();
        checkout.service("other", "honest");
        checkout.plan("fake", "services: [honest, other]\nworkers: 2\nrepeats: 2\n", "");
        let output = checkout.run("run fake --run-id r --no-report");
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
        let key = SigningKey::create(&checkout.path("key.pem")).unwrap();
        let bundle = checkout.path("results/r");
        Self { checkout, bundle, key }
    }

    fn verify(&self) -> Report {
        verify::bundle(&self.bundle, None).unwrap()
    }

    /// Verifies against the key of this setting.
    fn verify_signed(&self) -> Report {
        verify::bundle(&self.bundle, Some(&self.key.public())).unwrap()
    }

    fn ladder(&self, arguments: &str) -> Output {
        self.checkout.run(arguments)
    }

    /// All files of the bundle but the lock, which is empty.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
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

    /// Changes a JSON file, and writes the list of files anew, as a forger would.
    fn forge(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let path = self.bundle.join(name);
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(&path, operator::store::json_text(&value)).unwrap();
        self.write_list();
    }

    fn write_list(&self) {
        Store::open_folder(self.bundle.clone()).unwrap().0.write_list().unwrap();
    }
}

/// The lines of a report's findings: `check: place: reason`.
fn findings(report: &Report) -> Vec<String> {
    let of = |check: &verify::Check| {
        let name = check.name;
        check.findings.iter().map(move |found| format!("{name}: {}: {}", found.place, found.reason)).collect::<Vec<_>>()
    };
    report.checks.iter().flat_map(of).collect()
}

#[track_caller]
fn assert_found(report: &Report, expected: &str) {
    let found = findings(report);
    assert!(!report.verified() && found.iter().any(|line| line.contains(expected)), "{expected}\n{}", found.join("\n"));
}

fn flip(path: &Path, bytes: &[u8], position: usize) {
    let mut altered = bytes.to_vec();
    altered[position] ^= 1;
    fs::write(path, altered).unwrap();
}

#[test]
fn the_bundle_of_a_run_is_verified_with_counts() {
    let setting = Setting::new();
    let output = setting.ladder("verify results/r");
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    for line in [
        "ok      signature  none: nothing says who made the list of files",
        "files unchanged",
        "ok      trials     4 listed in run.json, 4 folders",
        "ok      results    4 trials judged again: the same results",
        "ok      books      balanced in 4 trials",
        "ok      histograms 4 files merged again: the same values",
        "ok      plan       4 trials: load, window, terms and workers are the plan's, and so is the seed",
        "ok      versions   workers by run.json: fake-worker 1",
        "results/r: verified\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn one_altered_byte_in_any_file_is_found_and_its_file_named() {
    let setting = Setting::new();
    sign(&setting.bundle, &setting.key).unwrap();
    assert!(setting.verify_signed().verified(), "{}", setting.verify_signed().text());
    let files = setting.files();
    assert!(files.len() > 30, "{:?}", files.keys());
    for (name, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let path = setting.bundle.join(name);
        for position in [0, bytes.len() / 2, bytes.len() - 1] {
            flip(&path, bytes, position);
            let (report, signed) = (setting.verify(), setting.verify_signed());
            assert!(!report.verified() && !signed.verified(), "{name}, byte {position}");
            let text = report.text();
            assert!(text.contains(name.as_str()), "{name}, byte {position}:\n{text}");
        }
        fs::write(&path, bytes).unwrap();
    }
    assert!(setting.verify_signed().verified());
}

#[test]
fn every_byte_of_the_list_and_the_signature_counts() {
    let setting = Setting::new();
    sign(&setting.bundle, &setting.key).unwrap();
    for name in [MANIFEST, SIGNATURE, PUBLIC_KEY] {
        let path = setting.bundle.join(name);
        let bytes = fs::read(&path).unwrap();
        for position in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
            flip(&path, &bytes, position);
            let signature = &setting.verify().checks[0];
            assert!(!signature.findings.is_empty(), "{name}, byte {position}");
        }
        fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn removed_and_additional_files_are_named() {
    let setting = Setting::new();
    let files = setting.files();
    for (name, bytes) in files.iter().filter(|(name, _)| *name != MANIFEST) {
        let path = setting.bundle.join(name);
        fs::remove_file(&path).unwrap();
        assert_found(&setting.verify(), &format!("files: {name}: missing"));
        fs::write(&path, bytes).unwrap();
    }
    for name in ["notes.txt", "trials/x.json", &format!("{TRIAL}/workers/7.json"), ".hidden", "run.json.tmp"] {
        fs::write(setting.bundle.join(name), "{}").unwrap();
        assert_found(&setting.verify(), &format!("files: {name}: additional"));
        fs::remove_file(setting.bundle.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("/etc/hostname", setting.bundle.join("link")).unwrap();
    assert_found(&setting.verify(), "files: link: it is neither a file nor a folder");
}

#[test]
fn a_report_made_later_alters_nothing() {
    let setting = Setting::new();
    fs::create_dir(setting.bundle.join("report")).unwrap();
    fs::write(setting.bundle.join("report/report.md"), "# Report").unwrap();
    assert!(setting.verify().verified());
}

#[test]
fn a_forged_figure_is_found_by_judging_again_although_the_list_was_written_anew() {
    let setting = Setting::new();
    let result = format!("{TRIAL}/result.json");
    setting.forge(&result, |result| result["figures"]["delivered_per_second"] = 1e6.into());
    let expected =
        format!("results: {result}: figures.delivered_per_second: it has 1000000.0, and the trial's files give");
    assert_found(&setting.verify(), &expected);
    assert!(setting.verify().checks[1].holds(), "{}", setting.verify().text());
}

#[test]
fn forged_measurements_do_not_give_the_stored_result() {
    let setting = Setting::new();
    setting.forge(&format!("{TRIAL}/workers/0.json"), |worker| worker["window"]["sent"] = 7.into());
    assert_found(&setting.verify(), &format!("results: {TRIAL}/result.json: "));
}

#[test]
fn a_forged_histogram_is_found_in_each_file_that_has_it() {
    let setting = Setting::new();
    let mut recorder = bench_format::histogram::Recorder::new();
    recorder.record_n(1000, 1000);
    let forged = recorder.encode().v2;
    setting.forge(&format!("{TRIAL}/result.json"), |result| result["histograms"]["delay_ns"]["v2"] = forged.into());
    assert_found(&setting.verify(), "result.json: histograms.delay_ns.v2: ");

    let path = setting.bundle.join(TRIAL).join("delay_ns.hlog");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("Tag=delay,0.000", "Tag=delay,0.001", 1)).unwrap();
    setting.write_list();
    assert_found(&setting.verify(), &format!("histograms: {TRIAL}/delay_ns.hlog: line "));
}

#[test]
fn a_forged_run_disagrees_with_its_trials() {
    let cases: [(&str, &str, Value, &str); 6] = [
        (
            "run.json",
            "/plan/seed",
            2.into(),
            "plan: trials/honest/throughput/standard/4-p1-r1/trial.json: seed: it has",
        ),
        ("run.json", "/plan/workers", 1.into(), "trial.json: workers: it has 2, and the plan gives 1"),
        ("run.json", "/plan/window_seconds", 9.into(), "trial.json: window_ns: it has 200000000, and the plan gives"),
        (
            "run.json",
            "/versions/fake-worker",
            "0".into(),
            "worker 0 is \"fake-worker 1\", and the versions in run.json",
        ),
        ("run.json", "/trials/0/state/passed", true.into(), "run.json: trials[0].state.passed: it has true"),
        ("run.json", "/trials/1/trial/repeat", 9.into(), "9/result.json: missing, but run.json says"),
    ];
    for (name, place, value, expected) in cases {
        let setting = Setting::new();
        setting.forge(name, |run| *run.pointer_mut(place).unwrap() = value);
        assert_found(&setting.verify(), expected);
    }
}

#[test]
fn a_trial_that_run_json_leaves_out_is_found() {
    let setting = Setting::new();
    setting.forge("run.json", |run| drop(run["trials"].as_array_mut().unwrap().remove(0)));
    assert_found(&setting.verify(), &format!("trials: {TRIAL}: run.json lists no such trial"));
}

#[test]
fn a_forger_without_the_key_is_found_by_the_signature() {
    let setting = Setting::new();
    sign(&setting.bundle, &setting.key).unwrap();
    let log = setting.bundle.join(TRIAL).join("service.log");
    fs::write(&log, "nothing happened").unwrap();
    setting.write_list();
    assert_found(&setting.verify(), &format!("signature: {SIGNATURE}: no signature of {MANIFEST} by the key in"));

    let own = SigningKey::create(&setting.checkout.path("own.pem")).unwrap();
    sign(&setting.bundle, &own).unwrap();
    assert!(setting.verify().verified());
    assert!(setting.verify().text().contains(&format!("signed by {}, key not checked", own.public().fingerprint())));
    assert_found(&setting.verify_signed(), &format!("signature: {SIGNATURE}: signed by another key"));

    fs::remove_file(setting.bundle.join(SIGNATURE)).unwrap();
    assert_found(&setting.verify(), &format!("signature: {SIGNATURE}: missing"));
    fs::remove_file(setting.bundle.join(PUBLIC_KEY)).unwrap();
    assert!(setting.verify().verified());
    assert_found(&setting.verify_signed(), &format!("signature: {SIGNATURE}: missing; a signature by sha256:"));
}

#[test]
fn the_commands_make_a_key_sign_and_verify_and_print_no_key() {
    let setting = Setting::new();
    let output = setting.ladder("sign --new-key own.pem --public-key-out own.pub");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let secret: String = fs::read_to_string(setting.checkout.path("own.pem")).unwrap().lines().nth(1).unwrap().into();
    assert!(!output_text(&output).contains(&secret));
    let output = setting.ladder("sign results/r --key own.pem");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(output_text(&output).contains("results/r: signed by sha256:") && !output_text(&output).contains(&secret));
    let output = setting.ladder("verify results/r --public-key own.pub --json");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["verified"], &report["checks"][0]["name"]), (&true.into(), &"signature".into()));
    let output = setting.ladder("sign --new-key own.pem");
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("own.pem exists"), "{}", output_text(&output));
    assert_eq!(setting.ladder("sign results/r").status.code(), Some(2));
}

#[test]
fn a_bundle_whose_files_were_altered_is_not_signed() {
    let setting = Setting::new();
    fs::write(setting.bundle.join(TRIAL).join("service.log"), "altered").unwrap();
    let output = setting.ladder("sign results/r --key key.pem");
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("service.log: altered"), "{}", output_text(&output));
    assert!(!setting.bundle.join(SIGNATURE).exists());
}

#[test]
fn a_bundle_without_a_list_says_so_in_a_sentence_and_the_rest_is_checked() {
    let setting = Setting::new();
    fs::remove_file(setting.bundle.join(MANIFEST)).unwrap();
    let output = setting.ladder("verify results/r");
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("not checked: no file can be compared, because MANIFEST.sha256 is missing"), "{text}");
    assert!(text.contains("4 trials judged again: the same results"), "{text}");
    assert!(text.ends_with("results/r: not verified; findings: 0; not checked: 1\n"), "{text}");
    let output = setting.ladder("sign results/r --key key.pem");
    assert!(
        output_text(&output).contains("it had no MANIFEST.sha256, which is written now"),
        "{}",
        output_text(&output)
    );
    assert_eq!(setting.ladder("verify results/r").status.code(), Some(0));
}

#[test]
fn an_older_bundle_says_what_was_not_checked() {
    let setting = Setting::new();
    for repeat in 1..=2 {
        for service in ["honest", "other"] {
            let folder = format!("trials/{service}/throughput/standard/4-p1-r{repeat}");
            setting.forge(&format!("{folder}/trial.json"), |trial| drop(trial.as_object_mut().unwrap().remove("seed")));
        }
    }
    let report = setting.verify();
    assert!(report.verified(), "{}", report.text());
    assert!(
        report.text().contains("not checked: the seed of 4 trials, whose trial.json has none"),
        "{}",
        report.text()
    );

    setting.forge("run.json", |run| {
        (run["schema"], run["version"]) = (1.into(), "0.0.1".into());
    });
    fs::remove_file(setting.bundle.join(TRIAL).join("trial.json")).unwrap();
    setting.write_list();
    let report = setting.verify();
    assert!(!report.verified() && findings(&report).is_empty(), "{}", report.text());
    let expected =
        format!("not checked: {TRIAL}: no trial.json, without which it can't be judged: it is from before schema 2");
    assert!(report.text().contains(&expected), "{}", report.text());
    setting.forge(&format!("{TRIAL}/../4-p1-r2/result.json"), |result| result["attempt"] = 2.into());
    assert_found(&setting.verify(), "; the bundle is of version 0.0.1, and this is ");
}

#[test]
fn judging_a_bundle_again_leaves_it_verified_and_its_alterations_visible() {
    let setting = Setting::new();
    sign(&setting.bundle, &setting.key).unwrap();
    assert_eq!(setting.ladder("judge results/r").status.code(), Some(0));
    assert_eq!(setting.ladder(&format!("judge results/r/{TRIAL}")).status.code(), Some(0));
    assert!(setting.verify_signed().verified(), "{}", setting.verify_signed().text());
    let path = setting.bundle.join(TRIAL).join("workers/0.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"sent\":20", "\"sent\":21", 1)).unwrap();
    setting.ladder("judge results/r");
    let report = setting.verify_signed();
    assert_found(&report, &format!("files: {TRIAL}/workers/0.json: altered"));
    assert_found(&report, "signature: ");
}

#[test]
fn a_run_that_has_not_ended_is_neither_verified_nor_signed() {
    let setting = Setting::new();
    setting.forge("run.json", |run| run["state"] = "running".into());
    assert_found(&setting.verify(), "run: run.json: the run has not ended");
    let output = setting.ladder("sign results/r --key key.pem");
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("its run has not ended"), "{}", output_text(&output));
}

#[test]
fn what_is_no_bundle_and_no_key_is_unusable() {
    let setting = Setting::new();
    let output = setting.ladder("verify results");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        output_text(&output).contains("results has neither run.json nor MANIFEST.sha256"),
        "{}",
        output_text(&output)
    );
    assert_eq!(setting.ladder("verify results/r --public-key key.pem").status.code(), Some(2));
}
