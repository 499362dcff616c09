//! The inference benchmark as a process, against a real inference simulator.

use std::{process::Command, thread};

use clap::Parser;
use inference_sim::{Config, Service};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Starts a simulator in this process, which runs until the test ends; returns its address.
fn simulator(flags: &str) -> String {
    let config = Config::parse_from(["inference-sim", "--port=0"].into_iter().chain(flags.split_whitespace()));
    let runtime = Runtime::new().expect("threads can be started");
    let service = {
        let _inside = runtime.enter();
        Service::bind(&config).expect("the kernel has a port left")
    };
    let address = service.started().address;
    thread::spawn(move || runtime.block_on(service.serve(std::future::pending())));
    address
}

/// Runs the program; returns its exit code and its report.
fn inferbench(address: &str, flags: &str) -> (Option<i32>, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_stt-inferbench"))
        .args(["--url", &format!("http://{address}/infer"), "--duration-secs=1"])
        .args(flags.split_whitespace())
        .output()
        .expect("the program was built");
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

#[test]
fn a_closed_loop_counts_right_answers_over_both_versions() {
    let address = simulator("--model-delay-ms=10");
    for (flags, version) in [("", "2"), ("--http1", "1.1")] {
        let (code, report) = inferbench(&address, flags);
        assert_eq!((code, &report["mode"], &report["http"]), (Some(0), &"closed_loop".into(), &version.into()));
        assert!(report["completed"].as_u64() > Some(0) && report["completed"] == report["attempted"], "{report}");
        assert!(report["latency"]["p50_ms"].as_f64() > Some(5.0), "{report}");
        assert_eq!((&report["target_rps"], &report["payload_bytes"]), (&Value::Null, &32_000.into()));
    }
}

#[test]
fn the_fields_of_the_reference_come_first_and_in_its_order() {
    let output = Command::new(env!("CARGO_BIN_EXE_stt-inferbench"))
        .args(["--url", &format!("http://{}/infer", simulator("--model-delay-ms=1")), "--duration-secs=1"])
        .output()
        .expect("the program was built");
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let keys: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  \"")?.split('"').next()).collect();
    let reference = "url mode duration_secs concurrency clients target_rps payload_frames payload_bytes cpu_passes timeout_ms \
                     connect_timeout_ms attempted completed errors error_samples attempted_rps completed_rps latency";
    assert_eq!(keys[..18].join(" "), reference);
}

#[test]
fn an_open_loop_sends_as_many_messages_as_its_rate_implies() {
    let address = simulator("--model-delay-ms=10");
    let (code, report) = inferbench(&address, "--rps 50 --payload-frames 3 --cpu-passes 2");
    assert_eq!((code, &report["attempted"], &report["completed"]), (Some(0), &50.into(), &50.into()), "{report}");
}

#[test]
fn a_request_that_may_not_be_sent_in_time_is_late_by_its_own_due_time() {
    let address = simulator("--model-delay-ms=50 --model-jitter-sigma=0");
    let (code, report) = inferbench(&address, "--rps 40 --concurrency 1 --timeout-ms 60000");
    assert_eq!((code, &report["completed"]), (Some(0), &40.into()));
    // 40 requests of 50 ms, one after another, take two seconds; the last was due within the first second.
    let most = |field: &str| report[field]["max_ms"].as_f64().expect("it is a number");
    assert!(most("latency") >= 1000.0 && most("lateness") >= 1000.0 - 50.0, "{report}");
}

#[test]
fn each_failure_is_counted_under_what_failed() {
    for (fault, flags, kind) in [
        ("--fault-status=503:1", "", "http_status"),
        ("--fault-malformed=1", "", "content"),
        ("--fault-unknown-field=1", "--http1", "content"),
        ("--fault-reset=1", "--http1", "request"),
        ("--fault-reset=1", "", "request"),
        ("--fault-stall=1:never", "--timeout-ms 300", "timeout"),
    ] {
        let address = simulator(&format!("--model-delay-ms=10 {fault}"));
        let (code, report) = inferbench(&address, flags);
        assert_eq!((code, &report["completed"]), (Some(1), &0.into()), "{fault}");
        assert_eq!(report["errors"][kind], report["attempted"], "{fault}: {report}");
        assert_ne!(report["error_samples"], Value::Array(vec![]), "{fault}");
    }
}

#[test]
fn an_unreachable_service_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let address = free.local_addr().expect("it is bound").to_string();
    drop(free);
    let (code, report) = inferbench(&address, "--rps 10");
    assert_eq!((code, &report["errors"]["connect"]), (Some(1), &10.into()));
    assert!(report["error_samples"][0].as_str().expect("it is text").contains(&address), "{report}");
}

#[test]
fn bad_usage_has_an_exit_code_of_its_own() {
    let run = |flags: &[&str]| Command::new(env!("CARGO_BIN_EXE_stt-inferbench")).args(flags).output();
    for flags in [&["--url", "nonsense"][..], &["--url=http://127.0.0.1:1/infer", "--rps=0"], &[]] {
        let output = run(flags).expect("the program was built");
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{flags:?}");
    }
}
