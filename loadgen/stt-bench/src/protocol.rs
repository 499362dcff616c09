//! The gateways' messages, parsed strictly: exactly the known keys, integers as integers, and no impossible values.
//!
//! Pure. A gateway that sends anything else violates the protocol, and the session ends.

use std::borrow::Cow;

use serde::Deserialize;

/// Path of the upgrade request.
pub const PATH: &str = "/ws/stt";
/// The first message of a session, which the client sends.
pub const START: &[u8] = br#"{"type":"start"}"#;

/// A text message of a gateway.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// The transcript of a batch of frames.
    Partial(Partial<'a>),
    /// The report that a batch of frames was dropped.
    Error(ErrorFrame<'a>),
}

/// The answer to a batch of frames.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partial<'a> {
    #[serde(rename = "type")]
    _type: PartialType,
    /// First frame of the batch; frames count from 1.
    pub oldest_frame_seq: u64,
    /// Last frame of the batch.
    pub newest_frame_seq: u64,
    /// Frames in the batch.
    pub frames: u64,
    /// Root mean square of the samples, from inference.
    pub rms: f64,
    /// Sign changes between samples, from inference.
    pub zero_crossings: u64,
    /// Checksum of the samples, from inference.
    pub checksum: u32,
    /// Samples over all passes, from inference.
    pub samples: u64,
    /// The transcript, from inference; never empty.
    #[serde(borrow)]
    pub transcript: Cow<'a, str>,
    /// Bytes of audio, from inference.
    pub audio_bytes: u64,
    /// Passes over the audio that the gateway requested.
    pub cpu_passes: u32,
    /// The gateway's setting for the model's delay, in milliseconds.
    pub model_delay_ms: u64,
    /// How late the gateway's flush was by its own clock, in milliseconds.
    pub flush_lateness_ms: f64,
    /// Requests to inference in flight, as the gateway counts them.
    pub inflight_model_jobs: u64,
}

impl Partial<'_> {
    /// The same partial, with a transcript that it owns.
    pub(crate) fn into_owned(self) -> Partial<'static> {
        Partial { transcript: Cow::Owned(self.transcript.into_owned()), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PartialType {
    Partial,
}

/// The report that a batch of frames was dropped: these frames get no partial.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorFrame<'a> {
    #[serde(rename = "type")]
    _type: ErrorType,
    /// The part of the gateway in which the error occurred; a gateway's name for it.
    #[serde(borrow)]
    pub stage: Cow<'a, str>,
    /// The kind of the error, by which dropped frames are counted.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// Description for a reader; in no fixed form.
    #[serde(borrow)]
    pub message: Cow<'a, str>,
    /// First frame of the batch.
    pub oldest_frame_seq: u64,
    /// Last frame of the batch.
    pub newest_frame_seq: u64,
    /// Frames in the batch.
    pub frames: u64,
    /// Bytes of audio in the batch.
    pub audio_bytes: u64,
    /// Age of the first frame since the gateway received it, in milliseconds.
    pub oldest_age_ms: f64,
    /// Age of the last frame since the gateway received it, in milliseconds.
    pub newest_age_ms: f64,
    /// How late the gateway's flush was by its own clock, in milliseconds.
    pub flush_lateness_ms: f64,
    /// Duration of the request to inference, in milliseconds; absent when there was none.
    #[serde(default)]
    pub inference_elapsed_ms: Option<f64>,
    /// Batches of the gateway in flight.
    pub inflight_gateway_batches: u64,
    /// Frames that the gateway has buffered.
    pub gateway_buffer_frames: u64,
    /// HTTP status from inference; absent when there was none.
    #[serde(default)]
    pub inference_status: Option<u16>,
    /// Whether a later request may succeed.
    pub retryable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ErrorType {
    Error,
}

/// Why a text is not a message of the protocol.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// The JSON is neither of the two messages.
    #[error("not a message of the protocol: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A key (first) with a value that can't be right.
    #[error("{0} can't be {1}")]
    Impossible(&'static str, String),
}

/// Parses a text message.
///
/// # Errors
/// [`Violation::Malformed`] when the JSON is neither message, [`Violation::Impossible`] when a range of frames, a count
/// or a number can't be right.
pub fn parse(text: &[u8]) -> Result<Message<'_>, Violation> {
    match serde_json::from_slice(text) {
        Ok(partial) => check_partial(partial).map(Message::Partial),
        // Error frames are rare, so parsing twice costs nothing where it matters.
        Err(no_partial) => match serde_json::from_slice(text) {
            Ok(error) => check_error(error).map(Message::Error),
            Err(no_error) if claims_error(text) => Err(no_error.into()),
            Err(_) => Err(no_partial.into()),
        },
    }
}

fn check_partial(partial: Partial<'_>) -> Result<Partial<'_>, Violation> {
    check_range(partial.oldest_frame_seq, partial.newest_frame_seq)?;
    for (name, value) in
        [("frames", partial.frames), ("samples", partial.samples), ("audio_bytes", partial.audio_bytes)]
    {
        if value == 0 {
            return Err(Violation::Impossible(name, "0".into()));
        }
    }
    if partial.transcript.is_empty() {
        return Err(Violation::Impossible("transcript", "empty".into()));
    }
    check_not_negative([("rms", partial.rms), ("flush_lateness_ms", partial.flush_lateness_ms)])?;
    Ok(partial)
}

fn check_error(error: ErrorFrame<'_>) -> Result<ErrorFrame<'_>, Violation> {
    check_range(error.oldest_frame_seq, error.newest_frame_seq)?;
    if error.frames == 0 {
        return Err(Violation::Impossible("frames", "0".into()));
    }
    check_not_negative([
        ("oldest_age_ms", error.oldest_age_ms),
        ("newest_age_ms", error.newest_age_ms),
        ("flush_lateness_ms", error.flush_lateness_ms),
        ("inference_elapsed_ms", error.inference_elapsed_ms.unwrap_or(0.0)),
    ])?;
    Ok(error)
}

fn check_range(oldest: u64, newest: u64) -> Result<(), Violation> {
    match (oldest, newest) {
        (0, _) => Err(Violation::Impossible("oldest_frame_seq", "0".into())),
        _ if newest < oldest => {
            Err(Violation::Impossible("newest_frame_seq", format!("{newest} where the oldest is {oldest}")))
        }
        _ => Ok(()),
    }
}

fn check_not_negative<const N: usize>(values: [(&'static str, f64); N]) -> Result<(), Violation> {
    match values.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
        Some((name, value)) => Err(Violation::Impossible(name, value.to_string())),
        None => Ok(()),
    }
}

/// Whether the message's type is `error`: then the reason is that of an error frame.
fn claims_error(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Tag {
        #[serde(rename = "type")]
        _type: ErrorType,
    }
    serde_json::from_slice::<Tag>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn partial() -> Value {
        json!({
            "type": "partial", "oldest_frame_seq": 1, "newest_frame_seq": 50, "frames": 50, "rms": 5699.347243325326,
            "zero_crossings": 111, "checksum": 1_244_816_517_u32, "samples": 64_000, "transcript": "now",
            "audio_bytes": 32_000, "cpu_passes": 4, "model_delay_ms": 75, "flush_lateness_ms": 0.25,
            "inflight_model_jobs": 0
        })
    }

    fn error() -> Value {
        json!({
            "type": "error", "stage": "inference_request", "kind": "timeout", "message": "no answer in 2 s",
            "oldest_frame_seq": 51, "newest_frame_seq": 100, "frames": 50, "audio_bytes": 32_000, "oldest_age_ms": 3000.5,
            "newest_age_ms": 2000, "flush_lateness_ms": 0, "inference_elapsed_ms": null, "inflight_gateway_batches": 1,
            "gateway_buffer_frames": 100, "inference_status": null, "retryable": true
        })
    }

    fn with(mut message: Value, key: &str, value: Value) -> Vec<u8> {
        message[key] = value;
        message.to_string().into_bytes()
    }

    #[test]
    fn both_messages_are_read() {
        let text = partial().to_string();
        let Ok(Message::Partial(partial)) = parse(text.as_bytes()) else { panic!("{:?}", parse(text.as_bytes())) };
        assert_eq!((partial.newest_frame_seq, partial.checksum, &*partial.transcript), (50, 1_244_816_517, "now"));
        let text = error().to_string();
        let Ok(Message::Error(error)) = parse(text.as_bytes()) else { panic!("{:?}", parse(text.as_bytes())) };
        assert_eq!((&*error.stage, &*error.kind, error.inference_status), ("inference_request", "timeout", None));
    }

    #[test]
    fn the_golden_messages_of_gateways_are_read() {
        let golden: Value = serde_json::from_str(include_str!("../../../services/testdata/stt-messages.json")).unwrap();
        let texts = |list: &str| golden[list].as_array().unwrap().iter().map(|entry| entry["text"].as_str().unwrap());
        assert!(texts("partial").count() > 0 && texts("error").count() > 0);
        for text in texts("partial") {
            assert!(matches!(parse(text.as_bytes()), Ok(Message::Partial(_))), "{text}");
        }
        for text in texts("error") {
            assert!(matches!(parse(text.as_bytes()), Ok(Message::Error(_))), "{text}");
        }
    }

    #[test]
    fn every_key_is_needed_and_no_other_is_known() {
        for (message, optional) in [(partial(), &[][..]), (error(), &["inference_elapsed_ms", "inference_status"])] {
            for key in message.as_object().unwrap().keys() {
                let mut without = message.clone();
                without.as_object_mut().unwrap().remove(key);
                let kept = parse(without.to_string().as_bytes()).is_ok();
                assert_eq!(kept, optional.contains(&key.as_str()), "without {key}");
            }
            assert!(parse(&with(message, "more", json!(1))).is_err());
        }
    }

    #[test]
    fn contradictory_counts_are_refused() {
        for (key, value) in [
            ("frames", json!(0)),
            ("samples", json!(0)),
            ("audio_bytes", json!(0)),
            ("oldest_frame_seq", json!(0)),
            ("oldest_frame_seq", json!(51)),
            ("transcript", json!("")),
            ("flush_lateness_ms", json!(-0.5)),
            ("frames", json!(50.0)),
            ("checksum", json!(4_294_967_296_u64)),
            ("type", json!("final")),
        ] {
            let text = with(partial(), key, value.clone());
            assert!(parse(&text).is_err(), "{key} = {value}");
        }
        let endless = partial().to_string().replace("5699.347243325326", "1e999");
        assert!(parse(endless.as_bytes()).is_err());
        let twice = partial().to_string().replace("\"frames\":50", "\"frames\":50,\"frames\":50");
        assert!(parse(twice.as_bytes()).is_err());
        assert!(parse(format!("{} x", partial()).as_bytes()).is_err());
    }

    #[test]
    fn whole_numbers_are_floats_too() {
        assert!(parse(&with(partial(), "rms", json!(7))).is_ok());
    }

    #[test]
    fn a_malformed_error_frame_is_reported_as_malformed() {
        let reported = parse(&with(error(), "retryable", json!("yes"))).unwrap_err().to_string();
        assert!(reported.contains("boolean"), "{reported}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            let _ = parse(text.as_bytes());
        }

        #[test]
        fn any_valid_partial_is_parsed_unchanged(oldest in 1..u64::MAX / 2, frames in 1..5000_u64, rms in 0.0..32768.0_f64) {
            let newest = oldest + frames - 1;
            let mut message = partial();
            message["oldest_frame_seq"] = json!(oldest);
            message["newest_frame_seq"] = json!(newest);
            message["frames"] = json!(frames);
            message["rms"] = json!(rms);
            let text = message.to_string();
            let Ok(Message::Partial(read)) = parse(text.as_bytes()) else { panic!("{text}") };
            prop_assert_eq!((read.oldest_frame_seq, read.newest_frame_seq, read.frames), (oldest, newest, frames));
            // serde_json may round the last bit of a number.
            prop_assert!((read.rms - rms).abs() <= rms * 1e-15);
        }
    }
}
