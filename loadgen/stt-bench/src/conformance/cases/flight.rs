//! Cases about requests in flight: a connection has at most one, and a tick that finds one in flight is skipped.

use std::time::Duration;

use futures_util::future::join_all;

use crate::conformance::{
    finding::{NotPassed, Verdict, ensure, failed, passed},
    inference::{ReceivedRequest, Reply},
    scene::{Scene, Session},
};

/// Number of sessions that run at once, each an independent try. A race that occurs in one session in three is missed
/// with probability (2/3)^40, about one in eleven million.
const SESSIONS: u32 = 40;
/// Duration of each session in intervals.
const TICKS: u32 = 9;
/// Frames per interval: enough for each tick to find audio, and cheap.
const FRAMES_PER_TICK: u32 = 4;
/// Delays of the inference in intervals, batch after batch: some end between two ticks, some at a tick.
const ANSWERS: [f64; 5] = [1.5, 1.0, 2.25, 2.0, 0.75];
/// Offsets in milliseconds that move a response slightly before or after the tick.
const AROUND: [f64; 5] = [0.0, -3.0, 1.0, -1.0, 3.0];

/// Runs a session that streams for ten intervals and whose batches are each answered after `intervals` intervals.
async fn slow(scene: &Scene, intervals: f64) -> Result<Session, NotPassed> {
    let answer_after = scene.settings().interval.mul_f64(intervals);
    let mut session = scene.session(vec![Reply::late(answer_after)]).await?;
    session.stream(scene.settings().interval * 10).await?;
    Ok(session)
}

/// Replies for a session of [`one_in_flight`]. Each session begins at another place of the lists.
fn script(session: u32, interval: Duration) -> Vec<Reply> {
    let reply = |batch: usize| {
        let place = batch + session as usize;
        let around = AROUND[place / ANSWERS.len() % AROUND.len()] / 1e3;
        let answer_after = interval.as_secs_f64() * ANSWERS[place % ANSWERS.len()] + around;
        Reply::late(Duration::try_from_secs_f64(answer_after).unwrap_or_default())
    };
    (0..TICKS as usize).map(reply).collect()
}

/// Runs one session of [`one_in_flight`]. Sessions begin at different times within an interval, as users' sessions do.
async fn watched(scene: &Scene, number: u32) -> Result<Session, NotPassed> {
    let interval = scene.settings().interval;
    tokio::time::sleep(interval * number / SESSIONS).await;
    let mut session = scene.session(script(number, interval)).await?;
    for frame in 0..TICKS * FRAMES_PER_TICK {
        tokio::time::sleep_until((session.began + interval * frame / FRAMES_PER_TICK).into()).await;
        session.burst(1).await?;
    }
    Ok(session)
}

/// Lower bound of the ticks that came while these requests were in flight: one for each whole interval of a request.
fn busy_ticks(requests: &[ReceivedRequest], interval: Duration) -> u128 {
    let durations =
        requests.iter().filter_map(|request| Some(request.answered?.saturating_duration_since(request.arrived)));
    durations.map(|duration| duration.as_nanos() / interval.as_nanos()).sum()
}

/// Case `one-in-flight`: the inference never has two requests of a connection at once, at any delay of its responses.
pub(super) async fn one_in_flight(scene: Scene) -> Verdict {
    let interval = scene.settings().interval;
    let (mut most, mut total, mut least) = (0, 0, u128::MAX);
    for session in join_all((0..SESSIONS).map(|number| watched(&scene, number))).await {
        let session = session?;
        let requests = scene.inference.requests(session.id);
        most = most.max(scene.inference.most_in_flight(session.id));
        total += requests.len();
        least = least.min(busy_ticks(&requests, interval));
    }
    let expectation = format!("at most one request in flight on each of {SESSIONS} connections");
    ensure(most == 1, &expectation, format!("{most} at once"))?;
    ensure(least > 0, "on each of them a tick while a request is in flight", "a connection without")?;
    passed(expectation, format!("one, in {total} requests; on each connection {least} ticks came meanwhile, or more"))
}

/// Case `skip-tick`: a tick that finds a request in flight leaves the audio queued. The next batch has all of it, and
/// is sent at a tick.
pub(super) async fn skip_tick(scene: Scene) -> Verdict {
    let session = slow(&scene, 2.25).await?;
    let requests = scene.inference.requests(session.id);
    let expectation = "each batch begins where the one before ended";
    ensure(requests.len() >= 3, "three requests", format!("{}", requests.len()))?;
    for pair in requests.windows(2) {
        let (last, first) = (pair[0].sequences.last().copied().unwrap_or(0), pair[1].sequences.first().copied());
        ensure(first == Some(last + 1), expectation, format!("frame {first:?} after frame {last}"))?;
    }
    // A batch has the audio of nearly three intervals, including the skipped ticks; two are required.
    let interval = scene.settings().interval;
    let least = (interval.as_millis() * 2 / 20) as usize;
    let counts: Vec<_> = requests[1..].iter().map(|request| request.sequences.len()).collect();
    let carries = format!("each batch after the first has at least {least} frames: those of the skipped ticks too");
    ensure(counts.iter().all(|count| *count >= least), &carries, format!("{counts:?}"))?;
    let waits: Option<Vec<Duration>> =
        requests.windows(2).map(|pair| Some(pair[1].arrived.saturating_duration_since(pair[0].answered?))).collect();
    let Some(waits) = waits else { return Err(failed("each request is awaited to its end", "one was given up")) };
    let description = format!("{:?} ms", waits.iter().map(Duration::as_millis).collect::<Vec<_>>());
    // The response comes a quarter of an interval after a tick, so the next tick is three quarters away.
    let patient = waits.iter().filter(|wait| **wait >= interval.mul_f64(0.3)).count() * 2 >= waits.len();
    ensure(patient, "the next batch waits for its tick", format!("requests {description} after the answer before"))?;
    passed(
        format!("{expectation}; it waits for its tick"),
        format!("{counts:?} frames, {description} after the answer before"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_session_has_answers_between_ticks_and_around_them() {
        let interval = Duration::from_millis(200);
        for session in 0..SESSIONS {
            let script = script(session, interval);
            let after: Vec<f64> = script.iter().map(|reply| reply.after.as_secs_f64() * 1e3 % 200.0).collect();
            let at_a_tick = |after: &&f64| **after <= 3.5 || **after >= 196.5;
            assert!(after.iter().filter(at_a_tick).count() >= 2 && after.iter().any(|after| !at_a_tick(&after)));
            // Otherwise no second request could overlap the first.
            assert!(script[..2].iter().any(|reply| reply.after > interval), "{session}");
        }
    }
}
