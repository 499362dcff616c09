//! What came over a link: publications in runs to the fan-out here, everything else to whom it concerns. Total: whatever a
//! peer sends is handed on, counted, or the end of its link.

use std::{borrow::Cow, sync::Arc};

use super::{
    addresses,
    compression::Stretcher,
    counters::add,
    frame::{self, COMPRESSED, CONTINUED, Frame, FrameError, Kind},
    hello::{NUMBERS, STAMPS},
    mesh::Mesh,
    numbering::{Arrivals, Count, Told},
    peer::{Link, Peer},
    presence,
};
use crate::{envelope, hub::Hub, links::Publication, lock::lock, topics};

/// Publications that are handed over together.
const MESSAGES_AT_ONCE: usize = 1024;
/// Bytes that may come out of compressed payloads before we look whether there is room for more.
const STRETCHED_AT_ONCE: usize = 4 << 20;

/// Reads what a peer sends.
pub(super) struct Intake {
    mesh: Arc<Mesh>,
    peer: Arc<Peer>,
    capabilities: u32,
    stretcher: Option<Stretcher>,
    pings: u64,
    /// What it wants has changed.
    wants_else: bool,
    /// It has begun to name its users.
    has_named: bool,
    /// It is through.
    is_named: bool,
}

/// How far it got.
pub(super) struct Progress {
    /// Bytes that were taken; none, if no frame is whole.
    pub(super) used: usize,
    /// The peer says that it goes.
    pub(super) has_left: bool,
}

/// Publications in a row for one topic.
struct Run<'a> {
    topic: &'a str,
    publications: Vec<Publication<'a>>,
}

impl Intake {
    pub(super) fn new(mesh: Arc<Mesh>, peer: Arc<Peer>, link: &Link) -> Self {
        Self {
            mesh,
            peer,
            capabilities: link.capabilities,
            stretcher: None,
            pings: 0,
            wants_else: false,
            has_named: false,
            is_named: false,
        }
    }

    /// Takes the whole frames at the beginning of `buffer`, as many as there is room for.
    ///
    /// # Errors
    /// Bytes that are no frame; what came before them was taken.
    pub(super) fn take(
        &mut self,
        shared: &Hub,
        buffer: &[u8],
        arrivals: &mut Arrivals,
    ) -> Result<Progress, FrameError> {
        let mut run = Run { topic: "", publications: Vec::new() };
        let mut progress = Progress { used: 0, has_left: false };
        let (mut stretched, mut messages) = (0, 0);
        let result = loop {
            let (frame, length) = match frame::parse(&buffer[progress.used..]) {
                Ok(Some(whole)) => whole,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            progress.used += length;
            if frame.kind != Kind::Message.byte() {
                self.flush(shared, &mut run);
                arrivals.add(std::mem::take(&mut messages));
                progress.has_left |= self.control(shared, &frame, arrivals);
                continue;
            }
            messages += 1;
            match self.publication(&frame, &mut stretched) {
                Ok(publication) => self.add(shared, &mut run, &frame, publication),
                Err(error) => break Err(error),
            }
            if stretched > STRETCHED_AT_ONCE {
                break Ok(());
            }
        };
        self.flush(shared, &mut run);
        arrivals.add(messages);
        if std::mem::take(&mut self.wants_else) {
            self.mesh.routes.forget();
        }
        result.map(|()| progress)
    }

    fn add<'a>(&self, shared: &Hub, run: &mut Run<'a>, frame: &Frame<'a>, publication: Option<Publication<'a>>) {
        if frame.topic != run.topic.as_bytes() || run.publications.len() >= MESSAGES_AT_ONCE {
            self.flush(shared, run);
            let topic = std::str::from_utf8(frame.topic).ok().filter(|topic| topics::check(topic).is_ok());
            run.topic = topic.unwrap_or_default();
        }
        match publication.filter(|_| !run.topic.is_empty()) {
            Some(publication) => run.publications.push(publication),
            None => {
                add(&self.mesh.counters.received, 1);
                add(&self.mesh.counters.unfit, 1);
            }
        }
    }

    fn flush(&self, shared: &Hub, run: &mut Run<'_>) {
        if run.publications.is_empty() {
            return;
        }
        let messages = run.publications.len() as u64;
        add(&self.mesh.counters.received, messages);
        shared.receive_and_keep(&self.peer.instance, run.topic, &run.publications);
        add(&self.mesh.counters.delivered, messages);
        run.publications.clear();
    }

    /// The publication in a frame; nothing, if it is no text.
    fn publication<'a>(
        &mut self,
        frame: &Frame<'a>,
        stretched: &mut usize,
    ) -> Result<Option<Publication<'a>>, FrameError> {
        let text = match frame.flags & COMPRESSED {
            0 => simdutf8::basic::from_utf8(frame.payload).ok().map(Cow::Borrowed),
            _ => {
                let stretcher = match &mut self.stretcher {
                    Some(stretcher) => stretcher,
                    none => none.insert(Stretcher::new().map_err(|_| FrameError::Compressed)?),
                };
                let payload = stretcher.stretch(frame.payload)?;
                *stretched += payload.len();
                String::from_utf8(payload).ok().map(Cow::Owned)
            }
        };
        // A peer of another make sends what was given to it.
        let is_whole = self.capabilities & STAMPS != 0;
        Ok(text.map(|text| match is_whole {
            true => Publication { text, stamp: frame.stamp },
            false => Publication { text: completed(text), stamp: None },
        }))
    }

    /// One of the protocol's own frames. Returns whether the peer goes.
    fn control(&mut self, shared: &Hub, frame: &Frame<'_>, arrivals: &mut Arrivals) -> bool {
        let mesh = &Arc::clone(&self.mesh);
        let kind = Kind::of(frame.kind);
        if kind != Some(Kind::Resync) {
            self.wants_else |= lock(&self.peer.interest).settle();
        }
        match kind {
            Some(Kind::Ping) => {
                self.naming_ends(shared);
                self.compare(frame, arrivals);
                let count = arrivals.told().filter(|_| self.numbers());
                let payload = count.map(Count::encode).unwrap_or_default();
                mesh.tell(&self.peer, 0, frame::encode(Kind::Pong, 0, b"", &payload));
            }
            Some(Kind::Count) => self.compare(frame, arrivals),
            Some(Kind::Pong) => {
                lock(&self.peer.state).confirmed = Count::parse(frame.payload).filter(|_| self.numbers())
            }
            Some(Kind::Subscribe | Kind::Unsubscribe | Kind::Resync) => self.interest(frame),
            Some(Kind::Announce) => {
                if let Ok(address) = std::str::from_utf8(frame.topic) {
                    mesh.announced(&self.peer, address);
                }
            }
            Some(Kind::Addresses) => mesh.heard_of(&addresses::parse(frame.payload)),
            Some(Kind::PresenceUpdate) => presence::updated(shared, &self.peer.instance, frame),
            Some(Kind::PresenceFull) => {
                self.has_named = true;
                presence::named(shared, &self.peer.instance, frame);
            }
            Some(Kind::Drain | Kind::Shutdown) => {
                lock(&self.peer.state).is_leaving = true;
                tracing::info!(peer = self.peer.name(), ?kind, "it is going");
                return kind == Some(Kind::Shutdown);
            }
            // It has introduced itself already.
            Some(Kind::Hello | Kind::Message) => {}
            None => add(&mesh.counters.unknown_types, 1),
        }
        false
    }

    /// A peer names its users at a link's beginning: at the first ping behind that, or the second one at all, it is through.
    fn naming_ends(&mut self, shared: &Hub) {
        self.pings += 1;
        if !self.is_named && (self.has_named || self.pings > 1) {
            self.is_named = true;
            presence::all_named(shared, &self.peer.instance);
        }
    }

    fn numbers(&self) -> bool {
        self.capabilities & NUMBERS != 0
    }

    /// The peer says how much it has sent.
    fn compare(&self, frame: &Frame<'_>, arrivals: &mut Arrivals) {
        let Some(count) = Count::parse(frame.payload).filter(|_| self.numbers()) else { return };
        let Told { lost, is_whole } = arrivals.compare(count);
        add(&self.mesh.counters.lost, lost);
        if !is_whole {
            self.mesh.lose(&self.peer);
        }
    }

    fn interest(&mut self, frame: &Frame<'_>) {
        let mut interest = lock(&self.peer.interest);
        match Kind::of(frame.kind) {
            Some(Kind::Resync) => {
                // Whatever isn't text names no topic.
                let lines = String::from_utf8_lossy(frame.payload);
                interest.resync(&lines, frame.flags & CONTINUED != 0);
            }
            kind => match (std::str::from_utf8(frame.topic), kind) {
                (Ok(topic), Some(Kind::Subscribe)) => interest.add(topic),
                (Ok(topic), _) => interest.remove(topic),
                (Err(_), _) => return,
            },
        }
        drop(interest);
        self.wants_else = true;
    }
}

/// A text with its category, as subscribers get it.
fn completed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => envelope::with_category(text),
        Cow::Owned(text) => Cow::Owned(envelope::with_category(&text).into_owned()),
    }
}
