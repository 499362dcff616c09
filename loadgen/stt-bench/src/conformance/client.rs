//! A WebSocket client that can break every rule of the protocol. A task reads all that the gateway sends, and records
//! each event with its time.

use std::{
    io,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use super::{
    finding::{Evidence, NotPassed, failed},
    frames::{self, Outgoing, opcode},
    text::excerpt,
};

/// Time limit for connecting and the upgrade.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time limit for one write, which the gateway can block by not reading.
const WRITE: Duration = Duration::from_secs(10);
/// Path of the gateway's WebSocket.
const PATH: &str = "/ws/stt";

/// Something that the gateway sent, or the end of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A complete text message.
    Text(String),
    /// A complete binary message, with its length in bytes. The contract gives a gateway no reason to send one.
    Binary(usize),
    /// A ping, whose payload is dropped and which is not answered.
    Ping,
    /// A pong, with its payload.
    Pong(Vec<u8>),
    /// A Close, with its code (if it has one) and its reason.
    Close(Option<u16>, String),
    /// The gateway ended the TCP connection in order (FIN).
    End,
    /// The TCP connection failed, for this reason; `reset` for ECONNRESET.
    Broken(String),
    /// The gateway sent something that RFC 6455 forbids; reading ends here.
    Violation(String),
}

impl Event {
    /// Description for the evidence of a case.
    pub fn description(&self) -> String {
        match self {
            Event::Text(text) => format!("the text {}", excerpt(text)),
            Event::Binary(bytes) => format!("a binary message of {bytes} bytes"),
            Event::Ping => "a ping".into(),
            Event::Pong(payload) => format!("a pong of {} bytes", payload.len()),
            Event::Close(Some(code), reason) => format!("Close {code} \"{reason}\""),
            Event::Close(None, _) => "Close without a code".into(),
            Event::End => "the end of the connection without Close".into(),
            Event::Broken(reason) => format!("a broken connection ({reason})"),
            Event::Violation(description) => description.clone(),
        }
    }
}

/// An event, with the time at which it was read.
#[derive(Clone, Debug)]
pub struct TimedEvent {
    /// Time at which the client read it.
    pub at: Instant,
    /// What the gateway sent, or how the connection ended.
    pub event: Event,
}

/// A client's connection to the gateway, after the upgrade.
pub struct Client {
    write: OwnedWriteHalf,
    events: mpsc::UnboundedReceiver<TimedEvent>,
    reader: JoinHandle<()>,
    /// What the reading task needs, until [`Client::start_reading`] starts it.
    unread: Option<(OwnedReadHalf, Vec<u8>, mpsc::UnboundedSender<TimedEvent>)>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Client {
    /// Connects, completes the upgrade and starts to read.
    ///
    /// # Errors
    /// Fails if the gateway does not upgrade the connection within 5 seconds.
    pub async fn open(address: &str) -> Result<Self, NotPassed> {
        let mut client = Self::open_unread(address, false).await?;
        client.start_reading();
        Ok(client)
    }

    /// Connects and completes the upgrade, but does not start to read. `tiny` keeps the socket buffers small on both
    /// sides: a small receive buffer, and a small segment size that limits the gateway's send buffer.
    ///
    /// # Errors
    /// Fails if the gateway does not upgrade the connection within 5 seconds.
    pub async fn open_unread(address: &str, tiny: bool) -> Result<Self, NotPassed> {
        let expectation = format!("{address}{PATH} upgrades to a WebSocket within {HANDSHAKE:?}");
        let opened = timeout(HANDSHAKE, upgrade(address, tiny)).await;
        let (stream, unread_bytes) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(reason)) => return Err(failed(expectation, reason)),
            Err(_) => return Err(failed(expectation, "nothing in time")),
        };
        let (read, write) = stream.into_split();
        let (sender, events) = mpsc::unbounded_channel();
        Ok(Self { write, events, reader: tokio::spawn(async {}), unread: Some((read, unread_bytes, sender)) })
    }

    /// Starts to read, unless reading has started already.
    pub fn start_reading(&mut self) {
        if let Some((read, unread_bytes, sender)) = self.unread.take() {
            self.reader = tokio::spawn(follow(read, unread_bytes, sender));
        }
    }

    /// Writes bytes to the TCP connection unchanged.
    ///
    /// # Errors
    /// Fails if the connection is broken, or if the write takes longer than 10 seconds.
    pub async fn raw(&mut self, bytes: &[u8]) -> Result<(), NotPassed> {
        let expectation = "the gateway takes what is sent";
        match timeout(WRITE, self.write.write_all(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(expectation, format!("writing failed: {error}"))),
            Err(_) => Err(failed(expectation, format!("it took nothing for {WRITE:?}"))),
        }
    }

    /// Sends a frame, valid or not.
    ///
    /// # Errors
    /// As [`Client::raw`].
    pub async fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), NotPassed> {
        let mut bytes = Vec::with_capacity(frame.payload.len() + 14);
        frame.write_to(&mut bytes);
        self.raw(&bytes).await
    }

    /// Sends an unfragmented text message.
    ///
    /// # Errors
    /// As [`Client::raw`].
    pub async fn text(&mut self, text: &str) -> Result<(), NotPassed> {
        self.send(&Outgoing::whole(opcode::TEXT, text.as_bytes())).await
    }

    /// Sends an unfragmented binary message.
    ///
    /// # Errors
    /// As [`Client::raw`].
    pub async fn binary(&mut self, payload: &[u8]) -> Result<(), NotPassed> {
        self.send(&Outgoing::whole(opcode::BINARY, payload)).await
    }

    /// Sends a Close with code 1000.
    ///
    /// # Errors
    /// As [`Client::raw`].
    pub async fn close(&mut self) -> Result<(), NotPassed> {
        self.send(&Outgoing::whole(opcode::CLOSE, &1000_u16.to_be_bytes())).await
    }

    /// Waits up to this time for the next event; none if no event comes or the connection has ended before.
    pub async fn next(&mut self, within: Duration) -> Option<TimedEvent> {
        timeout(within, self.events.recv()).await.ok().flatten()
    }

    /// Returns the next event that has been read already, without waiting.
    pub fn try_next(&mut self) -> Option<TimedEvent> {
        self.events.try_recv().ok()
    }

    /// Waits for the next event, which must be a Close with this code.
    ///
    /// # Errors
    /// Fails if it is another event, or if none comes within this time.
    pub async fn refused(&mut self, code: u16, within: Duration) -> Result<Evidence, NotPassed> {
        let expected = format!("the next frame is Close {code}, within {within:?}");
        match self.next(within).await {
            Some(TimedEvent { event: event @ Event::Close(Some(closed), _), .. }) if closed == code => {
                Ok(Evidence { expected, seen: event.description() })
            }
            Some(observed) => Err(failed(expected, observed.event.description())),
            None => Err(failed(expected, "nothing in time")),
        }
    }

    /// Sends a Close, and waits for the gateway's Close and the end of the connection. Texts, pings and pongs before it
    /// are skipped.
    ///
    /// # Errors
    /// Fails if the Close is not answered within `within`, if the connection stays open for two seconds after it, or if
    /// a binary message, a violation or a broken connection comes instead.
    pub async fn close_handshake(&mut self, within: Duration) -> Result<Evidence, NotPassed> {
        let expected = format!("Close is answered with Close within {within:?}, and the connection ends");
        let started = Instant::now();
        self.close().await?;
        let mut close_received = None;
        loop {
            let wait = if close_received.is_some() {
                Duration::from_secs(2)
            } else {
                within.saturating_sub(started.elapsed())
            };
            match self.next(wait).await.map(|received| (received.at, received.event)) {
                Some((at, Event::Close(..))) => close_received = Some(at.duration_since(started)),
                Some((_, Event::End)) => {
                    let Some(duration) = close_received else { return Err(failed(expected, Event::End.description())) };
                    return Ok(Evidence {
                        expected,
                        seen: format!("Close after {} ms, and the end", duration.as_millis()),
                    });
                }
                Some((_, event @ (Event::Broken(_) | Event::Violation(_) | Event::Binary(_)))) => {
                    return Err(failed(expected, event.description()));
                }
                Some((_, Event::Text(_) | Event::Ping | Event::Pong(_))) => {}
                None if close_received.is_some() => {
                    return Err(failed(expected, "Close, but the connection stayed open"));
                }
                None => return Err(failed(expected, "no Close in time")),
            }
        }
    }
}

/// Connects and sends the upgrade request. Returns the stream, and the bytes that came after the response's head.
async fn upgrade(address: &str, tiny: bool) -> Result<(TcpStream, Vec<u8>), String> {
    let mut stream = connect(address, tiny).await.map_err(|error| format!("connecting failed: {error}"))?;
    let request = format!(
        "GET {PATH} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(|error| format!("writing the upgrade failed: {error}"))?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let read = stream.read_buf(&mut bytes).await.map_err(|error| format!("reading failed: {error}"))?;
        if read == 0 {
            return Err("the connection ended during the upgrade".into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("101") {
        return Err(format!("the upgrade is answered with {status}"));
    }
    // The `Sec-WebSocket-Accept` for the sample key of RFC 6455, section 1.3.
    if !head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") {
        return Err(format!("the upgrade's Sec-WebSocket-Accept is wrong: {}", excerpt(&head)));
    }
    Ok((stream, bytes[end..].to_vec()))
}

async fn connect(address: &str, tiny: bool) -> io::Result<TcpStream> {
    let address = tokio::net::lookup_host(address).await?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if tiny {
        socket.set_recv_buffer_size(4096)?;
        // Small segments also keep the gateway's send buffer small: the kernel sizes it by them.
        small_segments(&socket)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn small_segments(socket: &TcpSocket) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_mss(536)
}

/// Reads frames and sends an event for each message and control frame, until the connection ends, a violation comes or
/// the client is dropped.
async fn follow(mut read: OwnedReadHalf, mut bytes: Vec<u8>, events: mpsc::UnboundedSender<TimedEvent>) {
    let mut message: Option<(u8, Vec<u8>)> = None;
    loop {
        loop {
            let event = match frames::take(&mut bytes) {
                Ok(Some(frame)) => complete(frame, &mut message),
                Ok(None) => break,
                Err(violation) => Some(Event::Violation(violation)),
            };
            let Some(event) = event else { continue };
            let over = matches!(event, Event::Violation(_));
            // A failed send means that the client was dropped.
            if events.send(TimedEvent { at: Instant::now(), event }).is_err() || over {
                return;
            }
        }
        let event = match read.read_buf(&mut bytes).await {
            Ok(0) => Event::End,
            Ok(_) => continue,
            Err(error) if error.raw_os_error() == Some(Errno::CONNRESET.raw_os_error()) => {
                Event::Broken("reset".into())
            }
            Err(error) => Event::Broken(error.to_string()),
        };
        let _ = events.send(TimedEvent { at: Instant::now(), event });
        return;
    }
}

/// Turns a frame into an event; none if its message has further frames. `message` holds the fragments so far.
fn complete(frame: frames::Incoming, message: &mut Option<(u8, Vec<u8>)>) -> Option<Event> {
    let payload = frame.payload;
    match frame.opcode {
        opcode::PING => return Some(Event::Ping),
        opcode::PONG => return Some(Event::Pong(payload)),
        opcode::CLOSE => {
            let code = payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
            return Some(Event::Close(
                code,
                String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned(),
            ));
        }
        opcode::CONTINUATION => match message {
            Some((_, so_far)) => so_far.extend(payload),
            None => return Some(Event::Violation("a continuation of nothing".into())),
        },
        opcode::TEXT | opcode::BINARY => *message = Some((frame.opcode, payload)),
        other => return Some(Event::Violation(format!("a frame with opcode {other}"))),
    }
    if !frame.last {
        return None;
    }
    let (opcode, payload) = message.take()?;
    Some(match opcode {
        opcode::TEXT => match String::from_utf8(payload) {
            Ok(text) => Event::Text(text),
            Err(_) => Event::Violation("text that is not UTF-8".into()),
        },
        _ => Event::Binary(payload.len()),
    })
}
