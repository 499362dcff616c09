//! What instances know of each other's history and users.

mod client;
mod node;

use std::time::Duration;

use client::{Client, config, start, until};
use node::{FakePeer, Node, REFERENCE, Wire, cluster, number, numbers, publish, recover, timing};
use serde_json::{Value, json};
use wse_engine::{
    ClusterConfig, ClusterTiming, Config, Kind, Position, PresenceConfig, RecoveryConfig, cluster::frame,
};

/// The stamp and the number in the next message.
fn stamped(client: &mut Client) -> (Position, usize) {
    let value: Value = serde_json::from_str(&client.text()).unwrap();
    let epoch = u32::from_str_radix(value["e"].as_str().unwrap(), 16).unwrap();
    (Position { epoch, offset: value["o"].as_i64().unwrap() }, value["p"]["n"].as_u64().unwrap() as usize)
}

/// Two nodes with recovery. The second connected to the first through a proxy.
fn with_history() -> (Node, Wire, Node) {
    let one = Node::with_history(&[]);
    let wire = Wire::to(one.address());
    let other = Node::with_history(&[wire.address]);
    other.until_peers(1);
    (one, wire, other)
}

#[test]
fn a_stamp_of_the_publisher_is_the_same_on_every_instance() {
    let (one, _wire, other) = with_history();
    let (mut local, mut remote) = (one.subscriber(&["a"]), other.subscriber(&["a"]));
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..5);
    for expected in 0..5 {
        let (stamp, number) = stamped(&mut local);
        assert_eq!((stamp.offset, number), (expected as i64, expected));
        assert_eq!(stamped(&mut remote), (stamp, number));
    }
}

#[test]
fn missed_messages_are_replayed_by_another_instance_even_without_subscribers_there() {
    let (one, _wire, other) = with_history();
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..10);
    let (last, _) = (0..5).map(|_| stamped(&mut client)).last().unwrap();
    drop(client);
    until("leaving", || other.server.topic_subscriber_count("a") == 0);
    // The node keeps its subscription to the topic, because clients may come back.
    publish(&one.server, "a", 10..20);
    until("arriving", || other.stats().received == 20);
    let (mut client, reported) = recover(&other, "a", Some(last));
    assert_eq!((reported.recovered, reported.count, reported.position.offset), (true, 15, 19));
    publish(&one.server, "a", 20..25);
    assert_eq!(numbers(&mut client, 20), (5..25).collect::<Vec<_>>());
    // The first node's own history gives the same.
    let (mut client, reported) = recover(&one, "a", Some(last));
    assert_eq!((reported.recovered, reported.count), (true, 20));
    assert_eq!(number(&mut client), 5);
}

#[test]
fn recovery_is_not_reported_complete_after_a_loss() {
    let (one, wire, other) = with_history();
    let mut client = other.subscriber(&["a", "b"]);
    one.until_interest("b", 1);
    publish(&one.server, "b", 0..3);
    let (last, _) = (0..3).map(|_| stamped(&mut client)).last().unwrap();
    wire.block(true);
    publish(&one.server, "b", 3..6);
    until("sending", || one.stats().queued == 0);
    wire.cut();
    wire.block(false);
    until("noticing", || one.stats().peers == 0 && other.stats().peers == 0);
    wire.restore();
    other.until_received_from(&one);
    if other.stats().lost > 0 {
        until("forgetting", || other.server.health_snapshot().recovery_topic_count == 0);
        let (_client, reported) = recover(&other, "b", Some(last));
        assert_eq!((reported.recovered, reported.count), (false, 0));
    }
    // From here on the history is kept again.
    publish(&one.server, "b", 6..8);
    let (middle, _) = std::iter::repeat_with(|| stamped(&mut client)).find(|(_, number)| *number == 6).unwrap();
    let (mut again, reported) = recover(&other, "b", Some(middle));
    assert_eq!((reported.recovered, reported.count, number(&mut again)), (true, 1, 7));
}

#[test]
fn a_list_beyond_the_limit_is_not_treated_as_complete() {
    let history = Some(RecoveryConfig::default());
    let one = Node::with(Config { max_outbound_queue_bytes: 20_000, recovery: history, ..config() }, cluster(&[]));
    let wire = Wire::to(one.address());
    let other = Node::with_history(&[wire.address]);
    let mut client = other.subscriber(&["a", "b"]);
    one.until_interest("b", 1);
    publish(&one.server, "b", 0..1);
    let (last, _) = stamped(&mut client);
    wire.block(true);
    until("overflowing", || {
        publish(&one.server, "a", 0..1000);
        one.stats().dropped.contains_key("overflow")
    });
    until("still overflowing", || {
        publish(&one.server, "b", 1..2);
        one.stats().queued > 0 && one.server.cluster_dead_letters().iter().any(|dead_letter| dead_letter.topic == "b")
    });
    wire.block(false);
    other.until_received_from(&one);
    let forgotten = || !recover(&other, "b", Some(last)).1.recovered;
    until("forgetting", forgotten);
}

#[test]
fn a_topic_without_subscribers_loses_its_remote_history() {
    let brief = RecoveryConfig { ttl: Duration::from_millis(50), ..RecoveryConfig::default() };
    let one = Node::with_history(&[]);
    let other = Node::with(
        Config { recovery: Some(brief), ..config() },
        ClusterConfig {
            timing: ClusterTiming { keep: Duration::from_millis(400), ..timing() },
            ..cluster(&[one.address()])
        },
    );
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..1);
    let (last, _) = stamped(&mut client);
    drop(client);
    one.until_interest("a", 0);
    publish(&one.server, "a", 1..2);
    assert!(!recover(&other, "a", Some(last)).1.recovered);
}

/// A node with presence enabled and tokens disabled.
fn with_users(peers: &[std::net::SocketAddr]) -> Node {
    let keep = ClusterTiming { keep: Duration::from_millis(300), ..timing() };
    let config = Config { presence: Some(PresenceConfig::default()), jwt: None, ..config() };
    Node::with(config, ClusterConfig { timing: keep, ..cluster(peers) })
}

/// A client without a token, and its id.
fn connect_guest(node: &Node) -> (Client, String) {
    let before = node.server.connections();
    let client = Client::open_with(node.server.address(), "/wse", "");
    let mut fresh = None;
    until("connecting", || {
        fresh = node.server.connections().into_iter().find(|id| !before.contains(id));
        fresh.is_some()
    });
    (client, fresh.unwrap())
}

fn event(client: &mut Client) -> (String, Value) {
    let value: Value = serde_json::from_str(&client.text()).unwrap();
    (value["t"].as_str().unwrap().to_owned(), value["p"].clone())
}

#[test]
fn remote_users_join_change_and_leave_as_local_ones_do_and_the_application_is_notified() {
    let one = with_users(&[]);
    let other = with_users(&[one.address()]);
    one.until_peers(1);
    let (mut watcher, watching) = connect_guest(&one);
    one.server.subscribe(&watching, &["room"], None).unwrap();
    let (client, user) = connect_guest(&other);
    other.server.subscribe_and_join(&user, &["room"], None, r#"{"s":1}"#).unwrap();
    let reported = |data: Value| json!({"data": data, "user_id": user});
    assert_eq!(event(&mut watcher), ("presence_join".into(), reported(json!({"s": 1}))));
    assert_eq!(one.server.presence_stats("room"), (1, 1));
    other.server.update_presence(&user, r#"{"s":2}"#).unwrap();
    assert_eq!(event(&mut watcher), ("presence_update".into(), reported(json!({"s": 2}))));
    assert_eq!(one.server.members("room")[&user].data.get(), r#"{"s":2}"#);
    drop(client);
    assert_eq!(event(&mut watcher), ("presence_leave".into(), reported(json!({"s": 2}))));
    assert!(one.server.members("room").is_empty());
    let mut kinds = Vec::new();
    until("notifying", || {
        let batch = one.server.drain_batch(100, Duration::from_millis(50));
        // Shards report connection events in any order.
        let reported = client::copied(&batch).into_iter().map(|drained| drained.kind);
        kinds.extend(reported.filter(|kind| matches!(kind, Kind::PresenceJoin | Kind::PresenceLeave)));
        kinds == [Kind::PresenceJoin, Kind::PresenceLeave]
    });
}

#[test]
fn users_from_before_a_link_are_announced_on_it() {
    let one = with_users(&[]);
    let (_client, user) = connect_guest(&one);
    one.server.subscribe_and_join(&user, &["room"], None, "1").unwrap();
    let other = with_users(&[one.address()]);
    until("naming", || other.server.members("room").contains_key(&user));
}

#[test]
fn users_of_a_lost_instance_leave_also_those_that_left_meanwhile() {
    let one = with_users(&[]);
    let wire = Wire::to(one.address());
    let other = with_users(&[wire.address]);
    let (first, stays) = connect_guest(&one);
    let (second, leaves) = connect_guest(&one);
    for user in [&stays, &leaves] {
        one.server.subscribe_and_join(user, &["room"], None, "1").unwrap();
    }
    until("naming", || other.server.members("room").len() == 2);
    wire.cut();
    until("noticing", || one.stats().peers == 0);
    drop(second);
    until("leaving", || one.server.members("room").len() == 1);
    wire.restore();
    until("naming again", || other.server.members("room").keys().eq([&stays]));
    wire.cut();
    until("giving up", || other.server.members("room").is_empty());
    wire.restore();
    until("naming once more", || other.server.members("room").keys().eq([&stays]));
    drop(first);
}

#[test]
fn users_of_another_implementation_are_listed_and_invalid_ones_skipped() {
    let one = with_users(&[]);
    let mut fake_peer = FakePeer::linked(one.address(), "p", REFERENCE);
    fake_peer.send(frame::Kind::Ping, 0, "", b"");
    assert_eq!(fake_peer.expect(frame::Kind::PresenceFull).payload, b"{}");
    fake_peer.send(frame::Kind::PresenceFull, 0, "", br#"{"room":{"ann":{"data":{"s":1},"updated_at":5}}}"#);
    fake_peer.send(frame::Kind::PresenceFull, 0, "", b"nonsense");
    fake_peer.send(frame::Kind::PresenceUpdate, 0, "room", b"\x09");
    fake_peer.send(frame::Kind::PresenceUpdate, 0, "room", b"\x00\x06\0\0\0\0\0\0\0\x03\0bob{\"s\":2}");
    fake_peer.send(frame::Kind::Ping, 0, "", b"");
    until("naming", || one.server.members("room").keys().eq(["ann", "bob"]));
    fake_peer.send(frame::Kind::PresenceUpdate, 0, "room", b"\x01\x07\0\0\0\0\0\0\0\x03\0bob{}");
    until("leaving", || one.server.members("room").keys().eq(["ann"]));
    fake_peer.send(frame::Kind::Shutdown, 0, "", b"");
    until("leaving", || one.server.members("room").is_empty());
    let plain = start(config());
    plain.connect_cluster(cluster(&[])).unwrap();
    let mut fake_peer = FakePeer::linked(plain.cluster_address().unwrap(), "p", REFERENCE);
    fake_peer.send(frame::Kind::PresenceFull, 0, "", br#"{"room":{"ann":{"data":{"s":1},"updated_at":5}}}"#);
    fake_peer.send(frame::Kind::Ping, 0, "", b"");
    fake_peer.expect(frame::Kind::Pong);
    assert!(plain.members("room").is_empty());
}
