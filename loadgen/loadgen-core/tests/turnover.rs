//! Whole trials in which connections come and go, against a service in this process.

mod service;

use bench_format::{
    histogram::Recorder,
    plan::{Arrivals, Cut},
    result::{Turnover, Witness, WorkerResult},
    trial::Assignment,
};
use loadgen_core::{
    Pattern,
    trial::{ImmediateGate, run},
};
use service::{Behaviour, Client, Service, assignment};

/// Messages per second, and connections that come per second.
const CHURN: Pattern =
    Pattern::Churn { rate_per_second: 1000.0, arrivals: Arrivals::Constant, connections_per_second: 100.0 };

fn trial(assignment: &Assignment, pattern: Pattern) -> WorkerResult {
    let client = Client { replies: matches!(pattern, Pattern::Churn { .. }) };
    run(client, assignment, pattern, Witness::Reply, "test", &mut ImmediateGate).unwrap()
}

/// A trial of 10 connections with 0.1 s of warm-up and 1 s of window.
fn churn(service: &Service, change: impl FnOnce(&mut Assignment)) -> WorkerResult {
    let mut assignment = assignment(&service.address, 10);
    (assignment.warmup_ns, assignment.window_ns, assignment.drain_ns) = (100_000_000, 1_000_000_000, 1_000_000_000);
    change(&mut assignment);
    trial(&assignment, CHURN)
}

fn reconnect(service: &Service, connections: u32, cut: Cut, spread_ns: u64) -> WorkerResult {
    let mut assignment = assignment(&service.address, connections);
    assignment.window_ns = 20_000_000_000;
    trial(&assignment, Pattern::Reconnect { cut, spread_ns })
}

fn turnover(result: &WorkerResult) -> &Turnover {
    result.turnover.as_ref().unwrap()
}

fn values(result: &WorkerResult, name: &str) -> Recorder {
    Recorder::decode(&result.histograms[name]).unwrap()
}

/// Every attempt and every connection has exactly one outcome, and each connection that was open has one book.
fn assert_accounted(result: &WorkerResult) {
    let (counts, connections) = (turnover(result), &result.connections);
    let sum = |reasons: &std::collections::BTreeMap<String, u64>| reasons.values().sum::<u64>();
    let ended = counts.ready + sum(&counts.refused) + sum(&counts.failed) + counts.not_made;
    assert_eq!(counts.due, ended, "{counts:?}");
    assert_eq!(connections.attempted, connections.open + sum(&connections.failed), "{connections:?}");
    let gone = counts.closed + sum(&connections.closed_early) + counts.open_at_end;
    assert_eq!(connections.open, gone, "{connections:?}, {counts:?}");
    assert_eq!(result.books.len() as u64, connections.open);
    assert_eq!(result.messages.sent, result.books.iter().map(|book| book.sent).sum::<u64>());
    assert_eq!(values(result, "handshake_ns").total(), counts.due);
}

#[test]
fn connections_come_and_go_by_their_schedule_while_every_message_is_answered() {
    let service = Service::start(Behaviour::Correct);
    let result = churn(&service, |_| ());
    assert_accounted(&result);
    // 100 connections a second over 1.1 s come and go, 100 of them in the window.
    let counts = turnover(&result);
    assert_eq!((counts.due, counts.ready, counts.closed, counts.open_at_end), (100, 100, 110, 10), "{counts:?}");
    assert_eq!((counts.unanswered_closes, counts.unanswered_messages), (0, 0));
    assert_eq!((result.connections.attempted, result.connections.open), (120, 120));
    assert_eq!((result.messages.due, result.messages.delivered, result.messages.unsent), (1100, 1100, 0));
    assert_eq!((result.window.due, values(&result, "response_ns").count()), (1000, 1000));
    assert_eq!(values(&result, "attempt_lateness_ns").count(), 100);
    assert!(result.failures.window.is_empty(), "{:?}", result.failures);
    let books = service.books();
    assert_eq!(books.len(), 120);
    assert!(books.values().all(|book| book.closed_by_client && book.in_order), "each ends with a Close frame");
    for book in &result.books {
        assert_eq!((book.sent, book.replies), (books[&book.id].numbered, book.sent), "{}", book.id);
    }
}

#[test]
fn a_connection_is_closed_without_its_answers_once_the_time_for_them_is_over() {
    let service = Service::start(Behaviour::RepliesUpTo(5));
    let result = churn(&service, |assignment| assignment.drain_ns = 200_000_000);
    assert_accounted(&result);
    let counts = turnover(&result);
    // A connection lives for 0.1 s and gets some ten messages.
    assert!(counts.closed >= 100 && counts.unanswered_messages > 200, "{counts:?}");
    assert_eq!(
        result.failures.window["close/unanswered"] + result.failures.outside["close/unanswered"],
        counts.unanswered_messages
    );
    assert!(result.messages.lost >= counts.unanswered_messages, "{:?}", result.messages);
}

#[test]
fn a_refused_connection_is_an_outcome_and_its_handshake_took_longer_than_every_other() {
    let service = Service::start(Behaviour::RefuseEvery(5));
    let result = churn(&service, |_| ());
    assert_accounted(&result);
    let counts = turnover(&result);
    assert_eq!((counts.due, counts.refused["http_503"]), (100, 20), "{counts:?}");
    assert_eq!(result.failures.window["handshake/http_503"], 20);
    assert_eq!((values(&result, "handshake_ns").count(), values(&result, "handshake_ns").overflow()), (80, 20));
    assert_eq!((result.messages.unsent, result.messages.lost), (0, 0), "others carry its messages");
    let failed: u64 = result.intervals.iter().map(|interval| interval.failed).sum();
    assert_eq!(failed, 20);
}

#[test]
fn connections_that_the_service_ends_are_told_from_those_that_go_as_planned() {
    let service = Service::start(Behaviour::CloseAfter(3));
    let result = churn(&service, |_| ());
    assert_accounted(&result);
    assert!(result.connections.closed_early["close_4300"] > 50, "{:?}", result.connections);
    assert!(result.failures.window["connection/close_4300"] > 50, "{:?}", result.failures);
}

#[test]
fn a_service_that_answers_no_close_frame_costs_descriptors_only_for_a_while() {
    let service = Service::start(Behaviour::KeepsOpen);
    let result = churn(&service, |_| ());
    assert_accounted(&result);
    // They are given up after five seconds, or at the end of the trial.
    let counts = turnover(&result);
    assert_eq!((counts.closed, counts.unanswered_closes), (110, 110), "{counts:?}");
    assert_eq!((counts.not_made, descriptors_to(&service)), (0, 0));
    let _another = std::net::TcpStream::connect(&service.address).unwrap();
    assert_eq!(descriptors_to(&service), 1, "the count sees one that is held");
}

/// How many descriptors of connections to a service its clients hold. Those of the service and of other tests are in
/// this process, too, so its own number says nothing. A socket without a descriptor has no inode (proc(5), `/proc/net/tcp`).
fn descriptors_to(service: &Service) -> usize {
    let port: u16 = service.address.rsplit(':').next().unwrap().parse().unwrap();
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&port) && fields[9] != "0"
    };
    table.lines().skip(1).filter(is_open).count()
}

#[test]
fn two_workers_give_each_connection_a_number_of_its_own() {
    let service = Service::start(Behaviour::Correct);
    let both: Vec<_> = std::thread::scope(|scope| {
        let work = |worker: u32| {
            let service = &service;
            move || {
                churn(service, |assignment| {
                    (assignment.worker, assignment.workers, assignment.first_connection) = (worker, 2, worker * 10);
                })
            }
        };
        let running = [scope.spawn(work(0)), scope.spawn(work(1))];
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // Each makes its share of twice its own rates.
    assert!(both.iter().all(|result| turnover(result).due == 100), "{both:?}");
    both.iter().for_each(assert_accounted);
}

#[test]
fn all_connections_are_cut_and_come_back() {
    for (cut, has_close_frame) in [(Cut::Reset, false), (Cut::Close, true)] {
        let service = Service::start(Behaviour::Correct);
        let result = reconnect(&service, 30, cut, 0);
        assert_accounted(&result);
        let counts = turnover(&result);
        assert_eq!((counts.due, counts.ready, counts.closed, counts.open_at_end), (30, 30, 30, 30), "{cut:?}");
        assert_eq!((result.connections.attempted, values(&result, "reconnected_ns").count()), (60, 30));
        assert!(result.window.duration_ns < 10_000_000_000, "the window ends with the last attempt");
        let closed = service.books().values().filter(|book| book.closed_by_client).count();
        assert_eq!(closed, if has_close_frame { 60 } else { 30 }, "{cut:?}");
    }
}

#[test]
fn attempts_are_spread_over_the_time_that_is_given() {
    let service = Service::start(Behaviour::Correct);
    let result = reconnect(&service, 10, Cut::Reset, 500_000_000);
    assert_accounted(&result);
    let back = values(&result, "reconnected_ns");
    // The first is due at the cut, the last 450 ms later. Handshakes count from their own due times.
    assert!(back.values().max() > 450_000_000, "{}", back.values().max());
    assert!(values(&result, "handshake_ns").values().value_at_quantile(0.5) < 300_000_000);
}

#[test]
fn a_connection_that_is_refused_does_not_come_back() {
    let service = Service::start(Behaviour::RefuseEvery(10));
    let result = reconnect(&service, 40, Cut::Reset, 0);
    assert_accounted(&result);
    // One in ten of the first 40 attempts failed as well, and what isn't open isn't cut.
    let (counts, back) = (turnover(&result), values(&result, "reconnected_ns"));
    assert_eq!((counts.due, counts.closed), (36, 36), "{counts:?}");
    let refused = counts.refused["http_503"];
    assert!((3..=4).contains(&refused), "{counts:?}");
    assert_eq!((back.count(), back.overflow()), (36 - refused, refused));
}
