//! `ladder run --resume --retry`, as a process.

use std::fs;

use bench_format::run::TrialState;
use fakes::{Checkout, output_text};

mod fakes;

#[test]
fn failed_trials_are_measured_again_on_request_and_others_keep_their_results() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [never-ready, honest]\n", "");
    assert_eq!(checkout.run("run fake --run-id r --no-report").status.code(), Some(2));
    let honest = checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1/result.json");
    let before = fs::read(&honest).unwrap();
    let path = checkout.path("services/services.toml");
    let fixed = fs::read_to_string(&path).unwrap().replace("FAKE_FLAW = \"never-ready\"", "FAKE_FLAW = \"honest\"");
    fs::write(&path, fixed).unwrap();
    let output = checkout.run("run --resume r --retry failed --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let trials = checkout.run_file().trials;
    assert!(trials.iter().all(|entry| matches!(entry.state, TrialState::Finished { .. })), "{trials:?}");
    assert_eq!(fs::read(&honest).unwrap(), before);
    checkout.verify();
    let output = checkout.run("run fake --retry failed");
    assert!(output_text(&output).contains("--resume <RUN_ID>"), "{}", output_text(&output));
}
