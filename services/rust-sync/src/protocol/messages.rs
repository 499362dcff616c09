//! The JSON of the protocol: the start, what the inference answers, partials and errors. Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::FRAME_BYTES;

const FRAME_SAMPLES: u64 = FRAME_BYTES as u64 / 2;

/// Whether `text` is exactly the object `{"type":"start"}`, in any of JSON's spellings.
pub fn is_start(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Start<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    // serde would read the fields out of an array too.
    let is_object = text.trim_ascii_start().first() == Some(&b'{');
    is_object && serde_json::from_slice::<Start<'_>>(text).is_ok_and(|start| start.r#type == "start")
}

/// What the inference found in a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recognised {
    /// Root mean square of the samples.
    pub rms: f64,
    /// Changes of sign.
    pub zero_crossings: u64,
    /// Of all samples of all passes.
    pub checksum: u32,
    /// Samples of all passes.
    pub samples: u64,
    /// What was said.
    pub transcript: String,
    /// Bytes that it got.
    pub audio_bytes: u64,
}

impl Recognised {
    /// Reads an answer's body.
    ///
    /// # Errors
    /// What is wrong with it, for people, if it isn't about `frames` frames in `cpu_passes` passes.
    pub fn parse(body: &[u8], frames: u64, cpu_passes: u32) -> Result<Self, String> {
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err("the answer is no JSON object".into());
        }
        let found: Self =
            serde_json::from_slice(body).map_err(|error| format!("failed to parse the answer: {error}"))?;
        let (samples, audio_bytes) = (u64::from(cpu_passes) * FRAME_SAMPLES * frames, FRAME_BYTES as u64 * frames);
        if found.samples != samples {
            return Err(format!("the answer is about {} samples, asked were {samples}", found.samples));
        }
        if found.audio_bytes != audio_bytes {
            return Err(format!("the answer is about {} bytes, sent were {audio_bytes}", found.audio_bytes));
        }
        if found.transcript.is_empty() {
            return Err("the answer has an empty transcript".into());
        }
        Ok(found)
    }
}

/// Frames that one message covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cover {
    /// Number of the first frame; a session's first is 1.
    pub oldest_frame_seq: u64,
    /// How many.
    pub frames: u64,
}

impl Cover {
    /// Number of the last frame.
    pub fn newest_frame_seq(&self) -> u64 {
        self.oldest_frame_seq + self.frames - 1
    }
}

/// What the gateway adds to a [`Recognised`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Echo {
    /// The passes that were asked for.
    pub cpu_passes: u32,
    /// The setting of this name.
    pub model_delay_ms: u64,
}

/// Appends a partial.
pub fn put_partial(out: &mut Vec<u8>, cover: Cover, found: &Recognised, echo: Echo, flush_lateness_ms: f64) {
    put(out, br#"{"type":"partial","oldest_frame_seq":"#, &cover.oldest_frame_seq);
    put(out, br#","newest_frame_seq":"#, &cover.newest_frame_seq());
    put(out, br#","frames":"#, &cover.frames);
    put(out, br#","rms":"#, &found.rms);
    put(out, br#","zero_crossings":"#, &found.zero_crossings);
    put(out, br#","checksum":"#, &found.checksum);
    put(out, br#","samples":"#, &found.samples);
    put(out, br#","transcript":"#, &found.transcript);
    put(out, br#","audio_bytes":"#, &found.audio_bytes);
    put(out, br#","cpu_passes":"#, &echo.cpu_passes);
    put(out, br#","model_delay_ms":"#, &echo.model_delay_ms);
    put(out, br#","flush_lateness_ms":"#, &flush_lateness_ms);
    out.extend_from_slice(br#","inflight_model_jobs":0}"#);
}

fn put(out: &mut Vec<u8>, key: &[u8], value: &impl Serialize) {
    out.extend_from_slice(key);
    serde_json::to_writer(out, value).expect("numbers and text always become JSON");
}

/// Where something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Reading from the client.
    WebsocketReceive,
    /// Getting an answer.
    InferenceRequest,
    /// Understanding it.
    InferenceResponseParse,
}

/// What failed; each is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// No whole answer in time.
    #[serde(rename = "timeout")]
    Timeout,
    /// Connecting, sending or receiving failed.
    #[serde(rename = "connection_reset")]
    ConnectionReset,
    /// Status 429.
    #[serde(rename = "http_429")]
    Http429,
    /// Any other status that is no success.
    #[serde(rename = "http_5xx")]
    Http5xx,
    /// No HTTP, or not what was asked for.
    #[serde(rename = "parse_error")]
    ParseError,
    /// More frames waited than may.
    #[serde(rename = "overflow")]
    Overflow,
}

/// Why frames are covered by an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub kind: Kind,
    /// For people.
    pub message: String,
    /// The status of an HTTP answer.
    pub inference_status: Option<u16>,
}

impl Failure {
    /// A failure without an HTTP answer.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), inference_status: None }
    }

    /// The failure that a status stands for; `None` for a success.
    pub fn of_status(status: u16) -> Option<Self> {
        let kind = match status {
            200..=299 => return None,
            429 => Kind::Http429,
            _ => Kind::Http5xx,
        };
        let message = format!("the inference answered {status}");
        Some(Self { kind, message, inference_status: Some(status) })
    }

    /// Where it failed.
    pub fn stage(&self) -> Stage {
        match self.kind {
            Kind::ParseError => Stage::InferenceResponseParse,
            Kind::Overflow => Stage::WebsocketReceive,
            _ => Stage::InferenceRequest,
        }
    }

    /// Whether the same audio may do better next time.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            Kind::Timeout | Kind::ConnectionReset | Kind::Http429 => true,
            Kind::Http5xx => self.inference_status.is_some_and(|status| (500..=599).contains(&status)),
            Kind::ParseError | Kind::Overflow => false,
        }
    }
}

/// Times and counts in an error, beside its failure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Circumstances {
    /// Milliseconds since the oldest frame was read from the socket.
    pub oldest_age_ms: f64,
    /// Milliseconds since the newest frame was.
    pub newest_age_ms: f64,
    /// Of the tick that sent the batch, or reports the overflow.
    pub flush_lateness_ms: f64,
    /// Milliseconds since the tick that sent the batch.
    pub inference_elapsed_ms: Option<f64>,
    /// Batches of this session that were in flight.
    pub inflight_gateway_batches: u64,
    /// Frames that wait now.
    pub gateway_buffer_frames: u64,
}

/// Appends an error.
pub fn put_error(out: &mut Vec<u8>, cover: Cover, failure: &Failure, circumstances: &Circumstances) {
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
        oldest_frame_seq: cover.oldest_frame_seq,
        newest_frame_seq: cover.newest_frame_seq(),
        frames: cover.frames,
        audio_bytes: cover.frames * FRAME_BYTES as u64,
        oldest_age_ms: circumstances.oldest_age_ms,
        newest_age_ms: circumstances.newest_age_ms,
        flush_lateness_ms: circumstances.flush_lateness_ms,
        inference_elapsed_ms: circumstances.inference_elapsed_ms,
        inflight_gateway_batches: circumstances.inflight_gateway_batches,
        gateway_buffer_frames: circumstances.gateway_buffer_frames,
        inference_status: failure.inference_status,
        retryable: failure.is_retryable(),
    };
    put(out, b"", &error);
}
