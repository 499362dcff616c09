//! Cases about memory: what a gateway holds is bounded, also if the inference stalls or a client does not read.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde_json::json;
use tokio::sync::watch;

use crate::conformance::{
    client::Client,
    finding::{NotPassed, Verdict, ensure, failed, passed},
    inference::{BatchResponse, Reply},
    messages::check_cover,
    payload::FRAME_BYTES,
    readings::{Readings, description},
    scene::{FRAME, Scene, Session},
};

/// Time limit for the gateway to read a burst.
const READING: Duration = Duration::from_secs(8);

/// Case `overflow`: more frames come than may wait while a request is in flight. The oldest are dropped, and one error
/// frame reports them.
pub(super) async fn overflow(scene: Scene) -> Verdict {
    let metrics = scene.metrics()?;
    let kept = scene.settings().buffered_frames;
    let excess = 2 * kept;
    let (open, gate) = watch::channel(false);
    let mut session = scene.session(vec![Reply::gated(&gate), Reply::now(BatchResponse::Correct)]).await?;
    session.burst(1).await?;
    scene.inference.wait(session.id, 1, scene.patience()).await?;
    let before = metrics.stats().await?.messages.received;
    session.burst(kept + excess).await?;
    let wanted = before + u64::from(kept + excess);
    let expectation = format!("messages.received reaches {wanted}: the gateway reads on while a request is in flight");
    metrics.until(&expectation, READING, |stats| stats.messages.received >= wanted).await?;
    // Ticks in this time find a request in flight, and must leave the queued audio where it is.
    tokio::time::sleep(scene.settings().interval * 3).await;
    let _ = open.send(true);
    session.covered(scene.patience()).await?;

    check_cover(&session.messages, session.sent)?;
    let (first, last) = (u64::from(2_u32), u64::from(1 + excess));
    let expectation =
        format!("one error frame websocket_receive/overflow for frames {first} to {last}, then a partial");
    let errors: Vec<_> = session.messages.iter().filter(|message| !message.is_partial()).collect();
    let [error] = errors[..] else { return Err(failed(expectation, super::covers::description(&session.messages))) };
    error.check_values(&[
        ("stage", json!("websocket_receive")),
        ("kind", json!("overflow")),
        ("retryable", json!(false)),
        ("oldest_frame_seq", json!(first)),
        ("newest_frame_seq", json!(last)),
        ("frames", json!(excess)),
        ("audio_bytes", json!(u64::from(excess) * FRAME_BYTES as u64)),
    ])?;
    passed(expectation, super::covers::description(&session.messages))
}

/// Number of bytes that [`bounded_memory`] sends at least, with any settings: far more than the 3 to 14 MiB by which
/// the memory of a runtime with garbage collection varies by itself.
/// A debug build is slow and only checks the self-test's gateways, which have no garbage collection; it sends less.
const FLOOD_BYTES: u32 = if cfg!(debug_assertions) { 3 << 20 } else { 32 << 20 };
/// Frames per connection, as a multiple of the frames that may wait on it (or of 50, if that is more).
const TIMES: u32 = 13;
/// Maximum duration of the warm-up of [`bounded_memory`].
const WARMING: Duration = Duration::from_secs(6);

/// Sends as many frames as the flood if time permits, but slowly enough that all are answered. Memory that the runtime
/// keeps after it (grown heaps, compiled code) is then no sign of an unbounded buffer.
async fn warm(scene: &Scene, session: &mut Session, frames: u32) -> Result<(), NotPassed> {
    let (half, started) = (scene.settings().interval / 2, Instant::now());
    let frames_per_round = (scene.settings().buffered_frames * 2 / 5).max(1);
    let rounds = (frames / frames_per_round).min((WARMING.as_millis() / half.as_millis().max(1)) as u32).max(1);
    for round in 0..rounds {
        tokio::time::sleep_until((started + half * round).into()).await;
        session.burst(frames_per_round).await?;
    }
    session.covered(scene.patience()).await
}

/// Puts one frame of a warmed-up session in flight that is never answered.
async fn stuck(scene: &Scene, session: &mut Session) -> Result<(), NotPassed> {
    scene.inference.script(session.id, vec![Reply::now(BatchResponse::Never)]);
    let before = scene.inference.requests(session.id).len();
    session.burst(1).await?;
    scene.inference.wait(session.id, before + 1, scene.patience()).await.map(drop)
}

/// The gateway's resident memory. A gateway that doesn't report it does not pass: a missing reading is no growth of 0.
async fn resident_bytes(metrics: &Readings) -> Result<f64, NotPassed> {
    const NAME: &str = "service_process_resident_bytes";
    let reading = metrics.metric(NAME).await?.filter(|bytes| *bytes > 0.0);
    ensure(reading.is_some(), format!("/metrics has {NAME} above 0"), "no such reading")?;
    Ok(reading.unwrap_or_default())
}

/// Case `bounded-memory`: clients continue to send while the inference stalls; the gateway's buffers and its resident
/// memory stay bounded.
pub(super) async fn bounded_memory(scene: Scene) -> Verdict {
    let frames = scene.settings().buffered_frames.max(50) * TIMES;
    let sessions = u64::from((FLOOD_BYTES / FRAME_BYTES as u32).div_ceil(frames));
    let metrics = scene.metrics()?;
    let mut open = try_join_all((0..sessions).map(|_| scene.session(Vec::new()))).await?;
    try_join_all(open.iter_mut().map(|session| warm(&scene, session, frames))).await?;
    let resident = resident_bytes(metrics).await?;
    let before = metrics.stats().await?;
    try_join_all(open.iter_mut().map(|session| stuck(&scene, session))).await?;
    let pause = scene.settings().interval * 3;
    let wanted = before.messages.received + sessions * (u64::from(frames) + 1);
    let load = async {
        // Ticks come between the halves and after them. Each finds a request in flight, and must not take the queued
        // frames.
        for half in [frames / 2, frames - frames / 2] {
            try_join_all(open.iter_mut().map(|session| session.burst(half))).await?;
            tokio::time::sleep(pause).await;
        }
        let expectation = format!("messages.received reaches {wanted}");
        metrics.until(&expectation, READING * 2, |stats| stats.messages.received >= wanted).await
    };
    let mut most = 0;
    let watch = async {
        loop {
            let stats = metrics.stats().await?;
            most = most.max(stats.inference.as_ref().map_or(0, |inference| inference.buffered_bytes));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        done = load => drop(done?),
        not_passed = watch => return not_passed,
    }

    let sent = sessions * u64::from(frames) * FRAME_BYTES as u64;
    // One frame is in flight, and up to `MAX_BUFFERED_FRAMES` wait. A second batch in flight would exceed this limit.
    let limit = sessions * (u64::from(scene.settings().buffered_frames) * 3 / 2 + 1) * FRAME_BYTES as u64;
    let expectation = format!("service_buffered_bytes stays at or below {limit} while {sent} bytes come");
    ensure(most > 0 && most <= limit, &expectation, format!("{most} bytes at the most"))?;
    let growth = resident_bytes(metrics).await? - resident;
    ensure(
        growth < sent as f64,
        format!("the process grows by less than the {sent} bytes"),
        format!("by {growth} bytes"),
    )?;
    passed(expectation, format!("{most} bytes at the most; the process grew by {:.1} MiB", growth / f64::from(1 << 20)))
}

/// Case `slow-consumer`: a client that does not read is closed, and another session is not disturbed.
pub(super) async fn slow_consumer(scene: Scene) -> Verdict {
    fn long(correct: &str) -> String {
        let mut value: serde_json::Value = serde_json::from_str(correct).expect("our own answer");
        value["transcript"] = json!("word ".repeat(3 << 10));
        value.to_string()
    }
    const LASTING: Duration = Duration::from_secs(16);
    let metrics = scene.metrics()?;
    let count = |stats: &bench_format::service::ServiceStats| {
        stats.connections.closed.get("slow_consumer").copied().unwrap_or(0)
    };
    let before = count(&metrics.stats().await?);
    let deaf = Client::open_unread(&scene.gateway.address, true).await?;
    let mut deaf = scene.begin(deaf, vec![Reply::now(BatchResponse::Edited(long))]).await?;
    let mut healthy = scene.session(Vec::new()).await?;
    let expectation = format!("a client that does not read is closed as slow_consumer within {LASTING:?}");
    let started = Instant::now();
    let mut sending = true;
    let mut closed = false;
    for due in (0..).map(|frame| FRAME * frame).take_while(|due| *due < LASTING) {
        tokio::time::sleep_until((started + due).into()).await;
        healthy.burst(1).await?;
        sending = sending && deaf.burst(1).await.is_ok();
        if due.as_millis() % 200 == 0 {
            closed = count(&metrics.stats().await?) > before;
        }
        if closed {
            break;
        }
    }
    let duration = started.elapsed();
    ensure(closed, &expectation, description(&metrics.stats().await?))?;
    healthy.covered(scene.patience()).await?;
    check_cover(&healthy.messages, healthy.sent)?;
    let times: Vec<_> = healthy.messages.iter().map(|message| message.at).collect();
    let longest = times.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap_or_default();
    let undisturbed = "meanwhile another session's partials are never more than three seconds apart";
    ensure(longest <= Duration::from_secs(3), undisturbed, format!("{} ms", longest.as_millis()))?;
    passed(
        expectation,
        format!(
            "after {:.1} s; the other session's partials: {} ms apart at the most",
            duration.as_secs_f64(),
            longest.as_millis()
        ),
    )
}
