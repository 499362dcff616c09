//! Tests of `ladder verify` on bundles of real climbs: one altered byte anywhere is found and named, and so is what a
//! forger changes who rewrites the list of files.

use std::fs;

use fakes::{
    bundle::{Setting, TRIAL, assert_found, findings, flip},
    output_text,
};
use operator::{sign::sign, store::manifest::MANIFEST};
use serde_json::Value;

mod fakes;

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
fn a_folder_without_a_bundle_and_an_invalid_key_are_unusable() {
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
