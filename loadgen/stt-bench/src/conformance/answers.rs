//! What a gateway says to audio: partials and error frames, read leniently for the cases that are about something else,
//! and checked key by key for those that are about them.

use std::{fmt, time::Instant};

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::{
    finding::{Trouble, ensure, failed},
    text::excerpt,
};

/// The keys of a partial, in their order.
pub const PARTIAL_KEYS: [&str; 14] = [
    "type",
    "oldest_frame_seq",
    "newest_frame_seq",
    "frames",
    "rms",
    "zero_crossings",
    "checksum",
    "samples",
    "transcript",
    "audio_bytes",
    "cpu_passes",
    "model_delay_ms",
    "flush_lateness_ms",
    "inflight_model_jobs",
];

/// The keys of an error frame, in their order.
pub const ERROR_KEYS: [&str; 16] = [
    "type",
    "stage",
    "kind",
    "message",
    "oldest_frame_seq",
    "newest_frame_seq",
    "frames",
    "audio_bytes",
    "oldest_age_ms",
    "newest_age_ms",
    "flush_lateness_ms",
    "inference_elapsed_ms",
    "inflight_gateway_batches",
    "gateway_buffer_frames",
    "inference_status",
    "retryable",
];

/// A partial or an error frame.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When it was read.
    pub at: Instant,
    /// As it came.
    pub text: String,
    members: Vec<(String, Value)>,
}

/// An object's members in their order, repeated ones included.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Members;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl Answer {
    /// Reads a text message of the gateway.
    ///
    /// # Errors
    /// When it is neither a partial nor an error frame.
    pub fn read(at: Instant, text: String) -> Result<Self, Trouble> {
        let wish = "a partial or an error frame: a JSON object with \"type\"";
        let Ok(Members(members)) = serde_json::from_str(&text) else { return Err(failed(wish, excerpt(&text))) };
        let answer = Self { at, text, members };
        match answer.word("type") {
            "partial" | "error" => Ok(answer),
            _ => Err(failed(wish, excerpt(&answer.text))),
        }
    }

    /// A member.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// A member that is a number, else 0.
    pub fn number(&self, key: &str) -> u64 {
        self.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A member that is a time in milliseconds, else a negative one.
    pub fn milliseconds(&self, key: &str) -> f64 {
        self.get(key).and_then(Value::as_f64).unwrap_or(-1.0)
    }

    /// A member that is a text, else nothing.
    pub fn word(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or("")
    }

    /// Whether it is a partial.
    pub fn is_partial(&self) -> bool {
        self.word("type") == "partial"
    }

    /// The number of its oldest frame.
    pub fn oldest(&self) -> u64 {
        self.number("oldest_frame_seq")
    }

    /// The number of its newest frame.
    pub fn newest(&self) -> u64 {
        self.number("newest_frame_seq")
    }

    /// For people.
    pub fn words(&self) -> String {
        let cover = format!("{} to {}", self.oldest(), self.newest());
        match self.is_partial() {
            true => format!("partial {cover}"),
            false => format!("error {}/{} {cover}", self.word("stage"), self.word("kind")),
        }
    }

    /// Its keys must be these, in this order.
    ///
    /// # Errors
    /// When one is missing, one too many or out of place.
    pub fn check_keys(&self, keys: &[&str]) -> Result<(), Trouble> {
        let seen: Vec<&str> = self.members.iter().map(|(name, _)| name.as_str()).collect();
        let wish = format!("exactly the {} keys of the contract, in its order", keys.len());
        let missing: Vec<_> = keys.iter().filter(|key| !seen.contains(key)).collect();
        ensure(missing.is_empty(), &wish, format!("missing: {missing:?}"))?;
        let surplus: Vec<_> = seen.iter().filter(|key| !keys.contains(key)).collect();
        ensure(surplus.is_empty(), &wish, format!("not in the contract: {surplus:?}"))?;
        ensure(seen == keys, &wish, format!("{seen:?}"))
    }

    /// These must be integers, written as such.
    ///
    /// # Errors
    /// When one is not.
    pub fn check_integers(&self, keys: &[&str]) -> Result<(), Trouble> {
        for key in keys {
            let value = self.get(key).unwrap_or(&Value::Null);
            ensure(value.is_u64(), format!("{key} is an integer of at least 0"), value)?;
        }
        Ok(())
    }

    /// These must be times: finite, not negative.
    ///
    /// # Errors
    /// When one is not.
    pub fn check_times(&self, keys: &[&str]) -> Result<(), Trouble> {
        for key in keys {
            let value = self.get(key).unwrap_or(&Value::Null);
            let good = value.as_f64().is_some_and(|number| number.is_finite() && number >= 0.0);
            ensure(good, format!("{key} is a number of at least 0"), value)?;
        }
        Ok(())
    }

    /// These must have these values.
    ///
    /// # Errors
    /// When one has another one.
    pub fn check_values(&self, values: &[(&str, Value)]) -> Result<(), Trouble> {
        for (key, value) in values {
            let seen = self.get(key).unwrap_or(&Value::Null);
            ensure(seen == value, format!("{key} is {value}"), format!("{seen} in {}", excerpt(&self.text)))?;
        }
        Ok(())
    }
}

/// Every frame from 1 to `sent` must be covered exactly once, in order.
///
/// # Errors
/// The first gap or overlap.
pub fn check_cover(answers: &[Answer], sent: u32) -> Result<(), Trouble> {
    let wish = format!("frames 1 to {sent} are covered exactly once, in their order");
    let mut next = 1;
    for answer in answers {
        let (oldest, newest) = (answer.oldest(), answer.newest());
        let seen = match oldest {
            _ if oldest > next => format!("frames {next} to {} are never covered ({})", oldest - 1, answer.words()),
            _ if oldest < next => format!("{} comes when frame {next} is next", answer.words()),
            _ if newest < oldest => answer.words(),
            _ => {
                next = newest + 1;
                continue;
            }
        };
        return Err(failed(wish, seen));
    }
    ensure(next == u64::from(sent) + 1, wish, format!("covered up to frame {}", next - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Answer {
        Answer::read(Instant::now(), text.to_owned()).unwrap()
    }

    fn cover(covers: &[(u32, u32)], sent: u32) -> Result<(), Trouble> {
        let partial = |&(oldest, newest): &(u32, u32)| {
            answer(&format!(r#"{{"type":"partial","oldest_frame_seq":{oldest},"newest_frame_seq":{newest}}}"#))
        };
        check_cover(&covers.iter().map(partial).collect::<Vec<_>>(), sent)
    }

    #[test]
    fn a_gap_an_overlap_and_a_missing_end_are_found() {
        assert_eq!(cover(&[(1, 3), (4, 4)], 4), Ok(()));
        assert!(cover(&[(1, 3), (5, 5)], 5).is_err());
        assert!(cover(&[(1, 3), (3, 5)], 5).is_err());
        assert!(cover(&[(1, 3), (1, 3)], 3).is_err());
        assert!(cover(&[(1, 3)], 4).is_err());
        assert!(cover(&[(2, 4)], 4).is_err());
    }

    #[test]
    fn keys_are_checked_in_their_order() {
        let seen = answer(r#"{"type":"partial","a":1,"b":1.0}"#);
        assert_eq!(seen.check_keys(&["type", "a", "b"]), Ok(()));
        assert!(seen.check_keys(&["type", "b", "a"]).is_err());
        assert!(seen.check_keys(&["type", "a"]).is_err());
        assert!(seen.check_keys(&["type", "a", "b", "c"]).is_err());
        assert_eq!((seen.check_integers(&["a"]), seen.check_integers(&["b"]).is_err()), (Ok(()), true));
        assert!(answer(r#"{"type":"error","type":"error"}"#).check_keys(&["type"]).is_err());
    }
}
