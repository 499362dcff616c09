//! A gateway without inference, to measure the load generator's own limit.
//!
//! It computes the correct answer itself and sends it at once. Like an efficient gateway it reads each connection only
//! a few times a second.
//!
//! `cargo run --release -p stt-bench --example null_gateway -- 3000`, then stt-loadgen against
//! ws://127.0.0.1:3000/ws/stt.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use loadgen_core::connect::accept;
use stt_bench::expected::{Expected, WORDS};

const FLUSH: Duration = Duration::from_secs(1);
const VISIT: Duration = Duration::from_millis(250);
const TICK: Duration = Duration::from_millis(1);
const PASSES: u32 = 4;

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    upgraded: bool,
    started: bool,
    audio: Vec<u8>,
    frames: u64,
    flushed: u64,
    next_visit: Instant,
    next_flush: Option<Instant>,
}

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).map_or("3000".into(), |port| port);
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?);
    // Used only for correct answers: the audio of every session is a section of one stream.
    let mut expected = Expected::new(PASSES);
    let mut connections: Vec<Connection> = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            connections.push(Connection::new(stream));
        }
        let now = Instant::now();
        connections.retain_mut(|connection| connection.visit(now, &mut buffer, &mut expected).is_some());
        thread::sleep(TICK);
    }
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            upgraded: false,
            started: false,
            audio: Vec::new(),
            frames: 0,
            flushed: 0,
            next_visit: Instant::now(),
            next_flush: None,
        }
    }

    /// Reads and answers; `None` when the connection is over.
    fn visit(&mut self, now: Instant, buffer: &mut [u8], expected: &mut Expected) -> Option<()> {
        let flush = self.next_flush.is_some_and(|due| now >= due);
        if now < self.next_visit && !flush {
            return Some(());
        }
        self.next_visit = if self.started { now + VISIT } else { now };
        match self.stream.read(buffer) {
            Ok(0) => return None,
            Ok(length) => self.input.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        self.take(now)?;
        if flush {
            self.next_flush = self.next_flush.map(|due| due + FLUSH);
            self.flush(expected)?;
        }
        Some(())
    }

    fn take(&mut self, now: Instant) -> Option<()> {
        if !self.upgraded {
            let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else { return Some(()) };
            let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
            let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))?;
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {}\r\n\r\n",
                accept(key)
            );
            self.stream.write_all(answer.as_bytes()).ok()?;
            self.input.drain(..end + 4);
            self.upgraded = true;
        }
        let mut at = 0;
        while let Some(length) = self.frame(at, now)? {
            at += length;
        }
        self.input.drain(..at);
        Some(())
    }

    /// Handles the frame at an offset; returns its length, `Some(None)` while it is incomplete, `None` when the
    /// connection is over.
    fn frame(&mut self, at: usize, now: Instant) -> Option<Option<usize>> {
        let rest = &self.input[at..];
        let (header, length) = match rest {
            [_, second, ..] if second & 0x7F < 126 => (2, usize::from(second & 0x7F)),
            [_, _, high, low, ..] => (4, usize::from(u16::from_be_bytes([*high, *low]))),
            _ => return Some(None),
        };
        let Some(payload) = rest.get(header + 4..header + 4 + length) else { return Some(None) };
        let mask: [u8; 4] = rest[header..header + 4].try_into().expect("four bytes are an array of four");
        match rest[0] & 0x0F {
            1 => {
                self.started = true;
                self.next_flush = Some(now + FLUSH);
            }
            2 => {
                self.audio.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
                self.frames += 1;
            }
            8 => {
                let _ = self.stream.write_all(&[0x88, 0]);
                return None;
            }
            _ => {}
        }
        Some(Some(header + 4 + length))
    }

    fn flush(&mut self, expected: &mut Expected) -> Option<()> {
        let frames = self.frames - self.flushed;
        if frames == 0 {
            return Some(());
        }
        // The first sample determines where in the stream the batch begins.
        let first = i64::from(i16::from_le_bytes([self.audio[0], self.audio[1]])) + 10_000;
        // Inverts `phase * 17 % 20_000`; found by search.
        let phase = (0..20_000).find(|phase| phase * 17 % 20_000 == first)? as usize;
        let answer = expected.answer(phase, frames)?;
        let text = format!(
            "{{\"type\":\"partial\",\"oldest_frame_seq\":{},\"newest_frame_seq\":{},\"frames\":{frames},\"rms\":{},\
             \"zero_crossings\":{},\"checksum\":{},\"samples\":{},\"transcript\":\"{}\",\"audio_bytes\":{},\
             \"cpu_passes\":{PASSES},\"model_delay_ms\":0,\"flush_lateness_ms\":0.0,\"inflight_model_jobs\":0}}",
            self.flushed + 1,
            self.frames,
            answer.rms,
            answer.zero_crossings,
            answer.checksum,
            answer.samples,
            WORDS[answer.checksum as usize % 24],
            answer.audio_bytes,
        );
        let mut bytes = vec![0x81, 126];
        bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
        bytes.extend_from_slice(text.as_bytes());
        self.stream.write_all(&bytes).ok()?;
        (self.flushed, self.audio) = (self.frames, Vec::new());
        Some(())
    }
}
