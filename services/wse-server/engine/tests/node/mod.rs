//! Helpers for cluster tests: instances in one process, a TCP proxy between them, and a peer that the test controls
//! frame by frame.

// Each test file uses a part of this module.
#![allow(dead_code)]

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use wse_engine::{
    ClusterConfig, ClusterStats, ClusterTiming, Config, RecoveryConfig, Server,
    cluster::frame::{self, Kind},
};

use crate::client::{self, Client, PATIENCE, config, start, until};

/// The capability bits of the reference.
pub(crate) const REFERENCE: u32 = 15;
/// The capability bits that only this engine has: numbered publications, and stamps.
pub(crate) const NUMBERS: u32 = 1 << 16;
pub(crate) const STAMPS: u32 = 1 << 17;

/// Times short enough for a test and long enough for a busy machine.
pub(crate) fn timing() -> ClusterTiming {
    ClusterTiming {
        handshake: Duration::from_secs(5),
        heartbeat: Duration::from_millis(50),
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(100),
        breaker_reset: Duration::from_millis(200),
        ..ClusterTiming::default()
    }
}

/// A configuration that connects to these peers and listens on a port that the kernel chooses.
pub(crate) fn cluster(peers: &[SocketAddr]) -> ClusterConfig {
    let peers = peers.iter().map(SocketAddr::to_string).collect();
    ClusterConfig { peers, port: Some(0), timing: timing(), ..ClusterConfig::default() }
}

/// A server that is part of a cluster.
pub(crate) struct Node {
    pub(crate) server: Server,
}

impl Node {
    pub(crate) fn new(peers: &[SocketAddr]) -> Self {
        Self::with(config(), cluster(peers))
    }

    pub(crate) fn with(config: Config, cluster: ClusterConfig) -> Self {
        let server = start(config);
        server.connect_cluster(cluster).unwrap();
        Self { server }
    }

    /// A node with recovery enabled.
    pub(crate) fn with_history(peers: &[SocketAddr]) -> Self {
        Self::with(Config { recovery: Some(RecoveryConfig::default()), ..config() }, cluster(peers))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.cluster_address().unwrap()
    }

    /// A client that is subscribed to these topics.
    pub(crate) fn subscriber(&self, topics: &[&str]) -> Client {
        let (client, id) = Client::ready(self.server.address());
        assert_eq!(self.server.subscribe(&id, topics, None).unwrap().len(), topics.len());
        client
    }

    pub(crate) fn stats(&self) -> ClusterStats {
        self.server.link_stats().cluster.unwrap()
    }

    pub(crate) fn until_peers(&self, count: u64) {
        until("linking", || self.stats().peers == count);
    }

    /// Waits until this many other instances are known to subscribe to the topic.
    pub(crate) fn until_interest(&self, topic: &str, count: usize) {
        until("reporting interest", || self.server.topic_interest(topic) == count);
    }

    /// Checks the counters: each publication is sent, dropped or queued.
    pub(crate) fn assert_balanced(&self) {
        let stats = self.stats();
        assert_eq!(stats.published, stats.sent + stats.dropped.values().sum::<u64>() + stats.queued, "{stats:?}");
    }

    /// Waits until everything that `sender` sent has arrived or is counted as lost.
    pub(crate) fn until_received_from(&self, sender: &Self) {
        until("counting", || {
            let stats = self.stats();
            sender.stats().queued == 0 && stats.received + stats.lost == sender.stats().sent
        });
    }
}

/// Two linked nodes. The second connected to the first.
pub(crate) fn pair() -> (Node, Node) {
    let one = Node::new(&[]);
    let other = Node::new(&[one.address()]);
    one.until_peers(1);
    other.until_peers(1);
    (one, other)
}

/// Publishes numbers, the first half in one list and the rest one by one.
pub(crate) fn publish(server: &Server, topic: &str, numbers: std::ops::Range<usize>) {
    let text = |number: usize| format!(r#"{{"t":"tick","p":{{"n":{number}}}}}"#);
    let (first, second) =
        (numbers.start..numbers.start + numbers.len() / 2, numbers.start + numbers.len() / 2..numbers.end);
    server.broadcast_many(topic, &first.map(text).collect::<Vec<_>>());
    second.for_each(|number| server.broadcast(topic, &text(number)));
}

/// The number in the next message.
pub(crate) fn number(client: &mut Client) -> usize {
    let value: serde_json::Value = serde_json::from_str(&client.text()).unwrap();
    value["p"]["n"].as_u64().unwrap() as usize
}

pub(crate) fn numbers(client: &mut Client, count: usize) -> Vec<usize> {
    (0..count).map(|_| number(client)).collect()
}

/// Asserts that the client's next message is a new marker, so nothing else was sent to it before.
pub(crate) fn assert_next(server: &Server, topic: &str, client: &mut Client) {
    server.broadcast_local(topic, r#"{"t":"tick","p":{"n":777777}}"#);
    assert_eq!(number(client), 777_777);
}

/// A TCP proxy between two instances. It can close its connections or stop forwarding.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    state: Arc<WireState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct WireState {
    is_cut: AtomicBool,
    is_blocked: AtomicBool,
    is_over: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Wire {
    /// A proxy to `target`; clients connect to the proxy's `address`.
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<WireState>::default();
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                if !shared.is_cut.load(Ordering::SeqCst) {
                    let other = TcpStream::connect(target).unwrap();
                    shared.join(&stream, &other);
                    shared.join(&other, &stream);
                }
            }
        });
        Self { address, state, thread: Some(thread) }
    }

    /// Closes all connections, and new ones as soon as they are accepted, until [`Wire::restore`].
    pub(crate) fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn restore(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }

    /// Stops forwarding without closing the connections, or resumes it.
    pub(crate) fn block(&self, is_blocked: bool) {
        self.state.is_blocked.store(is_blocked, Ordering::SeqCst);
    }
}

impl WireState {
    fn join(self: &Arc<Self>, from: &TcpStream, to: &TcpStream) {
        let (mut from, mut to, state) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(self));
        self.streams.lock().unwrap().push(from.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 16 << 10];
            loop {
                while state.is_blocked.load(Ordering::SeqCst) && !state.is_over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let read = from.read(&mut buffer).unwrap_or(0);
                if read == 0 || to.write_all(&buffer[..read]).is_err() {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
            }
        });
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.cut();
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A peer that sends the bytes that a test gives it.
pub(crate) struct FakePeer {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

/// A frame that the peer received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedFrame {
    pub(crate) kind: Option<Kind>,
    pub(crate) flags: u8,
    pub(crate) topic: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) stamp: Option<wse_engine::Position>,
}

pub(crate) fn hello(instance: &str, capabilities: u32) -> Vec<u8> {
    let mut payload = b"WSE\0\x01\0".to_vec();
    payload.extend((instance.len() as u16).to_le_bytes());
    payload.extend(instance.as_bytes());
    payload.extend(capabilities.to_le_bytes());
    frame::encode(Kind::Hello, 0, b"", &payload).to_vec()
}

impl FakePeer {
    /// A connected peer that has sent nothing yet.
    pub(crate) fn connected(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// A peer over a connection that either side opened; it has sent nothing yet.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// A connected peer after the exchange of hellos.
    pub(crate) fn linked(address: SocketAddr, instance: &str, capabilities: u32) -> Self {
        let mut fake_peer = Self::connected(address);
        // Sorts before the names of real instances.
        fake_peer.write(&hello(&format!("0-{instance}"), capabilities));
        assert_eq!(fake_peer.next().expect("the instance replies with a hello").kind, Some(Kind::Hello));
        fake_peer
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, kind: Kind, flags: u8, topic: &str, payload: &[u8]) {
        self.write(&frame::encode(kind, flags, topic.as_bytes(), payload));
    }

    /// The next frame; `None` when the connection ends.
    pub(crate) fn next(&mut self) -> Option<ReceivedFrame> {
        loop {
            if let Some((frame, used)) = frame::parse(&self.buffer).unwrap() {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let received = ReceivedFrame {
                    kind: Kind::of(frame.kind),
                    flags: frame.flags,
                    topic: text(frame.topic),
                    payload: frame.payload.to_vec(),
                    stamp: frame.stamp,
                };
                self.buffer.drain(..used);
                return Some(received);
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(read) => self.buffer.extend_from_slice(&chunk[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return None;
                }
                Err(error) => panic!("nothing received: {error}"),
            }
        }
    }

    /// The next frame of this type. Skips frames of other types.
    pub(crate) fn expect(&mut self, kind: Kind) -> ReceivedFrame {
        loop {
            let received = self.next().unwrap_or_else(|| panic!("the link was closed before {kind:?}"));
            if received.kind == Some(kind) {
                return received;
            }
        }
    }

    /// Reads until the instance closes the connection.
    pub(crate) fn until_closed(&mut self) {
        while self.next().is_some() {}
    }
}

/// Connects a client to `node`, subscribes it with recovery, and returns it with the outcome for the topic.
pub(crate) fn recover(node: &Node, topic: &str, from: Option<wse_engine::Position>) -> (Client, wse_engine::Recovered) {
    let (client, id) = Client::ready(node.server.address());
    let mut recovered = node.server.subscribe_with_recovery(&id, &[topic], from).unwrap();
    (client, recovered.remove(topic).unwrap().unwrap())
}

pub(crate) fn default_client() -> Config {
    client::config()
}
