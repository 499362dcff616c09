//! Handles what arrives over a link: publications go in runs to the subscribers here, control frames to the part that
//! they concern. Total: every frame is handed on, counted, or ends its link.

use std::{borrow::Cow, sync::Arc};

use super::{
    addresses,
    compression::FrameDecompressor,
    counters::add,
    frame::{self, COMPRESSED, CONTINUED, Frame, FrameError, Kind},
    hello::{NUMBERS, STAMPS},
    mesh::Mesh,
    numbering::{Arrivals, Count, Reconciled},
    peer::{Link, Peer},
    presence,
};
use crate::{envelope, hub::Hub, links::Publication, lock::lock, topics};

/// The most publications that are handed over together.
const MESSAGES_AT_ONCE: usize = 1024;
/// The bytes that compressed payloads may decompress to before the room for more is checked again.
const DECOMPRESSED_AT_ONCE: usize = 4 << 20;

/// The receiving side of one link.
pub(super) struct Intake {
    mesh: Arc<Mesh>,
    peer: Arc<Peer>,
    capabilities: u32,
    decompressor: Option<FrameDecompressor>,
    pings: u64,
    /// The peer's subscriptions have changed since the routes were last forgotten.
    subscriptions_changed: bool,
    /// The peer has begun to list its users.
    has_user_list: bool,
    /// The list of its users is complete.
    is_user_list_complete: bool,
}

/// How far [`Intake::take`] got.
pub(super) struct Progress {
    /// The bytes that were taken; 0 if no frame is complete.
    pub(super) used: usize,
    /// The peer has announced that it is leaving.
    pub(super) has_left: bool,
}

/// Successive publications to one topic.
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
            decompressor: None,
            pings: 0,
            subscriptions_changed: false,
            has_user_list: false,
            is_user_list_complete: false,
        }
    }

    /// Takes the complete frames at the beginning of `buffer`, as many as there is room for.
    ///
    /// # Errors
    /// A [`FrameError`] if bytes are not a frame; the frames before them were taken.
    pub(super) fn take(
        &mut self,
        shared: &Hub,
        buffer: &[u8],
        arrivals: &mut Arrivals,
    ) -> Result<Progress, FrameError> {
        let mut run = Run { topic: "", publications: Vec::new() };
        let mut progress = Progress { used: 0, has_left: false };
        let (mut decompressed, mut messages) = (0, 0);
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
            match self.publication(&frame, &mut decompressed) {
                Ok(publication) => self.add(shared, &mut run, &frame, publication),
                Err(error) => break Err(error),
            }
            if decompressed > DECOMPRESSED_AT_ONCE {
                break Ok(());
            }
        };
        self.flush(shared, &mut run);
        arrivals.add(messages);
        if std::mem::take(&mut self.subscriptions_changed) {
            self.mesh.routes.clear();
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
        shared.receive_and_store(&self.peer.instance, run.topic, &run.publications);
        add(&self.mesh.counters.delivered, messages);
        run.publications.clear();
    }

    /// The publication in a frame; `None` if it isn't text.
    fn publication<'a>(
        &mut self,
        frame: &Frame<'a>,
        decompressed: &mut usize,
    ) -> Result<Option<Publication<'a>>, FrameError> {
        let text = match frame.flags & COMPRESSED {
            0 => simdutf8::basic::from_utf8(frame.payload).ok().map(Cow::Borrowed),
            _ => {
                let decompressor = match &mut self.decompressor {
                    Some(decompressor) => decompressor,
                    none => none.insert(FrameDecompressor::new().map_err(|_| FrameError::Compressed)?),
                };
                let payload = decompressor.decompress(frame.payload)?;
                *decompressed += payload.len();
                String::from_utf8(payload).ok().map(Cow::Owned)
            }
        };
        // A peer of another implementation sends texts as its publishers passed them, without category.
        let is_complete = self.capabilities & STAMPS != 0;
        Ok(text.map(|text| match is_complete {
            true => Publication { text, stamp: frame.stamp },
            false => Publication { text: with_category_added(text), stamp: None },
        }))
    }

    /// Handles a control frame. Returns whether the peer is leaving.
    fn control(&mut self, shared: &Hub, frame: &Frame<'_>, arrivals: &mut Arrivals) -> bool {
        let mesh = &Arc::clone(&self.mesh);
        let kind = Kind::of(frame.kind);
        if kind != Some(Kind::Resync) {
            self.subscriptions_changed |= lock(&self.peer.interest).settle();
        }
        match kind {
            Some(Kind::Ping) => {
                self.finish_user_list(shared);
                self.compare(frame, arrivals);
                let count = arrivals.reconciled().filter(|_| self.has_numbers());
                let payload = count.map(Count::encode).unwrap_or_default();
                mesh.enqueue(&self.peer, 0, frame::encode(Kind::Pong, 0, b"", &payload));
            }
            Some(Kind::Count) => self.compare(frame, arrivals),
            Some(Kind::Pong) => {
                lock(&self.peer.state).confirmed = Count::parse(frame.payload).filter(|_| self.has_numbers())
            }
            Some(Kind::Subscribe | Kind::Unsubscribe | Kind::Resync) => self.interest(frame),
            Some(Kind::Announce) => {
                if let Ok(address) = std::str::from_utf8(frame.topic) {
                    mesh.announced(&self.peer, address);
                }
            }
            Some(Kind::Addresses) => mesh.add_addresses(&addresses::parse(frame.payload)),
            Some(Kind::PresenceUpdate) => presence::updated(shared, &self.peer.instance, frame),
            Some(Kind::PresenceFull) => {
                self.has_user_list = true;
                presence::users_listed(shared, &self.peer.instance, frame);
            }
            Some(Kind::Drain | Kind::Shutdown) => {
                lock(&self.peer.state).is_leaving = true;
                tracing::info!(peer = self.peer.name(), ?kind, "the peer is leaving");
                return kind == Some(Kind::Shutdown);
            }
            // Hello and proof were read before the link was made; publications don't get here.
            Some(Kind::Hello | Kind::Proof | Kind::Message) => {}
            None => add(&mesh.counters.unknown_types, 1),
        }
        false
    }

    /// Handles a ping as the possible end of the user list: a peer lists its users at the start of a link, and the list
    /// is complete at the first ping after it, or at the second ping if there was no list.
    fn finish_user_list(&mut self, shared: &Hub) {
        self.pings += 1;
        if !self.is_user_list_complete && (self.has_user_list || self.pings > 1) {
            self.is_user_list_complete = true;
            presence::user_list_complete(shared, &self.peer.instance);
        }
    }

    fn has_numbers(&self) -> bool {
        self.capabilities & NUMBERS != 0
    }

    /// Compares the peer's count of what it has sent with what has arrived.
    fn compare(&self, frame: &Frame<'_>, arrivals: &mut Arrivals) {
        let Some(count) = Count::parse(frame.payload).filter(|_| self.has_numbers()) else { return };
        let Reconciled { lost, is_complete } = arrivals.compare(count);
        add(&self.mesh.counters.lost, lost);
        if !is_complete {
            self.mesh.forget_peer_history(&self.peer);
        }
    }

    fn interest(&mut self, frame: &Frame<'_>) {
        let mut interest = lock(&self.peer.interest);
        match Kind::of(frame.kind) {
            Some(Kind::Resync) => {
                // A line that isn't text can't name a topic.
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
        self.subscriptions_changed = true;
    }
}

/// Completes a text with its category, as subscribers get it.
fn with_category_added(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => envelope::with_category(text),
        Cow::Owned(text) => Cow::Owned(envelope::with_category(&text).into_owned()),
    }
}
