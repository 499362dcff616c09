//! Against a service that does nothing, the generator reaches its own limit, and the books still balance.

use bench_format::result::{BoundBy, BoundMeasure, BoundSide, TrialResult, Witness};

use crate::run::{Attempts, Checked, Run, ensure, sound};

/// Least rate in messages per second. A lower rate means that the machine or the build is broken: even a debug build on
/// one slow CPU exceeds it.
const LEAST_PER_SECOND: f64 = 10_000.0;
/// Least CPU share of a generator that is the limit. With less, disturbed or not, it was waiting for something.
const LEAST_SHARE: f64 = 0.5;

fn check(result: &TrialResult) -> Checked {
    sound(result)?;
    let messages = &result.messages;
    // The first message of each connection is received too, but is not counted among the messages.
    let discarded = messages.dropped.get("discarded").copied().unwrap_or(0);
    ensure(messages.sent > 0 && discarded >= messages.sent, || format!("not all were discarded: {messages:?}"))?;
    ensure(messages.delivered == 0, || format!("delivered without an application: {messages:?}"))?;
    ensure(result.witness != Witness::Application, || "a service without an application has a witness".into())?;
    ensure(result.figures.delivered_per_second.is_none_or(|rate| rate == 0.0), || "a throughput figure".into())?;
    let received = result.figures.received_per_second.ok_or("no rate at the receiving side")?;
    ensure(received > LEAST_PER_SECOND, || format!("only {received} per second"))?;
    // A few messages that were written before the window may arrive in it. Many more would come from another window.
    let written = result.figures.written_per_second.ok_or("no rate at the writing side")?;
    ensure(received < 1.25 * written, || format!("{received} received per second of {written} written"))?;
    ensure(is_bound_by_the_generator(result), || {
        format!("bound by {:?}: not the generator's ceiling ({:?})", result.bound_by, result.figures)
    })
}

/// Whether the generator limited the rate. On a machine that gave its CPU to other processes, neither side used all of
/// its own; then it is the side that had work all the time, or that used more, because the other one waited for it.
fn is_bound_by_the_generator(result: &TrialResult) -> bool {
    let shares = (result.figures.worker_cpu_share, result.figures.service_cpu_share);
    match (result.bound_by, shares) {
        (Some(BoundBy::Generator | BoundBy::Both), _) => true,
        (Some(BoundBy::Machine), _) => {
            let is_busy = |side| {
                let mut checks = result.bound_checks.iter().flatten();
                checks.any(|check| check.side == side && check.measure == BoundMeasure::Thread && check.reached())
            };
            is_busy(BoundSide::Generator) && !is_busy(BoundSide::Service)
        }
        (Some(BoundBy::Neither), (Some(worker), Some(service))) => worker > LEAST_SHARE && worker > service,
        _ => false,
    }
}

#[test]
fn the_ceiling_of_the_generator_is_measured_and_its_books_balance() {
    let mut attempts = Attempts::of("ceiling");
    let bound = |run: &Run| run.trial("self-test-null", "standard").bound_by;
    let run = attempts.until(|run| matches!(bound(run), Some(BoundBy::Generator | BoundBy::Both)));
    let result = run.trial("self-test-null", "standard");
    assert_eq!(check(&result), Ok(()), "\n{}", run.output);
    assert_eq!(run.exit, Some(0), "\n{}", run.output);
    let figures = &result.figures;
    println!(
        "the generator's ceiling on this machine (bound by {:?}): {:.0} messages per second, {:.3} CPU seconds per \
         million, {:.0} messages per write",
        result.bound_by.expect("checked above"),
        figures.received_per_second.unwrap_or(0.0),
        figures.worker_cpu_seconds_per_million.unwrap_or(0.0),
        figures.messages_per_write.unwrap_or(0.0),
    );

    // Must be refused: a missing message, and a rate that was not received.
    let change = |change: fn(&mut TrialResult)| {
        let mut changed = result.clone();
        change(&mut changed);
        check(&changed)
    };
    assert!(change(|result| result.books.equations[0].right -= 1).is_err());
    assert!(change(|result| result.figures.received_per_second = None).is_err());
    assert!(change(|result| result.figures.written_per_second = Some(1.0)).is_err());
    assert!(change(|result| result.bound_by = Some(BoundBy::Service)).is_err());
    let neither = |worker, service| {
        let mut changed = result.clone();
        changed.bound_by = Some(BoundBy::Neither);
        (changed.figures.worker_cpu_share, changed.figures.service_cpu_share) = (Some(worker), Some(service));
        check(&changed)
    };
    assert_eq!(neither(0.8, 0.6), Ok(()));
    assert!(neither(0.6, 0.8).is_err() && neither(0.4, 0.2).is_err());
}
