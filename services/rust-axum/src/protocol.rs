//! What the gateway sends: partials, errors and control frames, and the parser of the inference's response. `inbox`
//! parses what clients send.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Size of one audio frame in bytes: 20 ms of 16 kHz mono PCM with 16-bit samples.
pub(crate) const FRAME_BYTES: usize = 640;
/// Samples in one audio frame.
pub(crate) const FRAME_SAMPLES: u64 = 320;
/// Largest data message that a client may send; beyond it the connection is closed with 1009.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Opcodes of the frames that the gateway sends (RFC 6455, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    /// A text message: a partial or an error.
    Text = 1,
    /// A Close frame, the last frame of a connection.
    Close = 8,
    /// A pong, the reply to a ping.
    Pong = 10,
}

/// Appends a complete frame to `out`, unmasked as RFC 6455 requires of servers.
pub(crate) fn put_frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    out.push(0x80 | opcode as u8);
    match payload.len() {
        length @ ..=125 => out.push(length as u8),
        length @ ..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

/// The payload of a Close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Close {
    /// The close code; `None` in the reply to a Close frame without a code.
    pub(crate) code: Option<u16>,
    /// Human-readable reason of the close; may be empty.
    pub(crate) reason: &'static str,
}

impl Close {
    /// Creates a payload with a code and a reason.
    pub(crate) const fn new(code: u16, reason: &'static str) -> Self {
        Self { code: Some(code), reason }
    }

    /// Appends the encoded Close frame to `out`.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        if let Some(code) = self.code {
            payload.extend_from_slice(&code.to_be_bytes());
            payload.extend_from_slice(self.reason.as_bytes());
        }
        put_frame(out, Opcode::Close, &payload);
    }
}

/// Whether `text` is the JSON object `{"type":"start"}` without further keys; white space is allowed.
pub(crate) fn is_start(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Start {
        // A `String` and not an enum, because serde accepts {"start":null} for a unit variant.
        #[serde(rename = "type")]
        kind: String,
    }
    // Without this check, serde would accept an array for a struct.
    text.trim_ascii_start().starts_with(b"{")
        && serde_json::from_slice(text).is_ok_and(|start: Start| start.kind == "start")
}

/// A run of consecutive audio frames of one session, which one message covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Sequence number of the first frame. A session's first frame is 1.
    pub(crate) oldest: u64,
    /// Number of frames, at least 1.
    pub(crate) frames: u64,
}

impl Span {
    /// Sequence number of the last frame.
    pub(crate) fn newest(&self) -> u64 {
        self.oldest + self.frames - 1
    }

    /// Size of the frames' audio in bytes.
    pub(crate) fn audio_bytes(&self) -> u64 {
        self.frames * FRAME_BYTES as u64
    }
}

/// The inference's response to one batch. Partials repeat its fields unchanged.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recognition {
    /// Root mean square of the batch's samples.
    pub(crate) rms: f64,
    /// Number of sign changes between samples.
    pub(crate) zero_crossings: u64,
    /// Checksum of the samples, as the inference computes it.
    pub(crate) checksum: u32,
    /// Samples processed in all passes together.
    pub(crate) samples: u64,
    /// The recognised text; never empty.
    pub(crate) transcript: String,
    /// Size of the batch in bytes.
    pub(crate) audio_bytes: u64,
}

impl Recognition {
    /// Parses the response to the batch `span` and checks its counts. The error describes the first mismatch.
    pub(crate) fn parse(body: &[u8], span: Span, cpu_passes: u32) -> Result<Self, String> {
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err("the inference's answer is no JSON object".into());
        }
        let recognition: Self =
            serde_json::from_slice(body).map_err(|error| format!("the inference's answer can't be read: {error}"))?;
        let samples = u64::from(cpu_passes) * FRAME_SAMPLES * span.frames;
        if recognition.samples != samples {
            return Err(format!("the inference's answer has {} samples instead of {samples}", recognition.samples));
        }
        if recognition.audio_bytes != span.audio_bytes() {
            let (has, expected) = (recognition.audio_bytes, span.audio_bytes());
            return Err(format!("the inference's answer has {has} bytes of audio instead of {expected}"));
        }
        if recognition.transcript.is_empty() {
            return Err("the inference's answer has an empty transcript".into());
        }
        Ok(recognition)
    }
}

/// Settings that every partial repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoedSettings {
    /// Passes that the inference makes over each batch.
    pub(crate) cpu_passes: u32,
    /// Model delay in milliseconds; it is reported only.
    pub(crate) model_delay_ms: u64,
}

/// Formats the partial that covers `span` as JSON.
pub(crate) fn partial(
    span: Span,
    recognition: &Recognition,
    echo: EchoedSettings,
    flush_lateness: Duration,
) -> Vec<u8> {
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
        inflight_model_jobs: u64,
    }
    json(&Partial {
        r#type: "partial",
        oldest_frame_seq: span.oldest,
        newest_frame_seq: span.newest(),
        frames: span.frames,
        rms: recognition.rms,
        zero_crossings: recognition.zero_crossings,
        checksum: recognition.checksum,
        samples: recognition.samples,
        transcript: &recognition.transcript,
        audio_bytes: recognition.audio_bytes,
        cpu_passes: echo.cpu_passes,
        model_delay_ms: echo.model_delay_ms,
        flush_lateness_ms: milliseconds(flush_lateness),
        inflight_model_jobs: 0,
    })
}

/// Why frames got no partial. [`Kind::name`] is the name in error messages and in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Frames were dropped because more waited than `MAX_BUFFERED_FRAMES`.
    Overflow,
    /// No complete response within `INFERENCE_TIMEOUT_MS`.
    Timeout,
    /// Connecting to the inference, sending or receiving failed.
    ConnectionReset,
    /// The inference returned status 429 (too many requests).
    Http429,
    /// The inference returned another status that is not 2xx. The contract gives it this name.
    Http5xx,
    /// The response is not HTTP, or its body is not the expected object.
    ParseError,
}

impl Kind {
    /// All kinds, in declaration order.
    pub(crate) const ALL: [Self; 6] =
        [Self::Overflow, Self::Timeout, Self::ConnectionReset, Self::Http429, Self::Http5xx, Self::ParseError];

    /// The value of `kind` in error messages, and the label in the books.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Overflow => "overflow",
            Self::Timeout => "timeout",
            Self::ConnectionReset => "connection_reset",
            Self::Http429 => "http_429",
            Self::Http5xx => "http_5xx",
            Self::ParseError => "parse_error",
        }
    }

    fn stage(self) -> &'static str {
        match self {
            Self::Overflow => "websocket_receive",
            Self::ParseError => "inference_response_parse",
            _ => "inference_request",
        }
    }

    fn is_retryable(self, status: Option<u16>) -> bool {
        match self {
            Self::Timeout | Self::ConnectionReset | Self::Http429 => true,
            Self::Http5xx => status.is_some_and(|status| (500..600).contains(&status)),
            Self::Overflow | Self::ParseError => false,
        }
    }
}

/// Why a batch gets an error message instead of a partial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The cause; it determines `stage` and `retryable`.
    pub(crate) kind: Kind,
    /// HTTP status of the inference's response, if there was one.
    pub(crate) status: Option<u16>,
    /// Human-readable description: the `message` of the error message.
    pub(crate) message: String,
}

/// Times and buffer state that an error message reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ErrorContext {
    /// Time since the first frame was read from the socket.
    pub(crate) oldest_age: Duration,
    /// Time since the last frame was read from the socket.
    pub(crate) newest_age: Duration,
    /// Time from when the tick was due until it ran.
    pub(crate) flush_lateness: Duration,
    /// Time since the request was sent; `None` for an overflow, which has no request.
    pub(crate) inference_elapsed: Option<Duration>,
    /// Frames of the session that wait now.
    pub(crate) buffered_frames: u64,
}

/// Formats the error that covers `span` as JSON.
pub(crate) fn error(span: Span, failure: &Failure, context: ErrorContext) -> Vec<u8> {
    #[derive(Serialize)]
    struct Error<'a> {
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
        gateway_buffer_frames: u64,
        inference_status: Option<u16>,
        retryable: bool,
    }
    json(&Error {
        r#type: "error",
        stage: failure.kind.stage(),
        kind: failure.kind.name(),
        message: &failure.message,
        oldest_frame_seq: span.oldest,
        newest_frame_seq: span.newest(),
        frames: span.frames,
        audio_bytes: span.audio_bytes(),
        oldest_age_ms: milliseconds(context.oldest_age),
        newest_age_ms: milliseconds(context.newest_age),
        flush_lateness_ms: milliseconds(context.flush_lateness),
        inference_elapsed_ms: context.inference_elapsed.map(milliseconds),
        inflight_gateway_batches: context.inference_elapsed.is_some().into(),
        gateway_buffer_frames: context.buffered_frames,
        inference_status: failure.status,
        retryable: failure.kind.is_retryable(failure.status),
    })
}

fn json(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("plain fields can always be written")
}

fn milliseconds(duration: Duration) -> f64 {
    // A single division rounds correctly: 1.5 ms is 1.5 and not 1.4999….
    duration.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn golden(list: &str) -> Vec<Value> {
        let mut golden: Value = serde_json::from_str(include_str!("../../testdata/stt-messages.json")).unwrap();
        serde_json::from_value(golden[list].take()).unwrap()
    }

    fn number(value: &Value) -> u64 {
        value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
    }

    fn duration(value: &Value) -> Duration {
        Duration::from_secs_f64(value.as_f64().unwrap() / 1e3)
    }

    #[test]
    fn golden_inference_responses_are_parsed() {
        for entry in golden("inference").iter().filter(|entry| number(&entry["status"]) < 300) {
            let span = Span { oldest: 1, frames: number(&entry["frames"]) };
            let body = entry["body"].as_str().unwrap();
            let recognition = Recognition::parse(body.as_bytes(), span, number(&entry["cpu_passes"]) as u32);
            assert_eq!(recognition.is_ok(), entry["means"] == "partial", "{}: {recognition:?}", entry["name"]);
            assert!(recognition.is_ok() || entry["kind"] == Kind::ParseError.name(), "{}", entry["name"]);
        }
    }

    #[test]
    fn partials_equal_the_golden_bytes() {
        for entry in golden("partial") {
            let of = &entry["of"];
            let span = Span { oldest: number(&of["oldest_frame_seq"]), frames: number(&of["frames"]) };
            let echo = EchoedSettings {
                cpu_passes: number(&of["cpu_passes"]) as u32,
                model_delay_ms: number(&of["model_delay_ms"]),
            };
            let body = of["body"].as_str().unwrap().as_bytes();
            let recognition = Recognition::parse(body, span, echo.cpu_passes).unwrap();
            let text = partial(span, &recognition, echo, duration(&of["flush_lateness_ms"]));
            assert_eq!(String::from_utf8(text).unwrap(), entry["text"], "{}", entry["name"]);
        }
    }

    #[test]
    fn errors_equal_the_golden_bytes() {
        for entry in golden("error") {
            let of = &entry["of"];
            let kind = Kind::ALL.into_iter().find(|kind| of["kind"] == kind.name()).unwrap();
            let failure = Failure {
                kind,
                status: of["inference_status"].as_u64().map(|status| status as u16),
                message: of["message"].as_str().unwrap().into(),
            };
            let context = ErrorContext {
                oldest_age: duration(&of["oldest_age_ms"]),
                newest_age: duration(&of["newest_age_ms"]),
                flush_lateness: duration(&of["flush_lateness_ms"]),
                inference_elapsed: Some(&of["inference_elapsed_ms"]).filter(|value| value.is_number()).map(duration),
                buffered_frames: number(&of["gateway_buffer_frames"]),
            };
            let span = Span { oldest: number(&of["oldest_frame_seq"]), frames: number(&of["frames"]) };
            let text = error(span, &failure, context);
            assert_eq!(String::from_utf8(text).unwrap(), entry["text"], "{}", entry["name"]);
        }
    }
}
