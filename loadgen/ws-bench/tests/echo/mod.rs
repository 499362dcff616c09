//! An echo with `permessage-deflate`, on blocking sockets: it says exactly the response that a test gives it.

// As in `service`.
#![allow(unreachable_pub)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use loadgen_core::{
    connect::accept,
    deflate::{Deflater, Inflater},
};

use crate::frames::frame;

/// How messages are sent back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Splitting {
    /// Each in a frame of its own.
    Whole,
    /// In three frames, with a ping before each further one.
    Fragments,
    /// Compressed, whether it was agreed on or not.
    Unasked,
}

/// What the service received.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub offers: Vec<String>,
    pub compressed: u64,
    pub plain: u64,
}

pub struct Echo {
    pub address: String,
    seen: Arc<Mutex<Seen>>,
}

impl Echo {
    /// Starts an echo; `response` is the value of its `Sec-WebSocket-Extensions`.
    pub fn start(response: Option<&'static str>, splitting: Splitting) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (seen, socket) = (Arc::clone(&shared), socket.unwrap());
                thread::spawn(move || Connection::serve(socket, response, splitting, &seen));
            }
        });
        Self { address, seen }
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

struct Connection {
    socket: TcpStream,
    /// Compresses what is sent back; absent if nothing is compressed.
    deflater: Option<Deflater>,
    inflater: Inflater,
    client_forgets: bool,
    server_forgets: bool,
}

impl Connection {
    fn serve(mut socket: TcpStream, response: Option<&str>, splitting: Splitting, seen: &Mutex<Seen>) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(byte(&mut socket).unwrap());
        }
        let request = String::from_utf8(request).unwrap();
        let header = |name: &str| request.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        seen.lock().unwrap().offers.extend(header("Sec-WebSocket-Extensions: "));
        let accept = accept(&header("Sec-WebSocket-Key: ").unwrap());
        let extensions = response.map(|value| format!("Sec-WebSocket-Extensions: {value}\r\n")).unwrap_or_default();
        let upgrade = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{extensions}\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        socket.write_all(upgrade.as_bytes()).unwrap();
        let offer = header("Sec-WebSocket-Extensions: ").unwrap_or_default();
        let has = |name: &str| response.is_some_and(|response| response.contains(name));
        let compresses = response.is_some() || splitting == Splitting::Unasked;
        let window = response.and_then(|response| response.split_once("server_max_window_bits="));
        let window = window.map_or(15, |(_, bits)| bits[..2].trim_end_matches(';').parse().unwrap());
        let mut connection = Self {
            socket,
            deflater: compresses.then(|| Deflater::new(window)),
            inflater: Inflater::default(),
            client_forgets: has("client_no_context_takeover") || offer.contains("client_no_context_takeover"),
            server_forgets: has("server_no_context_takeover"),
        };
        while connection.echo(splitting, seen).is_some() {}
    }

    /// Answers a message; `None` at the end.
    fn echo(&mut self, splitting: Splitting, seen: &Mutex<Seen>) -> Option<()> {
        let (first, payload) = self.receive()?;
        match first & 0x0F {
            8 => {
                self.send(0x88, &payload);
                return None;
            }
            9 | 10 => return Some(()),
            _ => {}
        }
        let message = if first & 0x40 == 0 {
            seen.lock().unwrap().plain += 1;
            payload
        } else {
            seen.lock().unwrap().compressed += 1;
            if self.client_forgets {
                // What the client compressed must not refer to earlier messages.
                self.inflater = Inflater::default();
            }
            let mut message = Vec::new();
            self.inflater.inflate(&payload, &mut message, 1 << 20).unwrap();
            message
        };
        let Some(deflater) = &mut self.deflater else {
            self.send(0x81, &message);
            return Some(());
        };
        if self.server_forgets {
            deflater.reset();
        }
        let mut compressed = Vec::new();
        deflater.deflate(&message, &mut compressed);
        if splitting == Splitting::Fragments {
            let (head, rest) = compressed.split_at(1);
            let (middle, tail) = rest.split_at(rest.len() / 2);
            self.send(0x41, head);
            self.send(0x89, b"are you there");
            self.send(0x00, middle);
            self.send(0x89, b"are you there");
            self.send(0x80, tail);
        } else {
            self.send(0xC1, &compressed);
        }
        Some(())
    }

    /// First byte and payload of the client's next frame.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = byte(&mut self.socket)?;
        let length = match byte(&mut self.socket)? & 0x7F {
            126 => u64::from(u16::from_be_bytes(self.bytes()?)),
            127 => u64::from_be_bytes(self.bytes()?),
            short => u64::from(short),
        };
        let mask: [u8; 4] = self.bytes()?;
        let mut payload = vec![0; length as usize];
        self.socket.read_exact(&mut payload).ok()?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        Some((first, payload))
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    fn send(&mut self, first: u8, payload: &[u8]) {
        // A client that has gone is noticed by the next read.
        let _ = self.socket.write_all(&frame(first, payload));
    }
}

fn byte(socket: &mut TcpStream) -> Option<u8> {
    let mut byte = [0];
    socket.read_exact(&mut byte).ok()?;
    Some(byte[0])
}
