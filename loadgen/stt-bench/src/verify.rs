//! Whether a partial reports what inference must have returned. Pure.

use crate::{expected::InferenceResult, protocol::Partial};

/// The key of the first failure in the contents; `None` when they are right. One mistake leads to others, so only the
/// first counts.
pub(crate) fn wrong(partial: &Partial<'_>, answer: &InferenceResult, passes: u32) -> Option<&'static str> {
    if partial.frames != partial.newest_frame_seq - partial.oldest_frame_seq + 1 {
        return Some("content/frames");
    }
    if partial.cpu_passes != passes {
        return Some("content/cpu_passes");
    }
    if partial.audio_bytes != answer.audio_bytes {
        return Some("content/audio_bytes");
    }
    if partial.samples != answer.samples {
        return Some("content/samples");
    }
    if partial.checksum != answer.checksum {
        return Some("content/checksum");
    }
    if partial.transcript != answer.transcript() {
        return Some("content/transcript");
    }
    if partial.zero_crossings != answer.zero_crossings {
        return Some("content/zero_crossings");
    }
    (!answer.has_rms(partial.rms)).then_some("content/rms")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        audio::phase,
        expected::Expected,
        protocol::{Message, parse},
    };

    fn verdict(change: impl FnOnce(&mut Value)) -> Option<&'static str> {
        let mut message = json!({
            "type": "partial", "oldest_frame_seq": 1, "newest_frame_seq": 50, "frames": 50, "rms": 5699.347243325326,
            "zero_crossings": 111, "checksum": 1_244_816_517_u32, "samples": 64_000, "transcript": "now",
            "audio_bytes": 32_000, "cpu_passes": 4, "model_delay_ms": 75, "flush_lateness_ms": 0,
            "inflight_model_jobs": 0
        });
        change(&mut message);
        let text = message.to_string();
        let Ok(Message::Partial(partial)) = parse(text.as_bytes()) else { panic!("{text}") };
        let answer = Expected::new(4).answer(phase(0, 1), 50).unwrap();
        wrong(&partial, &answer, 4)
    }

    #[test]
    fn a_right_partial_is_not_wrong() {
        assert_eq!(verdict(|_| ()), None);
        assert_eq!(verdict(|message| message["rms"] = json!(5699.347243)), None, "rounded");
    }

    #[test]
    fn each_wrong_content_is_named() {
        for (key, value) in [
            ("frames", json!(49)),
            ("cpu_passes", json!(3)),
            ("audio_bytes", json!(31_360)),
            ("samples", json!(62_720)),
            ("checksum", json!(1)),
            ("transcript", json!("never")),
            ("zero_crossings", json!(110)),
            ("rms", json!(5699.36)),
        ] {
            assert_eq!(verdict(|message| message[key] = value), Some(&*format!("content/{key}")));
        }
    }
}
