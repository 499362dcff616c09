//! Links that break and peers that stop: what waits is sent later, and what is lost is counted.

use std::time::{Duration, Instant};

use wse_engine::{ClusterConfig, ClusterTiming, Config};

use crate::{
    client::{config, until},
    node::{FakePeer, Node, REFERENCE, Wire, cluster, numbers, pair, publish, timing},
    unused,
};

#[test]
fn pending_messages_are_sent_after_a_reconnect_and_those_in_flight_counted() {
    let one = Node::new(&[]);
    let wire = Wire::to(one.address());
    let other = Node::new(&[wire.address]);
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..1000);
    assert_eq!(numbers(&mut client, 1000).len(), 1000);
    wire.cut();
    until("noticing", || one.stats().peers == 0 && other.stats().peers == 0);
    publish(&one.server, "a", 1000..1500);
    assert_eq!(one.stats().queued, 500);
    wire.restore();
    assert_eq!(numbers(&mut client, 500), (1000..1500).collect::<Vec<_>>());
    other.until_received_from(&one);
    assert_eq!((one.stats().sent, other.stats().lost), (1500, 0));
    assert!(one.stats().reconnects == 1 && other.stats().reconnects == 1);
    one.assert_balanced();
}

#[test]
fn every_message_lost_in_a_broken_link_is_counted() {
    let one = Node::new(&[]);
    let wire = Wire::to(one.address());
    let other = Node::new(&[wire.address]);
    let client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    wire.block(true);
    publish(&one.server, "a", 0..3000);
    until("sending", || one.stats().queued == 0);
    wire.cut();
    wire.block(false);
    until("noticing", || one.stats().peers == 0);
    wire.restore();
    other.until_peers(1);
    other.until_received_from(&one);
    assert!(one.stats().sent == 3000 && other.stats().lost > 0, "{:?}", other.stats());
    one.assert_balanced();
    drop(client);
}

#[test]
fn dropped_publications_are_stored_as_dead_letters() {
    let one = Node::with(Config { max_outbound_queue_bytes: 100_000, ..config() }, cluster(&[]));
    let wire = Wire::to(one.address());
    let other = Node::new(&[wire.address]);
    let client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    wire.block(true);
    let mut published = 0;
    until("overflowing", || {
        publish(&one.server, "a", published..published + 5000);
        published += 5000;
        one.stats().dropped.contains_key("overflow")
    });
    let stats = one.stats();
    assert!(stats.queued > 0 && stats.dead_letters > 0);
    let dead_letters = one.server.cluster_dead_letters();
    let last = dead_letters.last().unwrap();
    assert_eq!((last.topic.as_str(), last.reason), ("a", "overflow"));
    assert!(last.payload.starts_with(r#"{"c":"U","t":"tick","p":{"n":"#) && dead_letters.len() <= 1000);
    wire.block(false);
    other.until_received_from(&one);
    assert_eq!((one.stats().published, other.stats().lost), (published as u64, 0));
    assert!(one.server.cluster_dead_letters().is_empty());
    one.assert_balanced();
    drop(client);
}

#[test]
fn a_peer_that_does_not_reconnect_is_given_up_with_its_queue() {
    let one = Node::with(
        config(),
        ClusterConfig { timing: ClusterTiming { keep: Duration::from_millis(200), ..timing() }, ..cluster(&[]) },
    );
    let wire = Wire::to(one.address());
    let other = Node::new(&[wire.address]);
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    wire.cut();
    until("noticing", || one.stats().peers == 0);
    publish(&one.server, "a", 0..100);
    until("giving up", || one.stats().dropped.get("gone") == Some(&100));
    assert_eq!(one.server.publish_backlog(), 0);
    publish(&one.server, "a", 100..200);
    assert_eq!((one.stats().dropped["unwanted"], one.stats().dead_letters), (100, 100));
    wire.restore();
    other.until_peers(1);
    one.until_interest("a", 1);
    publish(&one.server, "a", 200..210);
    assert_eq!(numbers(&mut client, 10), (200..210).collect::<Vec<_>>());
    assert_eq!(other.stats().lost, 0);
    one.assert_balanced();
}

#[test]
fn another_instance_at_a_peer_s_address_replaces_it() {
    let port = unused();
    let at = || ClusterConfig { port: Some(port.port()), ..cluster(&[]) };
    let first = Node::with(config(), at());
    let one = Node::new(&[port]);
    let client = first.subscriber(&["a"]);
    one.until_interest("a", 1);
    let before = one.server.cluster_peers();
    drop((client, first));
    until("noticing", || one.stats().peers == 0);
    let second = Node::with(config(), at());
    one.until_peers(1);
    let after = one.server.cluster_peers();
    assert_eq!(before[0].address, after[0].address);
    assert_ne!(before[0].instance_id, after[0].instance_id);
    let mut client = second.subscriber(&["a"]);
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..10);
    assert_eq!(numbers(&mut client, 10).len(), 10);
}

#[test]
fn an_instance_announces_its_stop_and_its_peer_is_given_up_at_once() {
    let (one, other) = pair();
    let client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    other.server.drain(wse_engine::CloseHandshake::default()).unwrap();
    other.server.stop();
    until("noticing", || one.stats().peers == 0);
    let since = Instant::now();
    publish(&one.server, "a", 0..1);
    assert_eq!(one.stats().dropped["unwanted"], 1);
    assert!(since.elapsed() < timing().keep);
    drop(client);
}

#[test]
fn publications_before_a_stop_are_sent_before_the_stop() {
    let (one, other) = pair();
    let mut client = one.subscriber(&["a"]);
    other.until_interest("a", 1);
    publish(&other.server, "a", 0..1000);
    other.server.stop();
    assert_eq!(numbers(&mut client, 1000), (0..1000).collect::<Vec<_>>());
    assert_eq!((other.stats().queued, other.stats().sent), (0, 1000));
}

#[test]
fn a_silent_link_is_given_up() {
    let quick =
        ClusterTiming { link_timeout: Duration::from_millis(300), heartbeat: Duration::from_millis(50), ..timing() };
    let one = Node::with(config(), ClusterConfig { timing: quick, ..cluster(&[]) });
    let mut fake_peer = FakePeer::linked(one.address(), "fake-peer", REFERENCE);
    one.until_peers(1);
    fake_peer.until_closed();
    one.until_peers(0);
}
