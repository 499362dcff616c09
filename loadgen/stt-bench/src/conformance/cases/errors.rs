//! An inference that fails: each way of failing has its error frame, and the session goes on.

use std::time::Instant;

use serde_json::{Value, json};

use crate::conformance::{
    answers::{Answer, ERROR_KEYS},
    finding::{Trouble, Verdict, ensure, passed},
    inference::{Answer as Says, Reply},
    payload,
    scene::Scene,
};

/// Frames of the batch that fails.
const FRAMES: u32 = 5;

/// The error frame that a batch gets when the inference says this.
async fn provoke(scene: &Scene, says: Says) -> Result<Answer, Trouble> {
    let mut session = scene.session(vec![Reply::now(says), Reply::now(Says::Right)]).await?;
    session.burst(FRAMES).await?;
    session.error(scene.patience()).await
}

/// What an error frame says of its cause.
fn cause<'a>(stage: &str, kind: &str, status: Option<u16>, retryable: bool) -> [(&'a str, Value); 4] {
    [
        ("stage", json!(stage)),
        ("kind", json!(kind)),
        ("inference_status", json!(status)),
        ("retryable", json!(retryable)),
    ]
}

fn wish(stage: &str, kind: &str, status: Option<u16>, retryable: bool) -> String {
    let status = status.map_or("null".into(), |status| status.to_string());
    format!("an error frame: {stage}, {kind}, status {status}, retryable {retryable}")
}

async fn status(scene: Scene, status: u16, kind: &str, retryable: bool) -> Verdict {
    let answer = provoke(&scene, Says::Status(status)).await?;
    answer.check_values(&cause("inference_request", kind, Some(status), retryable))?;
    passed(wish("inference_request", kind, Some(status), retryable), answer.text)
}

/// 500 and 503.
pub(super) async fn server_error(scene: Scene) -> Verdict {
    status(scene.clone(), 500, "http_5xx", true).await?;
    status(scene, 503, "http_5xx", true).await
}

/// 429.
pub(super) async fn too_many_requests(scene: Scene) -> Verdict {
    status(scene, 429, "http_429", true).await
}

/// 400 and 404.
pub(super) async fn client_error(scene: Scene) -> Verdict {
    status(scene.clone(), 400, "http_5xx", false).await?;
    status(scene, 404, "http_5xx", false).await
}

/// No answer in time.
pub(super) async fn timeout(scene: Scene) -> Verdict {
    let mut session = scene.session(vec![Reply::now(Says::Never), Reply::now(Says::Right)]).await?;
    session.burst(FRAMES).await?;
    let asked = scene.inference.wait(session.id, 1, scene.patience()).await?;
    let answer = session.error(scene.patience()).await?;
    answer.check_values(&cause("inference_request", "timeout", None, true))?;
    let took = answer.at.duration_since(asked[0].arrived);
    let limit = scene.settings().timeout;
    let range = limit.mul_f64(0.8)..=limit + std::time::Duration::from_millis(1000);
    let when = format!("{} to {} ms after the request", range.start().as_millis(), range.end().as_millis());
    ensure(range.contains(&took), &when, format!("after {} ms", took.as_millis()))?;
    passed(format!("{}, {when}", wish("inference_request", "timeout", None, true)), answer.text)
}

/// The connection to the inference breaks.
pub(super) async fn reset(scene: Scene) -> Verdict {
    let answer = provoke(&scene, Says::Reset).await?;
    answer.check_values(&cause("inference_request", "connection_reset", None, true))?;
    passed(wish("inference_request", "connection_reset", None, true), answer.text)
}

/// What is wrong with an answer, and how it gets wrong.
type Edit<'a> = (&'a str, fn(&str) -> String);

/// 200, but not what the interface says.
async fn unreadable(scene: &Scene, edits: &[Edit<'_>]) -> Verdict {
    for (what, edit) in edits {
        let answer = provoke(scene, Says::Edited(*edit)).await?;
        answer.check_values(&cause("inference_response_parse", "parse_error", Some(200), false)).map_err(
            |trouble| {
                let Trouble::Failed(mut evidence) = trouble else { return trouble };
                evidence.seen = format!("{} (the inference's answer {what})", evidence.seen);
                Trouble::Failed(evidence)
            },
        )?;
    }
    let what = edits.iter().map(|(what, _)| *what).collect::<Vec<_>>().join("; ");
    passed(wish("inference_response_parse", "parse_error", Some(200), false), format!("for an answer that {what}"))
}

/// A body that is no JSON, or no object.
pub(super) async fn garbage(scene: Scene) -> Verdict {
    unreadable(
        &scene,
        &[
            ("is no JSON", |_| "<html>".into()),
            ("is empty", |_| String::new()),
            ("is a list", |_| "[]".into()),
            ("breaks off", |right| right[..right.len() / 2].into()),
        ],
    )
    .await
}

/// A body with other keys than the six.
pub(super) async fn unknown_field(scene: Scene) -> Verdict {
    unreadable(
        &scene,
        &[
            ("has a seventh key", |right| right.replacen('{', "{\"language\":\"en\",", 1)),
            ("lacks the transcript", |right| {
                let mut value: Value = serde_json::from_str(right).expect("our own answer");
                value.as_object_mut().expect("our own answer").remove("transcript");
                value.to_string()
            }),
        ],
    )
    .await
}

/// A body whose counts are not those of the batch.
pub(super) async fn wrong_counts(scene: Scene) -> Verdict {
    fn with(right: &str, key: &str, value: u64) -> String {
        let mut edited: Value = serde_json::from_str(right).expect("our own answer");
        edited[key] = json!(value);
        edited.to_string()
    }
    unreadable(
        &scene,
        &[
            ("counts a sample too few", |right| with(right, "samples", 3199)),
            ("counts a byte too many", |right| with(right, "audio_bytes", 3201)),
        ],
    )
    .await
}

/// The error frame itself: its keys, its numbers.
pub(super) async fn error_schema(scene: Scene) -> Verdict {
    let answer = provoke(&scene, Says::Status(503)).await?;
    answer.check_keys(&ERROR_KEYS)?;
    answer.check_integers(&["gateway_buffer_frames", "inference_status"])?;
    answer.check_times(&["oldest_age_ms", "newest_age_ms", "flush_lateness_ms", "inference_elapsed_ms"])?;
    let (oldest, newest) = (answer.milliseconds("oldest_age_ms"), answer.milliseconds("newest_age_ms"));
    // Two readings of the clock may lie between them.
    ensure(oldest >= newest - 1.0, "oldest_age_ms is at least newest_age_ms", format!("{oldest} and {newest}"))?;
    ensure(!answer.word("message").is_empty(), "a message", "none")?;
    // A burst may be read in two parts, and then the tick may fall between them.
    let frames = answer.newest() + 1 - answer.oldest().max(1);
    answer.check_values(&[
        ("oldest_frame_seq", json!(1)),
        ("frames", json!(frames)),
        ("audio_bytes", json!(frames * payload::FRAME_BYTES as u64)),
        ("inflight_gateway_batches", json!(1)),
    ])?;
    passed("the 16 keys, in order, with the numbers of the batch", answer.text)
}

/// After an error frame the connection stays open, and the next batch is answered.
pub(super) async fn recovery(scene: Scene) -> Verdict {
    let script = vec![Reply::now(Says::Status(503)), Reply::now(Says::Reset), Reply::now(Says::Right)];
    let mut session = scene.session(script).await?;
    let begun = Instant::now();
    for _ in 0..3 {
        session.burst(1).await?;
        session.answer(scene.patience()).await?;
    }
    let wish = "the third batch of a session is answered after two that failed";
    let last = session.answers.last().expect("three answers came");
    ensure(last.is_partial() && last.newest() == 3, wish, super::covers::words(&session.answers))?;
    passed(wish, format!("{} after {} ms", super::covers::words(&session.answers), begun.elapsed().as_millis()))
}
