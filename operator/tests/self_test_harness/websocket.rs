//! Services that keep no books and that only a plan describes: what they do wrong shows in their replies.

use bench_format::{
    histogram::{Recorder, percentile_ns},
    result::TrialResult,
};

use crate::{
    freeze::freeze,
    known_delay::{MORE_THAN_TWICE_NS, changed, tolerance},
    run::{Attempts, Check, Checked, assert_only_own_passes, ensure, histogram, is_disturbed, start},
};

use std::{cell::Cell, time::Duration};

/// Workers count one message in ten of each connection as affected; the last ones of a connection may be missing.
const EVERY: u64 = 10;
/// Connections of the plan's tier.
const CONNECTIONS: u64 = 20;

/// Whether a count is that of one message in ten of each connection.
fn check_share(what: &str, count: u64, of: u64) -> Checked {
    let (least, most) = ((of / EVERY).saturating_sub(CONNECTIONS), of / EVERY);
    ensure((least..=most).contains(&count), || format!("{count} {what} of {of}, instead of {least} to {most}"))
}

/// Counts that a flawless service leaves at 0: lost, duplicates, wrong, reorders.
fn flaws(result: &TrialResult) -> [u64; 4] {
    let counts = &result.messages;
    [counts.lost, counts.duplicates, counts.wrong, counts.reorders]
}

fn honest(result: &TrialResult) -> Checked {
    ensure(result.books.balance(), || format!("the books don't balance: {:?}", result.books))?;
    ensure(result.messages.delivered > 1000, || format!("{:?}", result.messages))?;
    ensure(flaws(result) == [0; 4], || format!("{:?}", result.messages))
}

/// A check that only the `nth` count, and no other, is that of one message in ten.
fn flawed(result: &TrialResult, nth: usize) -> Checked {
    ensure(result.books.balance(), || format!("the books don't balance: {:?}", result.books))?;
    let counts = flaws(result);
    check_share("messages", counts[nth], result.messages.sent)?;
    let others = (0..4).filter(|other| *other != nth).map(|other| counts[other]).sum::<u64>();
    ensure(others == 0, || format!("{:?}", result.messages))
}

#[test]
fn each_flaw_of_a_service_without_books_shows_in_its_own_count() {
    let mut attempts = Attempts::of("websocket");
    let services = ["honest", "delayed", "lost", "twice", "wrong", "reordered"];
    let checks: [(&str, Check); 5] = [
        ("honest", honest),
        ("lost", |result| flawed(result, 0)),
        ("twice", |result| flawed(result, 1)),
        ("wrong", |result| flawed(result, 2)),
        ("reordered", |result| ensure(flaws(result)[3] > 0, || format!("{:?}", result.messages))),
    ];
    let run =
        attempts.until(|run| services.iter().all(|service| !is_disturbed(&run.trial(service, "standard").validity)));
    for (own, _) in &checks {
        let result = run.trial(own, "standard");
        assert_only_own_passes(own, &result, &checks, run);
    }

    let (result, recorded) = (run.trial("delayed", "standard"), run.recorded("delay"));
    assert_eq!(delayed(&result, &recorded), Ok(()), "\n{}", run.output);
    for share in [-0.05, 0.05] {
        let other = changed(&recorded, |ns| (ns as f64 * (1.0 + share)) as u64);
        assert!(delayed(&result, &other).is_err(), "a record off by {share} passes");
    }
    let later = changed(&recorded, |ns| ns + 10 * MORE_THAN_TWICE_NS);
    assert!(delayed(&result, &later).is_err(), "a record off by 40 ms passes");
}

/// Whether the measured response times agree with those that the service recorded.
fn delayed(result: &TrialResult, recorded: &Recorder) -> Checked {
    let response = histogram(result, "response_ns")?;
    ensure(response.count() == recorded.count(), || {
        format!("the service recorded {} replies, the histogram has {}", recorded.count(), response.count())
    })?;
    for percentile in [50.0, 99.0] {
        let of = |recorder| percentile_ns(recorder, percentile).ok_or("too few samples".to_owned());
        let (measured, expected) = (of(&response)?, of(recorded)?);
        ensure(measured.abs_diff(expected) <= tolerance(expected), || {
            format!("p{percentile} is {measured} ns, the service recorded {expected} ns")
        })?;
    }
    Ok(())
}

#[test]
fn a_freeze_of_a_service_without_books_shows_in_every_message_that_was_due_during_it() {
    const FREEZE: Duration = Duration::from_millis(1500);
    let frozen_for = Cell::new(Duration::ZERO);
    let mut attempts = Attempts::with(|| {
        let mut climbing = start("websocket-freeze");
        let service = climbing.service("none");
        climbing.wait_for_stats(&service, "load", |stats| stats.messages.consumed > 100);
        frozen_for.set(freeze(service.pid, FREEZE));
        climbing.finish()
    });
    let (result, run) = attempts.trial("frozen", "standard");
    let response = histogram(&result, "response_ns").unwrap();
    // At a constant rate, a share f/w of all messages of a window w is due during a freeze f; half of these wait longer
    // than f/2.
    let share = frozen_for.get().as_secs_f64() / 6.0;
    let measured = percentile_ns(&response, 100.0 * (1.0 - share / 2.0)).unwrap() as f64 / 1e9;
    let expected = frozen_for.get().as_secs_f64() / 2.0;
    assert!((measured / expected - 1.0).abs() < 0.1, "{measured} s, in theory {expected} s\n{}", run.output);
    assert_eq!(result.messages.lost, 0, "{:?}", result.messages);
}
