//! Tests of `ladder sign`, and of what `ladder verify` says about signatures.

use std::fs;

use fakes::{
    bundle::{Setting, TRIAL, assert_found, flip},
    output_text,
};
use operator::{
    sign::sign,
    signing::SigningKey,
    store::manifest::{MANIFEST, PUBLIC_KEY, SIGNATURE},
};
use serde_json::Value;

mod fakes;

#[test]
fn every_byte_of_the_list_and_the_signature_counts() {
    let setting = Setting::new();
    sign(&setting.bundle, &setting.key).unwrap();
    for name in [MANIFEST, SIGNATURE, PUBLIC_KEY] {
        let path = setting.bundle.join(name);
        let bytes = fs::read(&path).unwrap();
        for position in (0..bytes.len()).step_by(41).chain([bytes.len() - 1]) {
            flip(&path, &bytes, position);
            let signature = &setting.verify().checks[0];
            assert!(!signature.findings.is_empty(), "{name}, byte {position}");
        }
        fs::write(&path, &bytes).unwrap();
    }
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
