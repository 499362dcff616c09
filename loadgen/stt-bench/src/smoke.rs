//! A check of the gateway's protocol before and after the load, on a connection of its own.
//!
//! One session, blocking: first message, one frame, its partial, Close and the gateway's Close. Its messages are in the
//! worker's books as messages without a number, and its frame's outcome is kept apart from the load's.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bench_format::result::{Conformance, WorkerBook, WorkerResult};
use loadgen_core::{
    connect::UpgradeRequest,
    frame::{self, Opcode},
    peer::{Peer, ReceivedFrame, Silence},
};

use crate::{
    audio::{Audio, phase},
    expected::Expected,
    protocol::{self, Message},
    verify::wrong,
};

/// How long an answer may take before the load: the process may be fresh, and a runtime that compiles its code when it
/// is first used takes seconds on a sixth of a CPU.
pub(crate) const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// How long an answer may take after the load: a flush interval, up to one more for the phase, and the model.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// Close code 1000, normal closure (RFC 6455, section 7.4.1).
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

/// Messages that a check sends: the first message and one frame.
const MESSAGES: u64 = 2;

/// The outcome of a check.
#[derive(Debug, Default)]
pub(crate) struct Smoke {
    /// What was wrong; empty when nothing was.
    findings: Vec<String>,
    /// The book of the check's connection; absent when it was not opened.
    book: Option<WorkerBook>,
    /// The outcome of the frame; absent when no answer was understood.
    outcome: Option<FrameOutcome>,
}

/// The outcome of a check's frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FrameOutcome {
    /// A partial, right or wrong.
    FrameResult,
    /// An error frame of this kind.
    Dropped(String),
}

/// Adds the checks before and after the load to a worker's result.
pub(crate) fn enter(result: &mut WorkerResult, before: Smoke, after: Smoke) {
    let mut check = Conformance::default();
    for Smoke { book, outcome, .. } in [&before, &after] {
        check.opened += u64::from(book.is_some());
        match outcome {
            Some(FrameOutcome::FrameResult) => check.answered += 1,
            Some(FrameOutcome::Dropped(kind)) => *check.dropped.entry(kind.clone()).or_default() += 1,
            None => {}
        }
    }
    result.books.extend(before.book.into_iter().chain(after.book));
    (check.before, check.after) = (before.findings, after.findings);
    result.conformance = Some(check);
}

/// Where and how a check connects, and how long it waits.
pub(crate) struct Terms<'a> {
    pub(crate) target: SocketAddr,
    pub(crate) upgrade: &'a UpgradeRequest,
    pub(crate) connect_timeout: Duration,
    /// How long each answer may take.
    pub(crate) patience: Duration,
}

/// Checks the gateway's protocol on a connection of the check's own.
pub(crate) fn check(terms: &Terms<'_>, expected: &mut Expected, audio: &Audio, random: &mut u64) -> Smoke {
    let mut smoke = Smoke::default();
    match Peer::connect(terms.target, terms.upgrade, Instant::now() + terms.connect_timeout, random) {
        Ok(peer) => {
            if let Err(finding) = exchange_one_frame(peer, terms.patience, expected, audio, &mut smoke) {
                smoke.findings.push(finding);
            }
        }
        Err(refusal) => smoke.findings.push(refusal.to_string()),
    }
    smoke
}

fn exchange_one_frame(
    mut peer: Peer,
    patience: Duration,
    expected: &mut Expected,
    audio: &Audio,
    smoke: &mut Smoke,
) -> Result<(), String> {
    let seconds = patience.as_secs();
    let mut bytes = Vec::new();
    frame::append(&mut bytes, Opcode::Text, protocol::START, *b"mask");
    frame::append(&mut bytes, Opcode::Binary, audio.frame(0, 1), *b"MASK");
    let deadline = Instant::now() + patience;
    let book = smoke.book.insert(WorkerBook::default());
    peer.send(&bytes, deadline).map_err(|error| format!("sending the first frame: {error}"))?;
    book.unnumbered = MESSAGES;
    let message = next_message(&mut peer, deadline)
        .map_err(|description| format!("waiting {seconds} s for the partial of one frame: {description}"))?;
    let (outcome, finding) = judge(&message, expected);
    smoke.outcome = outcome;
    smoke.findings.extend(finding);
    let mut close = Vec::new();
    frame::append(&mut close, Opcode::Close, &NORMAL, *b"Mask");
    let deadline = Instant::now() + patience;
    peer.send(&close, deadline).map_err(|error| format!("sending Close: {error}"))?;
    wait_for_close(&mut peer, deadline)
        .map_err(|description| format!("waiting {seconds} s for an answer to Close: {description}"))
}

/// The frame's outcome, and what is wrong with the answer.
fn judge(text: &[u8], expected: &mut Expected) -> (Option<FrameOutcome>, Option<String>) {
    match protocol::parse(text) {
        Ok(Message::Partial(partial)) if (partial.oldest_frame_seq, partial.newest_frame_seq) != (1, 1) => {
            let description = format!(
                "one frame was sent, but a partial speaks of {} to {}",
                partial.oldest_frame_seq, partial.newest_frame_seq
            );
            (Some(FrameOutcome::FrameResult), Some(description))
        }
        Ok(Message::Partial(partial)) => {
            let result = expected.answer(phase(0, 1), 1).expect("one frame has an answer");
            let fault = wrong(&partial, &result, expected.passes());
            (Some(FrameOutcome::FrameResult), fault.map(|fault| format!("the partial of one frame is wrong: {fault}")))
        }
        Ok(Message::Error(error)) => {
            let description =
                format!("one frame was answered by an error: {}/{}: {}", error.stage, error.kind, error.message);
            (Some(FrameOutcome::Dropped(crate::books::as_key(&error.kind).to_owned())), Some(description))
        }
        Err(violation) => (None, Some(violation.to_string())),
    }
}

/// The next text message; any other frame but Ping and Pong is a finding.
fn next_message(peer: &mut Peer, deadline: Instant) -> Result<Vec<u8>, String> {
    match next(peer, deadline).map_err(|silence| silence.to_string())? {
        ReceivedFrame { opcode: Opcode::Text, payload, .. } => Ok(payload),
        ReceivedFrame { opcode, payload, .. } => {
            Err(format!("{opcode:?} came: {:?}", String::from_utf8_lossy(&payload)))
        }
    }
}

/// Waits for the gateway's Close or the end of the stream.
fn wait_for_close(peer: &mut Peer, deadline: Instant) -> Result<(), String> {
    match next(peer, deadline) {
        Ok(ReceivedFrame { opcode: Opcode::Close, .. }) | Err(Silence::Ended) => Ok(()),
        Ok(ReceivedFrame { opcode, .. }) => Err(format!("{opcode:?} came")),
        Err(silence) => Err(silence.to_string()),
    }
}

/// The next frame that is not a Ping or Pong.
fn next(peer: &mut Peer, deadline: Instant) -> Result<ReceivedFrame, Silence> {
    loop {
        let taken = peer.frame(deadline)?;
        if !matches!(taken.opcode, Opcode::Ping | Opcode::Pong) {
            return Ok(taken);
        }
    }
}
