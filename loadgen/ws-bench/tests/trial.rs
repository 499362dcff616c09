//! Whole trials against a service in this process that only a section describes: each behaviour of the service must
//! show in the counts.

mod service;

use std::time::Duration;

use bench_format::{
    histogram::Recorder,
    plan::{Arrivals, Load},
    result::WorkerResult,
    trial::Assignment,
    websocket::WebsocketTarget,
};
use loadgen_core::trial::ImmediateGate;
use service::{BY_SEQUENCE, Behaviour, IN_PARTS, Service, assignment};
use ws_bench::workloads::Workload;

fn run(assignment: &Assignment) -> anyhow::Result<WorkerResult> {
    Workload::find(&assignment.trial.workload).unwrap().run(assignment, &mut ImmediateGate)
}

/// Five messages on each of two connections, one after another.
fn closed(service: &Service, section: &str) -> WorkerResult {
    run(&assignment(&service.address, "request-reply", 2, section)).unwrap()
}

fn values(result: &WorkerResult, name: &str) -> Recorder {
    Recorder::decode(&result.histograms[name]).unwrap()
}

fn quantile_ms(result: &WorkerResult, name: &str, quantile: f64) -> f64 {
    values(result, name).values().value_at_quantile(quantile) as f64 / 1e6
}

#[test]
fn an_opening_with_a_captured_value_is_followed_by_replies() {
    let service = Service::start(Behaviour::Correct);
    let result = closed(&service, BY_SEQUENCE);
    assert_eq!((result.messages.sent, result.messages.delivered, result.messages.duplicates), (10, 10, 0));
    assert_eq!((result.connections.open, values(&result, "response_ns").count()), (2, 10));
    let seen = service.seen();
    assert_eq!((seen.joined, seen.messages, seen.responses, seen.byes), (2, 10, 2, 2));
    assert_eq!(seen.paths, ["/ws", "/ws"]);
    // Hello, join, the response and the last message are no load.
    assert!(
        result.books.iter().all(|book| (book.sent, book.unnumbered, book.replies) == (5, 4, 5)),
        "{:?}",
        result.books
    );
}

#[test]
fn a_pause_of_the_opening_is_part_of_the_handshake_and_of_nothing_else() {
    let service = Service::start(Behaviour::Correct);
    let section = BY_SEQUENCE.replace("  - send: { text: 'join", "  - wait: { seconds: 0.3 }\n  - send: { text: 'join");
    let result = run(&assignment(&service.address, "connection-storm", 20, &section)).unwrap();
    assert_eq!((result.connections.open, service.seen().joined), (20, 20));
    let handshakes = values(&result, "handshake_ns");
    let (fastest, median) = (handshakes.values().min() as f64 / 1e6, quantile_ms(&result, "handshake_ns", 0.5));
    assert!(fastest >= 299.0 && median < 600.0, "fastest {fastest} ms, median {median} ms");
    let result = closed(&service, &section);
    assert_eq!((result.messages.sent, result.messages.delivered, result.connections.open), (10, 10, 2));
    assert!(result.books.iter().all(|book| (book.sent, book.unnumbered) == (5, 4)), "{:?}", result.books);
}

#[test]
fn a_message_that_comes_too_late_for_its_step_is_a_failed_handshake_with_that_step() {
    let service = Service::start(Behaviour::Correct);
    let never = "expect: { within_seconds: 0.2, when: { equals: never } }";
    let section = BY_SEQUENCE.replace("messages:\n", &format!("  - {never}\nmessages:\n"));
    let result = run(&assignment(&service.address, "connection-storm", 3, &section)).unwrap();
    assert_eq!((result.connections.open, result.connections.failed["open[4].expect_timeout"]), (0, 3));
    let in_time = BY_SEQUENCE.replace("when: { equals: joined }", "within_seconds: 5, when: { equals: joined }");
    assert_eq!(closed(&service, &in_time).connections.open, 2);
}

#[test]
fn connections_take_the_addresses_of_a_service_in_turn() {
    let services: [Service; 3] = std::array::from_fn(|_| Service::start(Behaviour::Correct));
    let section = BY_SEQUENCE.replace("open:\n", "connect: { headers: { X-User: 'c{{connection}}' } }\nopen:\n");
    let mut assignment = assignment(&services[0].address, "request-reply", 7, &section);
    // A part of the connections of several workers: the turn goes by their index among all.
    assignment.first_connection = 4;
    let target = |(service, path): (&Service, &str)| WebsocketTarget {
        address: service.address.clone(),
        path: path.into(),
        tls_name: None,
    };
    assignment.websocket.as_mut().unwrap().more_targets =
        vec![target((&services[1], "/b?at={{connection}}")), target((&services[2], "/c"))];
    let result = run(&assignment).unwrap();
    assert_eq!((result.connections.open, result.messages.sent, result.messages.delivered), (7, 35, 35));
    let seen = services.each_ref().map(|service| {
        let mut seen = service.seen();
        seen.headers.sort();
        seen.paths.sort();
        (seen.headers, seen.paths)
    });
    let expected = [
        (vec!["c6", "c9"], vec!["/ws", "/ws"]),
        (vec!["c10", "c4", "c7"], vec!["/b?at=10", "/b?at=4", "/b?at=7"]),
        (vec!["c5", "c8"], vec!["/c", "/c"]),
    ];
    let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(seen, expected.map(|(headers, paths)| (owned(headers), owned(paths))));
}

#[test]
fn an_echo_is_compared_byte_by_byte() {
    let section = r"{ messages: [{ weight: 3, text: 'm {{sequence}} {{payload}}' }, { text: 'm {{sequence}} {{random 1 99}}' }], reply: { by: same } }";
    let result = closed(&Service::start(Behaviour::Echo), section);
    assert_eq!((result.messages.delivered, result.messages.wrong), (10, 0));
    let result = closed(&Service::start(Behaviour::ChangedEcho), section);
    assert_eq!((result.messages.delivered, result.messages.wrong, result.messages.lost), (0, 10, 0));
}

#[test]
fn replies_without_a_number_answer_in_order() {
    let section = "{ messages: [{ text: 'm {{sequence}}' }], reply: { by: order, when: { equals: ok } } }";
    let result = closed(&Service::start(Behaviour::Anonymous), section);
    assert_eq!((result.messages.delivered, result.messages.duplicates), (10, 0));
}

#[test]
fn replies_by_packet_id_are_found() {
    let section = r"
messages: [{ binary: [{ text: p }, { number: { format: u16be, value: '{{packet_id}}' } }] }]
reply: { by: packet_id, when: { starts_with: a }, value: { bytes: { offset: 1, format: u16be } } }
";
    let service = Service::start(Behaviour::PacketIds);
    let mut assignment = assignment(&service.address, "request-reply", 2, section);
    assignment.load = Load::Open { rate_per_second: 400.0, arrivals: Arrivals::Constant };
    assignment.window_ns = 300_000_000;
    let result = run(&assignment).unwrap();
    assert_eq!((result.messages.due, result.messages.delivered, result.messages.lost), (120, 120, 0));
    assert_eq!(service.seen().messages, 120);
}

#[test]
fn a_wrong_reply_is_an_outcome_of_its_own() {
    let result = closed(&Service::start(Behaviour::Wrong), BY_SEQUENCE);
    assert_eq!((result.messages.wrong, result.messages.delivered, result.messages.lost), (10, 0, 0));
}

#[test]
fn an_error_counts_as_wrong() {
    let result = closed(&Service::start(Behaviour::Errors), BY_SEQUENCE);
    assert_eq!((result.messages.wrong, result.messages.delivered, result.messages.lost), (10, 0, 0));
}

#[test]
fn a_repeated_reply_counts_once() {
    let result = closed(&Service::start(Behaviour::Twice), BY_SEQUENCE);
    assert_eq!(result.messages.delivered, 10);
    // The second reply to a connection's last message may come when the connection is closing.
    assert!((8..=10).contains(&result.messages.duplicates), "{:?}", result.messages);
}

#[test]
fn replies_out_of_order_are_counted() {
    let service = Service::start(Behaviour::OutOfOrder);
    let mut assignment = assignment(&service.address, "request-reply", 1, BY_SEQUENCE);
    assignment.load = Load::Open { rate_per_second: 200.0, arrivals: Arrivals::Constant };
    assignment.window_ns = 200_000_000;
    let result = run(&assignment).unwrap();
    assert_eq!((result.messages.due, result.messages.delivered, result.messages.reorders), (40, 40, 20));
}

#[test]
fn unanswered_messages_are_lost() {
    let service = Service::start(Behaviour::Silent);
    let mut assignment = assignment(&service.address, "request-reply", 2, BY_SEQUENCE);
    (assignment.window_ns, assignment.drain_ns) = (300_000_000, 200_000_000);
    let result = run(&assignment).unwrap();
    assert_eq!((result.messages.sent, result.messages.lost, result.messages.delivered), (2, 2, 0));
}

#[test]
fn a_known_delay_is_measured_and_late() {
    let service = Service::start(Behaviour::Delayed(Duration::from_millis(30)));
    let mut assignment = assignment(&service.address, "request-reply", 2, BY_SEQUENCE);
    assignment.late_after_ns = Some(20_000_000);
    let result = run(&assignment).unwrap();
    assert_eq!((result.messages.late, result.messages.delivered), (10, 0));
    let median = quantile_ms(&result, "response_ns", 0.5);
    assert!((30.0..60.0).contains(&median), "{median} ms");
}

#[test]
fn the_parts_of_a_reply_are_timed() {
    let service = Service::start(Behaviour::Parts(Duration::from_millis(20)));
    let result = run(&assignment(&service.address, "stream", 2, IN_PARTS)).unwrap();
    assert_eq!((result.messages.delivered, result.messages.wrong, result.messages.duplicates), (10, 0, 0));
    // Three parts and the end: one first part and three gaps for each message.
    assert_eq!((values(&result, "first_ns").count(), values(&result, "gap_ns").count()), (10, 30));
    for (name, least) in [("first_ns", 20.0), ("gap_ns", 20.0), ("response_ns", 80.0)] {
        let median = quantile_ms(&result, name, 0.5);
        assert!((least - 1.5..least + 40.0).contains(&median), "{name}: {median} ms");
    }
}

#[test]
fn a_refused_opening_is_counted_with_its_reason() {
    let service = Service::start(Behaviour::Denies);
    let result = run(&assignment(&service.address, "connection-storm", 3, BY_SEQUENCE)).unwrap();
    assert_eq!(result.connections.failed["refused_by_service"], 3);
    assert_eq!(result.connections.open, 0);
}

#[test]
fn a_storm_measures_the_whole_opening() {
    let service = Service::start(Behaviour::Correct);
    let result = run(&assignment(&service.address, "connection-storm", 20, BY_SEQUENCE)).unwrap();
    assert_eq!((result.connections.open, values(&result, "handshake_ns").count()), (20, 20));
    assert_eq!(service.seen().joined, 20);
}

#[test]
fn an_uplink_sends_without_waiting() {
    let service = Service::start(Behaviour::Silent);
    let section = "{ messages: [{ text: 'm {{sequence}}' }] }";
    let mut flood = assignment(&service.address, "uplink", 2, section);
    flood.load = Load::Closed { messages_per_connection: None, in_flight: 8 };
    flood.window_ns = 200_000_000;
    let result = run(&flood).unwrap();
    assert!(result.messages.sent > 0 && result.messages.lost == 0);
    assert_eq!(service.seen().messages, result.messages.sent, "all of it arrived before the connections closed");
}

#[test]
fn idle_connections_stay_open_and_send_nothing() {
    let service = Service::start(Behaviour::Silent);
    let mut idle = assignment(&service.address, "idle", 3, BY_SEQUENCE);
    idle.window_ns = 200_000_000;
    let result = run(&idle).unwrap();
    assert_eq!((result.connections.open, result.messages.sent, service.seen().messages), (3, 0, 0));
    assert!(result.connections.closed_early.is_empty());
}

#[test]
fn each_connection_has_its_own_request() {
    let rows = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rows.path(), "user,room\nann,red\nbob,blue\n").unwrap();
    let section = format!(
        "{{ connect: {{ rows: '{}', headers: {{ X-User: '{{{{row.user}}}}' }}, subprotocols: [two, one] }} }}",
        rows.path().display()
    );
    let service = Service::start(Behaviour::Silent);
    let mut assignment = assignment(&service.address, "connection-storm", 3, &section);
    assignment.websocket.as_mut().unwrap().path = "/{{row.room}}?c={{connection}}".into();
    let result = run(&assignment).unwrap();
    assert_eq!(result.connections.open, 3, "{:?}", result.connections);
    let mut seen = service.seen();
    seen.paths.sort();
    seen.headers.sort();
    assert_eq!(seen.paths, ["/blue?c=1", "/red?c=0", "/red?c=2"]);
    assert_eq!(seen.headers, ["ann", "ann", "bob"]);
}

#[test]
fn an_assignment_that_cannot_be_carried_out_says_why() {
    let error = |workload: &str, change: &dyn Fn(&mut Assignment)| {
        let mut assignment = assignment("127.0.0.1:1", workload, 1, IN_PARTS);
        assignment.load = Load::Closed { messages_per_connection: None, in_flight: 1 };
        change(&mut assignment);
        run(&assignment).unwrap_err().to_string()
    };
    let section = |text: &'static str| {
        move |assignment: &mut Assignment| {
            assignment.websocket.as_mut().unwrap().section = serde_saphyr::from_str(text).unwrap();
        }
    };
    assert!(error("request-reply", &|assignment| assignment.websocket = None).contains("describes no service"));
    assert!(error("request-reply", &section("{}")).contains("reply: request-reply waits for replies"));
    assert!(error("uplink", &section("{}")).contains("messages: uplink sends messages"));
    let without_end = section("{ messages: [{ text: a }], reply: { by: order } }");
    assert!(error("stream", &without_end).contains("reply.end: stream has replies in parts"));
    assert!(error("request-reply", &section("{ open: [{}] }")).contains("open[0]: set exactly one"));
    assert!(error("uplink", &|assignment| assignment.message.coalesce = 0).contains("give at least 1"));
    let with_due_time = section("{ messages: [{ text: '{{due_us}}' }] }");
    assert!(error("uplink", &with_due_time).contains("{{due_us}} has no value in a closed load"));
    assert!(Workload::find("ping").unwrap_err().to_string().contains("connection-storm, idle, request-reply"));
}
