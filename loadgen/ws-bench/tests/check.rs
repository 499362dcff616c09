//! `check` lists every mistake of a section, each with its place and what to do.

use bench_format::websocket::WireWebsocket;
use ws_bench::check;

fn mistakes(section: &str) -> Vec<(String, String)> {
    check(&serde_saphyr::from_str::<WireWebsocket>(section).unwrap())
}

/// The section has exactly this mistake.
fn assert_mistake(section: &str, place: &str, advice: &str) {
    let mistakes = mistakes(section);
    assert_eq!(mistakes.len(), 1, "{section}: {mistakes:#?}");
    assert_eq!(mistakes[0].0, place, "{section}");
    assert!(mistakes[0].1.contains(advice), "{section}: {}", mistakes[0].1);
}

/// Each section has exactly its mistake: place and advice.
fn assert_each(mistakes: &[(&str, &str, &str)]) {
    for (section, place, advice) in mistakes {
        assert_mistake(section, place, advice);
    }
}

#[test]
fn a_mistake_in_the_opening_is_listed_with_its_place() {
    assert_each(&[
        (
            "{ open: [{ send: { text: a, binary: [{ hex: '00' }] } }] }",
            "open[0].send",
            "exactly one of text and binary",
        ),
        ("{ open: [{ send: { text: a }, expect: {} }] }", "open[0]", "exactly one of send, expect and wait"),
        ("{ open: [{ expect: {}, wait: { seconds: 1 } }] }", "open[0]", "exactly one of send, expect and wait"),
        ("{ open: [{ wait: { seconds: 0 } }] }", "open[0].wait.seconds", "0 s is not from 0.001 to 15 s"),
        ("{ open: [{ wait: { seconds: 60 } }] }", "open[0].wait.seconds", "after which every attempt fails"),
        (
            "{ open: [{ wait: { seconds: 8 } }, { wait: { seconds: 7 } }, { wait: { seconds: 1 } }] }",
            "open[1].wait.seconds",
            "add up to 15 s, and an attempt fails with ready_timeout",
        ),
        ("{ open: [{ expect: { within_seconds: 15.5 } }] }", "open[0].expect.within_seconds", "0.001 to 15 s"),
        ("{ open: [{ expect: {} }, { expect: { when: { regex: '(' } } }] }", "open[1].expect.when.regex", "no regular"),
        ("{ open: [{ expect: { when: { hex: 'abc' } } }] }", "open[0].expect.when.hex", "whole bytes"),
        ("{ open: [{ expect: { when: { json: { id: '1' } } } }] }", "open[0].expect.when.json", "begins with a slash"),
        ("{ open: [{ expect: { refused: {} } }] }", "open[0].expect.refused", "holds for every message"),
        ("{ open: [{ expect: { capture: { a: {} } } }] }", "open[0].expect.capture.a", "exactly one of json"),
        ("{ open: [{ send: { text: '{{sequence}}' } }] }", "open[0].send.text", "has no value here"),
        ("{ open: [{ send: { text: '{{captured.a}}' } }] }", "open[0].send.text", "no value captured before"),
    ]);
}

#[test]
fn a_mistake_in_what_is_sent_and_received_is_listed_with_its_place() {
    assert_each(&[
        ("{ messages: [{ text: '{{sequense}}' }] }", "messages[0].text", "there is no placeholder {{sequense}}"),
        ("{ messages: [{}] }", "messages[0]", "exactly one of text and binary"),
        ("{ messages: [{ text: a, weight: 0 }] }", "messages[0].weight", "at least 1"),
        ("{ messages: [{ text: a }], reply: {} }", "messages[0]", "has no {{sequence}}"),
        ("{ messages: [{ text: '{{sequence}}{{due_us}}' }], reply: {} }", "messages[0]", "another character between"),
        ("{ messages: [{ text: '{{sequence}}' }], reply: { by: sequence } }", "reply.value", "is missing"),
        ("{ reply: { by: sequence, value: { json: /a }, text: 'a' } }", "reply.text", "has no {{sequence}}"),
        ("{ reply: { by: order, value: { json: /a } } }", "reply.value", "remove it"),
        ("{ reply: { by: same, end: { equals: a } } }", "reply.end", "has no parts"),
        ("{ messages: [{ text: '451-[]', attachments: [[{ hex: '00' }]] }] }", "framing", "set `framing: socket-io`"),
        (
            "{ framing: socket-io, messages: [{ text: '452-[]', attachments: [[{ hex: '00' }]] }] }",
            "messages[0]",
            "begin its text with 451-",
        ),
        (
            "{ framing: socket-io, messages: [{ text: '451-[]', attachments: [[{ hex: '00' }]] }, { text: '42[]' }] }",
            "messages[1].attachments",
            "all the same number",
        ),
        (
            "{ framing: socket-io, messages: [{ text: '451-[]', attachments: [[{ hex: x }]] }] }",
            "messages[0].attachments[0].binary[0].hex",
            "whole bytes",
        ),
        (
            "{ framing: socket-io, messages: [{ text: '451-{{sequence}}[]', attachments: [[{ hex: '00' }]] }], reply: {} }",
            "reply.by",
            "match by sequence",
        ),
        ("{ reply: { by: order, error: {} } }", "reply.error", "holds for every message"),
        ("{ respond: [{ when: {}, send: { text: a } }] }", "respond[0].when", "holds for every message"),
        ("{ keepalive: { after_seconds: 3, send: { text: a } } }", "keepalive.after_seconds", "4 to 1020"),
        ("{ keepalive: { after_seconds: 1021, send: { text: a } } }", "keepalive.after_seconds", "4 to 1020"),
        (
            "{ keepalive: { after_seconds: 8, send: { text: '{{connection}}' } } }",
            "keepalive.send.text",
            "no value here",
        ),
        ("{ close: {} }", "close", "exactly one of text and binary"),
    ]);
}

#[test]
fn a_mistake_in_requests_and_addresses_is_listed_with_its_place() {
    assert_each(&[
        ("{ connect: { headers: { Host: a } } }", "connect.headers.Host", "remove it"),
        ("{ connect: { headers: { 'A B': a } } }", "connect.headers.A B", "no name of a header"),
        ("{ connect: { headers: { A: \"b\\r\\nC: d\" } } }", "connect.headers.A", "control character"),
        (
            "{ connect: { headers: { Sec-WebSocket-Protocol: a } } }",
            "connect.headers.Sec-WebSocket-Protocol",
            "subprotocols",
        ),
        (
            "{ connect: { headers: { sec-websocket-extensions: permessage-deflate } } }",
            "connect.headers.sec-websocket-extensions",
            "connect.deflate",
        ),
        (
            "{ connect: { deflate: { compress_sent: true, client_max_window_bits: 8 } } }",
            "connect.deflate.client_max_window_bits",
            "8 is not from 9 to 15 bits",
        ),
        (
            "{ connect: { deflate: { compress_sent: false, server_max_window_bits: 16, client_max_window_bits: 8 } } }",
            "connect.deflate.server_max_window_bits",
            "16 is not from 8 to 15 bits",
        ),
        ("{ connect: { subprotocols: ['a, b'] } }", "connect.subprotocols[0]", "no commas"),
        ("{ connect: { source_addresses: [localhost] } }", "connect.source_addresses[0]", "no IP address"),
        ("{ connect: { rows: /no.csv, headers: { A: '{{row.a}}' } } }", "connect.rows", "/no.csv"),
        ("{ connect: { rows: /does/not/exist.csv } }", "connect.rows", "/does/not/exist.csv"),
        ("{ services: { a: { url: 'http://host:1/' } } }", "services.a.url", "neither ws:// nor wss://"),
        ("{ services: { a: { url: 'ws://host/' } } }", "services.a.url", "no port"),
        ("{ services: { a: { url: 'ws://host:1?a' } } }", "services.a.url", "slash before the question mark"),
        ("{ services: { a: { url: 'ws://host:1/{{sequence}}' } } }", "services.a.url", "no value here"),
        ("{ services: { a: { url: 'ws://host:1/a b' } } }", "services.a.url", "percent-encoding"),
        (
            "{ services: { a: { url: 'ws://host:1/', more_urls: ['ws://host:2/', 'wss://host:3/'] } } }",
            "services.a.more_urls[1]",
            "ws and wss are mixed",
        ),
        (
            "{ services: { a: { url: 'ws://host:1/', more_urls: ['ws://host:2/{{row.a}}'] } } }",
            "services.a.more_urls[0]",
            "no column of the rows",
        ),
    ]);
}

#[test]
fn all_mistakes_are_listed_at_once() {
    let section = "{ open: [{}], messages: [{ text: '{{' }, { text: '{{x}}' }], close: { text: '{{row.a}}' } }";
    let places: Vec<_> = mistakes(section).into_iter().map(|(place, _)| place).collect();
    assert_eq!(places, ["open[0]", "messages[0].text", "messages[1].text", "close.text"]);
}

#[test]
fn a_value_of_the_rows_that_would_break_the_request_is_a_mistake() {
    let rows = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(rows.path(), "token\na\n\"b\r\nc\"\n").unwrap();
    let section = |connect: &str| format!("{{ connect: {{ rows: '{}', {connect} }} }}", rows.path().display());
    let headers = section("headers: { A: '{{row.token}}' }");
    assert_mistake(&headers, "connect.headers.A", r#""token" in row 2"#);
    assert_mistake(&section("headers: { A: '{{row.user}}' }"), "connect.headers.A", "(token)");
    assert_eq!(mistakes(&section("subprotocols: [a]")), []);
}

#[test]
fn a_section_without_mistakes_has_none() {
    assert_eq!(mistakes("{}"), []);
    assert_eq!(mistakes("{ services: { a: { url: 'ws://127.0.0.1:{port}/{{connection}}?x=1' } } }"), []);
}
