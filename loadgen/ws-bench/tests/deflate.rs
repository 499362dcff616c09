//! Whole trials with `permessage-deflate` against a service in this process: what was agreed on is used in both directions,
//! and stands in the evidence. A service of another project is in `presets/tests`.

mod echo;
mod frames;
mod service;

use std::collections::BTreeMap;

use bench_format::{plan::Load, result::WorkerResult};
use echo::{Echo, Splitting};
use loadgen_core::trial::ImmediateGate;
use service::assignment;
use ws_bench::workloads::Workload;

const CONNECTIONS: u32 = 2;

/// An echo of five messages on each connection, with this `connect.deflate`.
fn trial(echo: &Echo, deflate: &str) -> WorkerResult {
    let section = format!(
        "{{ connect: {{ deflate: {deflate} }}, messages: [{{ text: 'm {{{{sequence}}}} {{{{payload}}}}' }}], \
         reply: {{ by: same }}, close: {{ text: bye }} }}"
    );
    Workload::RequestReply
        .run(&assignment(&echo.address, "request-reply", CONNECTIONS, &section), &mut ImmediateGate)
        .unwrap()
}

fn assert_all_delivered(result: &WorkerResult, agreed: &str) {
    let counts = &result.messages;
    assert_eq!((counts.sent, counts.delivered, counts.wrong), (10, 10, 0), "{agreed}: {counts:?}");
    assert_eq!(result.evidence.extensions, BTreeMap::from([(agreed.to_owned(), u64::from(CONNECTIONS))]));
}

#[test]
fn compressed_messages_are_sent_and_received_with_every_agreement() {
    for (deflate, response, agreed) in [
        (
            "{ compress_sent: true }",
            "permessage-deflate",
            "permessage-deflate; server_max_window_bits=15; client_max_window_bits=15",
        ),
        (
            "{ compress_sent: true }",
            "permessage-deflate; client_no_context_takeover; client_max_window_bits=9",
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=15; client_max_window_bits=9",
        ),
        (
            "{ compress_sent: true, server_no_context_takeover: true, server_max_window_bits: 10 }",
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=10",
            "permessage-deflate; server_no_context_takeover; server_max_window_bits=10; client_max_window_bits=15",
        ),
        (
            "{ compress_sent: true, client_no_context_takeover: true, client_max_window_bits: 11 }",
            "permessage-deflate",
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=15; client_max_window_bits=11",
        ),
    ] {
        let echo = Echo::start(Some(response), Splitting::Whole);
        assert_all_delivered(&trial(&echo, deflate), agreed);
        let seen = echo.seen();
        // The message before the Close frame is compressed, too.
        assert_eq!((seen.compressed, seen.plain), (12, 0), "{agreed}");
        assert!(seen.offers.iter().all(|offer| offer.contains("client_max_window_bits")), "{:?}", seen.offers);
    }
}

#[test]
fn a_plan_may_leave_what_it_sends_uncompressed() {
    let echo = Echo::start(Some("permessage-deflate"), Splitting::Whole);
    let result = trial(&echo, "{ compress_sent: false }");
    assert_all_delivered(&result, "permessage-deflate; server_max_window_bits=15; client_max_window_bits=15");
    assert_eq!((echo.seen().compressed, echo.seen().plain), (0, 12));
}

#[test]
fn a_service_that_does_not_accept_is_spoken_to_without_compression() {
    let echo = Echo::start(None, Splitting::Whole);
    assert_all_delivered(&trial(&echo, "{ compress_sent: true }"), "none");
    assert_eq!((echo.seen().compressed, echo.seen().plain), (0, 12));
}

#[test]
fn a_compressed_message_in_fragments_with_pings_between_them_is_whole() {
    let echo = Echo::start(Some("permessage-deflate"), Splitting::Fragments);
    let agreed = "permessage-deflate; server_max_window_bits=15; client_max_window_bits=15";
    assert_all_delivered(&trial(&echo, "{ compress_sent: true }"), agreed);
}

#[test]
fn without_an_offer_a_compressed_message_is_against_the_protocol() {
    let echo = Echo::start(Some("permessage-deflate"), Splitting::Whole);
    let section = "{ messages: [{ text: 'm {{sequence}}' }], reply: { by: same } }";
    let mut assignment = assignment(&echo.address, "request-reply", 1, section);
    let error = Workload::RequestReply.run(&assignment, &mut ImmediateGate).unwrap_err();
    assert!(error.to_string().ends_with("could be opened: 1 x upgrade_unasked"), "{error}");
    // A service that compresses although it did not accept.
    let echo = Echo::start(None, Splitting::Unasked);
    assignment.address = echo.address.clone();
    let result = Workload::RequestReply.run(&assignment, &mut ImmediateGate).unwrap();
    assert_eq!(result.connections.closed_early["protocol"], 1);
    assert!(result.evidence.extensions.is_empty());
}

#[test]
fn writes_that_end_within_a_message_count_whole_messages() {
    let echo = Echo::start(Some("permessage-deflate"), Splitting::Whole);
    let section = "{ connect: { deflate: { compress_sent: true } }, \
                   messages: [{ text: 'm {{sequence}} {{payload}}' }], reply: { by: same } }";
    let mut assignment = assignment(&echo.address, "request-reply", 1, section);
    // A text of 200 000 random characters is more than a socket takes at once, also when it is compressed.
    assignment.message.size_bytes = 200_000;
    assignment.load = Load::Closed { messages_per_connection: Some(3), in_flight: 1 };
    let result = Workload::RequestReply.run(&assignment, &mut ImmediateGate).unwrap();
    assert_eq!((result.messages.sent, result.messages.delivered), (3, 3), "{:?}", result.messages);
    assert!(result.messages.bytes_sent < 3 * 190_000, "{}", result.messages.bytes_sent);
}
