//! The audio of every request, and the check of every response: equal to the expected bytes, as most services write
//! them, or to the same six values.

use serde::{Deserialize, Serialize};

use crate::{
    audio::{Audio, phase},
    expected::{Expected, InferenceResult},
};

/// The session whose frames are sent, from its first frame on.
const SESSION: u64 = 0;

/// The JSON of a response: exactly these keys.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rms: f64,
    zero_crossings: u64,
    checksum: u32,
    samples: u64,
    transcript: String,
    audio_bytes: u64,
}

/// The only correct response of a run.
#[derive(Debug)]
pub(crate) struct ExpectedResponse {
    result: InferenceResult,
    /// The response as compact JSON in the order of [`Written`]: equal bytes need no parsing.
    json: Vec<u8>,
}

impl ExpectedResponse {
    /// The response for a number of frames and passes.
    pub(crate) fn new(frames: u64, passes: u32) -> Self {
        let result = Expected::new(passes).answer(phase(SESSION, 1), frames);
        let result = result.expect("requests have a frame at least and 3200 at most");
        let InferenceResult { rms, zero_crossings, checksum, samples, audio_bytes } = result;
        let transcript = result.transcript().to_owned();
        let written = Written { rms, zero_crossings, checksum, samples, transcript, audio_bytes };
        let json = serde_json::to_vec(&written).expect("an answer is plain numbers and a word");
        Self { result, json }
    }

    /// Checks a response; the error quotes what was found and what was expected.
    pub(crate) fn check(&self, received: &[u8]) -> Result<(), String> {
        if received == self.json {
            return Ok(());
        }
        let excerpt = || String::from_utf8_lossy(&received[..received.len().min(200)]).into_owned();
        let written: Written =
            serde_json::from_slice(received).map_err(|error| format!("not an answer: {error}: {}", excerpt()))?;
        let Written { rms, zero_crossings, checksum, samples, transcript, audio_bytes } = written;
        // The service may have rounded its root mean square, so `has_rms` compares that.
        let exact = InferenceResult { rms: self.result.rms, zero_crossings, checksum, samples, audio_bytes };
        match exact == self.result && self.result.has_rms(rms) && transcript == self.result.transcript() {
            true => Ok(()),
            false => Err(format!("wrong answer {}, expected {}", excerpt(), String::from_utf8_lossy(&self.json))),
        }
    }
}

/// The audio of a request with this many frames.
pub(crate) fn payload(frames: u64) -> Vec<u8> {
    let audio = Audio::new();
    (1..=frames).flat_map(|seq| *audio.frame(SESSION, seq)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_the_audio_that_the_answer_is_about() {
        let samples = payload(70).as_chunks::<2>().0.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect::<Vec<_>>();
        let formula = (320..320 * 71).map(|index| (index * 17 % 20_000 - 10_000) as i16);
        assert_eq!(samples, formula.collect::<Vec<_>>());
    }

    #[test]
    fn a_response_may_have_any_spacing_and_key_order_but_no_wrong_value() {
        let expected = ExpectedResponse::new(1, 4);
        let right = r#"{"audio_bytes": 640, "rms": 2425.50231910836, "zero_crossings": 7, "checksum": 1745339397,
            "samples": 1280, "transcript": "now"}"#;
        assert_eq!(expected.check(right.as_bytes()), Ok(()));
        for (from, to) in [("640", "641"), ("2425.5", "2425.6"), ("\"now\"", "\"later\""), ("1280,", "1280, \"x\": 1,")]
        {
            assert!(expected.check(right.replace(from, to).as_bytes()).is_err(), "{to}");
        }
        assert!(expected.check(&right.as_bytes()[..50]).is_err());
    }
}
