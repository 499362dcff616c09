//! Peers that break HTTP, never finish a request or ask for files outside a bundle, at the ports that the operator and the
//! evidence agent serve in a cluster: the other requests are answered, and no file but those of bundles is served.
//! `hostile/` does the same to services, the simulator and the coordinator, which run without a cluster.

use std::{fs, net::SocketAddr, time::Duration};

use operator_kubernetes::{
    evidence,
    live::Live,
    web::{self, Web},
};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Peers that stop half way, at a time.
const HALF_OPEN: usize = 300;
/// Broken requests at each port.
const BROKEN: usize = 400;
/// Longest time for a response on a busy machine. A request without end is given up after 15 s.
const PATIENCE: Duration = Duration::from_secs(60);
/// Content of a file outside all bundles.
const OUTSIDE: &str = "not a part of any bundle";

/// The ports, with a page that each serves, and the folder of the bundles.
async fn ports() -> (Vec<(SocketAddr, &'static str)>, TempDir) {
    let results = tempfile::tempdir().unwrap();
    fs::create_dir_all(results.path().join("r1/trials")).unwrap();
    fs::write(results.path().join("r1/trials/a.json"), "{}").unwrap();
    fs::write(results.path().join("outside"), OUTSIDE).unwrap();
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for page in ["/healthz", "/metrics", "/healthz"] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        addresses.push((listener.local_addr().unwrap(), page));
        listeners.push(listener);
    }
    let [of_web, of_metrics, of_evidence] = listeners.try_into().unwrap();
    tokio::spawn(web::serve(of_web, Web::new(Live::new(), results.path().into())));
    tokio::spawn(web::serve_metrics(of_metrics, Web::new(Live::new(), results.path().into())));
    tokio::spawn(evidence::serve(of_evidence));
    (addresses, results)
}

/// What the port sends until it closes; empty if the peer isn't heard to the end.
async fn response(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut peer = TcpStream::connect(address).await.unwrap();
    // The port may have closed before the whole request was sent.
    let _ = peer.write_all(request).await;
    let _ = peer.shutdown().await;
    let mut received = Vec::new();
    let _ = timeout(PATIENCE, peer.read_to_end(&mut received)).await.expect("the port ends the connection");
    received
}

async fn serves(address: SocketAddr, page: &str) {
    let request = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let received = response(address, request.as_bytes()).await;
    assert!(received.starts_with(b"HTTP/1.1 200"), "{page}: {}", String::from_utf8_lossy(&received));
}

/// Inputs from a fixed seed, so that a failure can be repeated.
fn inputs<T>(strategy: impl Strategy<Value = T>) -> impl Iterator<Item = T> {
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[19; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    std::iter::repeat_with(move || strategy.new_tree(&mut runner).unwrap().current())
}

#[tokio::test]
async fn requests_that_stop_half_way_do_not_block_other_clients() {
    let (ports, _results) = ports().await;
    let head = b"POST /api/status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{\"a\":";
    for (address, page) in ports {
        let mut peers = Vec::new();
        for number in 0..HALF_OPEN {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(&head[..number % (head.len() + 1)]).await.unwrap();
            peers.push(peer);
        }
        serves(address, page).await;
    }
}

#[tokio::test]
async fn broken_requests_are_refused_and_others_are_answered() {
    let (ports, _results) = ports().await;
    let request = b"GET /api/runs/r1/files HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-5\r\n\r\n";
    let change = (0..request.len(), any::<u8>(), 0..4_u8, proptest::collection::vec(any::<u8>(), 0..40));
    for (address, page) in ports {
        for (at, byte, kind, bytes) in inputs(change.clone()).take(BROKEN) {
            let mut broken = request.to_vec();
            match kind {
                0 => broken[at] = byte,
                1 => drop(broken.drain(at..(at + bytes.len()).min(broken.len()))),
                2 => drop(broken.splice(at..at, bytes)),
                _ => broken.truncate(at),
            }
            let received = response(address, &broken).await;
            let is_http = received.is_empty() || received.starts_with(b"HTTP/1.");
            assert!(is_http, "{broken:?} was answered by {received:?}");
        }
        serves(address, page).await;
    }
}

#[tokio::test]
async fn no_path_leads_out_of_the_bundles() {
    let (ports, results) = ports().await;
    std::os::unix::fs::symlink("../outside", results.path().join("r1/link")).unwrap();
    let (address, page) = ports[0];
    let part = prop_oneof![
        Just(".."),
        Just("."),
        Just("r1"),
        Just("trials"),
        Just("link"),
        Just("outside"),
        Just("%2e%2e"),
        Just("%2F"),
        Just("%5c"),
        Just("..%2Foutside"),
        Just("%00"),
        Just(""),
        Just("%252e%252e"),
        Just("etc"),
        Just("passwd"),
        Just("a.json"),
        Just("%c0%ae%c0%ae"),
        Just("?"),
        Just("#"),
    ];
    for parts in inputs(proptest::collection::vec(part, 1..8)).take(2 * BROKEN) {
        for root in ["/results/", "/results/r1/", "/api/runs/"] {
            let path = format!("{root}{}", parts.join("/"));
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let received = String::from_utf8_lossy(&response(address, request.as_bytes()).await).into_owned();
            assert!(!received.contains(OUTSIDE) && !received.contains("root:"), "{path}: {received}");
        }
    }
    serves(address, page).await;
}
