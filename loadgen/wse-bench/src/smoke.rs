//! A check of the service's protocol before and after a load, on connections of its own.
//!
//! Two connections, one after the other, blocking, each for at most a second. Their messages are in the worker's books
//! as messages without a number; nothing else of them is counted. What is checked comes from `docs/PROTOCOL.md`, "WSE".

mod replies;

use std::time::{Duration, Instant};

use bench_format::result::{Conformance, WorkerBook, WorkerResult};
use loadgen_core::{
    clock::unix_ns,
    connect::resolve,
    frame::{self, Opcode},
    peer::{Peer, ReceivedFrame, Silence},
    workload::{Admission, Workload},
};

use self::replies::{PingReplies, close_code, refusal};
use crate::protocol::{Use, Wse};

/// Longest duration of one connection with all of its messages.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Close code 1000, normal closure (RFC 6455, section 7.4.1).
const NORMAL: u16 = 1000;
/// Close code for a client with an invalid token.
const UNAUTHORIZED: u16 = 4401;
/// Payload of the WebSocket Ping.
const PING: &[u8] = b"are you there?";
/// Messages that a check sends: a ping in one frame and one in three.
const MESSAGES: u64 = 2;

/// The outcome of a check.
#[derive(Debug, Default)]
pub struct Smoke {
    /// What was wrong; empty when nothing was.
    pub findings: Vec<String>,
    /// Books of the connections that the service accepted: one, or both when it accepts an invalid token.
    pub books: Vec<WorkerBook>,
}

/// Checks the protocol of the service at this address on connections of the check's own.
///
/// # Errors
/// When the address can't be resolved, or no token can be signed. What the service does wrong is a finding.
pub fn check(address: &str, secret: &str) -> anyhow::Result<Smoke> {
    let target = resolve(address)?;
    let mut random = unix_ns();
    let mut smoke = Smoke::default();
    let mut connect = |wse: &Wse, deadline| {
        let upgrade = wse.shared_request(address);
        Peer::connect(target, &upgrade, deadline, &mut random).map_err(|refusal| refusal.to_string())
    };
    let wse = Wse::new(secret, Use::Ping)?;
    let deadline = Instant::now() + TIMEOUT;
    match connect(&wse, deadline) {
        Ok(peer) => smoke.check_session(&wse, peer, deadline),
        Err(finding) => smoke.findings.push(finding),
    }
    let deadline = Instant::now() + TIMEOUT;
    let forged = Wse::forged(Use::Ping)?;
    if let Err(description) = connect(&forged, deadline).and_then(|peer| smoke.check_refusal(&forged, peer, deadline)) {
        smoke.findings.push(format!("with a token of another secret: {description}"));
    }
    Ok(smoke)
}

/// Adds the checks before and after the load to a worker's result.
pub fn add_findings(result: &mut WorkerResult, before: Smoke, after: Smoke) {
    let opened = (before.books.len() + after.books.len()) as u64;
    result.books.extend(before.books.into_iter().chain(after.books));
    let (before, after) = (before.findings, after.findings);
    result.conformance = Some(Conformance { before, after, opened, ..Conformance::default() });
}

impl Smoke {
    /// Checks all that a client with a valid token may expect.
    fn check_session(&mut self, wse: &Wse, mut peer: Peer, deadline: Instant) {
        match ready(wse, &mut peer, deadline) {
            Ok(id) => self.add_book(id),
            // Without an id the service's book of this connection can't be found.
            Err(finding) => return self.findings.push(finding),
        }
        let answered_in_time = self.check_pings(&mut peer, deadline);
        // After a timeout no time is left for the close handshake.
        let closed = answered_in_time.and_then(|answered| if answered { close(&mut peer, deadline) } else { Ok(()) });
        self.findings.extend(closed.err());
    }

    /// Sends two pings of the protocol, one of them in fragments, and a WebSocket Ping between them. Returns whether
    /// all were answered in time.
    fn check_pings(&mut self, peer: &mut Peer, deadline: Instant) -> Result<bool, String> {
        let unfragmented = unix_ns() / 1_000_000;
        let fragmented = unfragmented + 1;
        let mut bytes = Vec::new();
        frame::append(&mut bytes, Opcode::Text, ping(unfragmented).as_bytes(), *b"mask");
        frame::append(&mut bytes, Opcode::Ping, PING, *b"Mask");
        let text = ping(fragmented).into_bytes();
        let (head, tail) = text.split_at(text.len() / 3);
        let (middle, tail) = tail.split_at(tail.len() / 2);
        frame::append_fragments(&mut bytes, &[head, middle, tail], *b"MASK");
        peer.send(&bytes, deadline).map_err(|error| format!("sending two pings: {error}"))?;
        if let Some(book) = self.books.last_mut() {
            book.unnumbered = MESSAGES;
        }
        let mut replies = PingReplies::to([unfragmented, fragmented], PING);
        let ended = loop {
            if replies.are_complete() {
                break Ok(true);
            }
            match peer.frame(deadline) {
                Ok(ReceivedFrame { opcode: Opcode::Close, payload, .. }) => {
                    break Err(format!("the service closed with {:?} in the middle", close_code(&payload)));
                }
                Ok(frame) => replies.take(&frame),
                Err(Silence::Nothing) => break Ok(false),
                Err(silence) => break Err(format!("waiting for the replies to two pings: {silence}")),
            }
        };
        self.findings.extend(replies.findings());
        ended
    }

    /// Checks that an invalid token is refused after the upgrade: an error message, then Close.
    fn check_refusal(&mut self, wse: &Wse, mut peer: Peer, deadline: Instant) -> Result<(), String> {
        let mut next = || peer.frame(deadline).map_err(|silence| format!("waiting to be refused: {silence}"));
        let first = next()?;
        if let Admission::Ready { connection_id } = wse.admission(first.opcode, &first.payload) {
            // The service has a book for this connection, so it must not differ from ours.
            self.add_book(connection_id);
        }
        refusal(&first)?;
        match next()? {
            ReceivedFrame { opcode: Opcode::Close, payload, .. } if close_code(&payload) == Some(UNAUTHORIZED) => {
                Ok(())
            }
            frame => Err(format!("expected Close {UNAUTHORIZED}, received {}", frame.description())),
        }
    }

    fn add_book(&mut self, id: String) {
        self.books.push(WorkerBook { id, ..WorkerBook::default() });
    }
}

/// A ping with a timestamp in milliseconds.
fn ping(timestamp: u64) -> String {
    format!(r#"{{"p":{{"timestamp":{timestamp}}},"t":"ping"}}"#)
}

/// Reads the first frame, which must be `server_ready`, and returns the connection's id.
fn ready(wse: &Wse, peer: &mut Peer, deadline: Instant) -> Result<String, String> {
    let first = peer.frame(deadline).map_err(|silence| format!("waiting for server_ready: {silence}"))?;
    match (wse.admission(first.opcode, &first.payload), first.last) {
        (Admission::Ready { connection_id }, true) if !connection_id.is_empty() => Ok(connection_id),
        (Admission::Ready { .. }, true) => Err("server_ready names no connection_id".into()),
        _ => Err(format!("the first frame is not server_ready: {}", first.description())),
    }
}

/// Performs the close handshake; the service must reply with the same code.
fn close(peer: &mut Peer, deadline: Instant) -> Result<(), String> {
    let mut close = Vec::new();
    frame::append(&mut close, Opcode::Close, &NORMAL.to_be_bytes(), *b"Mask");
    peer.send(&close, deadline).map_err(|error| format!("sending Close: {error}"))?;
    loop {
        match peer.frame(deadline) {
            Ok(ReceivedFrame { opcode: Opcode::Close, payload, .. }) if close_code(&payload) == Some(NORMAL) => {
                return Ok(());
            }
            Ok(ReceivedFrame { opcode: Opcode::Close, payload, .. }) => {
                return Err(format!("Close {NORMAL} was answered by Close {:?}", close_code(&payload)));
            }
            // Messages that were in flight.
            Ok(_) => {}
            Err(silence) => return Err(format!("waiting for the response to Close: {silence}")),
        }
    }
}
