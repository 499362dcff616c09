//! Tests of services that ladder did not start, of both protocols, with the real worker programs; and of a gateway with
//! other passes than its workers expect, or without inference.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use bench_format::{
    result::{ReasonKind, TrialResult, Validity},
    service::Started,
};

use crate::run::{Attempts, Checked, Run, checkout, ensure, programs, reasons, sound, start_with};

const PLAN: &str = "plans/self-test/outside.yaml";

/// A program that the test started. It is killed when this is dropped.
pub(crate) struct StartedByTest {
    child: Child,
    pub(crate) started: Started,
}

impl StartedByTest {
    pub(crate) fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(programs().join(program))
            .args(arguments)
            .envs([("PORT", "0"), ("METRICS_PORT", "0")])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = lines.find(|line| line.starts_with('{')).expect("no ready line");
        Self { child, started: serde_json::from_str(&ready).unwrap() }
    }

    fn inference() -> Self {
        Self::start("inference-sim", &["--port", "0"], &[("MODEL_MAX_CONCURRENT", "65536"), ("MODEL_DELAY_MS", "20")])
    }

    /// A gateway in front of an inference service, with this number of passes over the audio.
    fn gateway(inference: &str, passes: &str) -> Self {
        let url = format!("http://{inference}");
        let jitter = ("FLUSH_PHASE_JITTER_MS", "1000");
        Self::start("rust-axum", &[], &[("INFERENCE_URL", &url), ("CPU_PASSES", passes), jitter])
    }

    fn url(&self, path: &str) -> String {
        format!("ws://{}{path}", self.started.address)
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for StartedByTest {
    fn drop(&mut self) {
        // Both calls fail when the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Climbs a service at an address; `ladder` and its workers get this number of passes.
fn climb(service: &str, url: &str, passes: &str) -> Run {
    start_with(&checkout(), PLAN, &["--service", service, "--url", url], &[("CPU_PASSES", passes)]).finish()
}

/// Valid and passed, with all messages accounted for, and without figures that could not be read.
fn check(result: &TrialResult) -> Checked {
    sound(result)?;
    ensure(result.verdict.as_ref().is_some_and(|verdict| verdict.passed), || format!("{:?}", result.verdict))?;
    let messages = &result.messages;
    ensure(messages.sent > 0 && messages.delivered == messages.sent, || format!("not all arrived: {messages:?}"))?;
    let figures = &result.figures;
    ensure(figures.service_cpu_seconds.is_none() && figures.service_rss_bytes.is_none(), || format!("{figures:?}"))?;
    ensure(result.bound_by.is_none(), || format!("{:?}", result.bound_by))
}

#[test]
fn a_running_gateway_is_climbed_with_the_counters_that_ladder_finds() {
    let inference = StartedByTest::inference();
    let mut gateway = StartedByTest::gateway(&inference.started.address, "4");
    let url = gateway.url("/ws/stt");
    let mut attempts = Attempts::with(|| climb("rust-axum", &url, "4"));
    let (result, run) = attempts.trial("rust-axum", "standard");
    assert_eq!((check(&result), run.exit), (Ok(()), Some(0)), "\n{}", run.output);
    let counters = format!("counters: http://{}", gateway.started.metrics_address);
    assert!(run.output.contains(&counters), "{}", run.output);
    assert!(gateway.is_running(), "ladder stopped a service that it did not start");
}

#[test]
fn a_running_wse_service_is_climbed_with_the_same_books() {
    // The secret with which the workers sign. Without it, a service could not detect a forged token and would fail the
    // protocol check.
    let secret = env::var("WSE_BENCH_SECRET").unwrap_or_else(|_| "bench-secret-key-for-testing-only".into());
    let mut service = StartedByTest::start("self-test-service", &["--flaw", "none"], &[("JWT_SECRET", &secret)]);
    let url = service.url("/wse");
    let mut attempts = Attempts::with(|| climb("self-test-none", &url, "4"));
    let (result, run) = attempts.trial("self-test-none", "standard");
    assert_eq!((check(&result), run.exit), (Ok(()), Some(0)), "\n{}", run.output);
    assert!(service.is_running(), "ladder stopped a service that it did not start");
}

#[test]
fn a_gateway_with_unexpected_passes_is_reported_as_wrong() {
    let inference = StartedByTest::inference();
    let gateway = StartedByTest::gateway(&inference.started.address, "2");
    let run = climb("rust-axum", &gateway.url(""), "4");
    let wrong = run.trial("rust-axum", "standard");
    assert!(wrong.failures.window.contains_key("content/cpu_passes"), "{:?}", wrong.failures);
    assert!(check(&wrong).is_err() && run.exit != Some(0), "{}", run.output);
    let mut attempts = Attempts::with(|| climb("rust-axum", &gateway.url(""), "2"));
    let (right, run) = attempts.trial("rust-axum", "standard");
    assert_eq!(check(&right), Ok(()), "\n{}", run.output);
}

#[test]
fn a_gateway_without_inference_fails_its_protocol_check() {
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut gateway = StartedByTest::gateway(&unused_address.to_string(), "4");
    let run = climb("rust-axum", &gateway.url("/ws/stt"), "4");
    let result = run.trial("rust-axum", "standard");
    let refused = result.failures.window.get("inference_request/connection_reset").copied().unwrap_or(0);
    assert!(refused > 0, "{:?}", result.failures);
    assert!(result.books.balance(), "errors are outcomes: {:?}", result.books);
    assert!(reasons(&result).contains(&ReasonKind::Conformance), "{:?}", result.validity);
    assert_eq!(run.exit, Some(2), "{}", run.output);
    assert!(run.output.contains("failed its protocol check before the load"), "{}", run.output);
    assert!(gateway.is_running());
}

#[test]
fn workers_expect_the_passes_that_the_plan_sets_for_the_gateway() {
    let mut attempts = Attempts::of("stt-passes");
    for variant in ["two", "standard"] {
        let (result, run) = attempts.trial("self-test-gateway-none", variant);
        assert_eq!(result.validity, Validity::Valid, "{variant}\n{}", run.output);
        let messages = &result.messages;
        assert!(messages.delivered > 0 && messages.wrong == 0, "{variant}: {messages:?}");
        assert!(result.failures == Default::default(), "{variant}: {:?}", result.failures);
    }
}
