//! A small blocking WebSocket client for the engine's tests. It can also break the protocol.

// Each test file uses a part of this module.
#![allow(dead_code)]

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use wse_engine::{Batch, Config, JwtConfig, JwtKey, Kind, Server, frame::Opcode, receive::client_frame};

/// The secret of the published benchmarks.
pub(crate) const SECRET: &[u8] = b"bench-secret-key-for-testing-only";
/// The limit for every wait. No test takes this long unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// A message, control frame or end of stream from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Received {
    Text(String),
    Binary(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Eof,
}

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A configuration with two shards that accepts the benchmarks' tokens.
pub(crate) fn config() -> Config {
    let name = Some("wse-bench".to_owned());
    let jwt = Some(JwtConfig {
        issuer: name.clone(),
        audience: name,
        ..JwtConfig::new(vec![JwtKey::secret(SECRET).unwrap()])
    });
    Config { jwt, shards: Some(2), max_connections: 10_000, ..Config::default() }
}

pub(crate) fn start(config: Config) -> Server {
    Server::start(config).expect("the server starts")
}

pub(crate) fn token(claims: &Value, secret: &[u8]) -> String {
    encode(&Header::default(), claims, &EncodingKey::from_secret(secret)).unwrap()
}

pub(crate) fn claims() -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    json!({"sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": now + 3600, "iat": now})
}

/// An upgrade request with these headers in addition to the required ones.
pub(crate) fn request(target: &str, headers: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
}

impl Client {
    /// A TCP connection on which nothing has been sent.
    pub(crate) fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// A connection after the upgrade, with the benchmarks' token. `server_ready` is still to be read.
    pub(crate) fn open(address: SocketAddr, target: &str) -> Self {
        let bearer = format!("Authorization: Bearer {}\r\n", token(&claims(), SECRET));
        Self::open_with(address, target, &bearer)
    }

    pub(crate) fn open_with(address: SocketAddr, target: &str, headers: &str) -> Self {
        let mut client = Self::tcp(address);
        client.write(request(target, headers).as_bytes());
        let head = client.http();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        client
    }

    /// A connection after the upgrade and `server_ready`, with its id.
    pub(crate) fn ready(address: SocketAddr) -> (Self, String) {
        let mut client = Self::open(address, "/wse?compression=false&protocol_version=1");
        let greeting: Value = serde_json::from_str(&client.text()).unwrap();
        assert_eq!(greeting["t"], "server_ready");
        let id = greeting["p"]["details"]["connection_id"].as_str().unwrap().to_owned();
        (client, id)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The same as [`Client::write`], for a connection that the server may have closed. Returns whether it was open.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.write(&text_frame(text));
    }

    pub(crate) fn send_binary(&mut self, bytes: &[u8]) {
        self.write(&client_frame(true, Opcode::Binary, MASK, bytes));
    }

    pub(crate) fn frame(&mut self, fin: bool, opcode: Opcode, payload: &[u8]) {
        self.write(&client_frame(fin, opcode, MASK, payload));
    }

    fn fill(&mut self) -> bool {
        let mut chunk = [0; 16 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(read) => {
                self.buffer.extend_from_slice(&chunk[..read]);
                true
            }
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
            Err(error) => panic!("nothing received: {error}"),
        }
    }

    /// Reads the head of a response.
    pub(crate) fn http(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                return String::from_utf8(self.buffer.drain(..end + 4).collect()).unwrap();
            }
            assert!(self.fill(), "closed within a response: {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    /// Reads one frame. The server's frames are never masked and never fragmented.
    pub(crate) fn receive(&mut self) -> Received {
        loop {
            if let Some((opcode, payload)) = self.take_frame() {
                return match opcode {
                    1 => Received::Text(String::from_utf8(payload).unwrap()),
                    2 => Received::Binary(payload),
                    8 if payload.is_empty() => Received::Close(None, String::new()),
                    8 => {
                        let code = u16::from_be_bytes([payload[0], payload[1]]);
                        Received::Close(Some(code), String::from_utf8(payload[2..].to_vec()).unwrap())
                    }
                    10 => Received::Pong(payload),
                    other => panic!("the server sent opcode {other}"),
                };
            }
            if !self.fill() {
                assert!(self.buffer.is_empty(), "closed within a frame");
                return Received::Eof;
            }
        }
    }

    fn take_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let [first, second, rest @ ..] = self.buffer.as_slice() else { return None };
        assert_eq!(first & 0xF0, 0x80, "final, nothing reserved");
        let (length_bytes, length) = match second {
            126 => (2, usize::from(u16::from_be_bytes(*rest.first_chunk()?))),
            127 => (8, u64::from_be_bytes(*rest.first_chunk()?) as usize),
            short => (0, usize::from(*short)),
        };
        let (opcode, start) = (first & 0x0F, 2 + length_bytes);
        if self.buffer.len() < start + length {
            return None;
        }
        let frame: Vec<u8> = self.buffer.drain(..start + length).collect();
        Some((opcode, frame[start..].to_vec()))
    }

    /// The next text message that isn't a keep-alive ping.
    pub(crate) fn text(&mut self) -> String {
        match self.receive() {
            Received::Text(text) if text.starts_with(r#"{"c":"WSE","t":"ping""#) => self.text(),
            Received::Text(text) => text,
            other => panic!("{other:?} instead of text"),
        }
    }

    /// Skips messages up to the server's Close frame and returns its code.
    pub(crate) fn close_code(&mut self) -> Option<u16> {
        loop {
            match self.receive() {
                Received::Close(code, _) => return code,
                Received::Eof => panic!("closed without a Close frame"),
                _ => {}
            }
        }
    }
}

pub(crate) fn text_frame(text: &str) -> Vec<u8> {
    client_frame(true, Opcode::Text, MASK, text.as_bytes())
}

/// A copy of a drained message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drained {
    pub(crate) kind: Kind,
    pub(crate) connection: u64,
    pub(crate) data: Vec<u8>,
    pub(crate) message_type: Option<String>,
}

pub(crate) fn copied(batch: &Batch) -> Vec<Drained> {
    let message = |message: wse_engine::Message<'_>| Drained {
        kind: message.kind,
        connection: message.connection.as_u64(),
        data: message.data.to_vec(),
        message_type: message.message_type.map(str::to_owned),
    };
    batch.iter().map(message).collect()
}

/// Drains until there are `count` messages; connection events don't count.
pub(crate) fn drain(server: &Server, count: usize) -> Vec<Drained> {
    let deadline = Instant::now() + PATIENCE;
    let mut messages = Vec::new();
    while messages.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} messages received", messages.len());
        let batch = server.drain_batch(1000, Duration::from_millis(100));
        messages.extend(copied(&batch).into_iter().filter(|drained| drained.kind.is_message()));
    }
    messages
}

/// The status and the body of a page of the metrics port.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// Waits until a condition is true. It pauses between two checks: `std`'s locks aren't fair, so checking without a
/// pause could keep a lock from the server that the condition depends on.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} didn't happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks the counters: each received message has exactly one outcome.
pub(crate) fn assert_balanced(server: &Server) {
    let messages = server.stats().messages;
    let out = messages.consumed + messages.delivered + messages.dropped.values().sum::<u64>() + messages.queued;
    assert_eq!(messages.received, out, "{messages:?}");
}
