//! The seven tests of the suite by hand, against a service in the test's process: what is offered, what is printed,
//! where the search ends.

mod busy;
mod service;

use std::process::{Command, Output};

use serde_json::Value;
use service::{Flaw, SECRET, Service};

/// Runs the program with the flags of a short run that is long enough on a slow machine.
fn wse_bench(service: &Service, arguments: &str) -> Output {
    let flags = format!("--port {} --duration 0.3 --warmup 0.1 --drain 20 {arguments}", service.port);
    Command::new(env!("CARGO_BIN_EXE_wse-bench"))
        .args(flags.split_whitespace())
        .env("WSE_BENCH_SECRET", SECRET)
        .output()
        .unwrap()
}

fn text(service: &Service, arguments: &str) -> (Option<i32>, String) {
    let output = wse_bench(service, arguments);
    let text = format!("{}{}", String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    (busy::code_but_for_it(output.status.code(), busy::of_text(&text)), text)
}

fn results(service: &Service, arguments: &str) -> (Option<i32>, Vec<Value>) {
    let output = wse_bench(service, &format!("--output json {arguments}"));
    let list = serde_json::from_slice::<Vec<Value>>(&output.stdout);
    let list = list.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (busy::code_but_for_it(output.status.code(), busy::of_results(&list)), list)
}

#[test]
fn the_suite_runs_its_seven_tests_in_order_and_prints_a_table_for_each() {
    let service = Service::start(Flaw::None);
    let (code, text) = text(&service, "--tiers 2,4 --pings 3 --hold 1 --max-connections 6");
    assert_eq!(code, Some(0), "{text}");
    let tables = [
        "connection-storm: closed loop, witness the reply",
        "ping-latency: closed loop, witness the reply",
        "throughput: closed loop, json of 175 bytes, 1 per write, witness none",
        "size-matrix: closed loop, json in six sizes",
        "format-comparison: closed loop, 175 bytes before encoding",
        "sustained-hold: open loop, each connection pinged every 1 s, witness the reply",
        "connection-limit: connections are opened and held, and each is pinged once",
    ];
    let places: Vec<_> = tables
        .iter()
        .map(|description| text.find(description).unwrap_or_else(|| panic!("{description} in {text}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
    assert!(text.contains("Most that held: >= 6 connections (all that --max-connections asks for held)"), "{text}");
    // One check before and one after each of two storms, pings, floods, holds, twelve cells, six formats and one probe.
    assert_eq!(service.refused(), 2 * (2 + 2 + 2 + 2 + 12 + 6 + 1));
    assert!(!text.contains(SECRET));
}

#[test]
fn the_matrix_has_a_cell_for_each_size_and_tier() {
    let service = Service::start(Flaw::None);
    let arguments = format!("--test size-matrix --tiers 2,3 --output markdown --stats-url {}", service.stats_url);
    let (code, text) = text(&service, &arguments);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("witness the application"), "{text}");
    for title in ["messages/s, bytes", "GB/s, bytes"] {
        let matrix: Vec<_> = text.lines().skip_while(|line| !line.contains(title)).take(8).collect();
        assert_eq!(matrix.len(), 8, "a title, a line, six sizes: {text}");
        assert!(matrix[7].contains("65536") && !matrix[7].contains("failed"), "{}", matrix[7]);
    }
}

#[test]
fn formats_are_offered_in_turn_and_compared_with_json() {
    let service = Service::start(Flaw::None);
    let arguments = format!("--test format-comparison --tiers 2 --stats-url {}", service.stats_url);
    let (code, results) = results(&service, &arguments);
    assert_eq!(code, Some(0), "{results:?}");
    let formats: Vec<_> = results.iter().map(|result| result["message"]["format"].as_str().unwrap()).collect();
    assert_eq!(formats, ["json", "msgpack", "compressed"]);
    assert_eq!(service.prefixes(), ["C:", "M:"]);
    for result in &results {
        let measured = &result["measured"];
        assert_eq!((&result["test"], &result["workload"]), (&"format-comparison".into(), &"throughput".into()));
        assert_eq!((&measured["witness"], &result["load"]["model"]), (&"application".into(), &"closed".into()));
        assert_eq!(measured["messages"]["delivered"], measured["messages"]["sent"]);
        assert!(measured["figures"]["messages_per_write"].as_f64() >= Some(0.9), "{}", measured["figures"]);
    }
}

#[test]
fn the_bound_of_a_flood_is_reported_for_a_service_on_this_machine() {
    let service = Service::start(Flaw::None);
    let (code, results) = results(&service, "--test throughput --tiers 4");
    let figures = &results[0]["measured"]["figures"];
    assert_eq!(code, Some(0), "{}", results[0]["problems"]);
    for share in ["service_cpu_share", "worker_cpu_share"] {
        let share = figures[share].as_f64().unwrap();
        assert!(share > 0.0 && share <= 1.0, "{figures}");
    }
    let bound_by = results[0]["measured"]["bound_by"].as_str().unwrap();
    assert!(["service", "generator", "both", "neither", "machine"].contains(&bound_by), "{bound_by}");
}

#[test]
fn connections_that_are_held_are_pinged_and_survive() {
    let service = Service::start(Flaw::None);
    let (code, results) = results(&service, "--test sustained-hold --tiers 10 --hold 0.5");
    let measured = &results[0]["measured"];
    assert_eq!(code, Some(0), "{}", results[0]["problems"]);
    assert_eq!((&measured["survival"], &measured["messages"]["delivered"]), (&1.0.into(), &10.into()));
    assert!(measured["figures"]["service_rss_bytes"].as_u64() > Some(0), "{}", measured["figures"]);
    assert!(measured["kernel_bytes_per_connection"].is_number(), "{measured}");
    assert_eq!(measured["bound_by"], Value::Null, "an open loop is bound by its schedule");
}

#[test]
fn connections_that_a_service_drops_while_they_are_held_did_not_survive() {
    let service = Service::start(Flaw::DropsAfterAPing);
    let (code, results) = results(&service, "--test sustained-hold --tiers 4 --hold 0.5 --no-conformance");
    assert_eq!(code, Some(1));
    assert_eq!(results[0]["measured"]["survival"], 0.0, "{}", results[0]["problems"]);
    assert!(results[0]["problems"].to_string().contains("4 connections ended early"), "{}", results[0]["problems"]);
}

#[test]
fn the_limit_of_a_service_is_bracketed_and_named() {
    let service = Service::start(Flaw::Full(11));
    let arguments = format!("--test connection-limit --max-connections 40 --stats-url {}", service.stats_url);
    let (code, results) = results(&service, &arguments);
    let last = results.last().unwrap();
    assert_eq!(code, Some(0), "{last}");
    let limit = &last["limit"];
    assert_eq!((&limit["held"], &limit["failed"]), (&11.into(), &12.into()), "{limit}");
    assert_eq!(limit["ended_by"], "service");
    assert!(limit["why"].as_str().unwrap().contains("refused with HTTP status 503"), "{limit}");
    let phases: Vec<_> = results.iter().map(|result| result["probe"]["phase"].as_str().unwrap()).collect();
    assert!(phases.contains(&"raise") && phases.contains(&"bisect"), "{phases:?}");
}

#[test]
fn a_service_that_closes_every_connection_has_no_limit_to_find() {
    let service = Service::start(Flaw::DropsAfterAPing);
    let (code, results) = results(&service, "--test connection-limit --max-connections 2 --no-conformance");
    assert_eq!(code, Some(1), "{results:?}");
    assert_eq!(results.last().unwrap()["limit"]["held"], 0);
}

#[test]
fn a_limit_of_our_own_is_never_the_services() {
    let service = Service::start(Flaw::None);
    let port = service.port;
    // 130 descriptors suffice for 30 connections beside those that a process needs for itself.
    let flags =
        format!("--port {port} --duration 0.3 --drain 20 --test connection-limit --max-connections 80 --workers 1");
    let limited = format!("ulimit -n 130; exec {} {flags}", env!("CARGO_BIN_EXE_wse-bench"));
    let output = Command::new("sh").args(["-c", &limited]).env("WSE_BENCH_SECRET", SECRET).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("Most that held: >= 30 connections (the descriptors of our own workers"), "{text}");
}

#[test]
fn workers_are_as_many_as_the_connections_need_descriptors() {
    let service = Service::start(Flaw::None);
    let port = service.port;
    let flags =
        format!("--port {port} --duration 0.3 --drain 20 --test connection-limit --max-connections 80 --output json");
    let limited = format!("ulimit -n 130; exec {} {flags}", env!("CARGO_BIN_EXE_wse-bench"));
    let output = Command::new("sh").args(["-c", &limited]).env("WSE_BENCH_SECRET", SECRET).output().unwrap();
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((results[0]["workers"].as_u64(), &results[0]["limit"]["held"]), (Some(3), &80.into()), "{results:?}");
}

#[test]
fn connections_start_from_the_addresses_that_are_given() {
    let service = Service::start(Flaw::None);
    let arguments = "--test connection-storm --tiers 3 --source-address 127.0.0.77";
    let (code, results) = results(&service, arguments);
    assert_eq!(code, Some(0), "{}", results[0]["problems"]);
    assert!(service.sources().contains(&"127.0.0.77".parse().unwrap()), "{:?}", service.sources());
}

#[test]
fn the_limits_of_the_machine_are_printed_before_the_run() {
    let service = Service::start(Flaw::None);
    let (_, text) = text(&service, "--test connection-storm --tiers 2");
    for description in
        ["preflight: descriptors: ", "preflight: ports: ", "preflight: backlog: ", "preflight: CPU: workers may use"]
    {
        assert!(text.contains(description), "{description} in {text}");
    }
}
