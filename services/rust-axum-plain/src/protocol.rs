//! The messages: the client's start message, the inference's response, and the partials and errors that clients get.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Size of one audio frame in bytes: 20 ms of 16 kHz mono PCM with 16-bit samples.
pub(crate) const FRAME_BYTES: usize = 640;
/// Duration of one audio frame.
pub(crate) const FRAME_TIME: Duration = Duration::from_millis(20);
/// Samples in one audio frame.
const FRAME_SAMPLES: u64 = 320;
/// Largest message that a client may send; beyond it the connection is closed with 1009.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Whether `text` is the JSON object `{"type":"start"}` without further keys; white space is allowed.
pub(crate) fn is_start(text: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Start {
        r#type: String,
    }
    object(text.as_bytes()).is_some_and(|start: Start| start.r#type == "start")
}

/// Parses a JSON object. Without the check for `{`, serde would accept an array for a struct.
fn object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Option<T> {
    text.trim_ascii_start().starts_with(b"{").then(|| serde_json::from_slice(text).ok()).flatten()
}

/// A run of consecutive audio frames of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Sequence number of the first frame. A session's first frame is 1.
    pub(crate) oldest: u64,
    /// Number of frames, at least 1.
    pub(crate) frames: u64,
}

impl Span {
    fn newest(&self) -> u64 {
        self.oldest + self.frames - 1
    }

    fn audio_bytes(&self) -> u64 {
        self.frames * FRAME_BYTES as u64
    }
}

/// The inference's response to one batch. Partials repeat its fields unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recognition {
    rms: f64,
    zero_crossings: u64,
    checksum: u32,
    samples: u64,
    transcript: String,
    audio_bytes: u64,
}

impl Recognition {
    /// Parses the response to the batch `span` and checks its counts. The error describes the first mismatch.
    pub(crate) fn parse(body: &[u8], span: Span, cpu_passes: u32) -> Result<Self, String> {
        let recognition: Self = object(body).ok_or("the answer is not a JSON object with exactly the six keys")?;
        let samples = u64::from(cpu_passes) * FRAME_SAMPLES * span.frames;
        if recognition.samples != samples {
            return Err(format!("the answer has {} samples instead of {samples}", recognition.samples));
        }
        if recognition.audio_bytes != span.audio_bytes() {
            return Err(format!(
                "the answer has {} audio bytes instead of {}",
                recognition.audio_bytes,
                span.audio_bytes()
            ));
        }
        if recognition.transcript.is_empty() {
            return Err("the answer has an empty transcript".into());
        }
        Ok(recognition)
    }
}

/// Settings that every partial echoes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    /// Passes that the inference makes over each batch.
    pub(crate) cpu_passes: u32,
    /// Model delay in milliseconds; it is reported only.
    pub(crate) model_delay_ms: u64,
}

/// Formats the partial that covers `span` as JSON.
pub(crate) fn partial(span: Span, recognition: &Recognition, echo: Echo, flush_lateness: Duration) -> String {
    #[derive(Serialize)]
    struct Partial<'a> {
        r#type: &'static str,
        oldest_frame_seq: u64,
        newest_frame_seq: u64,
        frames: u64,
        #[serde(flatten)]
        recognition: &'a Recognition,
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
        recognition,
        cpu_passes: echo.cpu_passes,
        model_delay_ms: echo.model_delay_ms,
        flush_lateness_ms: milliseconds(flush_lateness),
        inflight_model_jobs: 0,
    })
}

/// Why frames got no partial. [`Kind::name`] is the name in error messages and in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Frames were dropped because more waited than `MAX_BUFFERED_FRAMES`.
    Overflow,
    /// No complete response within `INFERENCE_TIMEOUT_MS`.
    Timeout,
    /// Connecting to the inference, sending or receiving failed.
    ConnectionReset,
    /// The inference returned status 429.
    Http429,
    /// The inference returned another status that is not 2xx.
    Http5xx,
    /// The response is not HTTP, or its body is not the expected object.
    ParseError,
}

impl Kind {
    /// The kinds with which a request can fail; `Overflow` is not one of them.
    pub(crate) const OF_REQUESTS: [Self; 5] =
        [Self::Timeout, Self::ConnectionReset, Self::Http429, Self::Http5xx, Self::ParseError];

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
            Self::Timeout | Self::ConnectionReset | Self::Http429 | Self::Http5xx => "inference_request",
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

impl Failure {
    fn is_retryable(&self) -> bool {
        match self.kind {
            Kind::Timeout | Kind::ConnectionReset | Kind::Http429 => true,
            Kind::Http5xx => matches!(self.status, Some(500..600)),
            Kind::Overflow | Kind::ParseError => false,
        }
    }
}

/// Times and buffer state that an error message reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ages {
    /// Time since the first frame was read from the socket.
    pub(crate) oldest: Duration,
    /// Time since the last frame was read from the socket.
    pub(crate) newest: Duration,
    /// Time from the moment the tick was due until it ran.
    pub(crate) flush_lateness: Duration,
    /// Time since the request was sent; `None` for an overflow, which has no request.
    pub(crate) inference_elapsed: Option<Duration>,
    /// Frames of the session that wait now.
    pub(crate) buffered_frames: u64,
}

/// Formats the error that covers `span` as JSON.
pub(crate) fn error(span: Span, failure: &Failure, ages: Ages) -> String {
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
        oldest_age_ms: milliseconds(ages.oldest),
        newest_age_ms: milliseconds(ages.newest),
        flush_lateness_ms: milliseconds(ages.flush_lateness),
        inference_elapsed_ms: ages.inference_elapsed.map(milliseconds),
        inflight_gateway_batches: ages.inference_elapsed.is_some().into(),
        gateway_buffer_frames: ages.buffered_frames,
        inference_status: failure.status,
        retryable: failure.is_retryable(),
    })
}

fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("plain fields can always be written")
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
    fn a_first_message_starts_a_session_as_in_the_golden_messages() {
        let messages = golden("client");
        let texts = messages.iter().filter(|entry| entry["state"] == "first" && entry["text"].is_string());
        for entry in texts {
            assert_eq!(is_start(entry["text"].as_str().unwrap()), entry["means"] == "start", "{}", entry["name"]);
        }
    }

    #[test]
    fn inference_responses_are_read_as_in_the_golden_messages() {
        for entry in golden("inference").iter().filter(|entry| number(&entry["status"]) < 300) {
            let span = Span { oldest: 1, frames: number(&entry["frames"]) };
            let body = entry["body"].as_str().unwrap();
            let recognition = Recognition::parse(body.as_bytes(), span, number(&entry["cpu_passes"]) as u32);
            assert_eq!(recognition.is_ok(), entry["means"] == "partial", "{}: {recognition:?}", entry["name"]);
        }
    }

    #[test]
    fn partials_are_the_golden_ones_byte_for_byte() {
        for entry in golden("partial") {
            let input = &entry["of"];
            let span = Span { oldest: number(&input["oldest_frame_seq"]), frames: number(&input["frames"]) };
            let cpu_passes = number(&input["cpu_passes"]) as u32;
            let echo = Echo { cpu_passes, model_delay_ms: number(&input["model_delay_ms"]) };
            let recognition = Recognition::parse(input["body"].as_str().unwrap().as_bytes(), span, cpu_passes).unwrap();
            let text = partial(span, &recognition, echo, duration(&input["flush_lateness_ms"]));
            assert_eq!(text, entry["text"], "{}", entry["name"]);
        }
    }

    #[test]
    fn errors_are_the_golden_ones_byte_for_byte() {
        let kinds = || Kind::OF_REQUESTS.into_iter().chain([Kind::Overflow]);
        for entry in golden("error") {
            let input = &entry["of"];
            let failure = Failure {
                kind: kinds().find(|kind| input["kind"] == kind.name()).unwrap(),
                status: input["inference_status"].as_u64().map(|status| status as u16),
                message: input["message"].as_str().unwrap().into(),
            };
            let ages = Ages {
                oldest: duration(&input["oldest_age_ms"]),
                newest: duration(&input["newest_age_ms"]),
                flush_lateness: duration(&input["flush_lateness_ms"]),
                inference_elapsed: Some(&input["inference_elapsed_ms"]).filter(|value| value.is_number()).map(duration),
                buffered_frames: number(&input["gateway_buffer_frames"]),
            };
            let span = Span { oldest: number(&input["oldest_frame_seq"]), frames: number(&input["frames"]) };
            assert_eq!(error(span, &failure, ages), entry["text"], "{}", entry["name"]);
        }
    }
}
