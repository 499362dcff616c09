//! Test support: the gateway as a process, a client that sends arbitrary bytes, and a scripted inference.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use service_contract::{ServiceStats, Started};

/// Time limit of every wait; it is generous for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running gateway process. Dropping it kills the process.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) started: Started,
}

impl Gateway {
    /// Starts the program with these variables in addition to `PORT`, `METRICS_PORT` and `INFERENCE_URL`.
    pub(crate) fn start(inference: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rust-sync"))
            .envs([("PORT", "0"), ("METRICS_PORT", "0"), ("WORKER_THREADS", "1"), ("INFERENCE_URL", inference)])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program is built");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("it is piped")).read_line(&mut line).unwrap();
        Self { started: serde_json::from_str(&line).expect("a ready line"), child }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.started.address)
    }

    /// Opens a connection and sends the start message.
    pub(crate) fn session(&self) -> Client {
        let mut client = self.connect();
        client.text(r#"{"type":"start"}"#);
        client
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&self.started.metrics_address, path)
    }

    pub(crate) fn stats(&self) -> ServiceStats {
        let stats: ServiceStats = serde_json::from_str(&self.get("/stats").1).unwrap();
        let messages = &stats.messages;
        let out = messages.consumed + messages.delivered + messages.dropped.values().sum::<u64>() + messages.queued;
        assert_eq!(messages.received, out, "the books must balance in every reading: {messages:?}");
        let inference = stats.inference.as_ref().expect("a gateway has inference");
        let completed = inference.answered + inference.failed.values().sum::<u64>() + inference.abandoned;
        assert_eq!(inference.requests, completed + inference.in_flight, "{inference:?}");
        stats
    }

    /// Polls `/stats` until `is_expected` holds.
    pub(crate) fn stats_when(&self, is_expected: impl Fn(&ServiceStats) -> bool) -> ServiceStats {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = self.stats();
            if is_expected(&stats) {
                return stats;
            }
            assert!(Instant::now() < deadline, "not in time: {stats:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one HTTP request on a new connection. Returns status and body.
pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

pub(crate) fn exchange(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a whole answer");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A frame from the gateway, or the end of the stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    Text(String),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    /// The end of the stream, without a reset.
    End,
}

/// A client on a blocking socket.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) fn connect(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(
                b"GET /ws/stt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Self { stream }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.raw(&frame(0x81, text.as_bytes()));
    }

    pub(crate) fn binary(&mut self, payload: &[u8]) {
        self.raw(&frame(0x82, payload));
    }

    pub(crate) fn ping(&mut self, payload: &[u8]) {
        self.raw(&frame(0x89, payload));
    }

    pub(crate) fn close(&mut self, code: u16) {
        self.raw(&frame(0x88, &code.to_be_bytes()));
    }

    /// Sends frames of audio with these sequence numbers, the samples of session 0.
    pub(crate) fn audio(&mut self, seqs: impl IntoIterator<Item = u64>) {
        let wire: Vec<u8> = seqs.into_iter().flat_map(|seq| frame(0x82, &audio(seq))).collect();
        self.raw(&wire);
    }

    pub(crate) fn next(&mut self) -> Frame {
        let mut head = [0; 2];
        match self.stream.read(&mut head[..1]) {
            Ok(0) => return Frame::End,
            Ok(_) => self.stream.read_exact(&mut head[1..]).unwrap(),
            Err(error) => panic!("nothing more came: {error}"),
        }
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length).unwrap();
                usize::from(u16::from_be_bytes(length))
            }
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).unwrap();
        match head[0] {
            0x81 => Frame::Text(String::from_utf8(payload).unwrap()),
            0x8A => Frame::Pong(payload),
            0x88 if payload.is_empty() => Frame::Close(None, String::new()),
            0x88 => {
                let reason = String::from_utf8(payload[2..].to_vec()).unwrap();
                Frame::Close(Some(u16::from_be_bytes([payload[0], payload[1]])), reason)
            }
            other => panic!("a server doesn't send {other:x}"),
        }
    }

    /// Reads the next message, which must be JSON.
    pub(crate) fn message(&mut self) -> Value {
        match self.next() {
            Frame::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("a message was wanted, not {other:?}"),
        }
    }
}

/// A masked frame in wire format, with this first byte.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xFA, 0x21, 0x3D];
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..=125 => bytes.push(0x80 | short as u8),
        medium @ 126..=0xFFFF => {
            bytes.push(0xFE);
            bytes.extend((medium as u16).to_be_bytes());
        }
        long => {
            bytes.push(0xFF);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The audio of a frame, different for each sequence number.
pub(crate) fn audio(seq: u64) -> Vec<u8> {
    (0..320_u64).flat_map(|sample| (((seq * 320 + sample) * 17 % 20_000) as i16 - 10_000).to_le_bytes()).collect()
}

/// A request that the inference has received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Index of its connection, counted from 0.
    pub(crate) connection: usize,
}

/// How the inference handles a request.
pub(crate) enum Reply {
    /// Sends these bytes as the response.
    Send(Vec<u8>),
    /// Sends these bytes, and then closes the connection.
    SendAndClose(Vec<u8>),
    /// Closes the connection without a response.
    Close,
    /// Sends nothing and keeps the connection open.
    Silence,
}

/// An inference that handles each request with a function, with one thread per connection.
pub(crate) struct Inference {
    pub(crate) url: String,
    pub(crate) requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Inference {
    pub(crate) fn start(reply: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (requests, connections) = (Arc::<Mutex<Vec<ReceivedRequest>>>::default(), Arc::<AtomicUsize>::default());
        let reply = Arc::new(reply);
        let (requests_of_thread, opened) = (Arc::clone(&requests), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = opened.fetch_add(1, Ordering::SeqCst);
                let (reply, requests) = (Arc::clone(&reply), Arc::clone(&requests_of_thread));
                std::thread::spawn(move || serve(stream.unwrap(), connection, &*reply, &requests));
            }
        });
        Self { url, requests, connections }
    }

    /// Starts an inference that sends valid responses.
    pub(crate) fn correct() -> Self {
        Self::start(|request| Reply::Send(response(&request.body)))
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(
    stream: TcpStream,
    connection: usize,
    reply: &dyn Fn(&ReceivedRequest) -> Reply,
    requests: &Mutex<Vec<ReceivedRequest>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    // The loop ends when the gateway closes the connection.
    while let Some(request) = read_request(&mut reader, connection) {
        requests.lock().unwrap().push(request.clone());
        let is_closed = match reply(&request) {
            Reply::Send(bytes) => stream.write_all(&bytes).is_err(),
            Reply::SendAndClose(bytes) => {
                let _ = stream.write_all(&bytes);
                true
            }
            Reply::Close => true,
            Reply::Silence => false,
        };
        if is_closed {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead, connection: usize) -> Option<ReceivedRequest> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(ReceivedRequest { head, body, connection })
}

/// A response for 4 passes that a gateway accepts. The counts follow from the body's length; the checksum is that of
/// the first sample only.
pub(crate) fn response(body: &[u8]) -> Vec<u8> {
    let frames = body.len() / 640;
    let checksum = u32::from(u16::from_le_bytes([body[0], body[1]]));
    http(
        200,
        &format!(
            r#"{{"rms":1.5,"zero_crossings":7,"checksum":{checksum},"samples":{},"transcript":"now","audio_bytes":{}}}"#,
            4 * 320 * frames,
            body.len()
        ),
    )
}

pub(crate) fn http(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Parses Prometheus text into values by name and labels.
pub(crate) fn metrics(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}
