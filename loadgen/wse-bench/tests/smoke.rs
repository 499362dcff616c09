//! The check of a service's protocol against a scripted service: a correct one passes, and each fault is named.

mod scripted;

use std::time::{Duration, Instant};

use scripted::{Fault, SECRET, Scripted};
use wse_bench::smoke;

fn findings(fault: Fault) -> Vec<String> {
    let service = Scripted::start(fault);
    let begun = Instant::now();
    let smoke = smoke::check(&service.address, SECRET).unwrap();
    assert!(begun.elapsed() < Duration::from_millis(2500), "{fault:?} took {:?}", begun.elapsed());
    smoke.findings
}

/// Asserts that the fault gives exactly one finding, which contains `about`.
fn one(fault: Fault, about: &str) {
    let findings = findings(fault);
    assert!(findings.len() == 1 && findings[0].contains(about), "{fault:?}: {findings:?}");
}

#[test]
fn a_service_that_speaks_the_protocol_passes_and_its_messages_are_in_the_books() {
    let service = Scripted::start(Fault::None);
    let smoke = smoke::check(&service.address, SECRET).unwrap();
    assert_eq!(smoke.findings, Vec::<String>::new());
    let [book] = &smoke.books[..] else { panic!("{:?}", smoke.books) };
    assert_eq!((book.id.as_str(), book.sent, book.sequence_sum, book.unnumbered), ("the-id", 0, 0, 2));
}

#[test]
fn an_unreachable_service_is_a_finding_and_no_error() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let smoke = smoke::check(&free.to_string(), SECRET).unwrap();
    assert!(smoke.findings[0].contains("refused") && smoke.books.is_empty(), "{smoke:?}");
}

#[test]
fn an_accept_key_that_answers_another_request_is_found() {
    let findings = findings(Fault::AcceptsAnotherKey);
    assert!(findings.iter().all(|finding| finding.contains("upgrade_not_accepted")), "{findings:?}");
}

#[test]
fn anything_before_server_ready_is_found() {
    one(Fault::GreetsFirst, "the first frame is not server_ready");
    one(Fault::ReadyInBinary, "the first frame is not server_ready: Binary");
    one(Fault::ReadyWithoutId, "names no connection_id");
}

#[test]
fn a_ping_that_is_not_answered_as_the_protocol_says_is_found() {
    let findings = findings(Fault::DeafToPings);
    assert_eq!(findings[0], "a ping was not answered in time");
    one(Fault::PongsInBinary, "a PONG is not a single TEXT frame");
    one(Fault::PongsWithoutLatency, "a PONG lacks client_timestamp, server_timestamp or latency");
}

#[test]
fn a_websocket_ping_without_its_pong_is_found() {
    one(Fault::ChangesPongs, "a WebSocket ping came back changed");
}

#[test]
fn a_fragmented_message_that_is_not_taken_as_one_is_found() {
    one(Fault::IgnoresFragments, "a ping in three fragments was not answered in time");
}

#[test]
fn a_bad_token_that_is_not_refused_as_the_protocol_says_is_found() {
    one(Fault::TakesEveryToken, "expected an error AUTH_FAILED, received Text");
    let service = Scripted::start(Fault::TakesEveryToken);
    assert_eq!(smoke::check(&service.address, SECRET).unwrap().books.len(), 2, "both were let in");
    one(Fault::RefusesByHttp, "with a token of another secret: the upgrade was not accepted: http_401");
    one(Fault::RefusesWithAnotherCode, "expected Close 4401");
}

#[test]
fn a_close_that_is_not_echoed_is_found() {
    one(Fault::ClosesWithAnotherCode, "Close 1000 was answered by Close Some(1001)");
    one(Fault::EndsWithoutClose, "waiting for the response to Close: the stream ended");
}
