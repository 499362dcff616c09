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

use crate::run::{Checked, Run, Tries, checkout, ensure, programs, reasons, sound, start_with};

const PLAN: &str = "plans/self-test/outside.yaml";

/// A program that the test started. It is killed when this is dropped.
pub(crate) struct ByHand {
    child: Child,
    pub(crate) started: Started,
}

impl ByHand {
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
        let ready = lines.find(|line| line.starts_with('{')).expect("it says that it is ready");
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

    fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for ByHand {
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
fn a_gateway_that_runs_already_is_found_with_its_counters_and_climbed() {
    let inference = ByHand::inference();
    let mut gateway = ByHand::gateway(&inference.started.address, "4");
    let url = gateway.url("/ws/stt");
    let mut tries = Tries::with(|| climb("rust-axum", &url, "4"));
    let (result, run) = tries.trial("rust-axum", "standard");
    assert_eq!((check(&result), run.exit), (Ok(()), Some(0)), "\n{}", run.output);
    let counters = format!("its counters are at http://{}", gateway.started.metrics_address);
    assert!(run.output.contains(&counters), "{}", run.output);
    assert!(gateway.lives(), "ladder stopped what it had not started");
}

#[test]
fn a_wse_service_that_runs_already_is_climbed_by_the_same_books() {
    // The secret with which the workers sign. Without it, a service could not detect a forged token and would fail the
    // protocol check.
    let secret = env::var("WSE_BENCH_SECRET").unwrap_or_else(|_| "bench-secret-key-for-testing-only".into());
    let mut service = ByHand::start("self-test-service", &["--flaw", "none"], &[("JWT_SECRET", &secret)]);
    let url = service.url("/wse");
    let mut tries = Tries::with(|| climb("self-test-none", &url, "4"));
    let (result, run) = tries.trial("self-test-none", "standard");
    assert_eq!((check(&result), run.exit), (Ok(()), Some(0)), "\n{}", run.output);
    assert!(service.lives(), "ladder stopped what it had not started");
}

#[test]
fn a_gateway_with_other_passes_than_the_workers_expect_is_not_called_right() {
    let inference = ByHand::inference();
    let gateway = ByHand::gateway(&inference.started.address, "2");
    let run = climb("rust-axum", &gateway.url(""), "4");
    let wrong = run.trial("rust-axum", "standard");
    assert!(wrong.failures.window.contains_key("content/cpu_passes"), "{:?}", wrong.failures);
    assert!(check(&wrong).is_err() && run.exit != Some(0), "{}", run.output);
    let mut tries = Tries::with(|| climb("rust-axum", &gateway.url(""), "2"));
    let (right, run) = tries.trial("rust-axum", "standard");
    assert_eq!(check(&right), Ok(()), "\n{}", run.output);
}

#[test]
fn a_gateway_without_inference_is_reported_and_never_passes() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut gateway = ByHand::gateway(&nowhere.to_string(), "4");
    let run = climb("rust-axum", &gateway.url("/ws/stt"), "4");
    let result = run.trial("rust-axum", "standard");
    let refused = result.failures.window.get("inference_request/connection_reset").copied().unwrap_or(0);
    assert!(refused > 0, "{:?}", result.failures);
    assert!(result.books.balance(), "errors are outcomes: {:?}", result.books);
    assert!(reasons(&result).contains(&ReasonKind::Conformance), "{:?}", result.validity);
    assert_eq!(run.exit, Some(2), "{}", run.output);
    assert!(run.output.contains("failed its protocol check before the load"), "{}", run.output);
    assert!(gateway.lives());
}

#[test]
fn workers_expect_the_passes_that_the_plan_gives_to_its_gateway() {
    let mut tries = Tries::of("stt-passes");
    for variant in ["two", "standard"] {
        let (result, run) = tries.trial("self-test-gateway-none", variant);
        assert_eq!(result.validity, Validity::Valid, "{variant}\n{}", run.output);
        let messages = &result.messages;
        assert!(messages.delivered > 0 && messages.wrong == 0, "{variant}: {messages:?}");
        assert!(result.failures == Default::default(), "{variant}: {:?}", result.failures);
    }
}
