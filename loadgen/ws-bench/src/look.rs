//! Looks at a running service before anything is measured: does it upgrade, what does it say by itself, which protocol
//! does it answer within a second, and how does it close.
//!
//! Each question has a connection of its own. All of them together send a handful of messages.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use bench_format::websocket::WireWebsocket;
use loadgen_core::{
    assembly::Assembly,
    clock::unix_ns,
    connect::UpgradeRequest,
    frame::{self, Opcode, append},
    outbox::Outbox,
    peer::{Offer, Peer, ReceivedFrame, Silence},
    tls::TlsClient,
    workload::{Admission, AnswerPart, Messages, Received, Workload},
};

use crate::{
    mistakes::Mistakes,
    protocol::{Use, Websocket},
    section::{Section, Trial},
    tls::TlsClients,
};

/// Longest wait for each answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Index of each connection: that of one that receives in a fan-out.
const INDEX: u32 = 1;
/// Size of a `{{payload}}` in the first message, in bytes.
const PAYLOAD_BYTES: usize = 64;
/// Messages of the service that are kept.
const MOST_MESSAGES: usize = 5;
/// Longest response to the upgrade that is read, in bytes.
const LONGEST_RESPONSE: usize = 16 << 10;

/// Where a service is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The resolved address and port.
    pub target: SocketAddr,
    /// The value of the `Host` header.
    pub host: String,
    /// Path and query of the upgrade request.
    pub path: String,
    /// The name that its certificate must have; absent without TLS.
    pub tls_name: Option<String>,
}

/// What a look at a service has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Why no connection is upgraded without a subprotocol; absent if it is.
    pub refusal: Option<String>,
    /// What the service accepts if `permessage-deflate` is offered; absent if it accepts no extension.
    pub extension: Option<String>,
    /// The first messages that it sends by itself, as text.
    pub greetings: Vec<String>,
    /// How it answers a Close frame with code 1000; absent if no connection was upgraded.
    pub closing: Option<Closing>,
    /// What came of each candidate, in the order in which they were given.
    pub spoken: Vec<Spoken>,
    /// Whether a connection subscribes to the fan-out of a candidate, in the same order; false for one without a fan-out.
    pub subscribes: Vec<bool>,
}

/// How a service answers a Close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// By a Close frame with this code; 1005 stands for none.
    Answered(u16),
    /// By the end of the stream.
    Ended,
    /// Not within a second.
    Silent,
}

/// What came of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// A message was answered.
    Answers,
    /// The connection opens, but the message wasn't answered within a second.
    Opens,
    /// The connection doesn't open; why.
    No(String),
}

/// Looks at a service; `candidates` are sections without services.
pub fn look(place: &Place, candidates: &[&WireWebsocket]) -> Look {
    thread::scope(|scope| {
        let plain = scope.spawn(|| greetings_and_closing(place));
        let extension = scope.spawn(|| extension(place));
        let look_at = |section| scope.spawn(move || (speak(place, section), subscribes(place, section)));
        let candidates: Vec<_> = candidates.iter().map(|section| look_at(*section)).collect();
        let failed = || (Spoken::No("its check failed".into()), false);
        let (spoken, subscribes) =
            candidates.into_iter().map(|thread| thread.join().unwrap_or_else(|_| failed())).unzip();
        let (refusal, greetings, closing) =
            plain.join().unwrap_or_else(|_| (Some("its check failed".into()), vec![], None));
        let extension = extension.join().unwrap_or_default();
        Look { refusal, extension, greetings, closing, spoken, subscribes }
    })
}

type Plain = (Option<String>, Vec<String>, Option<Closing>);

fn greetings_and_closing(place: &Place) -> Plain {
    let upgrade = UpgradeRequest::new(&place.host, &place.path, &[]);
    let mut random = unix_ns();
    let deadline = Instant::now() + PATIENCE;
    let tls = match tls_of(place) {
        Ok(tls) => tls,
        Err(reason) => return (Some(reason), vec![], None),
    };
    let offer = Offer { subprotocols: &[], tls: tls.as_ref() };
    let mut peer = match Peer::connect_offering(place.target, &upgrade, offer, deadline, &mut random) {
        Ok(peer) => peer,
        Err(refusal) => return (Some(refusal.to_string()), vec![], None),
    };
    let mut greetings = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while greetings.len() < MOST_MESSAGES
        && let Ok(frame) = peer.frame(deadline)
    {
        if frame.opcode == Opcode::Close {
            return (None, greetings, Some(Closing::Answered(code(&frame))));
        }
        greetings.push(frame.description());
    }
    (None, greetings, Some(close(&mut peer)))
}

/// The TLS client for a service that a preset would be used with, which says nothing about certificates.
fn tls_of(place: &Place) -> Result<Option<TlsClient>, String> {
    let Some(name) = &place.tls_name else { return Ok(None) };
    let mut mistakes = Mistakes::default();
    let clients = TlsClients::compile(None, [name.as_str()], &mut mistakes);
    clients
        .map(|clients| clients.of(0).cloned())
        .ok_or_else(|| mistakes.into_list().into_iter().map(|(_, message)| message).collect())
}

fn close(peer: &mut Peer) -> Closing {
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    append(&mut bytes, Opcode::Close, &1000_u16.to_be_bytes(), [1, 2, 3, 4]);
    if peer.send(&bytes, deadline).is_err() {
        return Closing::Ended;
    }
    loop {
        match peer.frame(deadline) {
            Ok(frame) if frame.opcode == Opcode::Close => return Closing::Answered(code(&frame)),
            Ok(_) => {}
            Err(Silence::Nothing) => return Closing::Silent,
            Err(_) => return Closing::Ended,
        }
    }
}

fn code(frame: &ReceivedFrame) -> u16 {
    frame.payload.first_chunk::<2>().map_or(1005, |code| u16::from_be_bytes(*code))
}

/// The extension that the service accepts of those that clients offer; not looked for behind TLS.
fn extension(place: &Place) -> Option<String> {
    if place.tls_name.is_some() {
        return None;
    }
    let offer = ("Sec-WebSocket-Extensions".to_owned(), "permessage-deflate; client_max_window_bits".to_owned());
    let upgrade = UpgradeRequest::new(&place.host, &place.path, &[offer]);
    let mut stream = TcpStream::connect_timeout(&place.target, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(&upgrade.bytes("dGhlIHNhbXBsZSBub25jZQ==")).ok()?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") && bytes.len() < LONGEST_RESPONSE {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let value = text.lines().take_while(|line| !line.is_empty()).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-extensions").then(|| value.trim().to_owned())
    })?;
    (!value.is_empty()).then_some(value)
}

/// Opens a connection as the section says, and sends its first message.
fn speak(place: &Place, section: &WireWebsocket) -> Spoken {
    let in_parts = section.reply.as_ref().is_some_and(|reply| reply.end.is_some());
    let purpose = match (section.messages.is_empty() || section.reply.is_none(), in_parts) {
        (true, _) => Use::Open,
        (false, true) => Use::Parts,
        (false, false) => Use::Replies,
    };
    converse(place, section, purpose)
}

/// Opens a connection that receives what others publish.
fn subscribes(place: &Place, section: &WireWebsocket) -> bool {
    section.fanout.is_some() && converse(place, section, Use::Fanout) == Spoken::Opens
}

fn converse(place: &Place, section: &WireWebsocket, purpose: Use) -> Spoken {
    let trial = Trial {
        path: (&place.path, "path"),
        tls_name: place.tls_name.as_deref(),
        more_targets: &[],
        printed_rows: None,
        seed: 1,
        worker: 0,
        payload_bytes: PAYLOAD_BYTES,
    };
    let protocol = match Section::compile(section, &trial) {
        Ok(compiled) => Websocket::new(compiled, purpose),
        Err(mistakes) => {
            let lines: Vec<_> = mistakes.iter().map(|(place, message)| format!("{place}: {message}")).collect();
            return Spoken::No(lines.join("; "));
        }
    };
    let request = protocol.request(&place.host, INDEX);
    let shared = protocol.shared_request(&place.host);
    let mut random = unix_ns();
    let deadline = Instant::now() + PATIENCE;
    let upgrade = request.as_ref().unwrap_or(&shared);
    let offer = Offer { subprotocols: protocol.subprotocols(), tls: protocol.tls(INDEX) };
    let connected = Peer::connect_offering(place.target, upgrade, offer, deadline, &mut random);
    match connected {
        Ok(peer) => Conversation { peer, protocol, state: Default::default(), outbox: Outbox::default() }.run(deadline),
        Err(refusal) => Spoken::No(refusal.to_string()),
    }
}

/// When the timer of an admission that was had at `since` ends, and its number; `None` without a timer.
fn timer_of(admission: &Admission, since: Instant) -> Option<(Instant, u32)> {
    match admission {
        Admission::Timed { timer, after } => Some((since + *after, *timer)),
        _ => None,
    }
}

/// One connection with the protocol that is tried on it.
struct Conversation {
    peer: Peer,
    protocol: Websocket,
    state: <Websocket as Workload>::Connection,
    outbox: Outbox,
}

impl Conversation {
    fn run(mut self, deadline: Instant) -> Spoken {
        let mut admission = self.protocol.begin(&mut self.state, INDEX, &mut self.outbox);
        let mut since = Instant::now();
        let mut assembly = Assembly::default();
        let mut is_sent = false;
        loop {
            if self.flush(deadline).is_none() {
                return Spoken::No("the stream ended".into());
            }
            match &admission {
                Admission::Refused(reason) => return Spoken::No(reason.clone()),
                Admission::Ready { .. } if !is_sent => {
                    is_sent = true;
                    if !self.protocol.expects_replies() || self.send_first(deadline).is_none() {
                        return Spoken::Opens;
                    }
                }
                _ => {}
            }
            let timer = timer_of(&admission, since).filter(|(ends, _)| *ends < deadline);
            let frame = match (self.peer.frame(timer.map_or(deadline, |(ends, _)| ends)), timer) {
                (Ok(frame), _) => frame,
                (Err(Silence::Nothing), Some((_, number))) => {
                    admission = self.protocol.elapsed(&mut self.state, number, &mut self.outbox);
                    since = Instant::now();
                    continue;
                }
                (Err(_), _) if is_sent => return Spoken::Opens,
                (Err(Silence::Nothing), _) => return Spoken::No("it doesn't open within a second".into()),
                (Err(silence), _) => return Spoken::No(silence.to_string()),
            };
            match frame.opcode {
                Opcode::Ping => self.outbox.send(Opcode::Pong, frame.payload.clone()),
                Opcode::Pong => {}
                Opcode::Close if is_sent => return Spoken::Opens,
                Opcode::Close => return Spoken::No(format!("it closes with {}", code(&frame))),
                opcode => {
                    let borrowed =
                        frame::Frame { last: frame.last, opcode, payload: &frame.payload, length: frame.payload.len() };
                    match assembly.take(&borrowed, frame::LARGEST_FRAME as usize) {
                        Ok(Some((opcode, payload))) if is_sent => {
                            if self.is_answer(opcode, &payload) {
                                return Spoken::Answers;
                            }
                        }
                        Ok(Some((opcode, payload))) => {
                            match self.protocol.admit(&mut self.state, opcode, &payload, &mut self.outbox) {
                                // The timer of the step still runs.
                                Admission::Waiting => {}
                                next => (admission, since) = (next, Instant::now()),
                            }
                        }
                        Ok(None) => {}
                        Err(violation) => return Spoken::No(violation.to_string()),
                    }
                }
            }
        }
    }

    fn is_answer(&mut self, opcode: Opcode, payload: &[u8]) -> bool {
        let mut received = Vec::new();
        self.protocol.receive(&mut self.state, opcode, payload, &mut self.outbox, &mut received);
        received.iter().any(|one| {
            matches!(one, Received::Reply { .. } | Received::Answer { part: AnswerPart::More | AnswerPart::Last, .. })
        })
    }

    fn send_first(&mut self, deadline: Instant) -> Option<()> {
        let mut messages = self.protocol.messages();
        let (opcode, payload) = messages.message(&self.state, self.protocol.first_sequence(), unix_ns() / 1000);
        let mut bytes = Vec::new();
        append(&mut bytes, opcode, payload, [5, 6, 7, 8]);
        for nth in 1..self.protocol.frames_per_message() {
            let sequence = self.protocol.first_sequence();
            let attachment = messages.attachment(&self.state, sequence, unix_ns() / 1000, usize::from(nth - 1));
            append(&mut bytes, Opcode::Binary, attachment, [5, 6, 7, 8]);
        }
        self.peer.send(&bytes, deadline).ok()
    }

    fn flush(&mut self, deadline: Instant) -> Option<()> {
        let mut bytes = Vec::new();
        for (opcode, payload) in self.outbox.take() {
            append(&mut bytes, opcode, &payload, [9, 8, 7, 6]);
        }
        if bytes.is_empty() { Some(()) } else { self.peer.send(&bytes, deadline).ok() }
    }
}
