//! Services that try to make the worker grow without bound: it ends the connection with a reason and stays small.

mod frames;
mod service;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use bench_format::{plan::Load, result::WorkerResult};
use frames::frame;
use loadgen_core::{connect::accept, deflate::Deflater, trial::ImmediateGate};
use service::assignment;
use ws_bench::workloads::Workload;

const SECTION: &str = r"
messages: [{ text: 'm {{sequence}}' }]
reply: { by: sequence, value: { json: /id } }
respond: [{ when: { equals: ping }, send: { text: pong } }]
";
/// Bound of the memory that a hostile service may make the worker use, in KiB. A frame may have 16 MiB, of which a few
/// copies exist for a moment.
const MOST_KIB: u64 = 200 << 10;

/// Reads the upgrade request of one connection, and continues with `then`.
fn accept_one(then: impl FnOnce(TcpStream, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.ends_with(b"\r\n\r\n") {
            let length = socket.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..length]);
        }
        socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        then(socket, String::from_utf8(request).unwrap());
    });
    address
}

/// Serves one connection: upgrades it, accepting compression if it is offered, then sends what `attack` writes.
fn serve(attack: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    accept_one(move |mut socket, request| {
        let mut buffer = [0; 1024];
        let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
        let accept = accept(key);
        let offers = request.contains("\r\nSec-WebSocket-Extensions: permessage-deflate");
        let extensions = if offers { "Sec-WebSocket-Extensions: permessage-deflate\r\n" } else { "" };
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{extensions}\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        socket.write_all(response.as_bytes()).unwrap();
        // The load has begun when its first message arrives.
        socket.read_exact(&mut buffer[..1]).unwrap();
        attack(&mut socket);
        // The worker ends the connection; the rest of what it sent is read so that its Close isn't lost.
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        while socket.read(&mut buffer).is_ok_and(|length| length > 0) {}
    })
}

/// Writes as long as the worker reads.
fn write_while_read(socket: &mut TcpStream, bytes: &[u8], times: usize) {
    for _ in 0..times {
        if socket.write_all(bytes).is_err() {
            return;
        }
    }
}

fn attacked(section: &str, attack: impl FnOnce(&mut TcpStream) + Send + 'static) -> WorkerResult {
    let address = serve(attack);
    let mut assignment = assignment(&address, "request-reply", 1, section);
    assignment.load = Load::Closed { messages_per_connection: None, in_flight: 1 };
    (assignment.window_ns, assignment.drain_ns) = (3_000_000_000, 100_000_000);
    let result = Workload::RequestReply.run(&assignment, &mut ImmediateGate).unwrap();
    assert_is_small();
    result
}

fn assert_is_small() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < MOST_KIB, "the peak of resident memory was {peak_kib} KiB");
}

fn assert_ended(result: &WorkerResult, reason: &str) {
    assert_eq!(result.connections.closed_early.get(reason), Some(&1), "{:?}", result.connections);
}

#[test]
fn a_huge_frame_ends_the_connection() {
    let header = [0x81, 127, 0, 0, 0, 0x7F, 0, 0, 0, 0];
    assert_ended(&attacked(SECTION, move |socket| write_while_read(socket, &header, 1)), "protocol");
}

#[test]
fn endless_fragments_end_the_connection() {
    let result = attacked(SECTION, |socket| {
        write_while_read(socket, &frame(0x01, b"x"), 1);
        write_while_read(socket, &frame(0x00, &vec![b'x'; 60_000]), 10_000);
    });
    assert_ended(&result, "protocol");
}

#[test]
fn an_endless_message_of_a_stream_ends_the_connection() {
    for framing in ["nats", "record-separator"] {
        let section = format!("{SECTION}\nframing: {framing}");
        let result = attacked(&section, |socket| {
            write_while_read(socket, &frame(0x81, &vec![b'x'; 60_000]), 10_000);
        });
        assert_ended(&result, "framing_too_long");
    }
}

#[test]
fn more_messages_than_are_possible_end_the_connection() {
    let result = attacked(&format!("{SECTION}\nframing: lines"), |socket| {
        write_while_read(socket, &frame(0x81, "x\n".repeat(1 << 20).as_bytes()), 1);
    });
    assert_ended(&result, "framing_too_many");
}

#[test]
fn more_requests_for_responses_than_are_possible_end_the_connection() {
    let result = attacked(&format!("{SECTION}\nframing: lines"), |socket| {
        write_while_read(socket, &frame(0x81, "ping\n".repeat(2000).as_bytes()), 1);
    });
    assert_ended(&result, "too_many_responses");
}

#[test]
fn deep_json_is_a_wrong_reply() {
    let deep = format!(r#"{{"a":{}1{},"id":0}}"#, "[".repeat(100), "]".repeat(100));
    let result = attacked(SECTION, move |socket| {
        write_while_read(socket, &frame(0x81, deep.as_bytes()), 1);
        write_while_read(socket, &frame(0x81, "[".repeat(1 << 20).as_bytes()), 3);
    });
    // It arrives before or after the first message is sent.
    assert!(
        result.messages.wrong + result.messages.duplicates + result.messages.delivered >= 3,
        "{:?}",
        result.messages
    );
}

#[test]
fn pings_and_requests_whose_answers_are_not_read_end_the_connection() {
    let ping = frame(0x89, &[b'x'; 125]).repeat(500);
    let result = attacked(SECTION, move |socket| write_while_read(socket, &ping, 10_000));
    assert_ended(&result, "pongs_unread");
    let section = SECTION.replace("text: pong", &format!("text: '{}'", "y".repeat(2000)));
    let request = frame(0x81, b"ping").repeat(500);
    let result = attacked(&section, move |socket| write_while_read(socket, &request, 10_000));
    assert_ended(&result, "responses_unread");
}

/// A frame with a message of so many zeros, compressed.
fn bomb(length: usize) -> Vec<u8> {
    let mut compressed = Vec::new();
    Deflater::new(15).deflate(&vec![0; length], &mut compressed);
    frame(0xC1, &compressed)
}

#[test]
fn a_compressed_bomb_ends_the_connection() {
    let section = format!("{SECTION}\nconnect: {{ deflate: {{ compress_sent: false }} }}");
    let bomb_of_a_gibibyte = {
        let mut compressed = Vec::new();
        let mut deflater = Deflater::new(15);
        for _ in 0..64 {
            let mut part = Vec::new();
            deflater.deflate(&vec![0; 16 << 20], &mut part);
            compressed.extend(part);
            // What ends each part of a stream, and is left out at the end of a message.
            compressed.extend([0, 0, 0xFF, 0xFF]);
        }
        frame(0xC1, &compressed)
    };
    assert!(bomb_of_a_gibibyte.len() < 2 << 20, "{}", bomb_of_a_gibibyte.len());
    let result = attacked(&section, move |socket| write_while_read(socket, &bomb_of_a_gibibyte, 1));
    assert_ended(&result, "deflate_too_long");
}

#[test]
fn bombs_within_the_bound_are_wrong_replies_and_take_no_more_memory_together_than_one() {
    let section = format!("{SECTION}\nconnect: {{ deflate: {{ compress_sent: true }} }}");
    let bomb = bomb(15 << 20);
    let result = attacked(&section, move |socket| write_while_read(socket, &bomb, 8));
    assert!(result.messages.wrong + result.messages.duplicates >= 8, "{:?}", result.messages);
    assert!(!result.connections.closed_early.contains_key("deflate_too_long"), "{:?}", result.connections);
}

#[test]
fn a_compressed_message_that_is_none_ends_the_connection() {
    let section = format!("{SECTION}\nconnect: {{ deflate: {{ compress_sent: false }} }}");
    // A block of the type that is reserved (RFC 1951, section 3.2.3).
    let result = attacked(&section, |socket| write_while_read(socket, &frame(0xC1, &[0x07, 0xFF]), 1));
    assert_ended(&result, "deflate_malformed");
    let result = attacked(&section, |socket| write_while_read(socket, &frame(0xE1, b"x"), 1));
    assert_ended(&result, "protocol");
    let result = attacked(&section, |socket| {
        write_while_read(socket, &frame(0x41, b"x"), 1);
        write_while_read(socket, &frame(0x00, &vec![b'x'; 60_000]), 10_000);
    });
    assert_ended(&result, "protocol");
}

#[test]
fn a_handshake_that_does_not_end_is_a_failed_attempt() {
    let address = accept_one(|mut socket, _| {
        // A header that is never complete, as slowly as the window is short.
        for byte in b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n".iter().cycle() {
            if socket.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut storm = assignment(&address, "connection-storm", 1, SECTION);
    storm.window_ns = 500_000_000;
    let result = Workload::ConnectionStorm.run(&storm, &mut ImmediateGate).unwrap();
    assert_eq!((result.connections.open, result.connections.failed["window_over"]), (0, 1));
}

#[test]
fn an_endless_response_to_the_upgrade_is_a_failed_attempt() {
    let address = accept_one(|mut socket, _| {
        write_while_read(&mut socket, b"HTTP/1.1 101 Switching Protocols\r\n", 1);
        write_while_read(&mut socket, b"X-Filler: x\r\n", 1 << 20);
    });
    let assignment = assignment(&address, "request-reply", 1, SECTION);
    let error = Workload::RequestReply.run(&assignment, &mut ImmediateGate).unwrap_err().to_string();
    // The header has more lines or more bytes than are read.
    let reasons = ["1 x upgrade_too_long", "1 x upgrade_malformed"];
    assert!(reasons.iter().any(|reason| error.ends_with(reason)), "{error}");
    assert_is_small();
}
