//! The secret of a cluster without TLS: only instances that know it have links, and without it there are links on this
//! machine only.

mod client;
mod node;

use std::net::{SocketAddr, TcpListener};

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use client::{config, until};
use node::{FakePeer, NUMBERS, Node, REFERENCE, cluster, hello, numbers, publish};
use socket2::{Domain, Socket, Type};
use wse_engine::{
    ClusterConfig, ClusterError, ClusterSecret, Config,
    cluster::frame::{self, Kind},
};

const SECRET: &[u8] = b"a secret of this test, and no other";
/// The capability bit of an instance that has a secret.
const SECRETS: u32 = 1 << 19;

fn secret(bytes: &[u8]) -> Option<ClusterSecret> {
    Some(ClusterSecret::new(bytes).unwrap())
}

fn with_secret(peers: &[SocketAddr]) -> Node {
    Node::with(config(), ClusterConfig { secret: secret(SECRET), ..cluster(peers) })
}

fn refused(node: &Node, reason: &str) -> u64 {
    node.stats().refused.get(reason).copied().unwrap_or_default()
}

/// The payload of the hello of a peer with a secret; its nonce is all 1.
fn own_hello(name: &str) -> Vec<u8> {
    let plain = hello(name, REFERENCE | NUMBERS | SECRETS);
    [&plain[frame::LENGTH + frame::HEAD..], &[1; 32]].concat()
}

/// A peer that has sent its hello and has not proved anything, with the payloads of both hellos.
fn challenged(address: SocketAddr, name: &str) -> (FakePeer, Vec<u8>) {
    let mut fake_peer = FakePeer::connected(address);
    let own = own_hello(name);
    fake_peer.send(Kind::Hello, 0, "", &own);
    let theirs = fake_peer.expect(Kind::Hello).payload;
    (fake_peer, [own, theirs].concat())
}

fn proof(key: &[u8], side: &str, hellos: &[u8], verdict: u8) -> Vec<u8> {
    let transcript = [format!("wse-cluster-1 {side}\0").as_bytes(), hellos, &[verdict]].concat();
    hmac::sign(&hmac::Key::new(HMAC_SHA256, key), &transcript).as_ref().to_vec()
}

fn assert_reached(one: &Node, other: &Node) {
    let mut client = other.subscriber(&["a"]);
    one.until_interest("a", 1);
    publish(&one.server, "a", 0..10);
    assert_eq!(numbers(&mut client, 10), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_peer_that_does_not_prove_the_secret_learns_nothing_and_is_refused() {
    let one = with_secret(&[]);
    let mut open = FakePeer::connected(one.address());
    open.write(&hello("0-open", REFERENCE));
    assert_eq!(open.next(), None, "not even a name");
    let (mut impatient, _) = challenged(one.address(), "0-impatient");
    impatient.send(Kind::Message, 0, "a", b"forged");
    assert_eq!(impatient.next(), None);
    let (mut guessing, hellos) = challenged(one.address(), "0-guessing");
    guessing.send(Kind::Proof, 0, "", &proof(b"0123456789abcdef0123456789abcdef", "dialler", &hellos, 0));
    assert_eq!(guessing.next(), None);
    // The nonce of the instance is another one on each connection.
    let (_first, hellos) = challenged(one.address(), "0-replaying");
    let seen = proof(SECRET, "dialler", &hellos, 0);
    let (mut replaying, _) = challenged(one.address(), "0-replaying");
    replaying.send(Kind::Proof, 0, "", &seen);
    assert_eq!(replaying.next(), None);
    let (mut reflecting, hellos) = challenged(one.address(), "0-reflecting");
    reflecting.send(Kind::Proof, 0, "", &proof(SECRET, "acceptor", &hellos, 0));
    assert_eq!(reflecting.next(), None);
    until("counting", || refused(&one, "secret") == 5);
    assert_eq!(one.stats().peers, 0);
    let other = with_secret(&[one.address()]);
    other.until_peers(1);
    assert_reached(&one, &other);
}

#[test]
fn a_peer_that_proves_the_secret_is_accepted_and_gets_the_proof_of_the_instance() {
    let one = with_secret(&[]);
    let (mut fake_peer, hellos) = challenged(one.address(), "0-fake-peer");
    fake_peer.send(Kind::Proof, 0, "", &proof(SECRET, "dialler", &hellos, 0));
    let received = fake_peer.next().unwrap();
    assert_eq!((received.kind, received.flags), (Some(Kind::Proof), 0));
    assert_eq!(received.payload, proof(SECRET, "acceptor", &hellos, 0));
    one.until_peers(1);
    // A second link of the same side is refused, and that is proved too.
    let (mut second, hellos) = challenged(one.address(), "0-fake-peer");
    second.send(Kind::Proof, 0, "", &proof(SECRET, "dialler", &hellos, 0));
    let received = second.next().unwrap();
    assert_eq!((received.flags, received.payload), (1, proof(SECRET, "acceptor", &hellos, 1)));
    second.until_closed();
}

#[test]
fn instances_with_different_secrets_or_with_and_without_one_are_not_linked() {
    let one = with_secret(&[]);
    let another = ClusterConfig { secret: secret(&[b'x'; 32]), ..cluster(&[one.address()]) };
    let (another, open) = (Node::with(config(), another), Node::new(&[one.address()]));
    let dialling = with_secret(&[open.address()]);
    until("refusing", || refused(&one, "secret") >= 2 && refused(&another, "secret") >= 1);
    until("refusing", || refused(&open, "secret") >= 1);
    for node in [&one, &another, &open, &dialling] {
        assert_eq!(node.stats().peers, 0);
    }
}

#[test]
fn an_instance_that_answers_without_a_proof_gets_no_link() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = with_secret(&[listener.local_addr().unwrap()]);
    for proves in [false, true] {
        let mut fake_peer = FakePeer::over(listener.accept().unwrap().0);
        let theirs = fake_peer.expect(Kind::Hello).payload;
        fake_peer.send(Kind::Hello, 0, "", &own_hello("f-fake-peer"));
        fake_peer.expect(Kind::Proof);
        // The proof of the other direction, and then the right one.
        let hellos = [theirs, own_hello("f-fake-peer")].concat();
        let side = if proves { "acceptor" } else { "dialler" };
        fake_peer.send(Kind::Proof, 0, "", &proof(SECRET, side, &hellos, 0));
        if proves {
            one.until_peers(1);
        } else {
            fake_peer.until_closed();
            until("refusing", || refused(&one, "secret") == 1);
            assert_eq!(one.stats().peers, 0);
        }
    }
}

#[test]
fn pending_handshakes_without_the_secret_do_not_block_a_peer() {
    let one = with_secret(&[]);
    let pending: Vec<FakePeer> = (0..200)
        .map(|number| {
            let mut pending_handshake = FakePeer::connected(one.address());
            pending_handshake.send(Kind::Hello, 0, "", &own_hello(&format!("0-pending-{number}")));
            pending_handshake
        })
        .collect();
    let other = with_secret(&[one.address()]);
    other.until_peers(1);
    assert_reached(&one, &other);
    drop(pending);
}

#[test]
fn a_flood_of_half_open_links_does_not_close_those_of_other_addresses() {
    let one = Node::new(&[]);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.2:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect(&one.address().into()).unwrap();
    let mut slow = FakePeer::over(socket.into());
    let pending: Vec<FakePeer> = (0..300).map(|_| FakePeer::connected(one.address())).collect();
    until("crowding", || refused(&one, "crowded") >= 200);
    slow.write(&hello("0-slow", REFERENCE));
    assert_eq!(slow.next().expect("it was not closed").kind, Some(Kind::Hello));
    one.until_peers(1);
    drop(pending);
}

#[test]
fn addresses_on_other_machines_are_not_dialled_for_a_peer_that_proved_nothing() {
    let one = Node::with(config(), ClusterConfig { address: Some("127.0.0.1".into()), ..cluster(&[]) });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap().to_string();
    let mut fake_peer = FakePeer::linked(one.address(), "p", REFERENCE);
    fake_peer.send(Kind::Announce, 0, "192.0.2.1:7006", b"");
    let mut list = vec![3, 0];
    for address in ["192.0.2.2:7006", "elsewhere.invalid:7006", &local] {
        list.extend((address.len() as u16).to_le_bytes());
        list.extend(address.as_bytes());
    }
    fake_peer.send(Kind::Addresses, 0, "", &list);
    // What is dialled is passed on to all peers, the first to name it too.
    let passed_on = loop {
        let text = String::from_utf8_lossy(&fake_peer.expect(Kind::Addresses).payload).into_owned();
        if text.contains(&local) {
            break text;
        }
    };
    assert!(!passed_on.contains("7006"), "{passed_on}");
    listener.accept().unwrap();
}

#[test]
fn elsewhere_than_on_loopback_a_cluster_needs_a_secret_or_tls() {
    let server = client::start(Config { host: "0.0.0.0".parse().unwrap(), ..config() });
    let refused = |config: ClusterConfig| server.connect_cluster(config).unwrap_err();
    assert!(matches!(refused(cluster(&[])), ClusterError::OpenPort { host } if host.is_unspecified()));
    let peers = vec!["192.0.2.1:7006".to_owned()];
    let dialling = ClusterConfig { peers, port: None, ..cluster(&[]) };
    assert!(matches!(refused(dialling), ClusterError::OpenPeer { address } if address == "192.0.2.1:7006"));
    server.connect_cluster(ClusterConfig { secret: secret(SECRET), ..cluster(&[]) }).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], server.cluster_address().unwrap().port()));
    with_secret(&[address]).until_peers(1);
}
