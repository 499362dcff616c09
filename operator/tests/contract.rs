//! Tests of the contract check in `ladder run`: before the first trial and after the last one, with its consequences.

use std::{fs, process::Output};

use bench_format::{
    contract::{CaseStatus, ContractFile, ContractOutcome},
    run::TrialState,
};
use driver::fixture::write_program;
use fakes::{Checkout, output_text};

mod fakes;

const RUN: &str = "run fake --run-id r --no-report";

/// A checkout whose services have a contract. The fake conformance program takes its outcome from `findings`, one for
/// each call, and appends its arguments to the file `arguments`.
fn checkout(findings: &[&str]) -> Checkout {
    let checkout = Checkout::new();
    let registry = checkout.path("services/services.toml");
    let text = fs::read_to_string(&registry).unwrap();
    let known = "[protocols.fake]\nconformance = \"fake-conformance\"\n";
    let exceptions = "[services.honest.exceptions]\nunmasked = \"it ends\"\n";
    fs::write(&registry, text.replace("[protocols.fake]\n", known) + exceptions).unwrap();
    fs::write(checkout.path("findings"), findings.iter().map(|word| format!("{word}\n")).collect::<String>()).unwrap();
    let program = r#"#!/bin/sh
echo "$*" >> arguments
finding=$(head -n 1 findings)
sed -i 1d findings
while [ "$1" != --json ]; do shift; done
echo '{"schema":2,"services":[{"cases":[{"name":"batches","status":"'"$finding"'",
"evidence":{"expected":"all","seen":"some"}}]}]}' > "$2"
[ "$finding" = passed ]
"#;
    write_program(&checkout.path("bin/fake-conformance"), program);
    checkout
}

fn contract(checkout: &Checkout) -> ContractFile {
    serde_json::from_slice(&fs::read(checkout.path("results/r/conformance/honest.json")).unwrap()).unwrap()
}

fn calls(checkout: &Checkout) -> Vec<String> {
    let found = fs::read_to_string(checkout.path("arguments")).unwrap_or_default();
    found.lines().map(str::to_owned).collect()
}

fn check_output(output: &Output, code: i32, found: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", output_text(output));
    assert!(output_text(output).contains(found), "{}", output_text(output));
}

#[test]
fn a_conforming_service_is_checked_before_and_after_its_trials() {
    let checkout = checkout(&["passed", "passed"]);
    check_output(&checkout.run(RUN), 0, "honest: after its last trial, it meets the core of its contract (1 passed)");
    let file = contract(&checkout);
    let outcomes = [file.before, file.after].map(|check| check.unwrap().outcome);
    assert_eq!((outcomes, file.level.as_str()), ([ContractOutcome::Passed; 2], "core"));
    assert_eq!(file.exceptions["unmasked"], "it ends");
    let found = calls(&checkout);
    assert!(found[0].starts_with("--level core --except unmasked=it ends --json "), "{found:?}");
    assert!(found[1].ends_with("--start honest -- bin/fake-service"), "{found:?}");
    checkout.verify();
}

#[test]
fn a_service_that_breaks_its_contract_is_not_measured() {
    let checkout = checkout(&["failed"]);
    check_output(&checkout.run(RUN), 2, "batches: expected: all; observed: some");
    let state = checkout.run_file().trials.remove(0).state;
    let TrialState::Failed { reason } = state else { panic!("{state:?}") };
    assert_eq!(reason, "not tried: it breaks the core of its contract (batches)");
    let file = contract(&checkout);
    assert_eq!((file.before.unwrap().cases[0].status, file.after), (CaseStatus::Failed, None));
    assert_eq!(calls(&checkout).len(), 1);
}

#[test]
fn a_contract_that_is_broken_after_the_trials_makes_the_run_invalid() {
    let checkout = checkout(&["passed", "failed"]);
    check_output(&checkout.run(RUN), 2, "honest: the contract is broken after the trials");
    assert!(matches!(checkout.run_file().trials[0].state, TrialState::Finished { .. }));
    assert_eq!(contract(&checkout).after.unwrap().outcome, ContractOutcome::Failed);
    check_output(&checkout.run("assert results/r"), 2, "broke its contract after its last trial (batches)");
    // A resumed run doesn't repeat the check.
    check_output(&checkout.run("run --resume r --no-report"), 2, "the contract is broken");
    assert_eq!(calls(&checkout).len(), 2);
    checkout.verify();
}

#[test]
fn a_skipped_check_is_recorded_in_the_bundle() {
    let checkout = checkout(&[]);
    check_output(&checkout.run(&format!("{RUN} --no-conformance")), 0, "valid");
    let file = contract(&checkout);
    assert_eq!((file.left_out.as_deref(), file.before), (Some("--no-conformance"), None));
    assert_eq!(calls(&checkout), Vec::<String>::new());
}
