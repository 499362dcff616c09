//! The program as a process: exit codes, the summary, files of rows.

mod gateway;

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use gateway::{Flaw, Gateway};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use stt_bench::samples::HEADER;

fn stt_loadgen(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stt-loadgen")).args(arguments.split_whitespace()).output().unwrap()
}

/// The summary, and its problems that are the gateway's: on a busy machine the generator may be late.
fn against(flaw: Flaw, arguments: &str) -> (Option<i32>, Value, Vec<String>) {
    let gateway = Gateway::start(flaw);
    let url = gateway.url();
    let output = stt_loadgen(&format!("--url {url} --sessions 3 --warmup-secs 0.2 --measure-secs 0.7 {arguments}"));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let problems: Vec<String> = serde_json::from_value(summary["problems"].clone()).unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!problems.is_empty())), "{problems:?}");
    let description = String::from_utf8(output.stderr).unwrap();
    assert!(
        problems.iter().all(|problem| description.contains(problem)),
        "standard error lists them too: {description}"
    );
    let ours = |problem: &String| {
        ["generator_", "send_rate", "start_skew", "clock_step"].iter().any(|kind| problem.starts_with(kind))
    };
    (output.status.code(), summary, problems.into_iter().filter(|problem| !ours(problem)).collect())
}

#[test]
fn the_summary_has_the_known_fields_in_their_order_first() {
    let (_, summary, problems) = against(Flaw::None, "--service-name right --repeat 2");
    assert_eq!(problems, Vec::<String>::new());
    let text = summary.to_string();
    let known = [
        "url",
        "service_name",
        "sessions",
        "repeat",
        "warmup_secs",
        "measure_secs",
        "ramp_up_secs",
        "session_start_spread_ms",
        "partials",
        "protocol_errors",
        "inference_errors",
        "inference_error_counts",
        "inference_error_samples",
        "timeouts",
        "frame_to_partial_latency",
        "newest_frame_to_partial_latency",
        "oldest_frame_to_partial_latency",
        "flush_lateness",
    ];
    assert!(known.iter().all(|key| summary.get(*key).is_some()), "{text}");
    assert_eq!(summary["timeouts"], serde_json::json!({"connect": 0, "send": 0, "close": 0, "session": 0}));
    assert!(summary["newest_frame_to_partial_latency"]["p50_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["flush_lateness"]["p50_ms"], 0.5);
    assert_eq!(summary["frames"]["delivered"], summary["frames"]["due"]);
    assert_eq!(summary["window"]["due"], 3 * 35);
}

#[test]
fn rows_are_written_for_the_partials_of_the_window() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["rows.csv", "deeper/rows.csv.zst"] {
        let path = folder.path().join(name);
        let (_, summary, problems) = against(Flaw::None, &format!("--samples-out {}", path.display()));
        assert_eq!(problems, Vec::<String>::new());
        let bytes = fs::read(&path).unwrap();
        let text = if name.ends_with("zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().next(), Some(HEADER));
        assert_eq!(
            text.lines().count() as u64 - 1,
            summary["newest_frame_to_partial_latency"]["count"].as_u64().unwrap(),
            "{name}"
        );
    }
}

#[test]
fn several_processes_share_the_sessions_and_come_to_one_summary() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let (_, summary, problems) = against(Flaw::None, &format!("--workers 2 --samples-out {}", path.display()));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(summary["workers_evidence"].as_array().unwrap().len(), 2);
    assert_eq!((&summary["window"]["due"], &summary["connections"]["open"]), (&(3 * 35).into(), &3.into()));
    assert_eq!(summary["conformance"]["opened"], 2);
    let rows = |worker: u32| fs::read_to_string(folder.path().join(format!("rows-{worker}.csv"))).unwrap();
    let lines: usize = (0..2).map(|worker| rows(worker).lines().count() - 1).sum();
    assert_eq!(lines as u64, summary["newest_frame_to_partial_latency"]["count"].as_u64().unwrap());
}

#[test]
fn a_full_disk_is_reported_and_the_summary_is_still_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.csv");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let (code, summary, problems) = against(Flaw::None, &format!("--samples-out {}", path.display()));
    assert_eq!(code, Some(1));
    assert!(problems[0].contains("full.csv") && problems[0].contains("No space left"), "{problems:?}");
    assert!(summary["partials"].as_u64().unwrap() > 0);
}

#[test]
fn a_gateway_that_ends_in_the_window_leaves_a_summary_up_to_its_end() {
    let (code, summary, problems) = against(Flaw::Closes, "");
    assert_eq!(code, Some(1));
    assert_eq!(summary["protocol_errors"], 3);
    assert!(problems.iter().any(|problem| problem.starts_with("3 x session/closed")), "{problems:?}");
    assert!(summary["frames"]["delivered"].as_u64().unwrap() > 0);
}

#[test]
fn a_generator_that_was_stopped_beyond_its_drain_sends_no_more_and_counts_what_was_due() {
    let gateway = Gateway::start(Flaw::None);
    let url = gateway.url();
    let arguments = format!("--url {url} --sessions 3 --warmup-secs 0 --measure-secs 0.6 --session-grace-secs 0.2");
    let stopped = Command::new(env!("CARGO_BIN_EXE_stt-loadgen"))
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Stopping it stops its worker as well.
        .process_group(0)
        .spawn()
        .unwrap();
    // The protocol check sends one frame of its own.
    while gateway.taken() < 3 {
        sleep(Duration::from_millis(1));
    }
    let pid = Pid::from_child(&stopped);
    kill_process_group(pid, Signal::STOP).unwrap();
    let taken = gateway.taken();
    sleep(Duration::from_secs(1));
    kill_process_group(pid, Signal::CONT).unwrap();
    let output = stopped.wait_with_output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let count = |name: &str| summary["frames"][name].as_u64().unwrap();
    assert!(count("unsent") > 0 && count("sent") + count("unsent") == count("due"), "{}", summary["frames"]);
    assert_eq!(summary["window"]["due"], 3 * 30);
    // Messages sent before the stop may still have been in flight, and the second check sends a frame.
    assert!(gateway.taken() <= taken + 3 + 1, "{} after {taken}", gateway.taken());
    let problems = summary["problems"].to_string();
    assert!(problems.contains("frames were due but never sent"), "{problems}");
}

#[test]
fn error_frames_are_counted_and_shown() {
    let (code, summary, _) = against(Flaw::SendsAnError, "");
    assert_eq!((code, &summary["inference_errors"]), (Some(1), &Value::from(3)));
    assert_eq!(
        summary["inference_error_counts"],
        serde_json::json!([{"stage": "inference_request", "kind": "http_5xx", "count": 3}])
    );
    assert_eq!(summary["inference_error_samples"][0]["message"], "inference answered 503");
}

#[test]
fn an_unreachable_service_is_exit_code_1_with_a_reason() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = stt_loadgen(&format!("--url ws://{free}/ws/stt --sessions 2"));
    let description = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(
        description.contains(&format!("none of 2 connections to {free} could be opened: 2 x refused")),
        "{description}"
    );
}

#[test]
fn bad_usage_is_exit_code_2_with_a_reason() {
    for (arguments, description) in [
        ("", "--url"),
        ("--url ws://a:1 --sessions ten", "invalid value"),
        ("--url http://a:1/ws/stt --sessions 1", "not of the form ws://host:port/ws/stt"),
        ("--url ws://a:1 --sessions 1 --measure-secs 0", "--measure-secs 0 is not"),
        ("--url ws://a:1 --sessions 1 --worker 0", "--coordinator"),
    ] {
        let output = stt_loadgen(arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {printed}");
        assert!(printed.contains(description), "{arguments}: {printed}");
    }
}
