//! Instances in a full mesh: how they find each other, where publications go, and what happens when links break.

mod client;
mod node;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use client::{config, until};
use node::{FakePeer, Node, REFERENCE, Wire, assert_next, cluster, numbers, pair, publish, timing};
use wse_engine::{
    ClusterConfig, ClusterError, ClusterTiming, Config,
    cluster::frame::{self, Kind},
};

#[test]
fn a_publication_reaches_remote_subscribers_once_and_does_not_return() {
    let (one, other) = pair();
    let mut both = other.subscriber(&["news.es", "news.*"]);
    let mut pattern = other.subscriber(&["*.es"]);
    let mut own = one.subscriber(&["news.es"]);
    one.until_interest("news.es", 1);
    one.server.broadcast("news.es", r#"{"t":"tick","p":1}"#);
    for client in [&mut own, &mut both, &mut pattern] {
        assert_eq!(client.text(), r#"{"c":"U","t":"tick","p":1}"#);
    }
    other.until_interest("news.es", 1);
    other.server.broadcast("news.es", "plain");
    for client in [&mut own, &mut both, &mut pattern] {
        assert_eq!(client.text(), "plain");
    }
    assert_next(&one.server, "news.es", &mut own);
    assert_next(&other.server, "news.es", &mut both);
    until("counting", || [&one, &other].iter().all(|node| node.stats().delivered == 1));
    assert_eq!((one.stats().received, other.stats().received), (1, 1));
}

#[test]
fn publications_arrive_in_order_at_any_volume() {
    let (one, other) = pair();
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..10).for_each(|part| publish(&one.server, "a", part * 2000..(part + 1) * 2000)));
        assert_eq!(numbers(&mut client, 20_000), (0..20_000).collect::<Vec<_>>());
    });
    other.until_received_from(&one);
    one.assert_balanced();
    assert_eq!((one.stats().sent, other.stats().received, other.stats().lost), (20_000, 20_000, 0));
}

#[test]
fn long_texts_are_compressed_between_instances() {
    let (one, other) = pair();
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    let before = one.stats().bytes_sent;
    let text = format!(r#"{{"c":"U","t":"tick","p":"{}"}}"#, "0123456789".repeat(50_000));
    one.server.broadcast("a", &text);
    assert!(client.text() == text);
    until("receiving", || other.stats().received == 1);
    assert!(one.stats().bytes_sent - before < 100_000, "{}", one.stats().bytes_sent - before);
}

#[test]
fn only_subscribed_topics_are_sent() {
    let (one, other) = pair();
    let client = other.subscriber(&["a", "b.*"]);
    one.until_interest("b.x", 1);
    publish(&one.server, "c", 0..10);
    assert_eq!((one.stats().published, one.stats().dropped["unwanted"], one.server.topic_interest("c")), (10, 10, 0));
    drop(client);
    one.until_interest("a", 0);
    publish(&one.server, "a", 0..10);
    assert_eq!((one.stats().dropped["unwanted"], one.stats().sent), (20, 0));
    one.assert_balanced();
}

#[test]
fn subscriptions_from_before_the_cluster_connected_apply_there() {
    let one = Node::new(&[]);
    let server = client::start(config());
    let (mut client, id) = client::Client::ready(server.address());
    server.subscribe(&id, &["a"], None).unwrap();
    server.connect_cluster(cluster(&[one.address()])).unwrap();
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..1);
    assert_eq!(numbers(&mut client, 1), [0]);
}

#[test]
fn a_queue_group_on_two_instances_gets_a_message_once_on_each() {
    let (one, other) = pair();
    let mut members = Vec::new();
    for _ in 0..2 {
        let (client, id) = client::Client::ready(other.server.address());
        other.server.subscribe(&id, &["jobs"], Some("workers")).unwrap();
        members.push(client);
    }
    one.until_interest("jobs", 1);
    publish(&one.server, "jobs", 0..10);
    let mut got: Vec<usize> = members.iter_mut().flat_map(|member| numbers(member, 5)).collect();
    got.sort_unstable();
    assert_eq!(got, (0..10).collect::<Vec<_>>());
}

/// An address on which no process listens.
fn unused() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn two_instances_that_dial_each_other_keep_one_link_and_no_duplicate() {
    let ports = [unused(), unused()];
    let nodes = [0, 1].map(|n: usize| {
        let config = ClusterConfig { port: Some(ports[n].port()), ..cluster(&[ports[1 - n]]) };
        Node::with(client::config(), config)
    });
    for node in &nodes {
        node.until_peers(1);
    }
    let mut clients = nodes.each_ref().map(|node| node.subscriber(&["a"]));
    for (n, node) in nodes.iter().enumerate() {
        node.until_interest("a", 1);
        publish(&node.server, "a", n * 100..(n + 1) * 100);
        for client in &mut clients {
            assert_eq!(numbers(client, 100), (n * 100..(n + 1) * 100).collect::<Vec<_>>());
        }
    }
    for (node, client) in nodes.iter().zip(&mut clients) {
        assert_next(&node.server, "a", client);
        assert_eq!((node.stats().peers, node.stats().lost, node.server.cluster_peers().len()), (1, 0, 1));
    }
}

#[test]
fn its_own_address_and_a_second_address_of_a_peer_are_detected() {
    let one = Node::new(&[]);
    let ours = unused();
    let mut config = cluster(&[ours, one.address()]);
    config.port = Some(ours.port());
    config.peers.push(format!("localhost:{}", one.address().port()));
    let other = Node::with(client::config(), config);
    until("noticing", || {
        let refused = other.stats().refused;
        refused.contains_key("self") && refused.contains_key("duplicate")
    });
    one.until_peers(1);
    other.until_peers(1);
    assert_eq!((one.stats().reconnects, other.stats().reconnects), (0, 0));
}

#[test]
fn a_peer_may_be_named() {
    let one = Node::new(&[]);
    let named = ClusterConfig { peers: vec![format!("localhost:{}", one.address().port())], ..cluster(&[]) };
    let other = Node::with(config(), named);
    other.until_peers(1);
    assert!(other.server.cluster_peers()[0].address.starts_with("localhost:"));
}

#[test]
fn all_instances_connect_through_one_seed() {
    let advertised = |seeds: Vec<String>| ClusterConfig { seeds, address: Some("localhost".into()), ..cluster(&[]) };
    let seed = Node::with(config(), advertised(Vec::new()));
    let seeds = vec![format!("localhost:{}", seed.address().port())];
    let others: Vec<Node> = (0..3).map(|_| Node::with(config(), advertised(seeds.clone()))).collect();
    for node in others.iter().chain([&seed]) {
        node.until_peers(3);
    }
    let mut clients: Vec<_> = others.iter().map(|node| node.subscriber(&["a"])).collect();
    seed.until_interest("a", 3);
    publish(&seed.server, "a", 0..10);
    for client in &mut clients {
        assert_eq!(numbers(client, 10), (0..10).collect::<Vec<_>>());
    }
}

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
    let mut fake_peer = FakePeer::linked(one.address(), "puppet", REFERENCE);
    one.until_peers(1);
    fake_peer.until_closed();
    one.until_peers(0);
}

#[test]
fn a_peer_of_another_implementation_gets_and_sends_plain_frames() {
    let one = Node::new(&[]);
    let mut fake_peer = FakePeer::linked(one.address(), "puppet", REFERENCE);
    assert_eq!(fake_peer.expect(Kind::Resync).payload, b"");
    // The peer has not sent its subscriptions yet, so it gets every publication.
    one.until_peers(1);
    one.server.broadcast("a", r#"{"t":"x"}"#);
    let received = fake_peer.expect(Kind::Message);
    assert_eq!(
        (received.topic.as_str(), &received.payload[..], received.stamp),
        ("a", &br#"{"c":"U","t":"x"}"#[..], None)
    );
    let mut client = one.subscriber(&["b"]);
    assert_eq!(fake_peer.expect(Kind::Subscribe).topic, "b");
    fake_peer.send(Kind::Message, 0, "b", br#"{"t":"user_snapshot"}"#);
    assert_eq!(client.text(), r#"{"c":"S","t":"user_snapshot"}"#);
    let short = zstd::bulk::compress(br#"{"t":"y"}"#, 1).unwrap();
    fake_peer.send(Kind::Message, frame::COMPRESSED, "b", &short);
    assert_eq!(client.text(), r#"{"c":"U","t":"y"}"#);
    drop(client);
    assert_eq!(fake_peer.expect(Kind::Unsubscribe).topic, "b");
    fake_peer.send(Kind::Ping, 0, "", b"");
    assert_eq!(fake_peer.expect(Kind::Pong).payload, b"");
    fake_peer.send(Kind::Resync, 0, "", b"c");
    one.until_interest("c", 1);
    one.server.broadcast("a", "no");
    one.server.broadcast("c", "yes");
    assert_eq!(fake_peer.expect(Kind::Message).topic, "c");
    fake_peer.write(b"\0\0\0\x08\x7F\0\0\0\0\0\0\0");
    until("counting", || one.stats().unknown_types == 1);
    fake_peer.send(Kind::Shutdown, 0, "", b"");
    fake_peer.until_closed();
}

#[test]
fn impossible_settings_are_refused_with_the_remedy() {
    let server = client::start(config());
    let refused = |config: ClusterConfig| server.connect_cluster(config).unwrap_err();
    assert!(matches!(refused(ClusterConfig::default()), ClusterError::NoPeers));
    let taken = Node::new(&[]);
    let busy = ClusterConfig { port: Some(taken.address().port()), ..ClusterConfig::default() };
    assert!(refused(busy).to_string().starts_with("failed to listen on 127.0.0.1:"));
    server.connect_cluster(cluster(&[])).unwrap();
    assert!(matches!(refused(cluster(&[])), ClusterError::Connected));
    server.stop();
    let stopped = client::start(config());
    stopped.stop();
    assert!(matches!(stopped.connect_cluster(cluster(&[])), Err(ClusterError::Stopped)));
}

#[test]
fn the_books_are_on_the_metrics_port() {
    let metrics = Some((std::net::Ipv4Addr::LOCALHOST.into(), 0));
    let one = Node::with(Config { metrics, ..config() }, cluster(&[]));
    let other = Node::new(&[one.address()]);
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..10);
    assert_eq!(numbers(&mut client, 10).len(), 10);
    let page = |path: &str| client::get(one.server.metrics_address().unwrap(), path).1;
    let links: serde_json::Value = serde_json::from_str(&page("/stats/links")).unwrap();
    assert_eq!((&links["cluster"]["published"], &links["cluster"]["peers"]), (&10.into(), &1.into()));
    assert!(page("/metrics").contains("\nwse_cluster_messages_sent_total 10\n"));
    let health = one.server.health_snapshot().cluster;
    assert_eq!((health.cluster_connected, health.cluster_messages_sent), (true, 10));
    let alone = client::start(config());
    assert_eq!((alone.link_stats().cluster, alone.health_snapshot().cluster), (None, Default::default()));
}
