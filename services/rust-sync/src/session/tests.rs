use proptest::prelude::*;

use super::*;
use crate::protocol::FRAME_BYTES;

const INTERVAL: Duration = Duration::from_millis(1000);

/// A run of frames in wire format with a masking key of zeros, each filled with its number.
fn run(seqs: std::ops::RangeInclusive<u8>) -> Vec<u8> {
    let frame = |seq: u8| [vec![0x82, 0xFE, 2, 0x80, 0, 0, 0, 0], vec![seq; FRAME_BYTES]].concat();
    seqs.flat_map(frame).collect()
}

fn session(start: Instant) -> Session {
    Session::new(7, Schedule::new(start, INTERVAL, Duration::from_millis(450)))
}

fn flushed(tick: Tick) -> Request {
    match tick {
        Tick::Flushed(request) => request,
        other => panic!("there was audio to flush, not {other:?}"),
    }
}

#[test]
fn a_tick_takes_everything_and_the_next_is_skipped_until_the_answer_is_back() {
    let (now, mut pool) = (Instant::now(), Pool::default());
    let mut session = session(now);
    assert!(matches!(session.tick(now, Duration::ZERO), Tick::Empty));
    session.take_run(&run(1..=3), 200, &mut pool, now);
    session.take_frame(&[4; FRAME_BYTES], 200, &mut pool, now);
    let request = flushed(session.tick(now, Duration::ZERO));
    assert_eq!(request.batch.span(), Span { oldest_frame_seq: 1, frames: 4 });
    session.take_run(&run(5..=5), 200, &mut pool, now);
    assert!(matches!(session.tick(now, Duration::ZERO), Tick::Skipped));
    assert_eq!((session.requests_in_flight(), session.frames_in_flight()), (1, 4));
    session.request_returned(request.ticket);
    assert_eq!(flushed(session.tick(now, Duration::ZERO)).batch.span(), Span { oldest_frame_seq: 5, frames: 1 });
}

#[test]
fn an_overflow_is_reported_behind_the_batch_in_flight_and_before_the_next() {
    let (now, mut pool) = (Instant::now(), Pool::default());
    let mut session = session(now);
    session.take_run(&run(1..=2), 3, &mut pool, now);
    let request = flushed(session.tick(now, Duration::ZERO));
    assert_eq!(session.take_run(&run(3..=4), 3, &mut pool, now), 0);
    assert_eq!(session.take_run(&run(5..=7), 3, &mut pool, now + INTERVAL), 2);
    assert!(session.take_overflow(now, Duration::ZERO).is_none());
    session.request_returned(request.ticket);
    let (span, failure, context) = session.take_overflow(now + INTERVAL, Duration::ZERO).unwrap();
    assert_eq!((span, failure.kind), (Span { oldest_frame_seq: 3, frames: 2 }, Kind::Overflow));
    assert_eq!((context.oldest_age_ms, context.newest_age_ms), (1000.0, 1000.0));
    assert_eq!((context.inflight_gateway_batches, context.gateway_buffer_frames), (0, 3));
    assert!(session.take_overflow(now, Duration::ZERO).is_none());
    assert_eq!(flushed(session.tick(now, Duration::ZERO)).batch.span(), Span { oldest_frame_seq: 5, frames: 3 });
}

#[test]
fn ages_are_those_of_the_frames_in_the_batch() {
    let (now, mut pool) = (Instant::now(), Pool::default());
    let mut session = session(now);
    for (seq, ms) in [(1, 0), (2, 300), (3, 600)] {
        session.take_run(&run(seq..=seq), 200, &mut pool, now + Duration::from_millis(ms));
    }
    let request = flushed(session.tick(now + INTERVAL, Duration::from_millis(5)));
    let context = request.context(now + 3 * INTERVAL, 9);
    assert_eq!((context.oldest_age_ms, context.newest_age_ms), (3000.0, 2400.0));
    assert_eq!((context.inference_elapsed_ms, context.flush_lateness_ms), (Some(2000.0), 5.0));
}

#[test]
fn the_last_flush_happens_once_and_waits_for_what_is_in_flight() {
    let (now, mut pool) = (Instant::now(), Pool::default());
    let mut session = session(now);
    session.take_run(&run(1..=1), 200, &mut pool, now);
    let request = flushed(session.tick(now, Duration::ZERO));
    assert!(!session.begin_last_flush() && !session.is_finished());
    session.request_returned(request.ticket);
    assert!(session.begin_last_flush() && !session.begin_last_flush());
    assert!(session.is_finished());
}

#[test]
fn ticks_keep_to_their_schedule_and_missed_ones_are_not_made_up_for() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut schedule = Schedule::new(start, INTERVAL, INTERVAL);
    assert_eq!(schedule.take_due(at(999)), None);
    assert_eq!(schedule.take_due(at(1003)), Some(Duration::from_millis(3)));
    assert_eq!(schedule.take_due(at(1999)), None);
    // One tick is late by 2.5 intervals, and the next one is on time again.
    assert_eq!(schedule.take_due(at(4500)), Some(Duration::from_millis(2500)));
    assert_eq!((schedule.take_due(at(4999)), schedule.take_due(at(5000))), (None, Some(Duration::ZERO)));
}

#[test]
fn visits_divide_the_time_between_ticks_evenly() {
    let start = Instant::now();
    let schedule = Schedule::new(start, INTERVAL, Duration::from_millis(450));
    let after = |ms| (schedule.next_visit(start + Duration::from_millis(ms)) - start).as_millis();
    assert_eq!((after(0), after(334), after(667), after(990)), (333, 666, 1000, 1000));
    // A late visit is not followed by the next one at once.
    assert_eq!(after(560), 1000);
}

proptest! {
    #[test]
    fn every_frame_is_covered_once_and_in_order(
        steps in proptest::collection::vec((0_usize..12, any::<bool>(), any::<bool>()), 1..80),
        limit in 1_usize..20,
    ) {
        let (start, mut pool) = (Instant::now(), Pool::default());
        let mut session = session(start);
        let (mut sent, mut covered, mut in_flight) = (0_u64, 0, None::<Request>);
        for (step, (frames, is_tick, is_answer)) in steps.into_iter().enumerate() {
            let now = start + Duration::from_millis(step as u64);
            let bytes: Vec<u8> = (0..frames).flat_map(|index| {
                let seq = (sent + 1 + index as u64) as u8;
                run(seq..=seq)
            }).collect();
            session.take_run(&bytes, limit, &mut pool, now);
            sent += frames as u64;
            prop_assert!(session.waiting_frames() <= limit);
            if is_answer && let Some(request) = in_flight.take() {
                session.request_returned(request.ticket);
                pool.put(request.batch);
            }
            if is_tick {
                if let Some((span, ..)) = session.take_overflow(now, Duration::ZERO) {
                    prop_assert_eq!(span.oldest_frame_seq, covered + 1);
                    covered = span.newest_frame_seq();
                }
                if let Tick::Flushed(request) = session.tick(now, Duration::ZERO) {
                    prop_assert!(in_flight.is_none());
                    let span = request.batch.span();
                    prop_assert_eq!(span.oldest_frame_seq, covered + 1);
                    covered = span.newest_frame_seq();
                    // Each frame is filled with its number, so content and sequence numbers must match.
                    for (frame, seq) in request.batch.audio().chunks(FRAME_BYTES).zip(span.oldest_frame_seq..) {
                        prop_assert!(frame.iter().all(|byte| *byte == seq as u8));
                    }
                    prop_assert!(request.batch.newest_at() <= now);
                    in_flight = Some(request);
                }
            }
        }
        if let Some(request) = in_flight.take() {
            session.request_returned(request.ticket);
        }
        if let Some((span, ..)) = session.take_overflow(start + INTERVAL, Duration::ZERO) {
            prop_assert_eq!(span.oldest_frame_seq, covered + 1);
            covered = span.newest_frame_seq();
        }
        prop_assert_eq!(covered + session.waiting_frames() as u64, sent);
    }
}
