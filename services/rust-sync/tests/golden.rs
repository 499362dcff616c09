//! The golden messages: client messages over a real socket, responses of the inference, and partials and errors byte
//! for byte.

mod service;

use rust_sync::protocol::messages::{
    EchoedSettings, ErrorContext, Failure, Kind, Recognised, Span, Stage, put_error, put_partial,
};
use serde::Deserialize;
use serde_json::Value;
use service::{Frame, Gateway, Inference, Reply, response};

#[derive(Deserialize)]
struct Golden {
    schema: u32,
    client: Vec<ClientMessage>,
    inference: Vec<InferenceResponse>,
    partial: Vec<ExpectedOutput<PartialInput>>,
    error: Vec<ExpectedOutput<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientMessage {
    name: String,
    state: String,
    means: String,
    text: Option<String>,
    binary: Option<String>,
    zeros: Option<usize>,
    wire: Option<String>,
    hex: Option<String>,
    code: Option<u16>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct InferenceResponse {
    name: String,
    status: u16,
    body: String,
    frames: u64,
    cpu_passes: u32,
    means: String,
    stage: Option<String>,
    kind: Option<String>,
    inference_status: Option<u16>,
    retryable: Option<bool>,
}

#[derive(Deserialize)]
struct ExpectedOutput<T> {
    name: String,
    of: T,
    text: String,
}

#[derive(Deserialize)]
struct PartialInput {
    oldest_frame_seq: u64,
    frames: u64,
    cpu_passes: u32,
    model_delay_ms: u64,
    flush_lateness_ms: f64,
    body: String,
}

fn golden() -> Golden {
    let golden: Golden = serde_json::from_str(include_str!("../../testdata/stt-messages.json")).unwrap();
    assert_eq!(golden.schema, 1);
    golden
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn client_messages_are_classified_as_specified() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[("FLUSH_INTERVAL_MS", "50")]);
    for case in golden().client {
        let mut client = if case.state == "first" { gateway.connect() } else { gateway.session() };
        match (&case.text, &case.binary, case.zeros, &case.wire) {
            (Some(text), None, None, None) => client.text(text),
            (None, Some(hex), None, None) => client.binary(&from_hex(hex)),
            (None, None, Some(zeros), None) => client.binary(&vec![0; zeros]),
            (None, None, None, Some(hex)) => client.raw(&from_hex(hex)),
            _ => panic!("{}: exactly one of text, binary, zeros and wire", case.name),
        }
        // If a message has no effect, the message after it must be handled normally.
        match case.means.as_str() {
            "start" => client.audio([1]),
            "frame" => {}
            "nothing" => client.ping(b"after"),
            "pong" | "close" => {}
            other => panic!("{}: means {other}", case.name),
        }
        // The reply to a ping between two fragments comes first.
        let mut next = client.next();
        if case.name.contains("around a ping") {
            assert_eq!(next, Frame::Pong(Vec::new()), "{}", case.name);
            next = client.next();
        }
        match (case.means.as_str(), next) {
            ("start" | "frame", Frame::Text(text)) => assert!(text.contains(r#""type":"partial""#), "{}", case.name),
            ("nothing", next) => assert_eq!(next, Frame::Pong(b"after".into()), "{}", case.name),
            ("pong", next) => {
                assert_eq!(next, Frame::Pong(from_hex(case.hex.as_ref().unwrap())), "{}", case.name)
            }
            ("close", Frame::Close(code, reason)) => {
                assert_eq!(code, case.code, "{}", case.name);
                assert!(case.reason.is_none_or(|expected| expected == reason), "{}: {reason}", case.name);
                assert_eq!(client.next(), Frame::End, "{}", case.name);
            }
            (means, next) => panic!("{}: {next:?} doesn't mean {means}", case.name),
        }
    }
}

#[test]
fn inference_responses_become_partials_or_the_matching_error() {
    for case in golden().inference {
        let outcome = match Failure::of_status(case.status) {
            Some(failure) => Err(failure),
            None => Recognised::parse(case.body.as_bytes(), case.frames, case.cpu_passes).map_err(|message| Failure {
                inference_status: Some(case.status),
                ..Failure::new(Kind::ParseError, message)
            }),
        };
        match outcome {
            Ok(_) => assert_eq!(case.means, "partial", "{}", case.name),
            Err(failure) => {
                let text = |value: Value| value.as_str().unwrap().to_owned();
                let stage = text(serde_json::to_value::<Stage>(failure.stage()).unwrap());
                let kind = text(serde_json::to_value(failure.kind).unwrap());
                let actual = (Some(stage), Some(kind), failure.inference_status, Some(failure.is_retryable()));
                assert_eq!(actual, (case.stage, case.kind, case.inference_status, case.retryable), "{}", case.name);
            }
        }
    }
}

#[test]
fn partials_are_the_same_bytes() {
    for case in golden().partial {
        let PartialInput { oldest_frame_seq, frames, cpu_passes, model_delay_ms, flush_lateness_ms, body } = case.of;
        let recognition = Recognised::parse(body.as_bytes(), frames, cpu_passes).unwrap();
        let (span, echo) = (Span { oldest_frame_seq, frames }, EchoedSettings { cpu_passes, model_delay_ms });
        let mut out = Vec::new();
        put_partial(&mut out, span, &recognition, echo, flush_lateness_ms);
        assert_eq!(String::from_utf8(out).unwrap(), case.text, "{}", case.name);
    }
}

#[test]
fn errors_are_the_same_bytes() {
    for case in golden().error {
        let of = |name: &str| case.of[name].clone();
        let kind = match of("kind").as_str().unwrap() {
            "timeout" => Kind::Timeout,
            "http_5xx" => Kind::Http5xx,
            "overflow" => Kind::Overflow,
            other => panic!("{}: {other}", case.name),
        };
        let inference_status = of("inference_status").as_u64().map(|status| status as u16);
        let failure = Failure { kind, message: of("message").as_str().unwrap().into(), inference_status };
        let (integer, time) = (|name: &str| of(name).as_u64().unwrap(), |name: &str| of(name).as_f64());
        let context = ErrorContext {
            oldest_age_ms: time("oldest_age_ms").unwrap(),
            newest_age_ms: time("newest_age_ms").unwrap(),
            flush_lateness_ms: time("flush_lateness_ms").unwrap(),
            inference_elapsed_ms: time("inference_elapsed_ms"),
            inflight_gateway_batches: integer("inflight_gateway_batches"),
            gateway_buffer_frames: integer("gateway_buffer_frames"),
        };
        let span = Span { oldest_frame_seq: integer("oldest_frame_seq"), frames: integer("frames") };
        let mut out = Vec::new();
        put_error(&mut out, span, &failure, &context);
        assert_eq!(String::from_utf8(out).unwrap(), case.text, "{}", case.name);
    }
}

#[test]
fn an_answer_is_passed_on_unchanged() {
    let inference = Inference::start(|request| Reply::Send(response(&request.body)));
    let settings = [("FLUSH_INTERVAL_MS", "50"), ("MODEL_DELAY_MS", "123")];
    let gateway = Gateway::start(&inference.url, &settings);
    let mut client = gateway.session();
    client.audio([1]);
    let Frame::Text(text) = client.next() else { panic!("a partial was due") };
    let lateness = text.split("flush_lateness_ms\":").nth(1).unwrap().split(',').next().unwrap();
    let checksum = u16::from_le_bytes([inference.requests()[0].body[0], inference.requests()[0].body[1]]);
    assert_eq!(
        text,
        format!(
            r#"{{"type":"partial","oldest_frame_seq":1,"newest_frame_seq":1,"frames":1,"rms":1.5,"zero_crossings":7,"checksum":{checksum},"samples":1280,"transcript":"now","audio_bytes":640,"cpu_passes":4,"model_delay_ms":123,"flush_lateness_ms":{lateness},"inflight_model_jobs":0}}"#
        )
    );
    assert!(lateness.parse::<f64>().unwrap() >= 0.0);
}
