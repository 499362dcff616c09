//! Tests of `ladder run --url`: a service that the test started is climbed, read and left running.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
};

use axum::{Json, Router, routing::get};
use bench_format::{
    result::{ReasonKind, Validity},
    run::{RunState, TrialState},
    service::Started,
};
use driver::stage::Usage;
use fakes::{Checkout, is_alive, output_text, wait_for};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

/// A fake service that the test started. It is killed when this is dropped.
struct StartedByTest {
    child: Child,
    started: Started,
}

impl StartedByTest {
    /// Starts a service that reports this name.
    fn start(checkout: &Checkout, name: &str, flaw: &str) -> Self {
        let mut child = Command::new(checkout.path("bin/fake-service"))
            .env("FAKE_NAME", name)
            .env("FAKE_FLAW", flaw)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.into_iter().find(|line| line.starts_with('{')).expect("no ready line");
        Self { child, started: serde_json::from_str(&ready).unwrap() }
    }

    /// The arguments that climb this service.
    fn run(&self, plan: &str) -> String {
        let Started { address, metrics_address, .. } = &self.started;
        format!("run {plan} --run-id r --no-report --url ws://{address} --metrics {metrics_address}")
    }
}

impl Drop for StartedByTest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A fake evidence agent for a process; it serves until the test ends.
fn serve_usage(listener: TcpListener, pid: u32) {
    listener.set_nonblocking(true).unwrap();
    let usage = move || Usage {
        pid,
        cpu_ns: process_usage::cpu_ns(pid).unwrap(),
        rss_bytes: process_usage::rss_bytes(pid).unwrap(),
        cpu_limit: 1.0,
        ..Usage::default()
    };
    let routes = Router::new().route("/usage", get(move || async move { Json(usage()) }));
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), routes).await })
    });
}

/// An address without a listener.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// The output of a command that must be refused before it creates a bundle.
fn refused(checkout: &Checkout, arguments: &str) -> String {
    let output = checkout.run(arguments);
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    assert!(!checkout.path("results/r").exists(), "a bundle was begun: {}", output_text(&output));
    output_text(&output)
}

#[test]
fn a_service_that_runs_already_is_accounted_for_and_left_running() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 2\nservice_process: repeat\n", "");
    let service = StartedByTest::start(&checkout, "honest", "honest");
    let output = checkout.run(&service.run("fake"));
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(is_alive(service.started.pid), "ladder stopped a service that it did not start");
    assert!(output_text(&output).contains("instead of a fresh one for each"), "{}", output_text(&output));
    let run = checkout.run_file();
    let outside = run.outside.clone().unwrap();
    assert_eq!(outside.metrics_address, service.started.metrics_address);
    assert_eq!(run.versions["honest"], "fake 1");
    assert!(run.cpu_roles["service"].contains("was not started by ladder"), "{:?}", run.cpu_roles);
    let trials: Vec<(u32, u32)> = run.trials.iter().map(|entry| (entry.trial.process, entry.trial.repeat)).collect();
    assert_eq!(trials, [(1, 1), (1, 2)], "both on the one process");
    for result in checkout.results() {
        assert_eq!(result.validity, Validity::Valid);
        assert_eq!((result.messages.sent, result.messages.delivered), (40, 40));
        assert!(result.figures.delivered_per_second.is_some());
        assert!(result.reproduce.contains(&format!(" --url {} --metrics ", outside.url)), "{}", result.reproduce);
    }
}

#[test]
fn unreadable_figures_of_a_foreign_process_are_absent_and_not_zero() {
    let checkout = Checkout::new();
    let service = StartedByTest::start(&checkout, "honest", "honest");
    assert_eq!(checkout.run(&service.run("fake")).status.code(), Some(0));
    let result = &checkout.results()[0];
    for reading in [&result.service.before, &result.service.window_start, &result.service.window_end] {
        let reading = reading.as_ref().unwrap();
        assert_eq!((reading.pid, reading.cpu_ns, reading.rss_bytes, reading.cpu_limit), (None, None, None, None));
    }
    let figures = &result.figures;
    assert_eq!((figures.service_cpu_seconds, figures.service_cpu_share), (None, None));
    assert_eq!((figures.service_cpu_seconds_per_million, figures.service_rss_bytes), (None, None));
    assert_eq!((figures.service_bytes_per_connection, result.bound_by), (None, None));
}

#[test]
fn the_evidence_agents_readings_of_a_foreign_process_are_in_its_results() {
    let checkout = Checkout::new();
    let service = StartedByTest::start(&checkout, "honest", "honest");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let evidence = listener.local_addr().unwrap().to_string();
    serve_usage(listener, service.started.pid);
    let output = checkout.run(&format!("{} --evidence {evidence}", service.run("fake")));
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let run = checkout.run_file();
    assert_eq!(run.outside.unwrap().evidence_address.as_deref(), Some(evidence.as_str()));
    assert!(run.cpu_roles["service"].ends_with(&format!("CPU and memory are reported by http://{evidence}")));
    let result = &checkout.results()[0];
    let reading = result.service.window_end.as_ref().unwrap();
    assert_eq!((reading.pid, reading.cpu_limit), (Some(service.started.pid), Some(1.0)));
    assert!(result.figures.service_cpu_seconds.is_some() && result.figures.service_rss_bytes > Some(100_000));
    assert!(result.reproduce.contains(&format!(" --evidence {evidence} ")), "{}", result.reproduce);
}

#[test]
fn a_missing_evidence_agent_is_reported_before_the_run_starts() {
    let checkout = Checkout::new();
    let service = StartedByTest::start(&checkout, "honest", "honest");
    let free = free_address();
    let found = refused(&checkout, &format!("{} --evidence {free}", service.run("fake")));
    assert!(found.contains(&format!("failed to get http://{free}/usage from the evidence container")), "{found}");
    assert!(found.contains("is `ladder evidence` started there"), "{found}");
}

#[test]
fn ladder_waits_for_a_starting_process() {
    let checkout = Checkout::new();
    let service = StartedByTest::start(&checkout, "honest", "honest");
    // The evidence agent starts only after `ladder` has tried to reach it.
    let evidence = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = evidence.local_addr().unwrap();
    let mut ladder = checkout.start(&format!("{} --evidence {address} --wait 60", service.run("fake")));
    let (mut early, _) = evidence.accept().unwrap();
    early.write_all(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
    drop(early);
    serve_usage(evidence, service.started.pid);
    assert_eq!(ladder.wait().unwrap().code(), Some(0));
    assert_eq!(checkout.run_file().outside.unwrap().evidence_address, Some(address.to_string()));
}

#[test]
fn a_foreign_service_that_lies_is_invalid() {
    let checkout = Checkout::new();
    let service = StartedByTest::start(&checkout, "honest", "liar");
    let output = checkout.run(&service.run("fake"));
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let Validity::Invalid { reasons } = &checkout.results()[0].validity else { panic!("valid") };
    assert_eq!(reasons[0].kind, ReasonKind::Unaccounted);
}

#[test]
fn when_a_foreign_service_dies_its_trial_is_invalid_and_the_next_one_has_the_reason() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 2\n", "");
    let service = StartedByTest::start(&checkout, "honest", "dies");
    let output = checkout.run(&service.run("fake"));
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let run = checkout.run_file();
    let Validity::Invalid { reasons } = &checkout.result(&run.trials[0].trial).validity else { panic!("valid") };
    assert!(reasons.iter().any(|reason| reason.kind == ReasonKind::Conformance), "{reasons:?}");
    let TrialState::Failed { reason } = &run.trials[1].state else { panic!("{:?}", run.trials[1]) };
    assert!(reason.starts_with("failed to get /stats from the service"), "{reason}");
}

#[test]
fn an_address_without_listener_is_named_before_the_run_starts() {
    let checkout = Checkout::new();
    let free = free_address();
    let found = refused(&checkout, &format!("run honest-plan --run-id r --url ws://{free} --metrics {free}"));
    assert!(found.contains("\"honest-plan\" is neither a plan"), "{found}");
    let found = refused(&checkout, &format!("run fake --run-id r --url ws://{free} --metrics {free}"));
    assert!(found.contains(&format!("failed to reach ws://{free}/: Connection refused")), "{found}");
    let found = refused(&checkout, &format!("run fake --run-id r --url ws://{free}"));
    assert!(found.contains(&format!("no process listens at {free}; give --metrics HOST:PORT")), "{found}");
}

#[test]
fn a_service_without_readable_counters_is_not_climbed() {
    let checkout = Checkout::new();
    let service = StartedByTest::start(&checkout, "honest", "honest");
    let (address, free) = (&service.started.address, free_address());
    let found = refused(&checkout, &format!("run fake --run-id r --url ws://{address} --metrics {free}"));
    assert!(found.contains(&format!("failed to read the counters of ws://{address}/ at http://{free}")), "{found}");
    // The service has a single port for everything, so there is no other port to find.
    let found = refused(&checkout, &format!("run fake --run-id r --url ws://{address}"));
    assert!(found.contains("serves /stats as the contract requires"), "{found}");
}

#[test]
fn another_service_at_the_address_is_not_measured_under_a_wrong_name() {
    let checkout = Checkout::new();
    let service = StartedByTest::start(&checkout, "other", "honest");
    let found = refused(&checkout, &service.run("fake"));
    assert!(found.contains("name the service other, not honest; give --service other"), "{found}");
}

#[test]
fn contradictory_flags_are_errors_with_the_remedy() {
    let checkout = Checkout::new();
    checkout.plan("two", "services: [honest, liar]\n", "");
    checkout.plan("with-env", "services: [honest]\n", "  service_env: {DELIVERY: dict}\n");
    for (arguments, expected) in [
        ("run fake --url http://127.0.0.1:1 --metrics 127.0.0.1:2", "\"http\" is not WebSocket's scheme; give ws://"),
        ("run fake --url wss://127.0.0.1:1 --metrics 127.0.0.1:2", "TLS is not supported"),
        ("run fake --url ws://127.0.0.1:1/elsewhere --metrics 127.0.0.1:2", "have no endpoint at /elsewhere"),
        ("run fake --url ws://127.0.0.1:1 --metrics here", "--metrics here: no address; give HOST:PORT"),
        ("run two --url ws://127.0.0.1:1 --metrics 127.0.0.1:2", "climbs honest, liar; name one with --service"),
        (
            "run with-env --url ws://127.0.0.1:1 --metrics 127.0.0.1:2",
            "its service_env can't be applied to a service that already runs",
        ),
        ("run fake --metrics 127.0.0.1:2", "--url <URL>"),
        ("run --resume r --url ws://127.0.0.1:1", "cannot be used with"),
    ] {
        let found = refused(&checkout, &format!("{arguments} --no-report"));
        assert!(found.contains(expected), "{arguments}: {found}");
    }
}

#[test]
fn an_interrupted_climb_of_a_foreign_service_is_resumed_at_its_address() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 2\n", "  window_seconds: 1\n");
    let service = StartedByTest::start(&checkout, "honest", "honest");
    let mut ladder = checkout.start(&service.run("fake"));
    let log = checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1/result.json");
    wait_for("the first trial", || fs::exists(&log).unwrap());
    kill_process(Pid::from_raw(ladder.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(ladder.wait().unwrap().code(), Some(130));
    assert!(is_alive(service.started.pid));
    let output = checkout.run("run --resume r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert_eq!(checkout.run_file().state, RunState::Finished);
    drop(service);
    let output = checkout.run("run --resume r --no-report");
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    assert!(output_text(&output).contains("failed to reach ws://"), "{}", output_text(&output));
}
