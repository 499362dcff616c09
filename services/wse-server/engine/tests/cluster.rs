//! Instances in a full mesh: how they find each other, which of them receive a publication, and what happens when a
//! link breaks.

#[path = "cluster/broken_links.rs"]
mod broken_links;
mod client;
mod node;

use std::net::SocketAddr;

use client::{config, until};
use node::{FakePeer, Node, REFERENCE, assert_next, cluster, numbers, pair, publish};
use wse_engine::{
    ClusterConfig, ClusterError, Config,
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
fn an_instances_own_address_and_a_second_address_of_a_peer_are_detected() {
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
fn a_peer_may_be_given_by_its_host_name() {
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
fn a_peer_of_another_implementation_gets_and_sends_plain_frames() {
    let one = Node::new(&[]);
    let mut fake_peer = FakePeer::linked(one.address(), "fake-peer", REFERENCE);
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
fn invalid_settings_are_refused_and_the_error_names_the_fix() {
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
