//! Whole trials against a service in this process: the worker's counts must be those of the service.

mod service;

use std::time::Duration;

use bench_format::{
    histogram::Recorder,
    plan::Arrivals,
    result::{Witness, WorkerResult},
    trial::Assignment,
};
use loadgen_core::{
    Error, Pattern,
    trial::{ImmediateGate, run},
};
use service::{Behaviour, Client, Service, assignment};

const PING_PONG: Pattern = Pattern::PingPong { per_connection: Some(5) };

fn trial(assignment: &Assignment, pattern: Pattern) -> WorkerResult {
    attempt(assignment, pattern).unwrap()
}

fn attempt(assignment: &Assignment, pattern: Pattern) -> Result<WorkerResult, Error> {
    let replies = !matches!(pattern, Pattern::Flood | Pattern::Storm { .. });
    let witness = if replies { Witness::Reply } else { Witness::Application };
    run(Client { replies }, assignment, pattern, witness, "test", &mut ImmediateGate)
}

fn open_loop(rate_per_second: f64) -> Pattern {
    Pattern::Open { rate_per_second, arrivals: Arrivals::Constant }
}

fn values(result: &WorkerResult, name: &str) -> Recorder {
    Recorder::decode(&result.histograms[name]).unwrap()
}

/// The worker's book of each connection must equal what the service received on it.
fn assert_books_agree(result: &WorkerResult, service: &Service) {
    let books = service.books();
    assert_eq!(result.books.len(), books.len());
    for worker_book in &result.books {
        let service_book = &books[&worker_book.id];
        assert_eq!(
            (worker_book.sent, worker_book.unnumbered),
            (service_book.numbered, service_book.unnumbered),
            "{}",
            worker_book.id
        );
        assert_eq!(worker_book.sequence_sum, service_book.sum, "{}", worker_book.id);
        assert!(service_book.in_order && service_book.closed_by_client, "{}", worker_book.id);
    }
}

#[test]
fn a_flood_is_accounted_for_to_the_last_message() {
    let service = Service::start(Behaviour::Silent);
    let mut assignment = assignment(&service.address, 7);
    assignment.message.coalesce = 16;
    let result = trial(&assignment, Pattern::Flood);
    assert!(result.window.sent > 0 && result.window.writes > 0);
    assert_eq!(result.messages.due, result.messages.sent + result.messages.unsent);
    assert_eq!(result.messages.unsent, 0);
    assert_eq!(result.connections.open, 7);
    assert_books_agree(&result, &service);
}

#[test]
fn a_late_reader_receives_every_message_complete() {
    // Sockets fill up in the middle of a message, and the rest is written during the drain.
    let service = Service::start(Behaviour::LateReader(Duration::from_millis(600)));
    let mut assignment = assignment(&service.address, 3);
    assignment.message.coalesce = 64;
    let result = trial(&assignment, Pattern::Flood);
    assert_eq!(result.messages.unsent, 0);
    assert_books_agree(&result, &service);
}

#[test]
fn each_connection_sends_its_pings_and_the_window_ends_with_the_last() {
    let service = Service::start(Behaviour::Correct);
    let mut assignment = assignment(&service.address, 10);
    (assignment.warmup_ns, assignment.window_ns) = (0, 60_000_000_000);
    let result = trial(&assignment, PING_PONG);
    assert_eq!((result.window.due, result.window.replies, result.messages.delivered), (50, 50, 50));
    assert_eq!(values(&result, "response_ns").count(), 50);
    assert!(result.window.duration_ns < 10_000_000_000);
    assert!(result.books.iter().all(|book| book.replies == 5));
    assert_books_agree(&result, &service);
}

#[test]
fn an_open_loop_sends_exactly_its_schedule() {
    let service = Service::start(Behaviour::Correct);
    let mut assignment = assignment(&service.address, 4);
    (assignment.warmup_ns, assignment.window_ns) = (100_000_000, 500_000_000);
    let result = trial(&assignment, open_loop(1000.0));
    // 0.1 s of warm-up and 0.5 s of window.
    assert_eq!((result.messages.due, result.window.due), (600, 500));
    assert_eq!((result.messages.delivered, result.messages.lost, result.messages.unsent), (600, 0, 0));
    for name in ["response_ns", "service_ns", "delay_ns", "lateness_ns"] {
        assert_eq!(values(&result, name).count(), 500, "{name}");
    }
    assert_books_agree(&result, &service);
}

#[test]
fn messages_that_the_generator_has_no_time_to_send_are_counted_as_unsent() {
    let service = Service::start(Behaviour::Correct);
    let mut assignment = assignment(&service.address, 2);
    (assignment.warmup_ns, assignment.window_ns, assignment.drain_ns) = (0, 200_000_000, 100_000_000);
    // More than any machine sends one by one: a fifth of these messages are due.
    let result = trial(&assignment, open_loop(50_000_000.0));
    assert_eq!((result.messages.due, result.window.due), (10_000_000, 10_000_000));
    assert!(result.messages.sent > 0 && result.messages.unsent > 0, "{:?}", result.messages);
    assert_eq!(result.messages.due, result.messages.sent + result.messages.unsent);
    let handled = values(&result, "lateness_ns").count();
    assert!(handled < result.window.due, "{handled} handled in time to be attempted");
}

#[test]
fn a_freeze_of_the_service_shows_in_messages_that_were_due_during_it() {
    let freeze = Behaviour::Frozen(Duration::from_millis(200), Duration::from_millis(600));
    let service = Service::start(freeze);
    let mut assignment = assignment(&service.address, 1);
    (assignment.warmup_ns, assignment.window_ns) = (0, 1_000_000_000);
    assignment.late_after_ns = Some(100_000_000);
    let result = trial(&assignment, open_loop(500.0));
    let response = values(&result, "response_ns");
    // The service is stopped for two fifths of the window: messages wait 200 ms on average, the first of them 400 ms.
    let waited = response.values().iter_recorded().filter(|v| v.value_iterated_to() > 100_000_000);
    let waited: u64 = waited.map(|value| value.count_at_value()).sum();
    assert!(
        (130..=260).contains(&waited),
        "{waited} of 500 waited longer than 100 ms; 150 are due so long before its end"
    );
    assert!(response.values().max() >= 380_000_000);
    // The histogram's buckets are 0.1 % wide; the outcome is exact.
    assert!(result.messages.late.abs_diff(waited) <= 1, "{} late, {waited} in the histogram", result.messages.late);
    assert_eq!(result.messages.delivered + result.messages.late, 500);
    assert_eq!(result.messages.lost, 0);
}

#[test]
fn unanswered_messages_are_lost() {
    let service = Service::start(Behaviour::Silent);
    let mut assignment = assignment(&service.address, 2);
    assignment.drain_ns = 200_000_000;
    let result = trial(&assignment, PING_PONG);
    assert_eq!((result.messages.sent, result.messages.lost, result.messages.delivered), (2, 2, 0));
}

#[test]
fn unanswered_messages_of_an_open_loop_rank_above_every_response() {
    let service = Service::start(Behaviour::Silent);
    let mut assignment = assignment(&service.address, 2);
    (assignment.warmup_ns, assignment.window_ns, assignment.drain_ns) = (0, 300_000_000, 100_000_000);
    let result = trial(&assignment, open_loop(1000.0));
    assert_eq!(result.window.due, 300);
    let response = values(&result, "response_ns");
    assert_eq!((response.count(), response.overflow()), (0, 300));
}

#[test]
fn a_repeated_reply_counts_once() {
    let service = Service::start(Behaviour::RepliesTwice);
    let result = trial(&assignment(&service.address, 1), open_loop(100.0));
    assert_eq!(result.messages.delivered, result.messages.due);
    assert_eq!(result.messages.duplicates, result.messages.due);
}

#[test]
fn a_wrong_reply_is_an_outcome_of_its_own() {
    let service = Service::start(Behaviour::Wrong);
    let mut assignment = assignment(&service.address, 1);
    assignment.warmup_ns = 0;
    let result = trial(&assignment, PING_PONG);
    assert_eq!((result.messages.wrong, result.messages.delivered, result.messages.lost), (5, 0, 0));
}

#[test]
fn a_fragmented_reply_with_a_ping_in_between_is_one_reply() {
    let service = Service::start(Behaviour::Fragments);
    let mut assignment = assignment(&service.address, 1);
    assignment.warmup_ns = 0;
    let result = trial(&assignment, PING_PONG);
    assert_eq!((result.messages.delivered, result.messages.wrong), (5, 0));
    assert_eq!(service.books()[&result.books[0].id].pongs, 5);
}

#[test]
fn a_connection_that_the_service_closes_is_counted_with_its_code() {
    let service = Service::start(Behaviour::CloseAfter(3));
    let result = trial(&assignment(&service.address, 2), open_loop(100.0));
    assert_eq!(result.connections.closed_early["close_4300"], 2);
    let messages = &result.messages;
    assert_eq!(messages.due, messages.sent + messages.unsent);
    assert!(messages.unsent > 0, "messages due after the close were never sent");
}

#[test]
fn a_storm_measures_each_handshake() {
    let service = Service::start(Behaviour::Correct);
    let mut assignment = assignment(&service.address, 40);
    assignment.window_ns = 20_000_000_000;
    let result = trial(&assignment, Pattern::Storm { rate_per_second: None });
    assert_eq!((result.connections.attempted, result.connections.open), (40, 40));
    assert_eq!(values(&result, "handshake_ns").count(), 40);
    assert!(result.window.duration_ns < 10_000_000_000);
    assert_books_agree(&result, &service);
}

#[test]
fn a_storm_at_a_rate_takes_connections_divided_by_rate() {
    let service = Service::start(Behaviour::Correct);
    let mut assignment = assignment(&service.address, 20);
    (assignment.warmup_ns, assignment.window_ns) = (0, 20_000_000_000);
    let result = trial(&assignment, Pattern::Storm { rate_per_second: Some(50.0) });
    let seconds = result.window.duration_ns as f64 / 1e9;
    assert!((0.37..1.5).contains(&seconds), "the twentieth attempt is due after 0.38 s, took {seconds}");
}

#[test]
fn a_refusal_is_counted_with_its_status() {
    let service = Service::start(Behaviour::Refuse);
    let result = trial(&assignment(&service.address, 3), Pattern::Storm { rate_per_second: None });
    assert_eq!(result.connections.failed["http_403"], 3);
    assert_eq!((result.connections.open, result.books.len()), (0, 0));
}

#[test]
fn a_denial_after_the_upgrade_is_counted_under_the_services_reason() {
    let service = Service::start(Behaviour::Deny);
    let result = trial(&assignment(&service.address, 2), Pattern::Storm { rate_per_second: None });
    assert_eq!(result.connections.failed["bad_token"], 2);
}

#[test]
fn a_trial_without_an_open_connection_fails() {
    let closed_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed_listener.local_addr().unwrap().to_string();
    drop(closed_listener);
    let error = attempt(&assignment(&address, 2), Pattern::Flood).unwrap_err().to_string();
    assert!(error.contains("none of 2 connections") && error.contains("2 x refused"), "{error}");
}

#[test]
fn a_worker_reports_evidence_of_itself() {
    let service = Service::start(Behaviour::Correct);
    let result = trial(&assignment(&service.address, 1), open_loop(100.0));
    let evidence = &result.evidence;
    assert!(evidence.cpu_limit >= 0.01 && evidence.cpu_seconds > 0.0 && evidence.rss_bytes > 0);
    assert!(!evidence.congestion_control.is_empty());
    assert!(result.window.cpu_ns > 0);
    assert!(evidence.start_skew_ns >= 0 && evidence.start_skew_ns < 1_000_000_000, "{}", evidence.start_skew_ns);
}
