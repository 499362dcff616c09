//! `ladder plan check` of tiers with many connections: what they need, and what doesn't fit.

use std::{
    path::Path,
    process::{Command, Output},
};

fn check(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
    command.args(["plan", "check"]).args(arguments).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const HALF_A_MILLION: [&str; 3] = ["--chart", "charts/ws-ladder", "charts/ws-ladder/values-500k-example.yaml"];

#[test]
fn the_example_of_half_a_million_connections_fits_into_the_pods_of_the_chart() {
    let output = check(&HALF_A_MILLION);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let needs = "ping-latency/idle/500000: 20 workers with 25000 connections each (25100 descriptors, 25000 ports, 211Mi), \
                 10 service processes with 50000 each (50100 descriptors, 357Mi); ";
    assert!(text(&output.stdout).contains(needs), "{}", text(&output.stdout));
}

#[test]
fn a_tier_that_does_not_fit_is_a_mistake_with_what_would_fit() {
    let output = check(&[&HALF_A_MILLION[..], &["--open-files", "20000"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let found = text(&output.stderr);
    let worker = "ping-latency/idle/500000: a worker needs 25100 descriptors and may have 20000: raise `ulimit -n`, or give \
                  connections_per_worker: 19900";
    assert!(found.contains(worker) && found.contains("or give the ladder replicas: 26"), "{found}");
}

#[test]
fn sixty_thousand_connections_fit_where_a_process_may_open_twenty_thousand_files() {
    let output = check(&["--open-files", "20000", "plans/many-connections.yaml"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let needs = "ping-latency/idle/60000: 4 workers with 15000 connections each (15100 descriptors, 15000 ports, ";
    assert!(text(&output.stdout).contains(needs), "{}", text(&output.stdout));
}
