//! The golden messages: client messages over a real socket, responses of the inference, and partials and errors byte
//! for byte.

mod service;

use rust_sync::protocol::messages::{
    Circumstances, Cover, Echo, Failure, Kind, Recognised, Stage, put_error, put_partial,
};
use serde::Deserialize;
use serde_json::Value;
use service::{Act, Frame, Gateway, Inference, answer};

#[derive(Deserialize)]
struct Golden {
    schema: u32,
    client: Vec<Said>,
    inference: Vec<Answered>,
    partial: Vec<Told<PartialOf>>,
    error: Vec<Told<Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
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
struct Answered {
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
struct Told<T> {
    name: String,
    of: T,
    text: String,
}

#[derive(Deserialize)]
struct PartialOf {
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

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn client_messages_are_classified_as_specified() {
    let inference = Inference::right();
    let gateway = Gateway::start(&inference.url, &[("FLUSH_INTERVAL_MS", "50")]);
    for case_of in golden().client {
        let mut client = if case_of.state == "first" { gateway.connect() } else { gateway.session() };
        match (&case_of.text, &case_of.binary, case_of.zeros, &case_of.wire) {
            (Some(text), None, None, None) => client.text(text),
            (None, Some(hex), None, None) => client.binary(&bytes_of(hex)),
            (None, None, Some(zeros), None) => client.binary(&vec![0; zeros]),
            (None, None, None, Some(hex)) => client.raw(&bytes_of(hex)),
            _ => panic!("{}: said in one way", case_of.name),
        }
        // If a message has no effect, the message after it must be handled normally.
        match case_of.means.as_str() {
            "start" => client.audio([1]),
            "frame" => {}
            "nothing" => client.ping(b"after"),
            "pong" | "close" => {}
            other => panic!("{}: means {other}", case_of.name),
        }
        // The reply to a ping between two fragments comes first.
        let mut next = client.next();
        if case_of.name.contains("around a ping") {
            assert_eq!(next, Frame::Pong(Vec::new()), "{}", case_of.name);
            next = client.next();
        }
        match (case_of.means.as_str(), next) {
            ("start" | "frame", Frame::Text(text)) => assert!(text.contains(r#""type":"partial""#), "{}", case_of.name),
            ("nothing", next) => assert_eq!(next, Frame::Pong(b"after".into()), "{}", case_of.name),
            ("pong", next) => {
                assert_eq!(next, Frame::Pong(bytes_of(case_of.hex.as_ref().unwrap())), "{}", case_of.name)
            }
            ("close", Frame::Close(code, reason)) => {
                assert_eq!(code, case_of.code, "{}", case_of.name);
                assert!(case_of.reason.is_none_or(|wanted| wanted == reason), "{}: {reason}", case_of.name);
                assert_eq!(client.next(), Frame::End, "{}", case_of.name);
            }
            (means, next) => panic!("{}: {next:?} doesn't mean {means}", case_of.name),
        }
    }
}

#[test]
fn inference_responses_become_partials_or_the_matching_error() {
    for case_of in golden().inference {
        let outcome = match Failure::of_status(case_of.status) {
            Some(failure) => Err(failure),
            None => Recognised::parse(case_of.body.as_bytes(), case_of.frames, case_of.cpu_passes).map_err(|message| {
                Failure { inference_status: Some(case_of.status), ..Failure::new(Kind::ParseError, message) }
            }),
        };
        match outcome {
            Ok(_) => assert_eq!(case_of.means, "partial", "{}", case_of.name),
            Err(failure) => {
                let text = |value: Value| value.as_str().unwrap().to_owned();
                let stage = text(serde_json::to_value::<Stage>(failure.stage()).unwrap());
                let kind = text(serde_json::to_value(failure.kind).unwrap());
                let reported = (Some(stage), Some(kind), failure.inference_status, Some(failure.is_retryable()));
                assert_eq!(
                    reported,
                    (case_of.stage, case_of.kind, case_of.inference_status, case_of.retryable),
                    "{}",
                    case_of.name
                );
            }
        }
    }
}

#[test]
fn partials_are_the_same_bytes() {
    for reported in golden().partial {
        let PartialOf { oldest_frame_seq, frames, cpu_passes, model_delay_ms, flush_lateness_ms, body } = reported.of;
        let found = Recognised::parse(body.as_bytes(), frames, cpu_passes).unwrap();
        let (cover, echo) = (Cover { oldest_frame_seq, frames }, Echo { cpu_passes, model_delay_ms });
        let mut out = Vec::new();
        put_partial(&mut out, cover, &found, echo, flush_lateness_ms);
        assert_eq!(String::from_utf8(out).unwrap(), reported.text, "{}", reported.name);
    }
}

#[test]
fn errors_are_the_same_bytes() {
    for reported in golden().error {
        let of = |name: &str| reported.of[name].clone();
        let kind = match of("kind").as_str().unwrap() {
            "timeout" => Kind::Timeout,
            "http_5xx" => Kind::Http5xx,
            "overflow" => Kind::Overflow,
            other => panic!("{}: {other}", reported.name),
        };
        let inference_status = of("inference_status").as_u64().map(|status| status as u16);
        let failure = Failure { kind, message: of("message").as_str().unwrap().into(), inference_status };
        let (whole, time) = (|name: &str| of(name).as_u64().unwrap(), |name: &str| of(name).as_f64());
        let circumstances = Circumstances {
            oldest_age_ms: time("oldest_age_ms").unwrap(),
            newest_age_ms: time("newest_age_ms").unwrap(),
            flush_lateness_ms: time("flush_lateness_ms").unwrap(),
            inference_elapsed_ms: time("inference_elapsed_ms"),
            inflight_gateway_batches: whole("inflight_gateway_batches"),
            gateway_buffer_frames: whole("gateway_buffer_frames"),
        };
        let cover = Cover { oldest_frame_seq: whole("oldest_frame_seq"), frames: whole("frames") };
        let mut out = Vec::new();
        put_error(&mut out, cover, &failure, &circumstances);
        assert_eq!(String::from_utf8(out).unwrap(), reported.text, "{}", reported.name);
    }
}

#[test]
fn an_answer_is_passed_on_unchanged() {
    let inference = Inference::start(|asked| Act::Send(answer(&asked.body)));
    let settings = [("FLUSH_INTERVAL_MS", "50"), ("MODEL_DELAY_MS", "123")];
    let gateway = Gateway::start(&inference.url, &settings);
    let mut client = gateway.session();
    client.audio([1]);
    let Frame::Text(text) = client.next() else { panic!("a partial was due") };
    let lateness = text.split("flush_lateness_ms\":").nth(1).unwrap().split(',').next().unwrap();
    let checksum = u16::from_le_bytes([inference.asked()[0].body[0], inference.asked()[0].body[1]]);
    assert_eq!(
        text,
        format!(
            r#"{{"type":"partial","oldest_frame_seq":1,"newest_frame_seq":1,"frames":1,"rms":1.5,"zero_crossings":7,"checksum":{checksum},"samples":1280,"transcript":"now","audio_bytes":640,"cpu_passes":4,"model_delay_ms":123,"flush_lateness_ms":{lateness},"inflight_model_jobs":0}}"#
        )
    );
    assert!(lateness.parse::<f64>().unwrap() >= 0.0);
}
