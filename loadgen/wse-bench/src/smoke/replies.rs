//! Compares a service's replies to the check's pings with what the protocol requires. Pure.

use loadgen_core::{frame::Opcode, peer::ReceivedFrame};
use serde::Deserialize;

use crate::protocol::without_prefix;

/// The replies to two pings of the protocol and a WebSocket Ping.
#[derive(Debug)]
pub(super) struct PingReplies {
    pings: [Ping; 2],
    payload: &'static [u8],
    pong: bool,
    findings: Vec<String>,
}

/// One ping of the protocol.
#[derive(Debug)]
struct Ping {
    name: &'static str,
    timestamp: u64,
    answered: bool,
}

/// The fields that every message has.
#[derive(Deserialize)]
struct Envelope {
    c: Option<String>,
    t: Option<String>,
    v: Option<u64>,
    p: Option<serde_json::Value>,
}

/// The payload of a PONG.
#[derive(Deserialize)]
struct Pong {
    client_timestamp: u64,
    server_timestamp: u64,
    latency: u64,
}

impl PingReplies {
    /// Starts without replies. `timestamps` are those of the two pings, `payload` that of the WebSocket Ping.
    pub(super) fn to(timestamps: [u64; 2], payload: &'static [u8]) -> Self {
        let [unfragmented, fragmented] = timestamps;
        let ping = |name, timestamp| Ping { name, timestamp, answered: false };
        let pings = [ping("a ping", unfragmented), ping("a ping in three fragments", fragmented)];
        Self { pings, payload, pong: false, findings: Vec::new() }
    }

    /// Whether every ping was answered.
    pub(super) fn are_complete(&self) -> bool {
        self.pong && self.pings.iter().all(|ping| ping.answered)
    }

    /// Enters a frame that is not a Close frame.
    pub(super) fn take(&mut self, frame: &ReceivedFrame) {
        match frame.opcode {
            Opcode::Pong => {
                self.pong = true;
                if frame.payload != self.payload {
                    self.findings.push(format!("a WebSocket ping came back changed: {}", frame.description()));
                }
            }
            Opcode::Text | Opcode::Binary if is_pong(&frame.payload) => self.take_pong(frame),
            // server_hello, a ping of the service or an event isn't part of the check.
            _ => {}
        }
    }

    fn take_pong(&mut self, frame: &ReceivedFrame) {
        if let Err(fault) = self.match_pong(frame) {
            self.findings.push(format!("{fault}: {}", frame.description()));
        }
    }

    fn match_pong(&mut self, frame: &ReceivedFrame) -> Result<(), &'static str> {
        let envelope = envelope(&frame.payload).ok_or("a PONG is not a JSON object")?;
        let pong: Pong = envelope
            .p
            .and_then(|p| serde_json::from_value(p).ok())
            .ok_or("a PONG lacks client_timestamp, server_timestamp or latency")?;
        let ping = self.pings.iter_mut().find(|ping| ping.timestamp == pong.client_timestamp);
        let ping = ping.ok_or("a PONG echoes a timestamp that was not sent")?;
        if std::mem::replace(&mut ping.answered, true) {
            return Err("one ping was answered twice");
        }
        if frame.opcode != Opcode::Text || !frame.last {
            return Err("a PONG is not a single TEXT frame");
        }
        if envelope.c.as_deref() != Some("WSE") || envelope.t.as_deref() != Some("PONG") || envelope.v != Some(1) {
            return Err("a PONG is not of category WSE, type PONG, version 1");
        }
        if pong.latency != pong.server_timestamp.saturating_sub(pong.client_timestamp) {
            return Err("a PONG's latency is not the difference of its timestamps");
        }
        Ok(())
    }

    /// Wrong and missing replies.
    pub(super) fn findings(self) -> Vec<String> {
        let missing = self.pings.iter().filter(|ping| !ping.answered).map(|ping| ping.name);
        let missing = missing.chain((!self.pong).then_some("a WebSocket ping"));
        let missing: Vec<_> = missing.map(|name| format!("{name} was not answered in time")).collect();
        [self.findings, missing].concat()
    }
}

/// Checks that a frame is the error message for an invalid token.
///
/// # Errors
/// When it is another frame; the text quotes it.
pub(super) fn refusal(frame: &ReceivedFrame) -> Result<(), String> {
    let error = envelope(&frame.payload).filter(|envelope| envelope.t.as_deref() == Some("error"));
    let code = error.and_then(|error| error.p?.get("code")?.as_str().map(str::to_owned));
    match (frame.opcode, code.as_deref()) {
        (Opcode::Text, Some("AUTH_FAILED")) => Ok(()),
        _ => Err(format!("expected an error AUTH_FAILED, received {}", frame.description())),
    }
}

/// The code of a Close frame; `None` when it has none.
pub(super) fn close_code(payload: &[u8]) -> Option<u16> {
    payload.first_chunk::<2>().map(|code| u16::from_be_bytes(*code))
}

fn envelope(payload: &[u8]) -> Option<Envelope> {
    serde_json::from_slice(without_prefix(payload)).ok()
}

/// Whether a message is a PONG, even one with errors, which would otherwise be ignored.
fn is_pong(payload: &[u8]) -> bool {
    memchr::memmem::find(payload, b"client_timestamp").is_some()
        || envelope(payload).is_some_and(|envelope| envelope.t.is_some_and(|t| t.eq_ignore_ascii_case("pong")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(payload: &str) -> ReceivedFrame {
        ReceivedFrame { last: true, opcode: Opcode::Text, payload: payload.into() }
    }

    fn pong(timestamp: u64) -> String {
        format!(
            r#"{{"c":"WSE","t":"PONG","p":{{"client_timestamp":{timestamp},"server_timestamp":107,"latency":{}}},"v":1}}"#,
            107 - timestamp
        )
    }

    /// The findings after a WebSocket Pong and these frames.
    fn after(frames: &[ReceivedFrame]) -> Vec<String> {
        let mut replies = PingReplies::to([100, 101], b"x");
        replies.take(&ReceivedFrame { last: true, opcode: Opcode::Pong, payload: b"x".to_vec() });
        frames.iter().for_each(|frame| replies.take(frame));
        replies.findings()
    }

    #[test]
    fn valid_answers_in_any_order_are_not_findings() {
        let hello = text(r#"{"c":"WSE","t":"server_hello","v":1,"p":{}}"#);
        let ping = text(r#"{"c":"WSE","t":"ping","p":{"server_time":"x"}}"#);
        assert_eq!(after(&[hello, text(&pong(101)), ping, text(&pong(100))]), Vec::<String>::new());
    }

    #[test]
    fn a_missing_reply_is_named() {
        assert_eq!(after(&[text(&pong(100))]), ["a ping in three fragments was not answered in time"]);
        assert_eq!(after(&[text(&pong(101))]), ["a ping was not answered in time"]);
        let mut silent = PingReplies::to([100, 101], b"x");
        silent.take(&text(&pong(100)));
        silent.take(&text(&pong(101)));
        assert!(!silent.are_complete());
        assert_eq!(silent.findings(), ["a WebSocket ping was not answered in time"]);
    }

    #[test]
    fn each_field_of_a_pong_is_looked_at() {
        let valid = pong(100);
        let binary = ReceivedFrame { opcode: Opcode::Binary, ..text(&valid) };
        for (frame, fault) in [
            (text(&valid.replace("PONG", "pong")), "not of category WSE, type PONG"),
            (text(&valid.replace("\"v\":1", "\"v\":2")), "not of category WSE, type PONG"),
            (text(&valid.replace("\"latency\":7", "\"latency\":8")), "latency is not the difference"),
            (text(&valid.replace("\"latency\":7", "\"lag\":7")), "lacks client_timestamp"),
            (text(&valid.replace("100", "99")), "a timestamp that was not sent"),
            (text(&valid.replace("},", ",")), "is not a JSON object"),
            (binary, "is not a single TEXT frame"),
        ] {
            let findings = after(&[frame, text(&pong(101))]);
            assert!(findings[0].contains(fault), "{fault}: {findings:?}");
        }
    }

    #[test]
    fn two_answers_to_one_ping_are_one_too_many() {
        let findings = after(&[text(&pong(100)), text(&pong(100)), text(&pong(101))]);
        assert!(findings[0].starts_with("one ping was answered twice"), "{findings:?}");
    }

    #[test]
    fn only_an_error_with_the_refusal_code_is_a_refusal() {
        assert_eq!(refusal(&text(r#"{"c":"WSE","t":"error","p":{"code":"AUTH_FAILED"},"v":1}"#)), Ok(()));
        let ready = refusal(&text(r#"{"c":"WSE","t":"server_ready","p":{},"v":1}"#)).unwrap_err();
        assert!(ready.contains("expected an error AUTH_FAILED") && ready.contains("server_ready"), "{ready}");
    }
}
