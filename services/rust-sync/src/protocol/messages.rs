//! The JSON messages: the start message, the inference's response, partials and errors. No I/O.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::FRAME_BYTES;

const FRAME_SAMPLES: u64 = FRAME_BYTES as u64 / 2;

/// Whether `text` is the JSON object `{"type":"start"}` without further keys, in any valid JSON notation.
pub fn is_start(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Start<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    // Without this check, serde would accept an array for a struct.
    let is_object = text.trim_ascii_start().first() == Some(&b'{');
    is_object && serde_json::from_slice::<Start<'_>>(text).is_ok_and(|start| start.r#type == "start")
}

/// The inference's response to one batch. Partials repeat its fields unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recognised {
    /// Root mean square of the batch's samples.
    pub rms: f64,
    /// Number of sign changes between samples.
    pub zero_crossings: u64,
    /// Checksum of the samples of all passes.
    pub checksum: u32,
    /// Samples processed in all passes together.
    pub samples: u64,
    /// The recognised text; never empty.
    pub transcript: String,
    /// Size of the batch in bytes.
    pub audio_bytes: u64,
}

impl Recognised {
    /// Parses a response body and checks its counts.
    ///
    /// # Errors
    /// When the body is not the expected object or isn't about `frames` frames in `cpu_passes` passes. The error is a
    /// human-readable message.
    pub fn parse(body: &[u8], frames: u64, cpu_passes: u32) -> Result<Self, String> {
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err("the answer is no JSON object".into());
        }
        let recognition: Self =
            serde_json::from_slice(body).map_err(|error| format!("failed to parse the answer: {error}"))?;
        let (samples, audio_bytes) = (u64::from(cpu_passes) * FRAME_SAMPLES * frames, FRAME_BYTES as u64 * frames);
        if recognition.samples != samples {
            return Err(format!("the answer is about {} samples, asked were {samples}", recognition.samples));
        }
        if recognition.audio_bytes != audio_bytes {
            return Err(format!("the answer is about {} bytes, sent were {audio_bytes}", recognition.audio_bytes));
        }
        if recognition.transcript.is_empty() {
            return Err("the answer has an empty transcript".into());
        }
        Ok(recognition)
    }
}

/// The run of frames that one message covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Sequence number of the first frame. A session's first frame is 1.
    pub oldest_frame_seq: u64,
    /// Number of frames, at least 1.
    pub frames: u64,
}

impl Span {
    /// Sequence number of the last frame.
    pub fn newest_frame_seq(&self) -> u64 {
        self.oldest_frame_seq + self.frames - 1
    }
}

/// Settings that every partial echoes, in addition to a [`Recognised`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EchoedSettings {
    /// Passes that the inference makes over each batch.
    pub cpu_passes: u32,
    /// Model delay in milliseconds; it is reported only.
    pub model_delay_ms: u64,
}

/// Appends the partial that covers `span`, as JSON.
pub fn put_partial(
    out: &mut Vec<u8>,
    span: Span,
    recognition: &Recognised,
    echo: EchoedSettings,
    flush_lateness_ms: f64,
) {
    put(out, br#"{"type":"partial","oldest_frame_seq":"#, &span.oldest_frame_seq);
    put(out, br#","newest_frame_seq":"#, &span.newest_frame_seq());
    put(out, br#","frames":"#, &span.frames);
    put(out, br#","rms":"#, &recognition.rms);
    put(out, br#","zero_crossings":"#, &recognition.zero_crossings);
    put(out, br#","checksum":"#, &recognition.checksum);
    put(out, br#","samples":"#, &recognition.samples);
    put(out, br#","transcript":"#, &recognition.transcript);
    put(out, br#","audio_bytes":"#, &recognition.audio_bytes);
    put(out, br#","cpu_passes":"#, &echo.cpu_passes);
    put(out, br#","model_delay_ms":"#, &echo.model_delay_ms);
    put(out, br#","flush_lateness_ms":"#, &flush_lateness_ms);
    out.extend_from_slice(br#","inflight_model_jobs":0}"#);
}

fn put(out: &mut Vec<u8>, key: &[u8], value: &impl Serialize) {
    out.extend_from_slice(key);
    serde_json::to_writer(out, value).expect("numbers and text always become JSON");
}

/// The stage at which a batch failed: the value of `stage` in error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Receiving audio from the client.
    WebsocketReceive,
    /// Sending the request or receiving the response.
    InferenceRequest,
    /// Parsing the inference's response.
    InferenceResponseParse,
}

/// The kind of a failure: the value of `kind` in error messages, and a label in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// No complete response within `INFERENCE_TIMEOUT_MS`.
    #[serde(rename = "timeout")]
    Timeout,
    /// Connecting to the inference, sending or receiving failed.
    #[serde(rename = "connection_reset")]
    ConnectionReset,
    /// The inference returned status 429.
    #[serde(rename = "http_429")]
    Http429,
    /// The inference returned another status that is not 2xx.
    #[serde(rename = "http_5xx")]
    Http5xx,
    /// The response is not HTTP, or its body is not the expected object.
    #[serde(rename = "parse_error")]
    ParseError,
    /// More frames waited than `MAX_BUFFERED_FRAMES`.
    #[serde(rename = "overflow")]
    Overflow,
}

/// Why frames are covered by an error instead of a partial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind, which determines `stage` and `retryable`.
    pub kind: Kind,
    /// Human-readable description: the `message` of the error message.
    pub message: String,
    /// HTTP status of the inference's response, if there was one.
    pub inference_status: Option<u16>,
}

impl Failure {
    /// Creates a failure without an HTTP status.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), inference_status: None }
    }

    /// Maps an HTTP status to a failure; `None` for 2xx.
    pub fn of_status(status: u16) -> Option<Self> {
        let kind = match status {
            200..=299 => return None,
            429 => Kind::Http429,
            _ => Kind::Http5xx,
        };
        let message = format!("the inference answered {status}");
        Some(Self { kind, message, inference_status: Some(status) })
    }

    /// The stage at which it failed.
    pub fn stage(&self) -> Stage {
        match self.kind {
            Kind::ParseError => Stage::InferenceResponseParse,
            Kind::Overflow => Stage::WebsocketReceive,
            _ => Stage::InferenceRequest,
        }
    }

    /// Whether a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            Kind::Timeout | Kind::ConnectionReset | Kind::Http429 => true,
            Kind::Http5xx => self.inference_status.is_some_and(|status| (500..=599).contains(&status)),
            Kind::ParseError | Kind::Overflow => false,
        }
    }
}

/// Times and buffer state that an error message reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorContext {
    /// Milliseconds since the oldest frame was read from the socket.
    pub oldest_age_ms: f64,
    /// Milliseconds since the newest frame was read from the socket.
    pub newest_age_ms: f64,
    /// Lateness of the tick that sent the batch or reports the overflow, in milliseconds.
    pub flush_lateness_ms: f64,
    /// Milliseconds since the tick that sent the batch; `None` for an overflow.
    pub inference_elapsed_ms: Option<f64>,
    /// Batches of this session that were in flight: 1, or 0 for an overflow.
    pub inflight_gateway_batches: u64,
    /// Frames of the session that wait now.
    pub gateway_buffer_frames: u64,
}

/// Appends the error that covers `span`, as JSON.
pub fn put_error(out: &mut Vec<u8>, span: Span, failure: &Failure, context: &ErrorContext) {
    #[derive(Serialize)]
    struct Error<'a> {
        r#type: &'static str,
        stage: Stage,
        kind: Kind,
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
        gateway_buffer_frames: u64,
        inference_status: Option<u16>,
        retryable: bool,
    }
    let error = Error {
        r#type: "error",
        stage: failure.stage(),
        kind: failure.kind,
        message: &failure.message,
        oldest_frame_seq: span.oldest_frame_seq,
        newest_frame_seq: span.newest_frame_seq(),
        frames: span.frames,
        audio_bytes: span.frames * FRAME_BYTES as u64,
        oldest_age_ms: context.oldest_age_ms,
        newest_age_ms: context.newest_age_ms,
        flush_lateness_ms: context.flush_lateness_ms,
        inference_elapsed_ms: context.inference_elapsed_ms,
        inflight_gateway_batches: context.inflight_gateway_batches,
        gateway_buffer_frames: context.gateway_buffer_frames,
        inference_status: failure.inference_status,
        retryable: failure.is_retryable(),
    };
    put(out, b"", &error);
}
