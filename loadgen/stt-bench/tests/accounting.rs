//! Every frame has one outcome, and every flaw of a gateway is found as often as it occurred.

mod gateway;

use std::collections::BTreeMap;

use bench_format::{
    plan::Load,
    result::{Conformance, WorkerBook, WorkerResult},
    trial::Assignment,
};
use gateway::{Flaw, Gateway};
use loadgen_core::{Error, trial::ImmediateGate};
use stt_bench::trial::{Settings, Worker};

const SESSIONS: u32 = 4;
const SECOND_NS: u64 = 1_000_000_000;

fn assignment(gateway: &Gateway) -> Assignment {
    Assignment {
        load: Load::Sessions { ramp_seconds: 0.1, spread_ms: 100.0, in_flight: 2 },
        warmup_ns: SECOND_NS * 3 / 10,
        window_ns: SECOND_NS,
        ..gateway.assignment(SESSIONS)
    }
}

fn run(worker: &mut Worker, assignment: &Assignment) -> WorkerResult {
    let result = worker.run(assignment, &mut ImmediateGate, || None).unwrap().result;
    let frames = &result.messages;
    let dropped: u64 = frames.dropped.values().sum();
    let outcomes = frames.delivered + frames.late + frames.wrong + dropped + frames.lost + frames.unsent;
    assert_eq!(frames.due, outcomes, "each frame has one outcome: {frames:?}");
    assert_eq!(frames.sent, frames.due - frames.unsent);
    assert_eq!(frames.sent, result.books.iter().map(|book| book.sent).sum::<u64>());
    result
}

fn against(flaw: Flaw) -> WorkerResult {
    let gateway = Gateway::start(flaw);
    let mut assignment = assignment(&gateway);
    if [Flaw::ForgetsAFrame, Flaw::FallsSilent].contains(&flaw) {
        // Some frames are never answered, so the drain takes its full time.
        assignment.drain_ns = 2 * SECOND_NS;
    }
    run(&mut Worker::new(Settings::default()), &assignment)
}

/// All failures, by kind.
fn failures(result: &WorkerResult) -> BTreeMap<String, u64> {
    let mut all = result.failures.window.clone();
    for (kind, count) in &result.failures.outside {
        *all.entry(kind.clone()).or_default() += count;
    }
    all
}

fn once_each(kind: &str) -> BTreeMap<String, u64> {
    BTreeMap::from([(kind.to_owned(), u64::from(SESSIONS))])
}

/// Number of values of a histogram, and of those that had no end.
fn values(result: &WorkerResult, histogram: &str) -> (u64, u64) {
    let found = &result.histograms[histogram];
    (found.count, found.overflow)
}

#[test]
fn a_right_gateway_answers_every_frame() {
    let result = against(Flaw::None);
    assert_eq!(failures(&result), BTreeMap::new());
    assert_eq!(result.messages.delivered, result.messages.due);
    // At least 1.1 s of frames: all sessions have started after 0.2 s.
    assert!(result.messages.due >= u64::from(SESSIONS) * 55, "{}", result.messages.due);
    assert_eq!(result.window.due, u64::from(SESSIONS) * 50);
    assert!(result.window.replies > 0 && result.window.answered >= result.window.replies);
    assert_eq!(values(&result, "frame_ns"), (result.window.due, 0), "every frame of the window was answered");
    let answers = values(&result, "newest_ns");
    assert!(answers.0 >= u64::from(SESSIONS) * 8 && answers.1 == 0, "nine whole batches in the window: {answers:?}");
    for histogram in ["oldest_ns", "newest_service_ns", "oldest_service_ns", "flush_lateness_ns"] {
        assert_eq!(values(&result, histogram), answers, "{histogram}");
    }
    assert_eq!(result.histograms["delay_ns"].count, result.window.due);
    assert_eq!(result.histograms["handshake_ns"].count, u64::from(SESSIONS));
    assert_eq!((result.connections.attempted, result.connections.open), (4, 4));
    let (load, checks) = result.books.split_at(SESSIONS as usize);
    assert!(load.iter().all(|book| book.unnumbered == 1 && book.sequence_sum > 0 && book.replies > 0));
    // Each of the two protocol checks sends a first message and a frame, beside what the load counts.
    assert_eq!(checks, vec![WorkerBook { unnumbered: 2, ..WorkerBook::default() }; 2]);
    let check = Conformance { opened: 2, answered: 2, ..Conformance::default() };
    assert_eq!(result.conformance, Some(check));
}

#[test]
fn a_forgotten_frame_is_missed() {
    let result = against(Flaw::ForgetsAFrame);
    let failures = failures(&result);
    assert_eq!(failures["coverage/uncovered"], u64::from(SESSIONS));
    assert_eq!(result.messages.lost, u64::from(SESSIONS));
    assert!(failures["content/checksum"] >= u64::from(SESSIONS), "all audio after it is shifted: {failures:?}");
}

#[test]
fn a_batch_without_an_answer_is_a_gap() {
    let result = against(Flaw::SkipsABatch);
    assert_eq!(failures(&result), once_each("coverage/gap"));
    assert!(result.messages.lost >= u64::from(SESSIONS));
    assert_eq!(result.messages.wrong, 0);
}

#[test]
fn a_repeated_batch_is_an_overlap() {
    let result = against(Flaw::RepeatsABatch);
    assert_eq!(failures(&result), once_each("coverage/overlap"));
    assert!(result.messages.duplicates >= u64::from(SESSIONS));
    assert_eq!(result.messages.delivered, result.messages.due);
}

#[test]
fn a_wrong_checksum_is_a_wrong_answer_for_its_frames_alone() {
    let result = against(Flaw::WrongChecksum);
    assert_eq!(failures(&result), once_each("content/checksum"));
    assert!(result.messages.wrong >= u64::from(SESSIONS) && result.messages.lost == 0);
    let (answered, never) = values(&result, "frame_ns");
    assert_eq!((answered + never, never), (result.window.due, result.messages.wrong), "a wrong answer is none");
}

#[test]
fn partials_that_are_judged_after_the_load_keep_their_time() {
    let gateway = Gateway::start(Flaw::None);
    // No warm-up, in which batches of five frames could become known.
    let assignment = Assignment { warmup_ns: 0, window_ns: 2 * SECOND_NS, ..assignment(&gateway) };
    let result = run(&mut Worker::new(Settings::default()), &assignment);
    assert_eq!(failures(&result), BTreeMap::new());
    assert_eq!(result.messages.delivered, result.messages.due);
    let seconds: Vec<u64> = result.intervals.iter().map(|second| second.histograms["newest_ns"].count).collect();
    assert_eq!(seconds.len(), 2);
    assert_eq!(seconds.iter().sum::<u64>(), result.histograms["newest_ns"].count);
    assert!(seconds.iter().all(|count| *count >= u64::from(SESSIONS) * 5), "ten in each second: {seconds:?}");
}

#[test]
fn an_error_frame_drops_its_frames_by_its_kind() {
    let gateway = Gateway::start(Flaw::SendsAnError);
    let done = Worker::new(Settings::default()).run(&assignment(&gateway), &mut ImmediateGate, || None).unwrap();
    assert_eq!(failures(&done.result), once_each("inference_request/http_5xx"));
    assert!(done.result.messages.dropped["http_5xx"] >= u64::from(SESSIONS));
    assert_eq!(done.errors.0.len(), 1);
    assert_eq!((&*done.errors.0[0].message, done.errors.0[0].inference_status), ("inference answered 503", Some(503)));
}

#[test]
fn a_partial_for_frames_that_were_never_sent_covers_nothing() {
    let result = against(Flaw::Overreaches);
    let mut failures = failures(&result);
    // Frames that were sent meanwhile count as answered by the excess; their own answer is then the second.
    failures.remove("coverage/overlap");
    assert_eq!(failures, once_each("coverage/beyond"));
    assert!(result.messages.wrong >= u64::from(SESSIONS));
}

#[test]
fn a_message_beyond_the_protocol_ends_its_session() {
    let result = against(Flaw::BreaksTheProtocol);
    assert_eq!(failures(&result), once_each("session/protocol"));
    assert_eq!(result.connections.closed_early["protocol"], u64::from(SESSIONS));
}

#[test]
fn sessions_that_a_gateway_closes_are_failures_and_what_was_measured_stays() {
    let result = against(Flaw::Closes);
    assert_eq!(failures(&result), once_each("session/closed"));
    assert!(result.messages.delivered > 0 && result.window.duration_ns < SECOND_NS, "no session is left");
    let (answered, never) = values(&result, "frame_ns");
    assert_eq!(answered + never, u64::from(SESSIONS) * 50, "the frames that sessions can't send are due as well");
}

#[test]
fn a_gateway_that_falls_silent_leaves_frames_uncovered() {
    let result = against(Flaw::FallsSilent);
    assert_eq!(failures(&result), once_each("coverage/uncovered"));
    assert_eq!(result.failures.window.len(), 1, "by when the first of them was due");
    assert!(result.messages.lost > u64::from(SESSIONS));
    let (answered, never) = values(&result, "frame_ns");
    assert_eq!(answered + never, result.window.due, "each frame of the window has an age");
    assert!(never > 0, "frames lack an answer in each session");
}

#[test]
fn answers_after_the_objectives_time_are_late() {
    let gateway = Gateway::start(Flaw::None);
    let late = Assignment { late_after_ns: Some(1), ..assignment(&gateway) };
    let frames = run(&mut Worker::new(Settings::default()), &late).messages;
    assert_eq!((frames.late, frames.delivered), (frames.due, 0));
}

#[test]
fn kept_connections_serve_more_and_fewer_sessions() {
    let gateway = Gateway::start(Flaw::None);
    let mut worker = Worker::new(Settings { conformance: false, ..Settings::default() });
    let mut trial = |sessions: u32, keep_connections: bool| {
        let mut next = assignment(&gateway);
        next.trial.tier = sessions;
        next.connections = sessions;
        next.keep_connections = keep_connections;
        let result = run(&mut worker, &next);
        assert_eq!(failures(&result), BTreeMap::new());
        assert_eq!(result.books.len(), sessions as usize);
        let unnumbered: u64 = result.books.iter().map(|book| book.unnumbered).sum();
        assert_eq!(unnumbered, result.connections.open, "only new connections say hello");
        (result.connections.open, result.window.due)
    };
    assert_eq!(trial(3, true), (3, 150));
    assert_eq!(trial(5, true), (2, 250));
    assert_eq!(trial(2, true), (0, 100));
    assert_eq!(trial(2, false), (0, 100));
    assert_eq!(trial(1, false), (1, 50));
    assert_eq!(gateway.accepted(), 6);
}

#[test]
fn an_unreachable_service_is_reported_with_a_reason() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let gateway = Gateway::start(Flaw::None);
    let nowhere = Assignment { address: free, ..assignment(&gateway) };
    let error = Worker::new(Settings::default()).run(&nowhere, &mut ImmediateGate, || None).err().unwrap();
    assert!(matches!(&error, Error::Abandoned { reason } if reason.contains("4 x refused")), "{error}");
}
