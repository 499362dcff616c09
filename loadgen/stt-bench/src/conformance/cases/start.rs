//! Cases about the start of a session: the first message, and messages that may not come instead of it or after it.

use serde_json::json;

use crate::conformance::{
    client::Event,
    finding::{Verdict, ensure, failed, passed},
    messages::PARTIAL_KEYS,
    payload::golden_frame,
    scene::{PROMPT, START, Scene},
};

/// Case `ready`: a connection is upgraded, and a Close before start is a normal end.
pub(super) async fn ready(scene: Scene) -> Verdict {
    scene.connect().await?.close_handshake(PROMPT).await
}

/// Case `partial`: the golden frame gives a partial with exactly the contract's keys and the golden values.
pub(super) async fn partial(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.client.binary(&golden_frame()).await?;
    let message = session.partial(scene.settings().interval * 2 + PROMPT).await?;
    message.check_keys(&PARTIAL_KEYS)?;
    message.check_integers(&[
        "oldest_frame_seq",
        "newest_frame_seq",
        "frames",
        "zero_crossings",
        "checksum",
        "samples",
        "audio_bytes",
        "cpu_passes",
        "model_delay_ms",
        "inflight_model_jobs",
    ])?;
    message.check_times(&["rms", "flush_lateness_ms"])?;
    message.check_values(&[
        ("oldest_frame_seq", json!(1)),
        ("newest_frame_seq", json!(1)),
        ("frames", json!(1)),
        ("samples", json!(1280)),
        ("checksum", json!(1_745_339_397)),
        ("zero_crossings", json!(7)),
        ("transcript", json!("now")),
        ("audio_bytes", json!(640)),
        ("inflight_model_jobs", json!(0)),
    ])?;
    let rms = message.milliseconds("rms");
    ensure((rms - 2_425.502_319_108_353_3).abs() <= 1e-6, "rms is 2425.5023191083533 ± 1e-6", rms)?;
    passed("the 14 keys with the golden values of frame 1 of session 0", message.text)
}

/// Sends each text as the first message of its own connection; each must be refused with 1002.
async fn refused_first(scene: &Scene, texts: &[&str]) -> Verdict {
    let mut observed = Vec::new();
    for text in texts {
        let mut client = scene.connect().await?;
        client.text(text).await?;
        match client.refused(1002, PROMPT).await {
            Ok(evidence) => observed.push(evidence.seen),
            Err(not_passed) => return Err(about(not_passed, text)),
        }
    }
    passed(format!("Close 1002 to each of {}", texts.join(", ")), observed.join(", "))
}

/// Adds what was sent to the evidence of a failure.
fn about(not_passed: crate::conformance::finding::NotPassed, sent: &str) -> crate::conformance::finding::NotPassed {
    use crate::conformance::finding::NotPassed::{Failed, Skipped};
    match not_passed {
        Failed(evidence) => failed(evidence.expected, format!("{} (after {sent})", evidence.seen)),
        Skipped(reason) => Skipped(reason),
    }
}

/// Case `invalid-start`: a text that is not a start is refused with 1002.
pub(super) async fn invalid_start(scene: Scene) -> Verdict {
    refused_first(&scene, &["not-json", "{}", r#"{"type":"stop"}"#, r#""start""#, "[]"]).await
}

/// Case `extra-key`: a start with a further key is refused with 1002.
pub(super) async fn extra_key(scene: Scene) -> Verdict {
    refused_first(&scene, &[r#"{"type":"start","language":"en"}"#]).await
}

/// Case `binary-first`: audio before start is refused with 1002.
pub(super) async fn binary_first(scene: Scene) -> Verdict {
    let mut client = scene.connect().await?;
    client.binary(&golden_frame()).await?;
    client.refused(1002, PROMPT).await
}

/// Case `spaced-start`: white space in the JSON of a start is accepted.
pub(super) async fn spaced_start(scene: Scene) -> Verdict {
    let mut client = scene.connect().await?;
    client.text(" {\r\n\t\"type\" : \"start\" } \n").await?;
    client.binary(&golden_frame()).await?;
    let expectation = "a start with white space is taken: a partial follows";
    match client.next(scene.settings().interval * 2 + PROMPT).await.map(|received| received.event) {
        Some(Event::Text(text)) if text.contains("partial") => passed(expectation, "a partial"),
        Some(event) => Err(failed(expectation, event.description())),
        None => Err(failed(expectation, "nothing in time")),
    }
}

/// Case `text-after-start`: a text after start is refused with 1002.
pub(super) async fn text_after_start(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.client.text(START).await?;
    session.client.refused(1002, PROMPT).await
}

/// Case `invalid-frame`: audio of another length than 640 bytes is refused with 1003.
pub(super) async fn invalid_frame(scene: Scene) -> Verdict {
    let mut observed = Vec::new();
    const LENGTHS: [usize; 5] = [10, 0, 639, 641, 1280];
    for length in LENGTHS {
        let mut session = scene.session(Vec::new()).await?;
        session.client.binary(&vec![1; length]).await?;
        match session.client.refused(1003, PROMPT).await {
            Ok(evidence) => observed.push(evidence.seen),
            Err(not_passed) => return Err(about(not_passed, &format!("{length} bytes"))),
        }
    }
    passed(format!("Close 1003 to each of {LENGTHS:?} bytes"), observed.join(", "))
}
