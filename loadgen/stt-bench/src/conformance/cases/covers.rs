//! Cases about the frames of a session: answers cover each frame once and in order, the inference gets them byte for
//! byte, and partials come once per interval.

use std::time::Duration;

use serde_json::json;

use crate::conformance::{
    answers::{ServerMessage, check_cover},
    finding::{NotPassed, Verdict, ensure, failed, passed},
    inference::{BatchResponse, ReceivedRequest, Reply},
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
    check_cover(&session.answers, session.sent)?;
    for answer in &session.answers {
        let frames = answer.newest() - answer.oldest() + 1;
        let samples = frames * payload::FRAME_SAMPLES * u64::from(scene.settings().passes);
        answer.check_values(&[
            ("frames", json!(frames)),
            ("audio_bytes", json!(frames * payload::FRAME_BYTES as u64)),
            ("samples", json!(samples)),
        ])?;
    }
    let wish = "every frame is covered exactly once, in order; frames, audio_bytes and samples count them";
    passed(wish, format!("{} frames in {} partials", session.sent, session.answers.len()))
}

/// Case `contents`: the values of a partial are the inference's result for exactly the frames that it covers.
pub(super) async fn contents(scene: Scene) -> Verdict {
    let session = streamed(&scene, STREAM).await?;
    for answer in session.answers.iter().filter(|answer| answer.is_partial()) {
        let audio = payload::frames(session.id, answer.oldest() as u32, answer.newest() as u32);
        let right = payload::infer(&audio, scene.settings().passes);
        let wish = format!("{} reports for its frames: {}", answer.description(), right.to_json());
        let same = answer.number("checksum") == u64::from(right.checksum)
            && answer.number("zero_crossings") == right.zero_crossings
            && answer.word("transcript") == right.transcript
            && (answer.milliseconds("rms") - right.rms).abs() <= 1e-6;
        ensure(same, wish, &answer.text)?;
    }
    passed(
        "each partial is the inference's answer to exactly its frames",
        format!("{} partials", session.answers.len()),
    )
}

/// Case `batches`: the inference gets exactly the bytes that were sent: none lost, doubled or out of order.
pub(super) async fn batches(scene: Scene) -> Verdict {
    let session = streamed(&scene, STREAM).await?;
    let asked = scene.inference.asked(session.id);
    let wish = format!("the inference gets frames 1 to {} once, in order, byte for byte", session.sent);
    if let Some(damage) = asked.iter().find_map(|asked| asked.damage.as_ref()) {
        return Err(failed(wish, damage));
    }
    let got: Vec<u32> = asked.iter().flat_map(|asked| asked.sequences.iter().copied()).collect();
    if let Some((at, (seen, _))) = got.iter().zip(1..).enumerate().find(|(_, (seen, right))| *seen != right) {
        return Err(failed(wish, format!("frame {seen} where frame {} should be", at + 1)));
    }
    ensure(got.len() == session.sent as usize, &wish, format!("{} frames", got.len()))?;
    passed(wish, format!("{} batches", asked.len()))
}

/// Case `request`: the gateway sends `POST /infer` with `x-cpu-passes` and Content-Length.
pub(super) async fn request(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.burst(7).await?;
    let asked = scene.inference.wait(session.id, 1, scene.patience()).await?;
    let ReceivedRequest { target, passes, length, bytes, .. } = &asked[0];
    ensure(target == "POST /infer", "POST /infer", target)?;
    let wish = scene.settings().passes.to_string();
    ensure(passes.as_deref() == Some(&wish), format!("x-cpu-passes: {wish}"), format!("{passes:?}"))?;
    ensure(length.as_deref() == Some(&bytes.to_string()), format!("Content-Length: {bytes}"), format!("{length:?}"))?;
    passed("POST /infer with x-cpu-passes and Content-Length", format!("{:?}, {bytes} bytes", asked[0].version))
}

/// Case `echo`: a partial reports the gateway's own `CPU_PASSES` and `MODEL_DELAY_MS`.
pub(super) async fn echo(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.burst(1).await?;
    let answer = session.partial(scene.patience()).await?;
    let settings = scene.settings();
    answer
        .check_values(&[("cpu_passes", json!(settings.passes)), ("model_delay_ms", json!(settings.model_delay_ms))])?;
    passed("cpu_passes and model_delay_ms are CPU_PASSES and MODEL_DELAY_MS", answer.text)
}

/// Case `pass-through`: the inference's values reach the client unchanged, including unusual ones.
pub(super) async fn pass_through(scene: Scene) -> Verdict {
    fn unusual(right: &str) -> String {
        let mut value: serde_json::Value = serde_json::from_str(right).expect("our own answer");
        value["rms"] = json!(0.1);
        value["checksum"] = json!(u32::MAX);
        value["zero_crossings"] = json!(1_u64 << 40);
        value["transcript"] = json!("a \"b\"\t\\ é 語 \u{1f600}");
        value.to_string()
    }
    let mut session = scene.session(vec![Reply::now(BatchResponse::Edited(unusual))]).await?;
    session.burst(1).await?;
    let answer = session.partial(scene.patience()).await?;
    answer.check_values(&[
        ("rms", json!(0.1)),
        ("checksum", json!(u32::MAX)),
        ("zero_crossings", json!(1_u64 << 40)),
        ("transcript", json!("a \"b\"\t\\ é 語 \u{1f600}")),
    ])?;
    passed("rms, checksum, zero_crossings and transcript as the inference reported them", answer.text)
}

/// Case `cadence`: the gap between partials is 0.75 to 1.5 intervals.
pub(super) async fn cadence(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    let interval = scene.settings().interval;
    session.stream(interval * 13 / 4).await?;
    while session.answers.len() < 3 {
        session.answer(interval * 2 + PROMPT).await?;
    }
    let times: Vec<_> = session.answers.iter().map(|answer| answer.at).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).collect();
    let (least, most) = (interval * 3 / 4, interval * 3 / 2);
    let wish = format!("at least 3 partials, {} to {} ms apart", least.as_millis(), most.as_millis());
    let description = |gap: &Duration| format!("{} ms", gap.as_millis());
    let seen = gaps.iter().map(description).collect::<Vec<_>>().join(", ");
    ensure(gaps.iter().all(|gap| (least..=most).contains(gap)), &wish, &seen)?;
    passed(wish, seen)
}

/// Case `close`: a Close in a session is answered with Close within a second, and the connection ends.
pub(super) async fn close(scene: Scene) -> Verdict {
    let mut session = scene.session(Vec::new()).await?;
    session.burst(1).await?;
    session.client.farewell(PROMPT).await
}

/// Formats answers for the evidence of a case.
pub(super) fn description(answers: &[ServerMessage]) -> String {
    answers.iter().map(ServerMessage::description).collect::<Vec<_>>().join(", ")
}
