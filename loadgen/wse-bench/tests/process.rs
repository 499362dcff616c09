//! The program as a process: exit codes, tables, JSON, several workers.

mod busy;
mod service;

use std::process::{Command, Output};

use serde_json::Value;
use service::{Flaw, SECRET, Service};

fn wse_bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wse-bench"))
        .args(arguments.split_whitespace())
        .env("WSE_BENCH_SECRET", SECRET)
        .output()
        .unwrap()
}

/// A drain that suffices on a slow machine, unless the test sets its own because it waits for something that never
/// arrives.
fn timeout_flag(arguments: &str) -> &'static str {
    if arguments.contains("--drain") { "" } else { " --drain 20" }
}

fn against(service: &Service, arguments: &str) -> (Option<i32>, String) {
    let port = service.port;
    let output =
        wse_bench(&format!("--port {port} --duration 0.3 --warmup 0.1 {arguments}{}", timeout_flag(arguments)));
    let text = format!("{}{}", String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    (busy::code_but_for_it(output.status.code(), busy::of_text(&text)), text)
}

/// The exit code and the list of results of a run with JSON output.
fn results(service: &Service, arguments: &str) -> (Option<i32>, Vec<Value>) {
    let port = service.port;
    let output = wse_bench(&format!(
        "--port {port} --duration 0.3 --warmup 0.1 --output json {arguments}{}",
        timeout_flag(arguments)
    ));
    let list = serde_json::from_slice::<Vec<Value>>(&output.stdout);
    let list = list.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (busy::code_but_for_it(output.status.code(), busy::of_results(&list)), list)
}

#[test]
fn with_the_services_counters_the_books_are_compared() {
    let service = Service::start(Flaw::None);
    for format in ["json", "msgpack", "compressed"] {
        let arguments =
            format!("--test throughput --tiers 3 --format {format} --coalesce 4 --stats-url {}", service.stats_url);
        let (code, results) = results(&service, &arguments);
        let measured = &results[0]["measured"];
        assert_eq!(code, Some(0), "{format}: {}", results[0]["problems"]);
        assert_eq!(measured["witness"], "application");
        assert_eq!(measured["messages"]["delivered"], measured["messages"]["sent"], "{format}");
        assert!(measured["books"]["connections"]["compared"].as_u64() >= Some(3));
    }
    assert_eq!(service.prefixes(), ["C:", "M:"]);
}

#[test]
fn a_service_that_lies_is_caught() {
    let service = Service::start(Flaw::FalseCounts);
    let arguments = format!("--test throughput --tiers 2 --stats-url {}", service.stats_url);
    let (code, results) = results(&service, &arguments);
    assert_eq!(code, Some(1));
    assert!(
        results[0]["problems"].to_string().contains("sequence sum sent = sequence sum delivered"),
        "{}",
        results[0]["problems"]
    );
}

#[test]
fn a_service_that_takes_every_token_fails_the_check_unless_that_is_left_out() {
    let service = Service::start(Flaw::TakesEveryToken);
    let (code, failed) = results(&service, "--test throughput --tiers 2");
    assert_eq!(code, Some(1));
    let problems = failed[0]["problems"].to_string();
    assert!(problems.contains("protocol check before the load: with a token of another secret"), "{problems}");
    let (code, unchecked) = results(&service, "--test throughput --tiers 2 --no-conformance");
    assert_eq!(code, Some(0), "{}", unchecked[0]["problems"]);
}

#[test]
fn an_unanswered_ping_is_not_a_success() {
    let service = Service::start(Flaw::ForgetsPings);
    let (code, results) = results(&service, "--test ping-latency --tiers 2 --rate 100 --drain 0.5");
    assert_eq!(code, Some(1));
    assert!(results[0]["measured"]["messages"]["lost"].as_u64() > Some(0));
}

#[test]
fn several_processes_come_to_one_result() {
    let service = Service::start(Flaw::None);
    let (code, results) = results(&service, "--test ping-latency --tiers 5 --pings 4 --workers 2");
    let measured = &results[0]["measured"];
    assert_eq!(code, Some(0), "{}", results[0]["problems"]);
    assert_eq!((&measured["connections"]["open"], &measured["window"]["replies"]), (&5.into(), &20.into()));
    assert_eq!(measured["histograms"]["response_ns"]["count"], 20);
    assert_eq!(measured["workers"].as_array().unwrap().len(), 2);
}

#[test]
fn markdown_is_a_table() {
    let service = Service::start(Flaw::None);
    let (code, text) = against(&service, "--test connection-storm --tiers 3 --output markdown");
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("| connections | workers | accepted/s |") && text.contains("|---:|"), "{text}");
}

#[test]
fn an_unreachable_service_is_exit_code_1_with_a_reason() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = wse_bench(&format!("--port {free}"));
    let description = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(description.contains("failed to open a connection") && description.contains("refused"), "{description}");
}

#[test]
fn of_two_instances_the_one_that_is_not_there_is_named_with_its_flag() {
    let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (publisher, unused_port) = (listen(), listen().local_addr().unwrap().port());
    let there = publisher.local_addr().unwrap().port();
    for (port, port2, description) in [
        (unused_port, there, format!("no instance that publishes listens at 127.0.0.1:{unused_port}: start it there")),
        (there, unused_port, "no instance that hands on what the other publishes; its port is --port2".into()),
    ] {
        let output = wse_bench(&format!("--test fanout-cluster --port {port} --port2 {port2}"));
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(&description), "{printed}");
    }
}

#[test]
fn bad_usage_is_exit_code_2_and_names_what_is_known() {
    for (arguments, description) in [
        (
            "--test battle-load",
            "known are connection-storm, ping-latency, throughput, size-matrix, format-comparison, sustained-hold",
        ),
        ("--duration 0", "not above 0"),
        ("--hold 0", "not above 0"),
        ("--tiers ten", "invalid value"),
        ("--format xml", "possible values"),
    ] {
        let output = wse_bench(arguments);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {printed}");
        assert!(printed.contains(description), "{arguments}: {printed}");
    }
}
