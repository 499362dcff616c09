//! Cases about the gateway's books and its metrics port: counters agree with known traffic, balance at every reading,
//! and return to rest when sessions end.

use std::time::Duration;

use bench_format::service::ServiceStats;
use reqwest::StatusCode;

use crate::conformance::{
    finding::{NotPassed, Verdict, ensure, failed, passed},
    inference::{BatchResponse, Reply},
    readings::{balances, description, metric},
    scene::{PROMPT, START, Scene, Session},
};

/// Time limit for counters to show an event that has happened.
const SETTLE: Duration = Duration::from_secs(5);

/// Metrics that the contract lists; a name with a label requires a sample with that label.
const METRICS: [&str; 24] = [
    "service_messages_received_total",
    "service_messages_consumed_total",
    "service_messages_delivered_total",
    "service_messages_dropped_total",
    "service_messages_queued",
    "service_messages_sent_total",
    "service_connections_accepted_total",
    "service_connections_open",
    "service_connections_closed_total",
    "service_bytes_received_total",
    "service_bytes_sent_total",
    "service_inference_requests_total",
    "service_inference_answered_total",
    "service_inference_failed_total",
    "service_inference_abandoned_total",
    "service_inference_in_flight",
    "service_inference_in_flight_per_connection_max",
    "service_flush_ticks_total{outcome=\"flushed\"}",
    "service_flush_ticks_total{outcome=\"skipped\"}",
    "service_flush_ticks_total{outcome=\"empty\"}",
    "service_flush_lateness_seconds_count",
    "service_flush_lateness_seconds_bucket",
    "service_buffered_bytes",
    "service_process_resident_bytes",
];

/// Waits until the gateway has received `more` messages since the reading `before`, and returns the new reading.
async fn received(scene: &Scene, before: &ServiceStats, more: u64) -> Result<ServiceStats, NotPassed> {
    let wanted = before.messages.received + more;
    let expectation = format!("messages.received reaches {wanted}");
    scene.metrics()?.until(&expectation, SETTLE, |stats| stats.messages.received >= wanted).await
}

/// Starts a session with one frame in flight that is never answered, and `waiting` frames queued behind it. Returns
/// once the gateway has received all of them.
async fn stuck(scene: &Scene, waiting: u32) -> Result<Session, NotPassed> {
    let before = scene.metrics()?.stats().await?;
    let mut session = scene.session(vec![Reply::now(BatchResponse::Never)]).await?;
    session.burst(1).await?;
    scene.inference.wait(session.id, 1, scene.patience()).await?;
    session.burst(waiting).await?;
    received(scene, &before, u64::from(waiting) + 2).await?;
    Ok(session)
}

fn dropped(stats: &ServiceStats, reason: &str) -> u64 {
    stats.messages.dropped.get(reason).copied().unwrap_or(0)
}

/// Case `books`: sends traffic with a known outcome for each message, and compares the growth of each counter.
pub(super) async fn books(scene: Scene) -> Verdict {
    let metrics = scene.metrics()?;
    let before = metrics.until("no session is open", SETTLE, |stats| stats.connections.open == 0).await?;
    ensure(balances(&before), "books balance", description(&before))?;

    let mut answered = scene.session(Vec::new()).await?;
    answered.burst(30).await?;
    answered.covered(scene.patience()).await?;
    let mut refused = scene.session(vec![Reply::now(BatchResponse::Status(503))]).await?;
    refused.burst(20).await?;
    refused.covered(scene.patience()).await?;
    let mut unopened = scene.connect().await?;
    unopened.text("not-json").await?;
    // Another case checks the Close code. This one only needs the connection to end.
    let _ = unopened.next(PROMPT).await;
    drop(unopened);
    let (sent, partials, errors) = {
        let of = |session: &Session| session.messages.len() as u64;
        (of(&answered) + of(&refused), of(&answered), of(&refused))
    };
    drop((answered, refused));
    let all_closed = "the sessions are gone from the books";
    let after =
        metrics.until(all_closed, SETTLE, |stats| stats.connections.open == 0 && stats.messages.queued == 0).await?;

    let (messages, then) = (&after.messages, &before.messages);
    let inference = |stats: &ServiceStats| stats.inference.clone().unwrap_or_default();
    let (inference_after, inference_before) = (inference(&after), inference(&before));
    let increases = [
        ("received", messages.received - then.received, 2 + 50 + 1),
        ("consumed", messages.consumed - then.consumed, 2),
        ("delivered", messages.delivered - then.delivered, 30),
        ("dropped{http_5xx}", dropped(&after, "http_5xx") - dropped(&before, "http_5xx"), 20),
        ("dropped{protocol}", dropped(&after, "protocol") - dropped(&before, "protocol"), 1),
        ("sent", messages.sent - then.sent, sent),
        ("connections.accepted", after.connections.accepted - before.connections.accepted, 3),
        ("inference.requests", inference_after.requests - inference_before.requests, sent),
        ("inference.answered", inference_after.answered - inference_before.answered, partials),
        ("inference.failed", sum(&inference_after.failed) - sum(&inference_before.failed), errors),
    ];
    for (counter, observed, expected) in increases {
        ensure(
            observed == expected,
            format!("{counter} grows by {expected}"),
            format!("by {observed}: {}", description(&after)),
        )?;
    }
    ensure(balances(&after), "received = consumed + delivered + dropped + queued", description(&after))?;
    passed("every message of known traffic is in its place in the books, and they balance", description(&after))
}

fn sum(counts: &std::collections::BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

/// Case `books-under-load`: the books balance at every reading while two sessions stream, not only at rest.
pub(super) async fn books_under_load(scene: Scene) -> Verdict {
    let metrics = scene.metrics()?;
    let script = || {
        vec![
            Reply::late(scene.settings().interval),
            Reply::now(BatchResponse::Status(503)),
            Reply::now(BatchResponse::Correct),
        ]
    };
    let lasting = scene.settings().interval * 12;
    let load = async {
        let (one, two) = (scene.session(script()), scene.session(script()));
        let (mut one, mut two) = (one.await?, two.await?);
        futures_util::future::try_join(one.stream(lasting), two.stream(lasting)).await?;
        one.covered(scene.patience()).await?;
        two.covered(scene.patience()).await
    };
    let (mut readings, mut with_queue) = (0, 0);
    let watch = async {
        loop {
            let stats = metrics.stats().await?;
            ensure(balances(&stats), "the books balance at every reading", description(&stats))?;
            readings += 1;
            with_queue += u32::from(stats.messages.queued > 0);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        done = load => done?,
        not_passed = watch => return not_passed,
    }
    ensure(with_queue > 0, "readings while frames wait", format!("{readings} readings, none of them"))?;
    passed("the books balance at every reading", format!("{readings} readings, {with_queue} while frames waited"))
}

/// Case `metrics`: the metrics port has the paths and metrics that the contract lists, and `/metrics` agrees with
/// `/stats`.
pub(super) async fn metrics(scene: Scene) -> Verdict {
    let port = scene.metrics()?;
    // One failed batch and one closed session, so that each labelled counter has a sample.
    let mut failing = scene.session(vec![Reply::now(BatchResponse::Status(503))]).await?;
    failing.burst(1).await?;
    failing.covered(scene.patience()).await?;
    failing.client.close_handshake(PROMPT * 3).await.map_or_else(|_| drop(failing), |_| ());
    port.until("no session is open", SETTLE, |stats| stats.connections.open == 0).await?;

    for (path, right) in
        [("/healthz", StatusCode::OK), ("/readyz", StatusCode::OK), ("/stats/connections", StatusCode::NOT_FOUND)]
    {
        let (status, _) = port.get(path).await?;
        ensure(status == right, format!("{path}: {}", right.as_u16()), status)?;
    }
    let stats = port.stats().await?;
    let (status, text) = port.get("/metrics").await?;
    ensure(status == StatusCode::OK, "/metrics: 200", status)?;
    let missing: Vec<_> = METRICS.iter().filter(|name| !has(&text, name)).collect();
    ensure(missing.is_empty(), "/metrics has every counter of the contract", format!("missing: {missing:?}"))?;
    let Some(inference) = &stats.inference else { return Err(failed("/stats has \"inference\"", "it has not")) };
    for (name, value) in [
        ("service_messages_received_total", stats.messages.received),
        ("service_messages_sent_total", stats.messages.sent),
        ("service_connections_accepted_total", stats.connections.accepted),
        ("service_inference_requests_total", inference.requests),
        ("service_inference_in_flight_per_connection_max", 1),
    ] {
        let observed = metric(&text, name);
        ensure(observed == Some(value as f64), format!("{name} is {value}, as in /stats"), format!("{observed:?}"))?;
    }
    passed("the paths and names of the contract, with the values of /stats", format!("{} names", METRICS.len()))
}

/// Whether a text in the Prometheus format has a sample of this metric, with this label if the name has one.
fn has(text: &str, name: &str) -> bool {
    match name.split_once('{') {
        None => metric(text, name).is_some(),
        Some((name, label)) => {
            let label = label.trim_end_matches('}');
            text.lines().any(|line| line.starts_with(name) && line.contains(label))
        }
    }
}

/// Case `close-during-inference`: two clients leave while their audio is in flight, one with Close and one without. The
/// requests are abandoned, and no messages, connections or bytes remain in the gauges.
pub(super) async fn close_during_inference(scene: Scene) -> Verdict {
    let metrics = scene.metrics()?;
    let before = metrics.until("no session is open", SETTLE, |stats| stats.connections.open == 0).await?;
    let mut session = stuck(&scene, 9).await?;
    // Ticks in this time find a request in flight, and must leave the queued audio where it is.
    tokio::time::sleep(scene.settings().interval * 3).await;
    session.client.close_handshake(PROMPT).await?;
    // The second client ends its connection without a Close.
    drop(stuck(&scene, 9).await?);
    let settled = "both connections are gone, and nothing of them is in flight or queued";
    let in_flight = |stats: &ServiceStats| stats.inference.as_ref().map_or(0, |inference| inference.in_flight);
    let left = |stats: &ServiceStats| stats.connections.open + stats.messages.queued + in_flight(stats);
    metrics.until(settled, SETTLE, |stats| left(stats) == 0).await?;
    // A gateway that cannot abort a request holds its audio until the request times out.
    let released = "nothing of them is held in memory after the request's timeout";
    let held = |stats: &ServiceStats| stats.inference.as_ref().map_or(0, |inference| inference.buffered_bytes);
    let after = metrics.until(released, scene.settings().timeout + SETTLE, |stats| held(stats) == 0).await?;
    let of = |stats: &ServiceStats| stats.inference.as_ref().map_or(0, |inference| inference.abandoned);
    let abandoned = of(&after) - of(&before);
    ensure(abandoned == 2, "inference.abandoned grows by 2", format!("by {abandoned}"))?;
    let closed = dropped(&after, "closed") - dropped(&before, "closed");
    ensure(closed == 20, "dropped{closed} grows by 20: two frames in flight, 18 waiting", format!("by {closed}"))?;
    passed(settled, description(&after))
}

/// Case `at-rest`: at the end of the run each process has no open session, nothing queued or in flight, and books that
/// balance.
pub(super) async fn at_rest(scene: Scene) -> Verdict {
    let expectation = "at the end: no session open, nothing queued or in flight, the books balance";
    let mut observed = Vec::new();
    for gateway in &scene.all {
        let Some(metrics) = &gateway.metrics else { continue };
        let stats = metrics
            .until(expectation, SETTLE, |stats| {
                let in_flight = stats.inference.as_ref().map_or(0, |inference| inference.in_flight);
                stats.connections.open == 0 && stats.messages.queued == 0 && in_flight == 0
            })
            .await?;
        ensure(balances(&stats), expectation, description(&stats))?;
        let closed: u64 = stats.connections.closed.values().sum();
        ensure(closed == stats.connections.accepted, "as many connections closed as accepted", description(&stats))?;
        observed.push(format!("{} connections, {} messages", stats.connections.accepted, stats.messages.received));
    }
    passed(expectation, observed.join("; "))
}

/// Case `survives`: no process of the gateway has ended by itself.
pub(super) async fn survives(scene: Scene) -> Verdict {
    let expectation = "no process of the gateway ends before it is signalled to stop";
    for gateway in &scene.all {
        let Some(process) = &gateway.process else { continue };
        if let Some(status) = process.ended(Duration::from_millis(1)).await {
            return Err(failed(expectation, process.with_last_output(format!("one ended: {status}"))));
        }
    }
    passed(expectation, format!("{} processes live", scene.all.len()))
}

/// Case `connections`: connections are counted when they open and when they end, also those on which no start was sent.
pub(super) async fn connections(scene: Scene) -> Verdict {
    let metrics = scene.metrics()?;
    let before = metrics.until("no session is open", SETTLE, |stats| stats.connections.open == 0).await?;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(scene.connect().await?);
    }
    clients[0].text(START).await?;
    metrics.until("connections.open is 3", SETTLE, |stats| stats.connections.open == 3).await?;
    drop(clients);
    let after = metrics.until("connections.open is 0 again", SETTLE, |stats| stats.connections.open == 0).await?;
    let accepted = after.connections.accepted - before.connections.accepted;
    ensure(accepted == 3, "connections.accepted grows by 3", format!("by {accepted}"))?;
    passed("three connections are counted when they come and when they go", description(&after))
}
