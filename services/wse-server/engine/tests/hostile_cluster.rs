//! Hostile peers: regardless of what arrives at the cluster port, the instance keeps working and its other peers are
//! not affected.

mod client;
mod node;

use std::{
    io::Write,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use client::{config, until};
use node::{FakePeer, NUMBERS, Node, REFERENCE, STAMPS, cluster, hello, numbers, publish, timing};
use wse_engine::{
    ClusterConfig, ClusterTiming,
    cluster::{
        frame::{self, Kind},
        numbering::Count,
    },
};

/// Asserts that two good instances still reach each other.
fn assert_working(one: &Node, other: &Node) {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let topic = format!("well {}", CALLS.fetch_add(1, Ordering::Relaxed));
    // Some hostile peers subscribe to everything.
    let before = one.server.topic_interest(&topic);
    let mut client = other.subscriber(&[&topic]);
    one.until_interest(&topic, before + 1);
    publish(&one.server, &topic, 0..10);
    assert_eq!(numbers(&mut client, 10), (0..10).collect::<Vec<_>>());
}

fn quick() -> ClusterConfig {
    ClusterConfig { timing: ClusterTiming { handshake: Duration::from_millis(300), ..timing() }, ..cluster(&[]) }
}

/// A node that has a good peer.
fn with_good_peer(cluster: ClusterConfig) -> (Node, Node) {
    let one = Node::with(config(), cluster);
    let other = Node::new(&[one.address()]);
    one.until_peers(1);
    (one, other)
}

#[test]
fn invalid_bytes_other_protocols_and_other_versions_are_refused_and_counted() {
    let (one, other) = with_good_peer(cluster(&[]));
    let mut version = hello("v", REFERENCE);
    version[16] = 9;
    for first in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"\0\0\0\x01".to_vec(),
        vec![0xFF; 4096],
        frame::encode(Kind::Message, 0, b"a", b"{}").to_vec(),
        frame::encode(Kind::Hello, 0, b"", b"WSE\0").to_vec(),
        hello("", REFERENCE),
        hello("a\nb", REFERENCE),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        version,
    ] {
        let mut connected = FakePeer::connected(one.address());
        let _ = connected.stream.write_all(&first);
        connected.until_closed();
    }
    until("counting", || {
        let refused = one.stats().refused;
        let of = |reason: &str| refused.get(reason).copied().unwrap_or_default();
        (of("hello"), of("tls"), of("version")) == (7, 1, 1)
    });
    assert_eq!(one.stats().peers, 1);
    assert_working(&one, &other);
}

#[test]
fn a_peer_of_another_implementation_with_a_higher_name_gets_our_name_and_may_be_dialled() {
    let one = Node::new(&[]);
    let mut fake_peer = FakePeer::connected(one.address());
    fake_peer.write(&hello("f-fake-peer", REFERENCE));
    assert_eq!(fake_peer.next().unwrap().kind, Some(Kind::Hello));
    fake_peer.until_closed();
    until("counting", || one.stats().refused.get("order") == Some(&1));
    let mut ours = FakePeer::connected(one.address());
    ours.write(&hello("f-fake-peer", REFERENCE | NUMBERS));
    one.until_peers(1);
}

#[test]
fn a_link_without_a_hello_in_time_is_closed() {
    let (one, other) = with_good_peer(quick());
    let mut silent = FakePeer::connected(one.address());
    let mut slow = FakePeer::connected(one.address());
    slow.write(&hello("slow", REFERENCE)[..20]);
    silent.until_closed();
    slow.until_closed();
    until("counting", || one.stats().refused.get("timeout") == Some(&2));
    assert_working(&one, &other);
}

#[test]
fn a_flood_of_pending_handshakes_evicts_only_pending_handshakes() {
    let (one, other) = with_good_peer(cluster(&[]));
    let pending: Vec<FakePeer> = (0..300).map(|_| FakePeer::connected(one.address())).collect();
    until("crowding", || one.stats().refused.get("crowded").is_some_and(|count| *count >= 200));
    // A peer is accepted among all of these connections.
    let third = Node::new(&[one.address()]);
    third.until_peers(1);
    assert_working(&one, &other);
    assert_working(&one, &third);
    drop(pending);
}

#[test]
fn a_link_beyond_the_limit_is_refused() {
    let (one, other) = with_good_peer(cluster(&[]));
    let peers: Vec<FakePeer> =
        (0..127).map(|number| FakePeer::linked(one.address(), &format!("p{number}"), REFERENCE)).collect();
    until("linking", || one.stats().peers == 128);
    let mut late = FakePeer::connected(one.address());
    late.write(&hello("0-late", REFERENCE));
    late.until_closed();
    until("counting", || one.stats().refused.get("full") == Some(&1));
    assert_working(&one, &other);
    drop(peers);
    one.until_peers(1);
    let _in_time = FakePeer::linked(one.address(), "late", REFERENCE);
}

#[test]
fn reconnecting_under_new_names_takes_bounded_memory() {
    let one = Node::with(
        config(),
        ClusterConfig { timing: ClusterTiming { keep: Duration::from_millis(10), ..timing() }, ..cluster(&[]) },
    );
    for number in 0..600 {
        drop(FakePeer::linked(one.address(), &format!("p{number}"), REFERENCE));
        if number % 100 == 99 {
            one.until_peers(0);
        }
    }
    let other = Node::new(&[one.address()]);
    other.until_peers(1);
    assert_working(&one, &other);
}

#[test]
fn a_link_is_closed_on_an_invalid_frame_and_on_a_compression_bomb() {
    let (one, other) = with_good_peer(cluster(&[]));
    let bomb = zstd::bulk::compress(&vec![0; frame::LARGEST + 1], 1).unwrap();
    for (number, evil) in [
        vec![0xFF; 100],
        b"\0\0\0\x08\x01\0\xFF\xFF\xFF\xFF\xFF\xFF".to_vec(),
        frame::encode(Kind::Message, frame::COMPRESSED, b"a", b"no zstd").to_vec(),
        frame::encode(Kind::Message, frame::COMPRESSED, b"a", &bomb).to_vec(),
    ]
    .into_iter()
    .enumerate()
    {
        let mut fake_peer = FakePeer::linked(one.address(), &format!("p{number}"), REFERENCE);
        fake_peer.write(&evil);
        fake_peer.until_closed();
    }
    until("counting", || one.stats().malformed == 4);
    assert_working(&one, &other);
}

#[test]
fn invalid_publications_are_counted_and_valid_ones_arrive() {
    let one = Node::new(&[]);
    let mut client = one.subscriber(&["a", "*"]);
    let mut fake_peer = FakePeer::linked(one.address(), "p", REFERENCE);
    fake_peer.send(Kind::Message, 0, "a", b"\xFF\xFE");
    fake_peer.send(Kind::Message, 0, "", b"{}");
    fake_peer.send(Kind::Message, 0, &"x".repeat(60_000), b"{}");
    fake_peer.send(Kind::Message, 0, "a\n", b"{}");
    fake_peer.send(Kind::Message, 0, "a", b"last");
    assert_eq!(client.text(), "last");
    until("counting", || one.stats().delivered == 1);
    let stats = one.stats();
    assert_eq!((stats.received, stats.delivered, stats.unfit), (5, 1, 4));
}

#[test]
fn a_peer_with_too_many_topics_or_patterns_gets_all_publications() {
    let (one, other) = with_good_peer(cluster(&[]));
    let mut fake_peer = FakePeer::linked(one.address(), "p", REFERENCE);
    fake_peer.send(Kind::Resync, 0, "", b"");
    let mut wishes = Vec::new();
    for number in 0..1_000_000 {
        wishes.extend_from_slice(&frame::encode(Kind::Subscribe, 0, format!("{number}").as_bytes(), b""));
    }
    fake_peer.write(&wishes);
    one.until_interest("999999", 1);
    assert_eq!(one.server.topic_interest("-1"), 0);
    fake_peer.send(Kind::Subscribe, 0, "one more", b"");
    one.until_interest("anything", 1);
    fake_peer.send(Kind::Resync, 0, "", b"a");
    one.until_interest("anything", 0);
    for number in 0..5000 {
        fake_peer.send(Kind::Subscribe, 0, &format!("{number}*"), b"");
    }
    one.until_interest("anything", 1);
    assert_working(&one, &other);
}

#[test]
fn unreachable_announced_addresses_are_bounded_and_removed() {
    let config_of = |seeds| ClusterConfig { seeds, address: Some("127.0.0.1".into()), ..cluster(&[]) };
    let one = Node::with(config(), config_of(Vec::new()));
    let mut fake_peer = FakePeer::linked(one.address(), "p", REFERENCE);
    for number in 0..50_u16 {
        let mut list = 100_u16.to_le_bytes().to_vec();
        for port in 0..100_u16 {
            let address = format!("127.0.0.1:{}", 1 + (number * 100 + port) % 100);
            list.extend((address.len() as u16).to_le_bytes());
            list.extend(address.as_bytes());
        }
        fake_peer.send(Kind::Addresses, 0, "", &list);
        fake_peer.send(Kind::Announce, 0, "no address at all", b"");
    }
    until("forgetting", || one.stats().refused.get("lost").is_some_and(|count| *count >= 500));
    let other = Node::with(config(), config_of(vec![one.address().to_string()]));
    other.until_peers(1);
    assert_working(&one, &other);
}

#[test]
fn impossible_counts_are_harmless() {
    let one = Node::new(&[]);
    let mut client = one.subscriber(&["a"]);
    let mut fake_peer = FakePeer::linked(one.address(), "p", REFERENCE | NUMBERS | STAMPS);
    for number in [0, u64::MAX, 5, u64::MAX / 2 + 6, 0] {
        fake_peer.send(Kind::Count, 0, "", &Count { number, session: 0 }.encode());
        fake_peer.send(Kind::Pong, 0, "", &Count { number, session: 7 }.encode());
    }
    fake_peer.send(Kind::Count, 0, "", b"short");
    fake_peer.send(Kind::Message, 0, "a", b"text");
    assert_eq!(client.text(), "text");
}

#[test]
fn a_flood_from_a_peer_waits_for_local_subscribers_and_its_pings_are_answered() {
    let metrics = wse_engine::Config { max_publish_backlog_bytes: 1 << 20, ..config() };
    let one = Node::with(metrics, cluster(&[]));
    // The test doesn't read from this client, so its undelivered messages are backlog.
    let mut client = one.subscriber(&["a"]);
    let mut fake_peer = FakePeer::linked(one.address(), "p", REFERENCE);
    let text = "x".repeat(10_000);
    let message = frame::encode(Kind::Message, 0, b"a", text.as_bytes());
    let flood = std::thread::spawn({
        let mut stream = fake_peer.stream.try_clone().unwrap();
        move || (0..5000).for_each(|_| stream.write_all(&message).unwrap())
    });
    // The instance still sends pings.
    for _ in 0..3 {
        fake_peer.expect(Kind::Ping);
    }
    assert!(one.server.publish_backlog() < 8 << 20, "{}", one.server.publish_backlog());
    for _ in 0..5000 {
        assert_eq!(client.text().len(), text.len());
    }
    flood.join().unwrap();
    until("counting", || (one.stats().received, one.stats().delivered) == (5000, 5000));
}
