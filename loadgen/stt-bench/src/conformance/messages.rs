//! Partials and error frames: a gateway's answers to audio. Parsing is lenient, for cases about something else; the
//! `check_*` methods check keys and values strictly, for cases about the answers themselves.

use std::{fmt, time::Instant};

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::{
    finding::{NotPassed, ensure, failed},
    text::excerpt,
};

/// Keys of a partial, in the contract's order.
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

/// Keys of an error frame, in the contract's order.
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

/// A partial or an error frame, with its JSON members in the order of the wire.
#[derive(Clone, Debug)]
pub struct ServerMessage {
    /// Time at which the client read it.
    pub at: Instant,
    /// The JSON text as received.
    pub text: String,
    members: Vec<(String, Value)>,
}

/// Members of a JSON object in their order, including repeated keys.
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

impl ServerMessage {
    /// Parses a text message of the gateway.
    ///
    /// # Errors
    /// Fails if the text is not a JSON object whose `type` is `partial` or `error`.
    pub fn read(at: Instant, text: String) -> Result<Self, NotPassed> {
        let expectation = "a partial or an error frame: a JSON object with \"type\"";
        let Ok(Members(members)) = serde_json::from_str(&text) else { return Err(failed(expectation, excerpt(&text))) };
        let message = Self { at, text, members };
        match message.word("type") {
            "partial" | "error" => Ok(message),
            _ => Err(failed(expectation, excerpt(&message.text))),
        }
    }

    /// Value of the first member with this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Value of a member as an unsigned integer; 0 if it is missing or of another type.
    pub fn number(&self, key: &str) -> u64 {
        self.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// Value of a member as a number, usually of milliseconds; -1 if it is missing or not a number.
    pub fn milliseconds(&self, key: &str) -> f64 {
        self.get(key).and_then(Value::as_f64).unwrap_or(-1.0)
    }

    /// Value of a member as a string; empty if it is missing or of another type.
    pub fn word(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or("")
    }

    /// Whether it is a partial; otherwise it is an error frame.
    pub fn is_partial(&self) -> bool {
        self.word("type") == "partial"
    }

    /// Sequence number of the oldest frame that it covers; 0 if it has none.
    pub fn oldest(&self) -> u64 {
        self.number("oldest_frame_seq")
    }

    /// Sequence number of the newest frame that it covers; 0 if it has none.
    pub fn newest(&self) -> u64 {
        self.number("newest_frame_seq")
    }

    /// Short description for the evidence of a case: type and covered frames.
    pub fn description(&self) -> String {
        let cover = format!("{} to {}", self.oldest(), self.newest());
        match self.is_partial() {
            true => format!("partial {cover}"),
            false => format!("error {}/{} {cover}", self.word("stage"), self.word("kind")),
        }
    }

    /// Checks that its keys are exactly these, in this order.
    ///
    /// # Errors
    /// Fails if a key is missing, surplus, repeated or out of order.
    pub fn check_keys(&self, keys: &[&str]) -> Result<(), NotPassed> {
        let observed: Vec<&str> = self.members.iter().map(|(name, _)| name.as_str()).collect();
        let expectation = format!("exactly the {} keys of the contract, in its order", keys.len());
        let missing: Vec<_> = keys.iter().filter(|key| !observed.contains(key)).collect();
        ensure(missing.is_empty(), &expectation, format!("missing: {missing:?}"))?;
        let unexpected: Vec<_> = observed.iter().filter(|key| !keys.contains(key)).collect();
        ensure(unexpected.is_empty(), &expectation, format!("not in the contract: {unexpected:?}"))?;
        ensure(observed == keys, &expectation, format!("{observed:?}"))
    }

    /// Checks that the values of these keys are integers of at least 0, written without a decimal point.
    ///
    /// # Errors
    /// Fails for the first key whose value is not, or that is missing.
    pub fn check_integers(&self, keys: &[&str]) -> Result<(), NotPassed> {
        for key in keys {
            let value = self.get(key).unwrap_or(&Value::Null);
            ensure(value.is_u64(), format!("{key} is an integer of at least 0"), value)?;
        }
        Ok(())
    }

    /// Checks that the values of these keys are finite numbers of at least 0.
    ///
    /// # Errors
    /// Fails for the first key whose value is not, or that is missing.
    pub fn check_times(&self, keys: &[&str]) -> Result<(), NotPassed> {
        for key in keys {
            let value = self.get(key).unwrap_or(&Value::Null);
            let is_valid = value.as_f64().is_some_and(|number| number.is_finite() && number >= 0.0);
            ensure(is_valid, format!("{key} is a number of at least 0"), value)?;
        }
        Ok(())
    }

    /// Checks that these keys have these values.
    ///
    /// # Errors
    /// Fails for the first key with another value, or that is missing (unless null is expected).
    pub fn check_values(&self, values: &[(&str, Value)]) -> Result<(), NotPassed> {
        for (key, value) in values {
            let observed = self.get(key).unwrap_or(&Value::Null);
            ensure(observed == value, format!("{key} is {value}"), format!("{observed} in {}", excerpt(&self.text)))?;
        }
        Ok(())
    }
}

/// Checks that the answers cover every frame from 1 to `sent` exactly once, in order.
///
/// # Errors
/// Fails with the first gap or overlap, or if frames at the end are not covered.
pub fn check_cover(messages: &[ServerMessage], sent: u32) -> Result<(), NotPassed> {
    let expectation = format!("frames 1 to {sent} are covered exactly once, in their order");
    let mut next = 1;
    for message in messages {
        let (oldest, newest) = (message.oldest(), message.newest());
        let observed = match oldest {
            _ if oldest > next => {
                format!("frames {next} to {} are never covered ({})", oldest - 1, message.description())
            }
            _ if oldest < next => format!("{} comes when frame {next} is next", message.description()),
            _ if newest < oldest => message.description(),
            _ => {
                next = newest + 1;
                continue;
            }
        };
        return Err(failed(expectation, observed));
    }
    ensure(next == u64::from(sent) + 1, expectation, format!("covered up to frame {}", next - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> ServerMessage {
        ServerMessage::read(Instant::now(), text.to_owned()).unwrap()
    }

    fn cover(covers: &[(u32, u32)], sent: u32) -> Result<(), NotPassed> {
        let partial = |&(oldest, newest): &(u32, u32)| {
            message(&format!(r#"{{"type":"partial","oldest_frame_seq":{oldest},"newest_frame_seq":{newest}}}"#))
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
        let observed = message(r#"{"type":"partial","a":1,"b":1.0}"#);
        assert_eq!(observed.check_keys(&["type", "a", "b"]), Ok(()));
        assert!(observed.check_keys(&["type", "b", "a"]).is_err());
        assert!(observed.check_keys(&["type", "a"]).is_err());
        assert!(observed.check_keys(&["type", "a", "b", "c"]).is_err());
        assert_eq!((observed.check_integers(&["a"]), observed.check_integers(&["b"]).is_err()), (Ok(()), true));
        assert!(message(r#"{"type":"error","type":"error"}"#).check_keys(&["type"]).is_err());
    }
}
