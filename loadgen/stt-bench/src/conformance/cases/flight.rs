//! One request in flight per connection, and what a tick does that finds one.

use std::time::Duration;

use crate::conformance::{
    finding::{Trouble, Verdict, ensure, failed, passed},
    inference::Reply,
    scene::{Scene, Session},
};

/// Sessions that are watched at once.
const SESSIONS: usize = 6;

async fn slow(scene: &Scene, intervals: f64) -> Result<Session, Trouble> {
    let answer_after = scene.settings().interval.mul_f64(intervals);
    let mut session = scene.session(vec![Reply::late(answer_after)]).await?;
    session.stream(scene.settings().interval * 10).await?;
    Ok(session)
}

/// A slow inference never sees two requests of a connection at once.
pub(super) async fn one_in_flight(scene: Scene) -> Verdict {
    let sessions = (0..SESSIONS).map(|_| slow(&scene, 2.25));
    let (mut most, mut requests) = (0, 0);
    for session in futures_util::future::join_all(sessions).await {
        let session = session?;
        most = most.max(scene.inference.most_in_flight(session.id));
        requests += scene.inference.asked(session.id).len();
    }
    let wish = format!("at most one request in flight on each of {SESSIONS} connections");
    ensure(most == 1, &wish, format!("{most} at once"))?;
    ensure(requests >= SESSIONS * 2, "requests enough to tell: two per connection", requests)?;
    passed(wish, format!("one, in {requests} requests"))
}

/// A tick that finds a request in flight leaves the audio where it is; the next batch has all of it, and goes at a tick.
pub(super) async fn skip_tick(scene: Scene) -> Verdict {
    let session = slow(&scene, 2.25).await?;
    let asked = scene.inference.asked(session.id);
    let wish = "each batch begins where the one before ended";
    ensure(asked.len() >= 3, "three requests", format!("{}", asked.len()))?;
    for pair in asked.windows(2) {
        let (last, first) = (pair[0].sequences.last().copied().unwrap_or(0), pair[1].sequences.first().copied());
        ensure(first == Some(last + 1), wish, format!("frame {first:?} after frame {last}"))?;
    }
    // Nearly three intervals of audio: those of the ticks that were skipped too.
    let interval = scene.settings().interval;
    let least = (interval.as_millis() * 2 / 20) as usize;
    let counts: Vec<_> = asked[1..].iter().map(|asked| asked.sequences.len()).collect();
    let carries = format!("each batch after the first has at least {least} frames: those of the skipped ticks too");
    ensure(counts.iter().all(|count| *count >= least), &carries, format!("{counts:?}"))?;
    let waits: Option<Vec<Duration>> =
        asked.windows(2).map(|pair| Some(pair[1].arrived.saturating_duration_since(pair[0].answered?))).collect();
    let Some(waits) = waits else { return Err(failed("each request is awaited to its end", "one was given up")) };
    let words = format!("{:?} ms", waits.iter().map(Duration::as_millis).collect::<Vec<_>>());
    // The answer comes a quarter of an interval after a tick, so the next tick is three quarters away.
    let patient = waits.iter().filter(|wait| **wait >= interval.mul_f64(0.3)).count() * 2 >= waits.len();
    ensure(patient, "the next batch waits for its tick", format!("requests {words} after the answer before"))?;
    passed(format!("{wish}; it waits for its tick"), format!("{counts:?} frames, {words} after the answer before"))
}
