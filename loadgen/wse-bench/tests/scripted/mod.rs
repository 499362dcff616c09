//! A WSE service of raw frames that keeps the protocol except for one fault.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use loadgen_core::connect::accept;
use serde_json::{Value, json};

pub(crate) const SECRET: &str = "a-secret-of-this-test-and-no-other";
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The way in which the scripted service breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    AcceptsAnotherKey,
    GreetsFirst,
    ReadyInBinary,
    ReadyWithoutId,
    DeafToPings,
    PongsInBinary,
    PongsWithoutLatency,
    ChangesPongs,
    IgnoresFragments,
    TakesEveryToken,
    RefusesByHttp,
    RefusesWithAnotherCode,
    ClosesWithAnotherCode,
    EndsWithoutClose,
}

pub(crate) struct Scripted {
    pub(crate) address: String,
}

impl Scripted {
    pub(crate) fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // Ends with the test's process; it holds only a port.
        thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that closes its connection ends only its own.
                let _ = Connection { stream: stream.unwrap(), fault }.serve();
            }
        });
        Self { address }
    }
}

struct Connection {
    stream: TcpStream,
    fault: Fault,
}

impl Connection {
    fn serve(mut self) -> io::Result<()> {
        let head = self.head()?;
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let has_valid_token = is_signed(header("Cookie:").strip_prefix("access_token=").unwrap_or_default());
        let admitted = has_valid_token || self.fault == Fault::TakesEveryToken;
        if !admitted && self.fault == Fault::RefusesByHttp {
            return self.stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        }
        let key = if self.fault == Fault::AcceptsAnotherKey { "another" } else { header("Sec-WebSocket-Key:") };
        let reply = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            accept(key)
        );
        self.stream.write_all(reply.as_bytes())?;
        if admitted { self.serve_session() } else { self.refuse() }
    }

    fn head(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        Ok(String::from_utf8(head).unwrap())
    }

    fn refuse(&mut self) -> io::Result<()> {
        let error = json!({"c": "WSE", "t": "error", "p": {"code": "AUTH_FAILED", "message": "m"}, "v": 1});
        self.send(TEXT, error.to_string().as_bytes())?;
        let code: u16 = if self.fault == Fault::RefusesWithAnotherCode { 1008 } else { 4401 };
        self.send(CLOSE, &code.to_be_bytes())
    }

    fn serve_session(&mut self) -> io::Result<()> {
        self.send_first_messages()?;
        let mut message = Vec::new();
        loop {
            let (last, opcode, payload) = self.frame()?;
            match opcode {
                PING if self.fault == Fault::ChangesPongs => self.send(PONG, b"no")?,
                PING => self.send(PONG, &payload)?,
                CLOSE => return self.close(&payload),
                _ if !last && self.fault == Fault::IgnoresFragments => {}
                0 if self.fault == Fault::IgnoresFragments => {}
                _ => {
                    message.extend(payload);
                    if last {
                        self.reply(&std::mem::take(&mut message))?;
                    }
                }
            }
        }
    }

    fn send_first_messages(&mut self) -> io::Result<()> {
        if self.fault == Fault::GreetsFirst {
            self.send(TEXT, br#"{"c":"WSE","t":"server_hello","p":{},"v":1}"#)?;
        }
        let id = if self.fault == Fault::ReadyWithoutId { "" } else { "the-id" };
        let ready = json!({"c": "WSE", "t": "server_ready", "p": {"details": {"connection_id": id}}, "v": 1});
        let opcode = if self.fault == Fault::ReadyInBinary { BINARY } else { TEXT };
        self.send(opcode, ready.to_string().as_bytes())
    }

    fn reply(&mut self, message: &[u8]) -> io::Result<()> {
        let message: Value = serde_json::from_slice(message).unwrap();
        assert_eq!(message["t"], "ping");
        let sent = message["p"]["timestamp"].as_u64().unwrap();
        let mut pong = json!({"c": "WSE", "t": "PONG", "v": 1});
        pong["p"] = json!({"client_timestamp": sent, "server_timestamp": sent + 3, "latency": 3});
        // Only one of the two pings has the fault, so that it is found once.
        let is_odd = sent % 2 == 1;
        let mut opcode = TEXT;
        match self.fault {
            Fault::DeafToPings => return Ok(()),
            Fault::PongsInBinary if is_odd => opcode = BINARY,
            Fault::PongsWithoutLatency if is_odd => {
                // Answered twice: first by a PONG without latency.
                let mut without = pong.clone();
                without["p"].as_object_mut().unwrap().remove("latency");
                self.send(TEXT, without.to_string().as_bytes())?;
            }
            _ => {}
        }
        self.send(opcode, pong.to_string().as_bytes())
    }

    fn close(&mut self, payload: &[u8]) -> io::Result<()> {
        match self.fault {
            Fault::EndsWithoutClose => Ok(()),
            Fault::ClosesWithAnotherCode => self.send(CLOSE, &1001_u16.to_be_bytes()),
            _ => self.send(CLOSE, payload),
        }
    }

    fn send(&mut self, opcode: u8, payload: &[u8]) -> io::Result<()> {
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            short @ 0..=125 => frame.push(short as u8),
            long => {
                frame.push(126);
                frame.extend((long as u16).to_be_bytes());
            }
        }
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    /// The client's next frame: whether it is the last of its message, opcode, payload.
    fn frame(&mut self) -> io::Result<(bool, u8, Vec<u8>)> {
        let mut head = [0; 6];
        self.stream.read_exact(&mut head)?;
        let [first, length, mask @ ..] = head;
        assert!((0x80..=0x80 + 125).contains(&length), "a short masked frame, not {length:#x}");
        let mut payload = vec![0; usize::from(length & 0x7F)];
        self.stream.read_exact(&mut payload)?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, key)| *byte ^= key);
        Ok((first & 0x80 != 0, first & 0x0F, payload))
    }
}

fn is_signed(token: &str) -> bool {
    let mut validation = jsonwebtoken::Validation::default();
    validation.set_audience(&["wse-bench"]);
    jsonwebtoken::decode::<Value>(token, &jsonwebtoken::DecodingKey::from_secret(SECRET.as_bytes()), &validation)
        .is_ok()
}
