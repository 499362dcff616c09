//! `fanout-broadcast` against a publisher of raw frames that follows a script: what it skips, repeats, swaps and delays
//! must be in the result.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bench_format::{
    histogram::Recorder,
    plan::{Load, Message},
    result::{RECEIVER_BEHIND, ReceiverBook, Witness, WorkerResult},
    trial::{Assignment, TrialId},
};
use loadgen_core::{
    Error,
    connect::accept,
    trial::{Gate, ImmediateGate, StartAt},
};
use wse_bench::{protocol::Access, workloads::Workload};

const CONNECTIONS: u32 = 3;
const READY: &str = r#"{"c":"WSE","t":"server_ready","p":{"details":{"connection_id":"an-id"}},"v":1}"#;
const PING: &str = r#"{"c":"WSE","t":"ping","p":{"server_time":"x"},"seq":5}"#;
/// Interval between two messages of the publisher.
const PACE: Duration = Duration::from_millis(2);

/// Changes of the publisher to its sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Script {
    /// The first sequence number.
    first: u64,
    /// Numbers that are never sent.
    skipped: &'static [u64],
    /// Numbers that are sent twice.
    repeated: &'static [u64],
    /// Numbers that are swapped with the next.
    swapped: &'static [u64],
    /// How long each message waits after it was due.
    delay: Duration,
    /// How far its clock is ahead of the worker's.
    ahead: Duration,
    /// Messages in one write.
    per_write: usize,
    /// The last number that is published; without it there is no end.
    last: Option<u64>,
}

impl Script {
    /// The sequence numbers that are sent in place of message `n`.
    fn numbers(&self, n: u64) -> Vec<u64> {
        if self.skipped.contains(&n)
            || self.swapped.contains(&(n.wrapping_sub(1)))
            || self.last.is_some_and(|last| n > last)
        {
            vec![]
        } else if self.repeated.contains(&n) {
            vec![n, n]
        } else if self.swapped.contains(&n) {
            vec![n + 1, n]
        } else {
            vec![n]
        }
    }
}

/// Starts the publisher; returns its address.
fn publisher(script: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Ends with the test's process; it holds only a port.
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that closes its connection ends only its own.
            thread::spawn(move || publish(stream.unwrap(), script));
        }
    });
    address
}

fn publish(mut stream: TcpStream, script: Script) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        accept(key)
    )?;
    stream.set_nodelay(true)?;
    stream.write_all(&text(READY))?;
    let is_closed = Arc::new(AtomicBool::new(false));
    let (mut client, ready_flag) = (stream.try_clone()?, Arc::clone(&is_closed));
    thread::spawn(move || {
        while let Ok(opcode) = opcode_of_next(&mut client)
            && opcode != 8
        {}
        ready_flag.store(true, Ordering::Release);
    });
    let mut n = script.first;
    let mut batch = Vec::new();
    while !is_closed.load(Ordering::Acquire) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + script.ahead;
        let due_us = (now - script.delay).as_micros();
        for number in script.numbers(n) {
            let tick = format!(
                r#"{{"c":"U","t":"fanout_tick","p":{{"seq":{number},"ts_us":{due_us},"s":"ES","px":5234.75,"q":2}}}}"#
            );
            batch.extend(if number % 7 == 3 { fragments(&tick) } else { text(&tick) });
        }
        if n.is_multiple_of(10) {
            // Messages that are not deliveries: the service's own ping, and a WebSocket Ping.
            batch.extend(text(PING));
            batch.extend([0x89, 0]);
        }
        n += 1;
        if (n - script.first).is_multiple_of(script.per_write.max(1) as u64) {
            // Splits inside a frame, as TCP may.
            let (first_part, second_part) = batch.split_at(batch.len() / 2);
            stream.write_all(first_part)?;
            stream.write_all(second_part)?;
            batch.clear();
            thread::sleep(PACE);
        }
    }
    stream.write_all(&[0x88, 2, 0x03, 0xE8])
}

fn text(payload: &str) -> Vec<u8> {
    frame(0x81, payload.as_bytes())
}

/// The same message in two frames.
fn fragments(payload: &str) -> Vec<u8> {
    let (first_part, second_part) = payload.as_bytes().split_at(payload.len() / 3);
    [frame(0x01, first_part), frame(0x80, second_part)].concat()
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= 125);
    [&[first, payload.len() as u8], payload].concat()
}

/// Reads one masked frame; returns its opcode.
fn opcode_of_next(stream: &mut TcpStream) -> std::io::Result<u8> {
    let mut head = [0; 6];
    stream.read_exact(&mut head)?;
    let mut payload = vec![0; usize::from(head[1] & 0x7F)];
    stream.read_exact(&mut payload)?;
    Ok(head[0] & 0x0F)
}

/// A coordinator that knows how far the publisher's clock is ahead.
struct KnownClock(Duration);

impl Gate for KnownClock {
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        let start = ImmediateGate.ready(open, problem)?;
        Ok(StartAt { publisher_ahead_ns: self.0.as_nanos() as i64, ..start })
    }
}

fn trial(script: Script, load: Load) -> WorkerResult {
    let assignment = Assignment {
        run: "r".into(),
        trial: TrialId {
            service: bench_format::Name::from_static("s"),
            workload: bench_format::Name::from_static(Workload::FanoutBroadcast.name()),
            variant: bench_format::Name::from_static("v"),
            tier: CONNECTIONS,
            process: 1,
            repeat: 1,
        },
        attempt: 1,
        worker: 0,
        workers: 1,
        address: publisher(script),
        connections: CONNECTIONS,
        first_connection: 0,
        seed: 1,
        load,
        message: Message::default(),
        warmup_ns: 50_000_000,
        window_ns: 400_000_000,
        drain_ns: 1_000_000_000,
        late_after_ns: None,
        keep_connections: false,
        settings: Default::default(),
        websocket: None,
        samples: false,
        protocol_check: true,
    };
    let access = Access { secret: "a-secret-of-this-test-and-no-other".into(), source_addresses: Vec::new() };
    Workload::FanoutBroadcast.run(&assignment, &access, &mut KnownClock(script.ahead)).unwrap()
}

fn paced() -> Load {
    Load::Open { rate_per_second: 500.0, arrivals: Default::default() }
}

fn flood() -> Load {
    Load::Closed { messages_per_connection: None, in_flight: 8 }
}

fn receivers(result: &WorkerResult) -> Vec<&ReceiverBook> {
    assert_eq!(result.books.len(), CONNECTIONS as usize);
    result.books.iter().map(|book| book.receiver.as_ref().unwrap()).collect()
}

#[test]
fn an_honest_publisher_misses_repeats_and_swaps_nothing() {
    let result = trial(Script { first: 1000, ..Script::default() }, paced());
    for book in receivers(&result) {
        assert_eq!((book.first, book.expected()), (Some(1000), book.received));
        assert_eq!((book.missing, book.duplicated, book.reordered, book.wrong), (0, 0, 0, 0));
        // server_ready, and a ping for every ten messages.
        assert_eq!(book.others, 1 + book.received.div_ceil(10), "{book:?}");
        assert!(book.reached && book.closed);
    }
    let counts = &result.messages;
    assert_eq!((result.witness, counts.due), (Witness::Receiver, counts.delivered));
    assert_eq!((counts.sent, counts.lost, counts.duplicates, counts.reorders), (0, 0, 0, 0));
    assert!(result.failures.window.is_empty());
    assert!(result.conformance.is_none(), "a check would be flooded");
    let window = &result.window;
    assert!(0 < window.replies && window.replies < counts.delivered, "{window:?}");
    assert!(window.reads > 0 && window.bytes_read >= 80 * window.replies);
}

#[test]
fn skipped_repeated_and_swapped_numbers_are_counted_separately() {
    let script = Script { skipped: &[20, 21, 50], repeated: &[30], swapped: &[40, 60], ..Script::default() };
    let result = trial(script, paced());
    for book in receivers(&result) {
        assert_eq!((book.first, book.missing, book.duplicated, book.reordered), (Some(0), 3, 1, 2));
        assert_eq!(book.expected(), book.received + 3);
    }
    let counts = &result.messages;
    let all = u64::from(CONNECTIONS);
    assert_eq!((counts.lost, counts.duplicates, counts.reorders), (3 * all, all, 2 * all));
    assert_eq!(counts.due, counts.delivered + counts.lost);
}

#[test]
fn a_known_delay_comes_back_as_that_delay() {
    a_delay_of_100_ms_is_measured(Duration::ZERO);
}

#[test]
fn a_known_delay_comes_back_from_a_publisher_whose_clock_is_an_hour_ahead() {
    a_delay_of_100_ms_is_measured(Duration::from_secs(3600));
}

fn a_delay_of_100_ms_is_measured(ahead: Duration) {
    let result = trial(Script { delay: Duration::from_millis(100), ahead, ..Script::default() }, paced());
    assert!(!result.histograms.contains_key("age_ns"));
    let latency = Recorder::decode(&result.histograms["response_ns"]).unwrap();
    assert!(latency.count() > 100);
    let p10_ms = latency.values().value_at_quantile(0.1) as f64 / 1e6;
    assert!((100.0..115.0).contains(&p10_ms), "{p10_ms} ms");
    assert!(latency.values().min() >= 99_000_000);
}

#[test]
fn a_flood_has_an_age_and_no_latency_and_many_messages_in_a_read() {
    let result = trial(Script { per_write: 50, skipped: &[77], ..Script::default() }, flood());
    assert!(!result.histograms.contains_key("response_ns"));
    let age = Recorder::decode(&result.histograms["age_ns"]).unwrap();
    assert!(age.count() > 0);
    let window = &result.window;
    assert!(window.replies > 10 * window.reads, "{window:?}");
    assert!(receivers(&result).iter().all(|book| book.missing == 1 && book.duplicated == 0 && book.reordered == 0));
}

#[test]
fn a_publisher_that_falls_silent_leaves_its_receivers_behind() {
    let result = trial(Script { last: Some(30), ..Script::default() }, paced());
    assert!(receivers(&result).iter().all(|book| book.last == Some(30) && !book.reached && book.closed));
    assert_eq!(result.failures.window[RECEIVER_BEHIND], u64::from(CONNECTIONS));
}
