//! The messages for clients: partials and error frames; and the check of their start message. Pure.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    config::Flaw,
    inference::{Failure, Inferred},
};

/// The frames that a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
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
pub struct Own {
    /// Passes over the audio: `CPU_PASSES`.
    pub cpu_passes: u32,
    /// The model's delay: `MODEL_DELAY_MS`.
    pub model_delay_ms: u64,
    /// How late the batch's tick was, in milliseconds.
    pub flush_lateness_ms: f64,
}

/// The partial for a batch of frames, with the inference's result.
pub fn partial(cover: Cover, inferred: &Inferred, own: Own, flaw: Flaw) -> String {
    let partial = Partial {
        r#type: "partial",
        oldest_frame_seq: cover.oldest,
        newest_frame_seq: cover.newest,
        frames: cover.frames,
        rms: inferred.rms,
        zero_crossings: inferred.zero_crossings,
        checksum: inferred.checksum,
        samples: inferred.samples,
        transcript: &inferred.transcript,
        audio_bytes: inferred.audio_bytes,
        cpu_passes: own.cpu_passes + u32::from(flaw == Flaw::WrongEcho),
        model_delay_ms: own.model_delay_ms,
        flush_lateness_ms: own.flush_lateness_ms,
        inflight_model_jobs: (flaw != Flaw::MissingKey).then_some(0),
        language: (flaw == Flaw::SurplusKey).then_some("en"),
    };
    serde_json::to_string(&partial).expect("numbers and text")
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
pub struct Circumstances {
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
pub fn error(cover: Cover, failure: &Failure, circumstances: Circumstances, flaw: Flaw) -> String {
    let frame = ErrorFrame {
        r#type: "error",
        stage: failure.kind.stage(),
        kind: failure.kind.word(),
        message: &failure.message,
        oldest_frame_seq: cover.oldest,
        newest_frame_seq: cover.newest,
        frames: cover.frames,
        audio_bytes: cover.frames * FRAME_BYTES,
        oldest_age_ms: circumstances.oldest_age_ms,
        newest_age_ms: circumstances.newest_age_ms,
        flush_lateness_ms: circumstances.flush_lateness_ms,
        inference_elapsed_ms: circumstances.inference_elapsed_ms,
        inflight_gateway_batches: u64::from(circumstances.inference_elapsed_ms.is_some()),
        gateway_buffer_frames: (flaw != Flaw::MissingErrorKey).then_some(circumstances.waiting),
        inference_status: failure.status,
        retryable: failure.retryable,
    };
    serde_json::to_string(&frame).expect("numbers and text")
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
    fn start_is_start_and_nothing_else() {
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
