//! A WebSocket client that writes and reads single frames, valid or invalid ones.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::Value;

use super::PATIENCE;

/// Opcode of a text frame (RFC 6455 5.2).
pub(crate) const TEXT: u8 = 1;
/// Opcode of a binary frame.
pub(crate) const BINARY: u8 = 2;
/// Opcode of a Close frame.
pub(crate) const CLOSE: u8 = 8;
/// Opcode of a ping frame.
pub(crate) const PING: u8 = 9;
/// Opcode of a pong frame.
pub(crate) const PONG: u8 = 10;

/// One upgraded connection to the gateway.
pub(crate) struct Client {
    /// The socket, after the handshake.
    pub(crate) socket: TcpStream,
}

/// A partial or an error message, which covers a range of frames.
#[derive(Debug)]
pub(crate) struct Cover {
    /// Sequence number of the first frame that it covers.
    pub(crate) oldest: u64,
    /// Sequence number of the last frame that it covers.
    pub(crate) newest: u64,
    /// The field `kind` of an error; `None` for a partial.
    pub(crate) kind: Option<String>,
    /// The whole message, parsed.
    pub(crate) message: Value,
}

impl Client {
    /// Performs the WebSocket handshake on `socket`.
    pub(crate) fn upgrade(mut socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
            .write_all(
                b"GET /ws/stt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        Self { socket }
    }

    /// Writes bytes to the socket without framing.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends a complete message as one masked frame.
    pub(crate) fn send(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            length @ ..=125 => frame.push(0x80 | length as u8),
            length @ ..=0xffff => {
                frame.push(0xfe);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0xff);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.raw(&frame);
    }

    /// Sends `count` audio frames of silence.
    pub(crate) fn frames(&mut self, count: usize) {
        (0..count).for_each(|_| self.send(BINARY, &[0; 640]));
    }

    /// The next frame: opcode and payload.
    pub(crate) fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.socket.read_exact(&mut head).expect("a frame");
        assert_eq!(head[0] & 0xf0, 0x80, "a whole frame without reserved bits");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.socket.read_exact(&mut length).unwrap();
                u16::from_be_bytes(length).into()
            }
            length @ ..=125 => usize::from(length),
            other => panic!("a server's frame with length byte {other}"),
        };
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload).unwrap();
        (head[0] & 0x0f, payload)
    }

    /// Receives the next partial or error; pongs before it are skipped.
    pub(crate) fn cover(&mut self) -> Cover {
        let (opcode, payload) = std::iter::repeat_with(|| self.receive()).find(|(opcode, _)| *opcode != PONG).unwrap();
        assert_eq!(opcode, TEXT, "{payload:?}");
        let message: Value = serde_json::from_slice(&payload).unwrap();
        let number = |key: &str| message[key].as_u64().unwrap();
        let (oldest, newest) = (number("oldest_frame_seq"), number("newest_frame_seq"));
        assert_eq!(number("frames"), newest - oldest + 1);
        assert_eq!(number("audio_bytes"), 640 * (newest - oldest + 1));
        let kind = (message["type"] == "error").then(|| message["kind"].as_str().unwrap().to_owned());
        Cover { oldest, newest, kind, message }
    }

    /// Receives partials and errors until frame `last` is covered. Checks that they cover each frame once, in order.
    pub(crate) fn covers(&mut self, last: u64) -> Vec<Cover> {
        let mut covers: Vec<Cover> = vec![];
        while covers.last().is_none_or(|cover| cover.newest < last) {
            let cover = self.cover();
            assert_eq!(cover.oldest, covers.last().map_or(1, |cover| cover.newest + 1), "{cover:?} after {covers:?}");
            covers.push(cover);
        }
        covers
    }

    /// Receives the Close frame that must come next, and then the end of the stream. Returns code and reason.
    pub(crate) fn closed(&mut self) -> (u16, String) {
        let (opcode, payload) = self.receive();
        assert_eq!(opcode, CLOSE, "{}", String::from_utf8_lossy(&payload));
        assert_eq!(self.socket.read(&mut [0]).expect("no reset"), 0, "nothing behind a close frame");
        (u16::from_be_bytes([payload[0], payload[1]]), String::from_utf8(payload[2..].to_vec()).unwrap())
    }
}
