//! Cases about the frames of a session: answers cover each frame once and in order, the inference gets them byte for
//! byte, and partials come once per interval.

use std::time::Duration;

use serde_json::json;

use crate::conformance::{
    finding::{NotPassed, Verdict, ensure, failed, passed},
    inference::{BatchResponse, ReceivedRequest, Reply},
    messages::{ServerMessage, check_cover},
    payload,
    scene::{PROMPT, Scene, Session},
};

/// Duration of a stream that is checked as a whole: two and a half of the product's default intervals, 125 frames.
const STREAM: Duration = Duration::from_millis(2500);

async fn streamed(scene: &Scene, lasting: Duration) -> Result<Session, NotPassed> {
    let mut session = scene.session(Vec::new()).await?;
    session.stream(lasting).await?;
    session.covered(scene.patience()).await?;
    Ok(session)
}

/// Case `coverage`: answers cover every frame exactly once, and `frames`, `audio_bytes` and `samples` of a partial fit
/// the frames that it covers.
pub(super) async fn coverage(scene: Scene) -> Verdict {
    let session = streamed(&scene, STREAM).await?;
    check_cover(&session.messages, session.sent)?;
    for message in &session.messages {
        let frames = message.newest() - message.oldest() + 1;
        let samples = frames * payload::FRAME_SAMPLES * u64::from(scene.settings().passes);
        message.check_values(&[
            ("frames", json!(frames)),
            ("audio_bytes", json!(frames * payload::FRAME_BYTES as u64)),
            ("samples", json!(samples)),
        ])?;
    }
    let expectation = "every frame is covered exactly once, in order; frames, audio_bytes and samples count them";
    passed(expectation, format!("{} frames in {} partials", session.sent, session.messages.len()))
}

/// Case `contents`: the values of a partial are the inference's result for exactly the frames that it covers.
pub(super) async fn contents(scene: Scene) -> Verdict {
    let session = streamed(&scene, STREAM).await?;
    for message in session.messages.iter().filter(|message| message.is_partial()) {
        let audio = payload::frames(session.id, message.oldest() as u32, message.newest() as u32);
        let expected = payload::infer(&audio, scene.settings().passes);
        let expectation = format!("{} reports for its frames: {}", message.description(), expected.to_json());
        let matches = message.number("checksum") == u64::from(expected.checksum)
            && message.number("zero_crossings") == expected.zero_crossings
            && message.word("transcript") == expected.transcript
            && (message.milliseconds("rms") - expected.rms).abs() <= 1e-6;
        ensure(matches, expectation, &message.text)?;
    }
    passed(
        "each partial is the inference's answer to exactly its frames",
        format!("{} partials", session.messages.len()),
    )
}

/// Case `batches`: the inference gets exactly the bytes that were sent: none lost, doubled or out of order.
pub(super) async fn batches(scene: Scene) -> Verdict {
    let session = streamed(&scene, STREAM).await?;
    let requests = scene.inference.requests(session.id);
    let expectation = format!("the inference gets frames 1 to {} once, in order, byte for byte", session.sent);
    if let Some(damage) = requests.iter().find_map(|request| request.damage.as_ref()) {
        return Err(failed(expectation, damage));
    }
    let received: Vec<u32> = requests.iter().flat_map(|request| request.sequences.iter().copied()).collect();
    if let Some((at, (observed, _))) =
        received.iter().zip(1..).enumerate().find(|(_, (observed, expected))| *observed != expected)
    {
        return Err(failed(expectation, format!("frame {observed} where frame {} should be", at + 1)));
    }
    ensure(received.len() == session.sent as usize, &expectation, format!("{} frames", received.len()))?;
    passed(expectation, format!("{} batches", requests.len()))
}

/// Case `request`: the gateway sends `POST /infer` with `x-cpu-passes` and Content-Length.
pub(super) async fn request(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.burst(7).await?;
    let requests = scene.inference.wait(session.id, 1, scene.patience()).await?;
    let ReceivedRequest { target, passes, length, bytes, .. } = &requests[0];
    ensure(target == "POST /infer", "POST /infer", target)?;
    let expected_passes = scene.settings().passes.to_string();
    ensure(
        passes.as_deref() == Some(&expected_passes),
        format!("x-cpu-passes: {expected_passes}"),
        format!("{passes:?}"),
    )?;
    ensure(length.as_deref() == Some(&bytes.to_string()), format!("Content-Length: {bytes}"), format!("{length:?}"))?;
    passed("POST /infer with x-cpu-passes and Content-Length", format!("{:?}, {bytes} bytes", requests[0].version))
}

/// Case `echo`: a partial reports the gateway's own `CPU_PASSES` and `MODEL_DELAY_MS`.
pub(super) async fn echo(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.burst(1).await?;
    let message = session.partial(scene.patience()).await?;
    let settings = scene.settings();
    message
        .check_values(&[("cpu_passes", json!(settings.passes)), ("model_delay_ms", json!(settings.model_delay_ms))])?;
    passed("cpu_passes and model_delay_ms are CPU_PASSES and MODEL_DELAY_MS", message.text)
}

/// Case `pass-through`: the inference's values reach the client unchanged, including unusual ones.
pub(super) async fn pass_through(scene: Scene) -> Verdict {
    fn unusual(correct: &str) -> String {
        let mut value: serde_json::Value = serde_json::from_str(correct).expect("our own answer");
        value["rms"] = json!(0.1);
        value["checksum"] = json!(u32::MAX);
        value["zero_crossings"] = json!(1_u64 << 40);
        value["transcript"] = json!("a \"b\"\t\\ é 語 \u{1f600}");
        value.to_string()
    }
    let mut session = scene.session(vec![Reply::now(BatchResponse::Edited(unusual))]).await?;
    session.burst(1).await?;
    let message = session.partial(scene.patience()).await?;
    message.check_values(&[
        ("rms", json!(0.1)),
        ("checksum", json!(u32::MAX)),
        ("zero_crossings", json!(1_u64 << 40)),
        ("transcript", json!("a \"b\"\t\\ é 語 \u{1f600}")),
    ])?;
    passed("rms, checksum, zero_crossings and transcript as the inference reported them", message.text)
}

/// Case `cadence`: the gap between partials is 0.75 to 1.5 intervals.
pub(super) async fn cadence(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    let interval = scene.settings().interval;
    session.stream(interval * 13 / 4).await?;
    while session.messages.len() < 3 {
        session.next_message(interval * 2 + PROMPT).await?;
    }
    let times: Vec<_> = session.messages.iter().map(|message| message.at).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect();
    let (least, most) = (interval * 3 / 4, interval * 3 / 2);
    let expectation = format!("at least 3 partials, {} to {} ms apart", least.as_millis(), most.as_millis());
    let description = |gap: &Duration| format!("{} ms", gap.as_millis());
    let observed = gaps.iter().map(description).collect::<Vec<_>>().join(", ");
    ensure(gaps.iter().all(|gap| (least..=most).contains(gap)), &expectation, &observed)?;
    passed(expectation, observed)
}

/// Case `close`: a Close in a session is answered with Close within a second, and the connection ends.
pub(super) async fn close(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.burst(1).await?;
    session.client.close_handshake(PROMPT).await
}

/// Formats answers for the evidence of a case.
pub(super) fn description(messages: &[ServerMessage]) -> String {
    messages.iter().map(ServerMessage::description).collect::<Vec<_>>().join(", ")
}
