//! The messages for clients: partials and error frames; and the check of their start message. Pure.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    config::Flaw,
    inference::{Failure, InferenceResponse},
};

/// The frames that a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    /// Number of the oldest frame; frames count from 1.
    pub oldest: u64,
    /// Number of the newest frame.
    pub newest: u64,
    /// Number of frames that the message covers.
    pub frames: u64,
}

/// Bytes of one frame of audio.
pub const FRAME_BYTES: u64 = 640;

#[derive(Serialize)]
struct Partial<'a> {
    r#type: &'static str,
    oldest_frame_seq: u64,
    newest_frame_seq: u64,
    frames: u64,
    rms: f64,
    zero_crossings: u64,
    checksum: u32,
    samples: u64,
    transcript: &'a str,
    audio_bytes: u64,
    cpu_passes: u32,
    model_delay_ms: u64,
    flush_lateness_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inflight_model_jobs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<&'static str>,
}

/// The fields of a partial that the gateway itself determines.
#[derive(Clone, Copy, Debug)]
pub struct GatewayValues {
    /// Passes over the audio: `CPU_PASSES`.
    pub cpu_passes: u32,
    /// The model's delay: `MODEL_DELAY_MS`.
    pub model_delay_ms: u64,
    /// How late the batch's tick was, in milliseconds.
    pub flush_lateness_ms: f64,
}

/// The partial for a batch of frames, with the inference's result.
pub fn partial(
    range: FrameRange,
    inference_response: &InferenceResponse,
    gateway_values: GatewayValues,
    flaw: Flaw,
) -> String {
    let partial = Partial {
        r#type: "partial",
        oldest_frame_seq: range.oldest,
        newest_frame_seq: range.newest,
        frames: range.frames,
        rms: inference_response.rms,
        zero_crossings: inference_response.zero_crossings,
        checksum: inference_response.checksum,
        samples: inference_response.samples,
        transcript: &inference_response.transcript,
        audio_bytes: inference_response.audio_bytes,
        cpu_passes: gateway_values.cpu_passes + u32::from(flaw == Flaw::WrongEcho),
        model_delay_ms: gateway_values.model_delay_ms,
        flush_lateness_ms: gateway_values.flush_lateness_ms,
        inflight_model_jobs: (flaw != Flaw::MissingKey).then_some(0),
        language: (flaw == Flaw::SurplusKey).then_some("en"),
    };
    serde_json::to_string(&partial).expect("numbers and text can be serialized")
}

#[derive(Serialize)]
struct ErrorFrame<'a> {
    r#type: &'static str,
    stage: &'static str,
    kind: &'static str,
    message: &'a str,
    oldest_frame_seq: u64,
    newest_frame_seq: u64,
    frames: u64,
    audio_bytes: u64,
    oldest_age_ms: f64,
    newest_age_ms: f64,
    flush_lateness_ms: f64,
    inference_elapsed_ms: Option<f64>,
    inflight_gateway_batches: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_buffer_frames: Option<u64>,
    inference_status: Option<u16>,
    retryable: bool,
}

/// Times and counts of an error frame.
#[derive(Clone, Copy, Debug)]
pub struct FailureContext {
    /// Time since the oldest frame arrived, in milliseconds.
    pub oldest_age_ms: f64,
    /// Time since the newest frame arrived, in milliseconds.
    pub newest_age_ms: f64,
    /// How late the batch's tick was, in milliseconds.
    pub flush_lateness_ms: f64,
    /// Time since the request began, in milliseconds; absent when there was no request.
    pub inference_elapsed_ms: Option<f64>,
    /// Number of frames that wait for their tick.
    pub waiting: u64,
}

/// The error frame for frames that get no partial.
pub fn error(range: FrameRange, failure: &Failure, context: FailureContext, flaw: Flaw) -> String {
    let frame = ErrorFrame {
        r#type: "error",
        stage: failure.kind.stage(),
        kind: failure.kind.as_str(),
        message: &failure.message,
        oldest_frame_seq: range.oldest,
        newest_frame_seq: range.newest,
        frames: range.frames,
        audio_bytes: range.frames * FRAME_BYTES,
        oldest_age_ms: context.oldest_age_ms,
        newest_age_ms: context.newest_age_ms,
        flush_lateness_ms: context.flush_lateness_ms,
        inference_elapsed_ms: context.inference_elapsed_ms,
        inflight_gateway_batches: u64::from(context.inference_elapsed_ms.is_some()),
        gateway_buffer_frames: (flaw != Flaw::MissingErrorKey).then_some(context.waiting),
        inference_status: failure.status,
        retryable: failure.retryable,
    };
    serde_json::to_string(&frame).expect("numbers and text can be serialized")
}

/// Whether a text is the start message. Only the flaw `extra-key` accepts further keys.
pub fn is_start(text: &[u8], flaw: Flaw) -> bool {
    let Ok(start) = serde_json::from_slice::<Map<String, Value>>(text) else { return false };
    start.get("type").is_some_and(|kind| kind == "start") && (start.len() == 1 || flaw == Flaw::ExtraKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_message_has_exactly_one_key() {
        for text in [r#"{"type":"start"}"#, " {\"type\" :\t\"start\"}\n"] {
            assert!(is_start(text.as_bytes(), Flaw::None), "{text}");
        }
        let extra = br#"{"type":"start","a":1}"#;
        for text in [&b"not-json"[..], b"{}", b"[]", br#"{"type":"stop"}"#, extra] {
            assert!(!is_start(text, Flaw::None));
        }
        assert!(is_start(extra, Flaw::ExtraKey));
    }
}
