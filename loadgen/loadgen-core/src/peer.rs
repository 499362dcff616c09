//! A blocking connection for protocol checks; every frame is returned as it was received.
//!
//! Nothing is counted and no frame is answered here. Each wait ends at a deadline that the caller gives.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Instant,
};

use rustls::{ClientConnection, StreamOwned};

use crate::{
    connect::{Upgrade, UpgradeRequest, check_upgrade, key},
    frame::{self, Opcode, Violation},
    tls::TlsClient,
};

/// Largest number of payload bytes in a finding.
const SHOWN_BYTES: usize = 100;

/// A connection of a protocol check.
#[derive(Debug)]
pub struct Peer {
    stream: Stream,
    input: Vec<u8>,
}

/// A TCP stream, encrypted or not.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

/// What a request offers beyond its headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// Subprotocols, one of which the service must choose; empty for none.
    pub subprotocols: &'a [String],
    /// How the connection is encrypted; absent if it isn't.
    pub tls: Option<&'a TlsClient>,
}

/// A frame as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// Whether the frame ends its message (FIN bit).
    pub last: bool,
    /// Opcode of the frame.
    pub opcode: Opcode,
    /// Payload of the frame.
    pub payload: Vec<u8>,
}

impl ReceivedFrame {
    /// The opcode and the beginning of the payload, as text for a finding.
    pub fn description(&self) -> String {
        let payload = &self.payload[..self.payload.len().min(SHOWN_BYTES)];
        format!("{:?} {:?}", self.opcode, String::from_utf8_lossy(payload))
    }
}

/// Why no connection was established.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The TCP connection failed, or a write or read on it.
    #[error("connecting to {target}: {source}")]
    Connect {
        /// Address of the service.
        target: SocketAddr,
        /// The kernel's error, as the socket returned it.
        source: io::Error,
    },
    /// The stream ended before the response to the upgrade.
    #[error("the stream ended before the upgrade was answered")]
    Ended,
    /// The service refused the upgrade; the reason is a key in results.
    #[error("the upgrade was not accepted: {0}")]
    Upgrade(String),
}

/// Why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// No frame came before the deadline.
    #[error("nothing arrived in time")]
    Nothing,
    /// The stream ended before a frame was complete.
    #[error("the stream ended")]
    Ended,
    /// The bytes are not a valid frame.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The read failed with the kernel's error.
    #[error(transparent)]
    Kernel(io::Error),
}

impl Peer {
    /// Connects to the service and upgrades the connection.
    ///
    /// # Errors
    /// A [`Refusal`] if the connection isn't upgraded before the deadline.
    pub fn connect(
        target: SocketAddr,
        upgrade: &UpgradeRequest,
        deadline: Instant,
        random: &mut u64,
    ) -> Result<Self, Refusal> {
        Self::connect_offering(target, upgrade, Offer::default(), deadline, random)
    }

    /// Connects as [`Self::connect`] does, with an offer.
    ///
    /// # Errors
    /// A [`Refusal`] if the connection isn't upgraded before the deadline.
    pub fn connect_offering(
        target: SocketAddr,
        upgrade: &UpgradeRequest,
        offer: Offer<'_>,
        deadline: Instant,
        random: &mut u64,
    ) -> Result<Self, Refusal> {
        let failed = |source| Refusal::Connect { target, source };
        let stream = left(deadline).and_then(|left| TcpStream::connect_timeout(&target, left)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let stream = match offer.tls {
            None => Stream::Plain(stream),
            Some(TlsClient { config, server_name }) => {
                let connection = ClientConnection::new(Arc::clone(config), server_name.clone())
                    .map_err(|error| failed(io::Error::other(error)))?;
                Stream::Tls(Box::new(StreamOwned::new(connection, stream)))
            }
        };
        let mut peer = Self { stream, input: Vec::new() };
        let key = key(random);
        peer.send(&upgrade.bytes(&key), deadline).map_err(failed)?;
        loop {
            match check_upgrade(&peer.input, &key, offer.subprotocols, None) {
                Upgrade::Incomplete if peer.read(deadline).map_err(failed)? == 0 => return Err(Refusal::Ended),
                Upgrade::Incomplete => {}
                Upgrade::Failed(reason) => return Err(Refusal::Upgrade(reason)),
                Upgrade::Done { length, .. } => {
                    peer.input.drain(..length);
                    return Ok(peer);
                }
            }
        }
    }

    /// Writes all of `bytes`, which are complete frames.
    ///
    /// # Errors
    /// The kernel's error, or [`ErrorKind::TimedOut`] if the deadline has passed.
    pub fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let left = Some(left(deadline)?);
        self.stream.socket().set_write_timeout(left)?;
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => {
                // The handshake reads, too.
                stream.sock.set_read_timeout(left)?;
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// A [`Silence`] if no frame comes before the deadline.
    pub fn frame(&mut self, deadline: Instant) -> Result<ReceivedFrame, Silence> {
        loop {
            if let Some(frame) = frame::parse(&self.input)? {
                let (length, payload) = (frame.length, frame.payload.to_vec());
                let taken = ReceivedFrame { last: frame.last, opcode: frame.opcode, payload };
                self.input.drain(..length);
                return Ok(taken);
            }
            match self.read(deadline) {
                Ok(0) => return Err(Silence::Ended),
                Ok(_) => {}
                Err(error) if is_timeout(&error) => return Err(Silence::Nothing),
                Err(error) => return Err(Silence::Kernel(error)),
            }
        }
    }

    /// Reads more bytes into `input`; returns 0 at the end of the stream.
    fn read(&mut self, deadline: Instant) -> io::Result<usize> {
        self.stream.socket().set_read_timeout(Some(left(deadline)?))?;
        let mut buffer = [0; 4096];
        let length = match &mut self.stream {
            Stream::Plain(stream) => stream.read(&mut buffer)?,
            Stream::Tls(stream) => stream.read(&mut buffer)?,
        };
        self.input.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

/// The time until the deadline. No time left is an error, because the kernel treats a time-out of 0 as none.
fn left(deadline: Instant) -> io::Result<std::time::Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Whether a read timed out. A socket's own time-out is `WouldBlock`.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}
