//! The program as users run it: loads in real processes, invalid command lines, and what is left behind.

use std::{
    fs,
    process::{Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

const FLOOR: &str = env!("CARGO_BIN_EXE_floor");
/// Longer than the slowest machine needs; reached only if an expected event doesn't occur.
const TIMEOUT: Duration = Duration::from_secs(60);

fn floor(arguments: &str) -> Output {
    Command::new(FLOOR).args(arguments.split_whitespace()).output().unwrap()
}

fn measured(arguments: &str) -> Value {
    let output = floor(arguments);
    let description = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{description}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The values of a figure, all of which must be numbers.
fn values(report: &Value, name: &str) -> Vec<f64> {
    let figures = report["figures"].as_array().unwrap();
    let figure = figures.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name} in {report}"));
    figure["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn value(report: &Value, name: &str) -> f64 {
    values(report, name)[0]
}

#[test]
fn a_flood_costs_cpu_on_both_sides_and_fills_its_writes() {
    let report = measured("flood --connections 5 --size 100 --per-write 8 --warmup 0.1 --duration 0.3 --repeats 2");
    for name in ["server_cpu", "client_cpu", "rate", "messages_per_read", "messages_per_write"] {
        let values = values(&report, name);
        assert!(values.len() == 2 && values.iter().all(|value| *value > 0.0), "{name}: {values:?}");
    }
    let per_write = value(&report, "messages_per_write");
    assert!(per_write > 4.0 && per_write <= 8.0, "{per_write}");
    assert_eq!((&report["name"], &report["settings"]["per_write"]), (&"flood".into(), &8.into()));
    assert!(report["command"].as_str().unwrap().starts_with("floor flood --connections 5"), "{report}");
}

#[test]
fn written_values_equal_read_values() {
    // Large writes, which sockets accept only in part.
    let report = measured("flood --connections 2 --size 1000 --per-write 1000 --warmup 0.2 --duration 0.5");
    let (server, client) = (value(&report, "rate"), value(&report, "messages_per_write"));
    assert!(server > 0.0 && client <= 1000.0, "{report}");
}

#[test]
fn an_open_loop_keeps_its_rate_and_reports_its_lateness() {
    let report = measured("echo --connections 10 --rate 2000 --warmup 0.1 --duration 1");
    // All messages due in the window, however late the machine sent them.
    let replies = value(&report, "answered");
    assert!((1999.0..=2001.0).contains(&replies), "{replies}");
    for name in ["response_p50", "response_p99", "delay_p50", "delay_p99"] {
        assert!(value(&report, name) > 0.0, "{name}");
    }
    assert!(value(&report, "response_p50") <= value(&report, "response_p99"));
}

#[test]
fn without_a_rate_each_connection_waits_for_its_answer() {
    let report = measured("echo --connections 4 --warmup 0.1 --duration 0.4");
    assert!(value(&report, "rate") > 0.0 && value(&report, "response_p50") > 0.0);
    let figures = report["figures"].as_array().unwrap();
    assert!(figures.iter().all(|figure| figure["name"] != "delay_p50"), "{report}");
}

#[test]
fn every_subscriber_checks_every_number_of_a_flood() {
    let report = measured("fanout --connections 20 --per-write 50 --warmup 0.1 --duration 0.4");
    for name in ["server_cpu", "client_cpu", "rate", "messages_per_read", "messages_per_write"] {
        assert!(value(&report, name) > 0.0, "{name}: {report}");
    }
    let figures = report["figures"].as_array().unwrap();
    assert!(figures.iter().all(|figure| figure["name"] != "response_p50"), "the age of a backlog is not a latency");
}

#[test]
fn a_paced_publisher_keeps_its_rate_and_has_a_latency() {
    let report = measured("fanout --connections 10 --rate 5000 --warmup 0.1 --duration 1");
    let rate = value(&report, "rate");
    assert!((4500.0..5500.0).contains(&rate), "{rate}");
    assert!(value(&report, "response_p50") > 0.0);
    assert!(value(&report, "response_p50") <= value(&report, "response_p99"));
}

#[test]
fn handshakes_are_charged_to_both_sides() {
    let report = measured("handshake --connections 600 --in-flight 20 --hello-size 90 --repeats 2");
    for name in ["server_cpu", "client_cpu", "rate", "handshake_p50", "handshake_p99"] {
        assert!(values(&report, name).iter().all(|value| *value > 0.0), "{name}: {report}");
    }
}

#[test]
fn an_idle_connection_takes_little_of_a_process() {
    let report = measured("idle --connections 2000 --settle 0");
    for name in ["server_memory", "client_memory"] {
        let bytes = value(&report, name);
        assert!((0.0..4096.0).contains(&bytes), "{name}: {bytes}");
    }
    // Memory of the whole machine: other tests change it, so only its presence is checked.
    assert!(value(&report, "kernel_objects").is_finite() && value(&report, "kernel_buffers").is_finite());
}

#[test]
fn sides_run_on_their_configured_cpus() {
    let allowed = fs::read_to_string("/proc/self/status").unwrap();
    let list = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let cpu: u32 = list.split(['-', ',']).next().unwrap().parse().unwrap();
    let report =
        measured(&format!("echo --connections 1 --warmup 0 --duration 0.1 --server-cpu {cpu} --client-cpu {cpu}"));
    assert_eq!(report["cpus"], serde_json::json!({ "server": cpu, "client": cpu }));
}

#[test]
fn a_cpu_that_is_not_there_is_an_error_that_names_it() {
    let output = floor("echo --connections 1 --duration 0.1 --client-cpu 1023");
    let description = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{description}");
    assert!(description.contains("the client: failed to run on CPU 1023"), "{description}");
}

#[test]
fn bad_usage_has_an_exit_code_of_its_own() {
    for arguments in ["", "flood --connections 0", "flood --size 65536 --per-write 65536", "echo --rate -1"] {
        assert_eq!(floor(arguments).status.code(), Some(2), "{arguments}");
    }
    let help = String::from_utf8(floor("--help").stdout).unwrap();
    assert!(help.contains("flood") && !help.contains("\n  end"), "{help}");
}

#[test]
fn a_side_without_a_parent_prints_its_purpose() {
    let output = Command::new(FLOOR).arg("end").stdin(Stdio::null()).output().unwrap();
    let description = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && description.contains("not by hand"), "{description}");
}

#[test]
fn both_sides_end_when_their_parent_is_killed() {
    let mut parent = Command::new(FLOOR)
        .args(["flood", "--connections", "2", "--duration", "600"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    let listed = || fs::read_to_string(&children).unwrap_or_default();
    wait_until("both ends are started", || listed().split_whitespace().count() == 2);
    let processes: Vec<String> = listed().split_whitespace().map(str::to_owned).collect();
    parent.kill().unwrap();
    parent.wait().unwrap();
    // A process that has ended and isn't reaped yet has no command line.
    let runs = |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    wait_until("both ends are gone", || !processes.iter().any(runs));
}

fn wait_until(description: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "never: {description}");
        sleep(Duration::from_millis(5));
    }
}
