//! One blocking connection, for a check of a service's protocol: every frame is handed out as it came.
//!
//! Nothing is counted and nothing is answered here; each wait ends at a deadline that the caller gives.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use crate::{
    connect::{Upgrade, UpgradeRequest, check_upgrade, key},
    frame::{self, Opcode, Violation},
};

/// So much of a payload is shown in a finding.
const SHOWN_BYTES: usize = 100;

/// A connection that a check talks over.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
}

/// A frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Whether it ends its message.
    pub last: bool,
    /// What it is.
    pub opcode: Opcode,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Taken {
    /// Its kind and the beginning of what it says, for a finding.
    pub fn in_words(&self) -> String {
        let payload = &self.payload[..self.payload.len().min(SHOWN_BYTES)];
        format!("{:?} {:?}", self.opcode, String::from_utf8_lossy(payload))
    }
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel's answer, or its silence.
    #[error("connecting to {target}: {source}")]
    Connect {
        /// Where.
        target: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The stream ended first.
    #[error("the stream ended before the upgrade was answered")]
    Ended,
    /// The answer to the upgrade; its reason is a key in results.
    #[error("the upgrade was not accepted: {0}")]
    Upgrade(String),
}

/// Why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// The deadline passed.
    #[error("nothing came")]
    Nothing,
    /// The stream ended.
    #[error("the stream ended")]
    Ended,
    /// It was no frame.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The kernel's answer.
    #[error(transparent)]
    Kernel(io::Error),
}

impl Peer {
    /// Connects and upgrades.
    ///
    /// # Errors
    /// When that isn't done by the deadline.
    pub fn connect(
        target: SocketAddr,
        upgrade: &UpgradeRequest,
        deadline: Instant,
        random: &mut u64,
    ) -> Result<Self, Refusal> {
        let failed = |source| Refusal::Connect { target, source };
        let stream = left(deadline).and_then(|left| TcpStream::connect_timeout(&target, left)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut peer = Self { stream, input: Vec::new() };
        let key = key(random);
        peer.send(&upgrade.bytes(&key), deadline).map_err(failed)?;
        loop {
            match check_upgrade(&peer.input, &key) {
                Upgrade::Incomplete if peer.read(deadline).map_err(failed)? == 0 => return Err(Refusal::Ended),
                Upgrade::Incomplete => {}
                Upgrade::Failed(reason) => return Err(Refusal::Upgrade(reason)),
                Upgrade::Done(length) => {
                    peer.input.drain(..length);
                    return Ok(peer);
                }
            }
        }
    }

    /// Writes frames, all of them.
    ///
    /// # Errors
    /// The kernel's, or that the deadline passed.
    pub fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.stream.set_write_timeout(Some(left(deadline)?))?;
        self.stream.write_all(bytes)
    }

    /// The next frame.
    ///
    /// # Errors
    /// When none comes by the deadline.
    pub fn frame(&mut self, deadline: Instant) -> Result<Taken, Silence> {
        loop {
            if let Some(frame) = frame::parse(&self.input)? {
                let (length, payload) = (frame.length, frame.payload.to_vec());
                let taken = Taken { last: frame.last, opcode: frame.opcode, payload };
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

    /// Reads more; 0 at the end of the stream.
    fn read(&mut self, deadline: Instant) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(deadline)?))?;
        let mut buffer = [0; 4096];
        let length = self.stream.read(&mut buffer)?;
        self.input.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

/// The time that is left; none is an error, because the kernel takes it for "as long as it takes".
fn left(deadline: Instant) -> io::Result<std::time::Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A socket's own time-out is `WouldBlock`.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}
