//! The case about SIGTERM: the gateway flushes the audio that it holds once more, waits for requests in flight, and
//! closes every session with 1001.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::conformance::{
    client::{Client, Event},
    finding::{NotPassed, Verdict, ensure, failed, passed},
    inference::{BatchResponse, Reply},
    messages::check_cover,
    scene::{Scene, Session},
};

/// Time limit of this case for the process to end after SIGTERM.
const END: Duration = Duration::from_secs(5);

/// Reads a session until Close 1001. All its frames must have been covered by partials before.
async fn drained(mut session: Session) -> Result<Session, NotPassed> {
    let expectation = "all that was held is answered, then Close 1001";
    loop {
        match session.client.next(END).await.map(|received| (received.at, received.event)) {
            Some((at, Event::Text(text))) => {
                session.messages.push(crate::conformance::messages::ServerMessage::read(at, text)?);
            }
            Some((_, Event::Ping | Event::Pong(_))) => {}
            Some((_, Event::Close(Some(1001), _))) => break,
            Some((_, event)) => return Err(failed(expectation, event.description())),
            None => return Err(failed(expectation, "nothing in time")),
        }
    }
    check_cover(&session.messages, session.sent)?;
    ensure(
        session.messages.iter().all(|message| message.is_partial()),
        expectation,
        super::covers::description(&session.messages),
    )?;
    Ok(session)
}

/// Case `drain`: SIGTERM arrives while one session has audio queued, one has a request in flight and one has only
/// started. All are drained, new connections are refused, and the process ends with exit code 0.
pub(super) async fn drain(scene: Scene) -> Verdict {
    let process = scene.gateway.process.as_ref().ok_or_else(|| NotPassed::Skipped("the process is not ours".into()))?;
    let script = vec![Reply::late(Duration::from_millis(800)), Reply::now(BatchResponse::Correct)];
    let mut busy = scene.session(script).await?;
    busy.burst(5).await?;
    scene.inference.wait(busy.id, 1, scene.patience()).await?;
    let mut holding = scene.session(Vec::new()).await?;
    holding.burst(10).await?;
    busy.burst(5).await?;
    let idle = scene.session(Vec::new()).await?;
    let metrics = scene.metrics()?;
    let expectation = "all frames are received";
    metrics.until(expectation, Duration::from_secs(3), |stats| stats.messages.received >= 3 + 20).await?;

    process.signal(Signal::TERM).map_err(|reason| failed("the process takes SIGTERM", reason))?;
    let started = Instant::now();
    let refused = async {
        // The listener may take a moment to close.
        let expectation = "no new connection is upgraded after SIGTERM";
        for _ in 0..50 {
            if Client::open(&scene.gateway.address).await.is_err() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(failed(expectation, "it was"))
    };
    let ((), busy, holding, _) = tokio::try_join!(refused, drained(busy), drained(holding), drained(idle))?;
    let Some(status) = process.ended(END.saturating_sub(started.elapsed())).await else {
        return Err(failed(format!("the process ends within {END:?}"), "it lives"));
    };
    ensure(status.success(), "exit code 0", process.with_last_output(status.to_string()))?;
    let observed = format!(
        "exit code 0 after {} ms; busy: {}; holding: {}",
        started.elapsed().as_millis(),
        super::covers::description(&busy.messages),
        super::covers::description(&holding.messages)
    );
    passed(
        "what was held and in flight is answered, then Close 1001, no new connection, exit code 0 within 5 s",
        observed,
    )
}
