//! Cases about a failing inference: each kind of failure has its error frame, and the session continues.

use std::time::Instant;

use serde_json::{Value, json};

use crate::conformance::{
    finding::{NotPassed, Verdict, ensure, passed},
    inference::{BatchResponse, Reply},
    messages::{ERROR_KEYS, ServerMessage},
    payload,
    scene::Scene,
};

/// Number of frames in the batch that fails.
const FRAMES: u32 = 5;

/// Starts a session whose first batch gets this response of the inference, and returns the error frame.
async fn error_for(scene: &Scene, response: BatchResponse) -> Result<ServerMessage, NotPassed> {
    let mut session = scene.session(vec![Reply::now(response), Reply::now(BatchResponse::Correct)]).await?;
    session.burst(FRAMES).await?;
    session.error(scene.patience()).await
}

/// Members of an error frame that describe its cause.
fn cause<'a>(stage: &str, kind: &str, status: Option<u16>, retryable: bool) -> [(&'a str, Value); 4] {
    [
        ("stage", json!(stage)),
        ("kind", json!(kind)),
        ("inference_status", json!(status)),
        ("retryable", json!(retryable)),
    ]
}

fn expected_error(stage: &str, kind: &str, status: Option<u16>, retryable: bool) -> String {
    let status = status.map_or("null".into(), |status| status.to_string());
    format!("an error frame: {stage}, {kind}, status {status}, retryable {retryable}")
}

async fn status(scene: Scene, status: u16, kind: &str, retryable: bool) -> Verdict {
    let message = error_for(&scene, BatchResponse::Status(status)).await?;
    message.check_values(&cause("inference_request", kind, Some(status), retryable))?;
    passed(expected_error("inference_request", kind, Some(status), retryable), message.text)
}

/// Case `http-5xx`: status 500 and 503 give `http_5xx`, retryable.
pub(super) async fn server_error(scene: Scene) -> Verdict {
    status(scene.clone(), 500, "http_5xx", true).await?;
    status(scene, 503, "http_5xx", true).await
}

/// Case `http-429`: status 429 gives `http_429`, retryable.
pub(super) async fn too_many_requests(scene: Scene) -> Verdict {
    status(scene, 429, "http_429", true).await
}

/// Case `http-4xx`: status 400 and 404 give `http_5xx`, not retryable.
pub(super) async fn client_error(scene: Scene) -> Verdict {
    status(scene.clone(), 400, "http_5xx", false).await?;
    status(scene, 404, "http_5xx", false).await
}

/// Case `timeout`: an inference that does not respond gives `timeout`, from 0.8 of the configured timeout to one second
/// after it.
pub(super) async fn timeout(scene: Scene) -> Verdict {
    let mut session = scene.session(vec![Reply::now(BatchResponse::Never), Reply::now(BatchResponse::Correct)]).await?;
    session.burst(FRAMES).await?;
    let requests = scene.inference.wait(session.id, 1, scene.patience()).await?;
    let message = session.error(scene.patience()).await?;
    message.check_values(&cause("inference_request", "timeout", None, true))?;
    let duration = message.at.duration_since(requests[0].arrived);
    let limit = scene.settings().timeout;
    let range = limit.mul_f64(0.8)..=limit + std::time::Duration::from_millis(1000);
    let when = format!("{} to {} ms after the request", range.start().as_millis(), range.end().as_millis());
    ensure(range.contains(&duration), &when, format!("after {} ms", duration.as_millis()))?;
    passed(format!("{}, {when}", expected_error("inference_request", "timeout", None, true)), message.text)
}

/// Case `reset`: a reset connection to the inference gives `connection_reset`, retryable.
pub(super) async fn reset(scene: Scene) -> Verdict {
    let message = error_for(&scene, BatchResponse::Reset).await?;
    message.check_values(&cause("inference_request", "connection_reset", None, true))?;
    passed(expected_error("inference_request", "connection_reset", None, true), message.text)
}

/// Description of a faulty response, and the function that makes it from the correct one.
type Edit<'a> = (&'a str, fn(&str) -> String);

/// Checks that each edited response with status 200 gives a `parse_error`.
async fn unreadable(scene: &Scene, edits: &[Edit<'_>]) -> Verdict {
    for (flaw, edit) in edits {
        let message = error_for(scene, BatchResponse::Edited(*edit)).await?;
        message.check_values(&cause("inference_response_parse", "parse_error", Some(200), false)).map_err(
            |not_passed| {
                let NotPassed::Failed(mut evidence) = not_passed else { return not_passed };
                evidence.seen = format!("{} (the inference's answer {flaw})", evidence.seen);
                NotPassed::Failed(evidence)
            },
        )?;
    }
    let flaws = edits.iter().map(|(flaw, _)| *flaw).collect::<Vec<_>>().join("; ");
    passed(
        expected_error("inference_response_parse", "parse_error", Some(200), false),
        format!("for an answer that {flaws}"),
    )
}

/// Case `garbage`: a body that is not a JSON object gives a `parse_error`.
pub(super) async fn garbage(scene: Scene) -> Verdict {
    unreadable(
        &scene,
        &[
            ("is no JSON", |_| "<html>".into()),
            ("is empty", |_| String::new()),
            ("is a list", |_| "[]".into()),
            ("breaks off", |correct| correct[..correct.len() / 2].into()),
        ],
    )
    .await
}

/// Case `unknown-field`: a body with a surplus or a missing key gives a `parse_error`.
pub(super) async fn unknown_field(scene: Scene) -> Verdict {
    unreadable(
        &scene,
        &[
            ("has a seventh key", |correct| correct.replacen('{', "{\"language\":\"en\",", 1)),
            ("lacks the transcript", |correct| {
                let mut value: Value = serde_json::from_str(correct).expect("our own answer");
                value.as_object_mut().expect("our own answer").remove("transcript");
                value.to_string()
            }),
        ],
    )
    .await
}

/// Case `wrong-counts`: a body whose `samples` or `audio_bytes` do not fit the batch gives a `parse_error`.
pub(super) async fn wrong_counts(scene: Scene) -> Verdict {
    fn with(correct: &str, key: &str, value: u64) -> String {
        let mut edited: Value = serde_json::from_str(correct).expect("our own answer");
        edited[key] = json!(value);
        edited.to_string()
    }
    unreadable(
        &scene,
        &[
            ("counts a sample too few", |correct| with(correct, "samples", 3199)),
            ("counts a byte too many", |correct| with(correct, "audio_bytes", 3201)),
        ],
    )
    .await
}

/// Case `error-frame`: an error frame has the 16 keys of the contract, and the numbers of its batch.
pub(super) async fn error_schema(scene: Scene) -> Verdict {
    let message = error_for(&scene, BatchResponse::Status(503)).await?;
    message.check_keys(&ERROR_KEYS)?;
    message.check_integers(&["gateway_buffer_frames", "inference_status"])?;
    message.check_times(&["oldest_age_ms", "newest_age_ms", "flush_lateness_ms", "inference_elapsed_ms"])?;
    let (oldest, newest) = (message.milliseconds("oldest_age_ms"), message.milliseconds("newest_age_ms"));
    // The gateway may read its clock once for each of the two ages.
    ensure(oldest >= newest - 1.0, "oldest_age_ms is at least newest_age_ms", format!("{oldest} and {newest}"))?;
    ensure(!message.word("message").is_empty(), "a message", "none")?;
    // The gateway may read the burst in two parts, with the tick between them.
    let frames = message.newest() + 1 - message.oldest().max(1);
    message.check_values(&[
        ("oldest_frame_seq", json!(1)),
        ("frames", json!(frames)),
        ("audio_bytes", json!(frames * payload::FRAME_BYTES as u64)),
        ("inflight_gateway_batches", json!(1)),
    ])?;
    passed("the 16 keys, in order, with the numbers of the batch", message.text)
}

/// Case `recovery`: after an error frame the connection stays open, and the next batch is answered.
pub(super) async fn recovery(scene: Scene) -> Verdict {
    let script = vec![
        Reply::now(BatchResponse::Status(503)),
        Reply::now(BatchResponse::Reset),
        Reply::now(BatchResponse::Correct),
    ];
    let mut session = scene.session(script).await?;
    let started = Instant::now();
    for _ in 0..3 {
        session.burst(1).await?;
        session.next_message(scene.patience()).await?;
    }
    let expectation = "the third batch of a session is answered after two that failed";
    let last = session.messages.last().expect("three answers came");
    ensure(last.is_partial() && last.newest() == 3, expectation, super::covers::description(&session.messages))?;
    passed(
        expectation,
        format!("{} after {} ms", super::covers::description(&session.messages), started.elapsed().as_millis()),
    )
}
