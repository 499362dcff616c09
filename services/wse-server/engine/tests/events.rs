//! Events to clients: completed, in the connection's format, without duplicates, at a limited rate, and the urgent ones
//! first.

mod client;

use client::{Client, Received, config, drain, start, until};
use serde_json::{Value, json};
use wse_engine::{
    Config, RateLimit, Server,
    events::Event,
    format::{Inflater, MESSAGE_PACK},
};

/// Sends an event and returns the size of its payload in bytes.
fn send(server: &Server, connection: &str, event: &Value, threshold: usize) -> usize {
    let members = event.as_object().unwrap().clone().into_iter().collect();
    server.send_event(connection, &Event::new(members), threshold).unwrap()
}

fn binary(client: &mut Client) -> Vec<u8> {
    match client.receive() {
        Received::Binary(bytes) => bytes,
        other => panic!("{other:?} instead of an event"),
    }
}

/// The next event, which must be JSON.
fn event(client: &mut Client) -> Value {
    serde_json::from_slice(&binary(client)).unwrap()
}

fn dropped(server: &Server, reason: &str) -> u64 {
    server.stats().messages.send_dropped.get(reason).copied().unwrap_or(0)
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.prometheus_text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn an_event_arrives_completed_as_a_binary_message() {
    let server = start(config());
    let (mut client, id) = Client::ready(server.address());
    let size = send(&server, &id, &json!({"t": "user_update", "p": {"b": 1, "a": 2}}), 1024);
    let bytes = binary(&mut client);
    assert_eq!(bytes.len(), size);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with(r#"{"c":"U","id":""#) && text.ends_with(r#","v":1}"#), "{text}");
    let event: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(event.as_object().unwrap().keys().collect::<Vec<_>>(), ["c", "id", "p", "seq", "t", "ts", "v"]);
    assert_eq!(event["id"].as_str().unwrap().as_bytes()[14], b'7', "a UUID of version 7");
    assert_eq!(event["ts"].as_str().unwrap().len(), "2026-11-20T23:33:20.933Z".len());
}

#[test]
fn numbers_are_counted_for_all_connections_together() {
    let server = start(config());
    let (mut first, first_id) = Client::ready(server.address());
    let (mut second, second_id) = Client::ready(server.address());
    send(&server, &first_id, &json!({"t": "x"}), 0);
    send(&server, &second_id, &json!({"t": "x"}), 0);
    let (first, second) = (event(&mut first), event(&mut second));
    // Other tests of this process take sequence numbers too.
    assert!(second["seq"].as_u64() > first["seq"].as_u64(), "{first} {second}");
}

#[test]
fn payloads_above_the_threshold_are_compressed() {
    let server = start(config());
    let (mut client, id) = Client::ready(server.address());
    let long = json!({"t": "x", "p": "y".repeat(3000)});
    let size = send(&server, &id, &long, 1024);
    let bytes = binary(&mut client);
    assert_eq!((bytes.len(), &bytes[..4]), (size, b"C:x\x01".as_slice()), "zlib, level 1");
    let mut inflated = Vec::new();
    Inflater::default().inflate(&bytes[2..], &mut inflated, 1 << 20).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&inflated).unwrap()["p"], long["p"]);
    assert!(size < 200 && send(&server, &id, &long, 0) == inflated.len(), "0 switches it off");
    assert_eq!(event(&mut client)["p"], long["p"]);
    let exact = send(&server, &id, &json!({"t": "x", "id": "exact"}), 1024);
    event(&mut client);
    assert_eq!(send(&server, &id, &json!({"t": "x", "id": "again"}), exact), exact, "not longer than the threshold");
    event(&mut client);
}

#[test]
fn a_connection_that_requested_messagepack_gets_it() {
    let server = start(config());
    let mut client = Client::open(server.address(), "/wse?format=msgpack");
    let greeting: Value = serde_json::from_str(&client.text()).unwrap();
    let id = greeting["p"]["details"]["connection_id"].as_str().unwrap();
    let size = send(&server, id, &json!({"t": "x", "p": {"long": "y".repeat(3000)}}), 1024);
    let bytes = binary(&mut client);
    assert_eq!((bytes.len(), &bytes[..3]), (size, b"M:\x87".as_slice()), "a map of seven, never compressed");
    let event: Value = rmp_serde::from_slice(&bytes[MESSAGE_PACK.len()..]).unwrap();
    assert_eq!((&event["t"], &event["c"]), (&json!("x"), &json!("U")));
}

#[test]
fn an_event_with_an_id_is_sent_to_a_connection_once() {
    let server = start(config());
    let (mut first, first_id) = Client::ready(server.address());
    let (mut second, second_id) = Client::ready(server.address());
    let news = json!({"t": "news", "id": "n1"});
    assert!(send(&server, &first_id, &news, 0) > 0 && send(&server, &second_id, &news, 0) > 0);
    assert_eq!((send(&server, &first_id, &news, 0), send(&server, &second_id, &news, 0)), (0, 0));
    assert!(send(&server, &first_id, &json!({"t": "after"}), 0) > 0);
    assert_eq!((event(&mut first)["t"].clone(), event(&mut second)["t"].clone()), (json!("news"), json!("news")));
    assert_eq!(event(&mut first)["t"], "after");
    assert_eq!(dropped(&server, "duplicate"), 2);
}

#[test]
fn a_client_over_its_rate_gets_a_warning_and_dropped_messages_are_counted() {
    let rate_limit = RateLimit { capacity: 10.0, refill_per_second: 0.001 };
    let server = start(Config { rate_limit, ..config() });
    let (mut client, id) = Client::ready(server.address());
    let sizes: Vec<usize> = (0..15).map(|number| send(&server, &id, &json!({"t": "x", "p": number}), 0)).collect();
    assert!(sizes[..10].iter().all(|size| *size > 0) && sizes[10..].iter().all(|size| *size == 0), "{sizes:?}");
    for number in 0..9 {
        assert_eq!(event(&mut client)["p"], number);
    }
    let warning = r#"{"c":"WSE","t":"rate_limit_warning","p":{"current_rate":8,"limit":10,"remaining":1,"retry_after":1.0},"v":1}"#;
    assert_eq!(client.text(), warning);
    assert_eq!(event(&mut client)["p"], 9);
    let limited = r#"{"c":"WSE","t":"error","p":{"code":"RATE_LIMITED","message":"Rate limit exceeded","retry_after":1.0},"v":1}"#;
    assert_eq!(client.text(), limited);
    server.send_text(&id, "end");
    assert_eq!(client.text(), "end", "reported once");
    assert_eq!((dropped(&server, "rate_limited"), metric(&server, "wse_rate_limited_total")), (5, 5));
    client.send_text(r#"{"t":"client_hello","p":{}}"#);
    let hello: Value = serde_json::from_str(&client.text()).unwrap();
    assert_eq!(hello["p"]["limits"]["rate_limit_capacity"], 10);
    assert_eq!(hello["p"]["limits"]["rate_limit_refill"], 0);
}

#[test]
fn each_connection_has_its_own_rate_limit() {
    let rate_limit = RateLimit { capacity: 1.0, refill_per_second: 0.0 };
    let server = start(Config { rate_limit, ..config() });
    let (first, first_id) = Client::ready(server.address());
    let (_second, second_id) = Client::ready(server.address());
    assert!(send(&server, &first_id, &json!({}), 0) > 0);
    assert_eq!(send(&server, &first_id, &json!({}), 0), 0);
    assert!(send(&server, &second_id, &json!({}), 0) > 0);
    drop(first);
    until("leaving", || server.connection_count() == 1);
    assert_eq!(send(&server, &first_id, &json!({}), 0), 0, "the connection is closed");
    assert_eq!(dropped(&server, "rate_limited"), 1);
    let (_third, third_id) = Client::ready(server.address());
    assert!(send(&server, &third_id, &json!({}), 0) > 0);
}

#[test]
fn an_event_for_an_unknown_connection_is_not_sent() {
    let server = start(config());
    for unknown in ["", "nobody", "01a1fb4e-9c63-74d1-9c44-3f3d0432db4f"] {
        assert_eq!(send(&server, unknown, &json!({"t": "x"}), 0), 0);
    }
}

#[test]
fn events_keep_their_order_for_a_client_that_reads_fast_enough() {
    let server = start(Config { shards: Some(1), ..config() });
    let (mut client, id) = Client::ready(server.address());
    let priorities = [1, 10, 5, 8, 3];
    for number in 0..2000 {
        send(&server, &id, &json!({"t": "x", "p": number, "pri": priorities[number % 5]}), 0);
    }
    for number in 0..2000 {
        assert_eq!(event(&mut client)["p"], number);
    }
}

/// A client that doesn't read, and a second client on the same shard that shows when the shard has processed all
/// commands.
struct Stalled {
    server: Server,
    client: Client,
    id: String,
    witness: Client,
    /// The bytes of events that were sent to the client.
    bytes: usize,
}

impl Stalled {
    fn new(config: Config) -> Self {
        let server = start(Config { shards: Some(1), ..config });
        let (client, id) = Client::ready(server.address());
        let (witness, _) = Client::ready(server.address());
        Self { server, client, id, witness, bytes: 0 }
    }

    fn send(&mut self, number: usize, priority: i64, padding: usize) {
        let event = json!({"t": "x", "p": number, "pri": priority, "pad": "x".repeat(padding)});
        self.bytes += send(&self.server, &self.id, &event, 0);
    }

    /// Returns when the shard has processed all commands, because it processes them before messages of clients.
    fn settle(&mut self) {
        self.witness.send_text("there");
        drain(&self.server, 1);
    }

    /// An estimate of the bytes that are waiting. Headers are included in the bytes that were sent.
    fn waiting(&self) -> usize {
        self.bytes.saturating_sub(self.server.stats().bytes.sent as usize)
    }

    /// The priorities and numbers of the next `count` events.
    fn receive(&mut self, count: usize) -> Vec<(i64, i64)> {
        let numbers = |event: Value| (event["pri"].as_i64().unwrap(), event["p"].as_i64().unwrap());
        (0..count).map(|_| numbers(event(&mut self.client))).collect()
    }

    fn lost(&self, level: &str) -> usize {
        metric(&self.server, &format!("wse_slow_consumer_drops_by_level_total{{level=\"{level}\"}}")) as usize
    }
}

#[test]
fn urgent_events_overtake_others_for_a_slow_client_and_levels_keep_their_order() {
    let mut stalled = Stalled::new(config());
    let mut filled = 0;
    // More than the socket buffers hold while the client doesn't read.
    while stalled.waiting() < 4 << 20 {
        stalled.send(filled, 4, 100_000);
        stalled.settle();
        filled += 1;
    }
    for number in 0..10 {
        for priority in [1, 3, 5, 8, 10] {
            stalled.send(number, priority, 0);
        }
    }
    stalled.settle();
    let received = stalled.receive(filled + 50);
    let of = |expected: i64| -> Vec<i64> {
        received.iter().filter(|(priority, _)| *priority == expected).map(|(_, number)| *number).collect()
    };
    assert!([1, 3, 5, 8, 10].into_iter().all(|priority| of(priority) == (0..10).collect::<Vec<_>>()));
    assert_eq!(of(4), (0..filled as i64).collect::<Vec<_>>());
    let urgent: Vec<i64> = received.iter().map(|(priority, _)| *priority).filter(|priority| *priority != 4).collect();
    assert!(urgent.is_sorted_by(|one, other| one >= other), "{urgent:?}");
    let first = |expected: i64| received.iter().position(|(priority, _)| *priority == expected).unwrap();
    let last = |expected: i64| received.iter().rposition(|(priority, _)| *priority == expected).unwrap();
    assert!(last(5) < last(4), "the normal ones overtook some of those that waited");
    // `pri` 4 has the level of 3: such an event stays before level 3 events that were sent later.
    assert!(first(3) > last(4) && first(1) > last(3));
    assert!(stalled.server.stats().messages.send_dropped.is_empty());
}

#[test]
fn at_the_limit_the_least_urgent_is_dropped_and_counted_by_its_level() {
    let mut stalled = Stalled::new(Config { max_outbound_queue_bytes: 64 << 10, ..config() });
    let mut filled = 0;
    while stalled.lost("background") == 0 {
        stalled.send(filled, 1, 1000);
        stalled.settle();
        filled += 1;
    }
    let lost_of_its_own = stalled.lost("background");
    (0..30).for_each(|number| stalled.send(number, 10, 1000));
    stalled.settle();
    let lost = stalled.lost("background");
    assert!(lost > lost_of_its_own, "it made room");
    assert_eq!(["low", "normal", "high", "critical"].map(|level| stalled.lost(level)), [0; 4]);
    assert_eq!(dropped(&stalled.server, "slow_consumer"), lost as u64);
    assert_eq!(metric(&stalled.server, "wse_slow_consumer_drops_total"), lost as u64);
    let received = stalled.receive(filled + 30 - lost);
    let critical = received.iter().filter(|(priority, _)| *priority == 10).map(|(_, number)| *number);
    assert_eq!(critical.collect::<Vec<_>>(), (0..30).collect::<Vec<_>>(), "none of the critical ones is lost");
    let others: Vec<i64> = received.iter().filter(|(priority, _)| *priority == 1).map(|(_, number)| *number).collect();
    assert!(others.is_sorted(), "{others:?}");
    stalled.server.send_text(&stalled.id, "end");
    assert_eq!(stalled.client.text(), "end", "nothing else was left");
}
