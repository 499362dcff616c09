//! Cases about ticks: they follow an absolute schedule from the start of the session. A stall delays a tick but does
//! not move the schedule.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::sleep;

use crate::conformance::{
    finding::{NotPassed, Verdict, ensure, failed, passed},
    inference::{ReceivedRequest, Reply},
    scene::Scene,
};

/// Number of ticks that are observed for drift.
const TICKS: u32 = 26;
/// Delay of the inference. A gateway that counts its interval from the response drifts by this at each tick.
const ANSWER: Duration = Duration::from_millis(15);
/// Number of ticks at each end of the stream, of which the earliest counts: a busy machine delays some ticks, and makes
/// none early.
const AMONG: usize = 8;
/// Maximum difference between the first and the last ticks, in milliseconds.
const DRIFT_MS: f64 = 20.0;

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Lateness of each request in milliseconds, relative to `began` plus a whole number of intervals. The first request is
/// assigned to the nearest tick, and the others are counted from there. A request less than half an interval after the
/// previous one is not a tick and is skipped.
fn lateness(requests: &[ReceivedRequest], began: Instant, interval: Duration) -> Vec<f64> {
    let interval = milliseconds(interval);
    let mut lateness = Vec::new();
    let (mut ticks, mut before) = (0.0, None::<f64>);
    for request in requests {
        let at = milliseconds(request.arrived.saturating_duration_since(began));
        ticks += match before {
            None => (at / interval).round(),
            Some(before) if at - before < interval / 2.0 => continue,
            Some(before) => f64::max(1.0, ((at - before) / interval).round()),
        };
        before = Some(at);
        lateness.push(at - ticks * interval);
    }
    lateness
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Case `schedule`: over many ticks the schedule does not drift.
pub(super) async fn schedule(scene: Scene) -> Verdict {
    let interval = scene.settings().interval;
    let mut session = scene.session(vec![Reply::late(ANSWER)]).await?;
    session.stream(interval * TICKS).await?;
    let requests = scene.inference.requests(session.id);
    ensure(requests.len() > 2 * AMONG, format!("about {TICKS} requests"), requests.len())?;
    let lateness = lateness(&requests, session.began, interval);
    let moved = least(&lateness[lateness.len() - AMONG..]) - least(&lateness[..AMONG]);
    let expectation = format!("over {TICKS} ticks the schedule moves by at most {DRIFT_MS} ms");
    let observed = format!("{moved:.1} ms over {} ticks", requests.len());
    ensure(moved.abs() <= DRIFT_MS, &expectation, &observed)?;
    passed(expectation, observed)
}

/// Case `first-tick`: the schedule begins with start, not with the connection.
pub(super) async fn first_tick(scene: Scene) -> Verdict {
    let interval = scene.settings().interval;
    let client = scene.connect().await?;
    sleep(interval.mul_f64(0.6)).await;
    let mut session = scene.begin(client, Vec::new()).await?;
    session.stream(interval * 9).await?;
    let requests = scene.inference.requests(session.id);
    ensure(requests.len() >= AMONG / 2, "requests enough to tell", requests.len())?;
    let early = least(&lateness(&requests, session.began, interval));
    let expectation =
        "ticks are whole intervals after start, 40 ms late at most when the machine is idle, and never early";
    let first = milliseconds(requests[0].arrived.saturating_duration_since(session.began));
    let observed = format!("the first request {first:.1} ms after start, the most punctual {early:.1} ms late");
    ensure((-3.0..=40.0).contains(&early) && first >= milliseconds(interval) - 3.0, expectation, &observed)?;
    passed(expectation, observed)
}

/// Case `stall`: a stopped and continued gateway reports the lateness once. Later ticks are punctual, on the same
/// schedule as before.
pub(super) async fn stall(scene: Scene) -> Verdict {
    let interval = scene.settings().interval;
    let frozen = interval * 7 / 2;
    let mut session = scene.session(Vec::new()).await?;
    session.stream(interval * 6).await?;
    let process = scene.gateway.process.as_ref().ok_or_else(|| NotPassed::Skipped("the process is not ours".into()))?;
    let signal = |signal| process.signal_all(signal).map_err(|reason| failed("the process takes signals", reason));
    let before = scene.inference.requests(session.id).len();
    signal(Signal::STOP)?;
    let stopped = Instant::now();
    sleep(frozen).await;
    signal(Signal::CONT)?;
    let frozen = stopped.elapsed();
    session.stream(interval * 9).await?;
    session.covered(scene.patience()).await?;

    let reported = |message: &crate::conformance::messages::ServerMessage| message.milliseconds("flush_lateness_ms");
    let (calm, after): (Vec<_>, Vec<_>) = session.messages.iter().partition(|message| message.at < stopped);
    let description = |messages: &[&crate::conformance::messages::ServerMessage]| {
        messages.iter().map(|message| format!("{:.1}", reported(message))).collect::<Vec<_>>().join(", ")
    };
    let observed = format!("flush_lateness_ms before: {}; after: {}", description(&calm), description(&after));
    ensure(
        session.messages.iter().all(|message| reported(message) >= 0.0),
        "flush_lateness_ms is never negative",
        &observed,
    )?;
    ensure(calm.len() >= 3 && after.len() >= 4, "answers before and after the stall", &observed)?;
    let shown = milliseconds(frozen.saturating_sub(interval)) * 0.8;
    let expectation =
        format!("the tick that was due during a stall of {} ms reports it: {shown:.0} ms at least", frozen.as_millis());
    ensure(after[..2].iter().any(|message| reported(message) >= shown), expectation, &observed)?;
    let later: Vec<f64> = after[2..].iter().map(|message| reported(message)).collect();
    ensure(
        least(&later) <= 60.0,
        "from the third answer after it on, lateness is small again: 60 ms at most",
        &observed,
    )?;

    let lateness = lateness(&scene.inference.requests(session.id), session.began, interval);
    let moved = least(&lateness[before + 2..]) - least(&lateness[1..before]);
    let expectation = "the schedule is the same before and after the stall, within 30 ms";
    ensure(moved.abs() <= 30.0, expectation, format!("it moved by {moved:.1} ms"))?;
    passed("a stall shows in the lateness of its tick, which is small again after it; the schedule stays", observed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_at(at: Instant) -> ReceivedRequest {
        ReceivedRequest {
            arrived: at,
            answered: None,
            sequences: Vec::new(),
            damage: None,
            passes: None,
            length: None,
            bytes: 0,
            target: String::new(),
            version: hyper::Version::HTTP_11,
        }
    }

    #[test]
    fn lateness_grows_with_a_drifting_timer_and_not_with_a_late_tick() {
        let (began, interval) = (Instant::now(), Duration::from_millis(200));
        let late = |times: &[u64]| {
            let requests: Vec<_> = times.iter().map(|ms| request_at(began + Duration::from_millis(*ms))).collect();
            lateness(&requests, began, interval).iter().map(|ms| ms.round() as i64).collect::<Vec<_>>()
        };
        assert_eq!(late(&[200, 400, 650, 800, 1200]), [0, 0, 50, 0, 0]);
        assert_eq!(late(&[200, 205, 400]), [0, 0]);
        assert_eq!(late(&[210, 420, 630, 840, 1050, 1260]), [10, 20, 30, 40, 50, 60]);
    }
}
