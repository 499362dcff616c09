//! Decides what happens to a message: the engine replies to it, hands it to the application, or drops and counts it.

use std::ops::Range;

use super::{Core, Overflow};
use crate::{
    connection::Connection,
    envelope::{Hello, Ping},
    format::{self, Binary, InflateError, Text},
    frame::{self, Opcode, Violation},
    inbound::Kind,
    intake::Place,
    receive::DataKind,
    stats::DropReason,
};

/// The content of a message. Ranges count from its start.
enum Meaning {
    Deliver { kind: Kind, data: Range<usize>, message_type: Option<Range<usize>> },
    Ping(Ping),
    Hello(Hello),
    Pong,
    Inflate,
    Sealed,
}

fn meaning(bytes: &[u8], text: Text) -> Meaning {
    let raw = || Meaning::Deliver { kind: Kind::Raw, data: 0..bytes.len(), message_type: None };
    match text {
        Text::Json { object, message_type } => Meaning::Deliver { kind: Kind::Json, data: object, message_type },
        // A ping that is no valid JSON is handed on as raw text.
        Text::Ping { object } => Ping::parse(&bytes[object]).map_or_else(raw, Meaning::Ping),
        Text::Hello { object } => Meaning::Hello(Hello::parse(&bytes[object])),
        Text::Pong => Meaning::Pong,
        Text::Raw => raw(),
    }
}

/// The content of a MessagePack message. The reference hands all of them to the application, so that a client which
/// packs its pings gets no reply. Here the protocol's own types mean the same in every format.
fn packed(bytes: &[u8], value: Range<usize>, message_type: Option<Range<usize>>) -> Meaning {
    let own = match message_type.as_ref().map(|range| &bytes[range.clone()]) {
        Some(b"ping") => Ping::unpack(&bytes[value.clone()]).map(Meaning::Ping),
        Some(b"client_hello") => Some(Meaning::Hello(Hello::unpack(&bytes[value.clone()]))),
        Some(b"pong" | b"PONG") => Some(Meaning::Pong),
        _ => None,
    };
    own.unwrap_or(Meaning::Deliver { kind: Kind::MessagePack, data: value, message_type })
}

impl Core {
    /// Processes a text of one frame, as nearly every message is, with a short path for JSON objects that are handed
    /// on.
    #[inline]
    pub(super) fn text(&mut self, connection: &mut Connection, range: Range<usize>) -> Result<(), Violation> {
        let bytes = &self.intake.bytes()[range.clone()];
        if simdutf8::basic::from_utf8(bytes).is_err() {
            return Err(Violation::InvalidUtf8);
        }
        match format::classify(bytes) {
            Text::Json { object, message_type } => {
                connection.last_data_millis = self.now_millis;
                self.count_received(connection);
                match self.refusal() {
                    None => self.intake.push_in_arena(Kind::Json, connection.key, range, object, message_type),
                    Some(reason) => self.drop_message(connection, reason),
                }
                Ok(())
            }
            text => {
                let meaning = meaning(bytes, text);
                self.act(connection, Place::Arena(range), meaning)
            }
        }
    }

    /// Processes one complete message, in the arena or in a buffer of its own.
    pub(super) fn message(
        &mut self,
        connection: &mut Connection,
        kind: DataKind,
        place: Place,
    ) -> Result<(), Violation> {
        let bytes = match &place {
            Place::Arena(range) => &self.intake.bytes()[range.clone()],
            Place::Own(bytes, range) => &bytes[range.clone()],
        };
        let meaning = match kind {
            DataKind::Text => Self::read_text(bytes)?,
            DataKind::Binary if bytes.starts_with(format::ENCRYPTED) && connection.secured().is_some() => {
                Meaning::Sealed
            }
            DataKind::Binary => match format::classify_binary(bytes, connection.wants_message_pack) {
                Binary::MessagePack { value, message_type } => packed(bytes, value, message_type),
                Binary::Compressed => Meaning::Inflate,
                Binary::Other => Meaning::Deliver { kind: Kind::Binary, data: 0..bytes.len(), message_type: None },
            },
        };
        self.act(connection, place, meaning)
    }

    fn read_text(text: &[u8]) -> Result<Meaning, Violation> {
        if simdutf8::basic::from_utf8(text).is_err() {
            return Err(Violation::InvalidUtf8);
        }
        Ok(meaning(text, format::classify(text)))
    }

    fn act(&mut self, connection: &mut Connection, place: Place, meaning: Meaning) -> Result<(), Violation> {
        connection.last_data_millis = self.now_millis;
        match meaning {
            Meaning::Deliver { kind, data, message_type } => {
                self.count_received(connection);
                self.deliver(connection, kind, place, data, message_type);
            }
            Meaning::Ping(ping) => {
                let mut answer = [0; 160];
                let answer = ping.answer(self.wall_millis, &mut answer);
                frame::put(&mut self.replies, Opcode::Text, answer);
                self.count_answered(connection, 1);
            }
            Meaning::Hello(hello) => self.greet(connection, &hello),
            Meaning::Sealed => self.open_sealed(connection, &place),
            Meaning::Pong => self.count_answered(connection, 0),
            Meaning::Inflate => return self.inflate(connection, place),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn count_received(&mut self, connection: &mut Connection) {
        connection.received += 1;
        self.counters.received += 1;
    }

    pub(super) fn count_answered(&mut self, connection: &mut Connection, answers: u32) {
        self.count_received(connection);
        connection.consumed += 1;
        self.counters.consumed += 1;
        self.reply_messages += answers;
    }

    /// Inflates a message and processes the result as text. If it is no zlib stream, or the result is no text, the
    /// message is handed on as it came.
    fn inflate(&mut self, connection: &mut Connection, place: Place) -> Result<(), Violation> {
        let bytes = match &place {
            Place::Arena(range) => &self.intake.bytes()[range.clone()],
            Place::Own(bytes, range) => &bytes[range.clone()],
        };
        let whole = 0..bytes.len();
        let mut inflated = std::mem::take(&mut self.inflated);
        inflated.clear();
        let limit = self.shared.config.max_message_size;
        let result = self.inflater.inflate(&bytes[format::COMPRESSED.len()..], &mut inflated, limit);
        let meaning = result.map(|()| Self::read_text(&inflated));
        let outcome = match meaning {
            Ok(Ok(meaning)) => {
                let length = inflated.len();
                let place = Place::Own(inflated, 0..length);
                return self.act(connection, place, meaning);
            }
            Err(InflateError::TooBig) => Err(Violation::TooBig),
            Ok(Err(_)) | Err(InflateError::Invalid) => {
                self.count_received(connection);
                self.deliver(connection, Kind::Binary, place, whole, None);
                Ok(())
            }
        };
        self.inflated = inflated;
        outcome
    }

    /// Why a message isn't handed on; `None` if it is.
    #[inline]
    fn refusal(&self) -> Option<DropReason> {
        match self.overflow {
            Overflow::Wait => None,
            Overflow::Drop => self.intake.is_full().then_some(DropReason::InboundOverflow),
            Overflow::Discard | Overflow::Echo => Some(DropReason::Discarded),
        }
    }

    pub(super) fn drop_message(&mut self, connection: &mut Connection, reason: DropReason) {
        connection.dropped += 1;
        self.counters.dropped[reason as usize] += 1;
    }

    /// Hands a message to the application, or drops it if the application takes none or there is no room.
    pub(super) fn deliver(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        place: Place,
        data: Range<usize>,
        message_type: Option<Range<usize>>,
    ) {
        if let Some(reason) = self.refusal() {
            return self.drop_message(connection, reason);
        }
        self.counters.malformed += u64::from(kind == Kind::Raw);
        self.intake.push(kind, connection.key, place, data, message_type);
    }
}
