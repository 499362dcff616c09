//! Fan-outs against a room in this process: what one connection publishes must be accounted for on each other one.

mod room;
#[path = "service/mod.rs"]
mod service;

use bench_format::{
    histogram::Recorder,
    plan::{Arrivals, Load},
    result::{ReceiverBook, WorkerResult},
    trial::Assignment,
};
use loadgen_core::trial::ImmediateGate;
use room::{Flaw, Room};
use ws_bench::workloads::Workload;

const SECTION: &str = r"
fanout:
  subscribe:
    - send: { text: sub }
    - expect: { when: { equals: subscribed } }
  publish: { text: 'p {{sequence}} {{due_us}} {{payload}}' }
  when: { starts_with: 'p ' }
  sequence: { regex: '^p ([0-9]+) ' }
  due_us: { regex: '^p [0-9]+ ([0-9]+) ' }
";
const SECOND_NS: u64 = 1_000_000_000;

/// Two seconds of 200 publications per second to three connections, the first half second of them before the window.
fn published(flaw: Flaw) -> WorkerResult {
    let room = Room::open(flaw);
    let assignment = Assignment {
        load: Load::Open { rate_per_second: 200.0, arrivals: Arrivals::Constant },
        warmup_ns: SECOND_NS / 2,
        window_ns: 3 * SECOND_NS / 2,
        drain_ns: 3 * SECOND_NS,
        ..service::assignment(&room.address, "fanout", 4, SECTION)
    };
    Workload::Fanout.run(&assignment, &mut ImmediateGate).unwrap()
}

fn receivers(result: &WorkerResult) -> Vec<&ReceiverBook> {
    result.books.iter().filter_map(|book| book.receiver.as_ref()).collect()
}

#[test]
fn every_publication_reaches_every_other_connection() {
    let result = published(Flaw::None);
    let publisher = result.books.iter().find(|book| book.last_of_window.is_some()).unwrap();
    assert_eq!(publisher.last_of_window, Some(399), "two seconds of 200 per second");
    assert!(publisher.sent > 400, "it publishes on after the window: {}", publisher.sent);
    let receivers = receivers(&result);
    assert_eq!(receivers.len(), 3, "the publisher doesn't receive");
    for book in receivers {
        assert_eq!((book.first, book.missing, book.duplicated, book.reordered), (Some(0), 0, 0, 0));
        assert!(book.reached && book.last >= Some(399), "{book:?}");
    }
    let response = Recorder::decode(&result.histograms["response_ns"]).unwrap();
    assert_eq!(response.count(), 3 * 300, "each receiver gets what is due in a window of one and a half seconds");
    assert_eq!(result.messages.lost, 0);
}

#[test]
fn what_the_room_does_wrong_shows_in_each_receivers_own_count() {
    let counts = |flaw| {
        let result = published(flaw);
        let receivers = receivers(&result);
        assert_eq!(receivers.len(), 3);
        let sum = |of: fn(&ReceiverBook) -> u64| receivers.iter().map(|book| of(book)).sum::<u64>();
        [sum(|book| book.missing), sum(|book| book.duplicated), sum(|book| book.reordered), sum(|book| book.wrong)]
            .map(|count| count > 0)
    };
    assert_eq!(counts(Flaw::Drops), [true, false, false, false]);
    assert_eq!(counts(Flaw::Repeats), [false, true, false, false]);
    assert_eq!(counts(Flaw::Reorders), [false, false, true, false]);
    assert_eq!(counts(Flaw::Mutilates), [true, false, false, true]);
}

#[test]
fn a_fan_out_without_its_numbers_is_refused_with_the_place() {
    let check = |section: &str| ws_bench::check(&serde_saphyr::from_str(section).unwrap());
    assert_eq!(check(SECTION), vec![]);
    let without = SECTION.replace("{{due_us}} ", "");
    let mistakes = check(&without);
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(mistakes[0].0 == "fanout.publish" && mistakes[0].1.contains("has no {{due_us}}"), "{mistakes:?}");
    let wrong = SECTION.replace("- send: { text: sub }", "- send: { text: '{{sequence}}' }");
    assert!(check(&wrong)[0].0.starts_with("fanout.subscribe[0].send"), "{:?}", check(&wrong));
}
