//! Decides what happens to a message: the engine replies to it, hands it to the application, or drops and counts it.

use std::ops::Range;

use super::{Core, Overflow};
use crate::{
    connection::Connection,
    envelope::{ClientHello, Ping},
    format::{self, Binary, InflateError, Text},
    frame::{self, Opcode, Violation},
    inbound::Kind,
    intake::PayloadLocation,
    receive::DataKind,
    stats::DropReason,
};

/// The content of a message. Ranges count from its start.
enum Meaning {
    Deliver { kind: Kind, data: Range<usize>, message_type: Option<Range<usize>> },
    Ping(Ping),
    ClientHello(ClientHello),
    Pong,
    Inflate,
    Sealed,
}

fn meaning(bytes: &[u8], text: Text) -> Meaning {
    let raw = || Meaning::Deliver { kind: Kind::Raw, data: 0..bytes.len(), message_type: None };
    match text {
        Text::Json { object, message_type } => Meaning::Deliver { kind: Kind::Json, data: object, message_type },
        // A ping that is not valid JSON is handed on as raw text.
        Text::Ping { object } => Ping::parse(&bytes[object]).map_or_else(raw, Meaning::Ping),
        Text::ClientHello { object } => Meaning::ClientHello(ClientHello::parse(&bytes[object])),
        Text::Pong => Meaning::Pong,
        Text::Raw => raw(),
    }
}

/// The content of a MessagePack message. The reference hands all of them to the application, so that a client which
/// packs its pings gets no reply. Here the protocol's own types mean the same in every format.
fn packed(bytes: &[u8], value: Range<usize>, message_type: Option<Range<usize>>) -> Meaning {
    let own = match message_type.as_ref().map(|range| &bytes[range.clone()]) {
        Some(b"ping") => Ping::unpack(&bytes[value.clone()]).map(Meaning::Ping),
        Some(b"client_hello") => Some(Meaning::ClientHello(ClientHello::unpack(&bytes[value.clone()]))),
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
        if self.encrypted > 0 && connection.duplex().is_some() {
            return self.open_frame(connection, DataKind::Text, &PayloadLocation::Arena(range));
        }
        let bytes = &self.intake.bytes()[range.clone()];
        if simdutf8::basic::from_utf8(bytes).is_err() {
            return Err(Violation::InvalidUtf8);
        }
        match format::classify(bytes) {
            Text::Json { object, message_type } => {
                connection.last_data_millis = self.now_millis;
                self.count_received(connection);
                match self.drop_reason() {
                    None => self.intake.push_in_arena(Kind::Json, connection.key, range, object, message_type),
                    Some(reason) => self.drop_message(connection, reason),
                }
                Ok(())
            }
            text => {
                let meaning = meaning(bytes, text);
                self.handle(connection, PayloadLocation::Arena(range), meaning)
            }
        }
    }

    /// Processes one complete message, in the arena or in a buffer of its own.
    pub(super) fn message(
        &mut self,
        connection: &mut Connection,
        kind: DataKind,
        location: PayloadLocation,
    ) -> Result<(), Violation> {
        if self.encrypted > 0 && connection.duplex().is_some() {
            return self.open_frame(connection, kind, &location);
        }
        self.plain_message(connection, kind, location)
    }

    /// Processes one complete message that isn't encrypted by version 2, or not any more.
    pub(super) fn plain_message(
        &mut self,
        connection: &mut Connection,
        kind: DataKind,
        location: PayloadLocation,
    ) -> Result<(), Violation> {
        let bytes = location.bytes(self.intake.bytes());
        let meaning = match kind {
            DataKind::Text => Self::read_text(bytes)?,
            DataKind::Binary if bytes.starts_with(format::ENCRYPTED) && connection.message_key().is_some() => {
                Meaning::Sealed
            }
            DataKind::Binary => match format::classify_binary(bytes, connection.uses_message_pack) {
                Binary::MessagePack { value, message_type } => packed(bytes, value, message_type),
                Binary::Compressed => Meaning::Inflate,
                Binary::Other => Meaning::Deliver { kind: Kind::Binary, data: 0..bytes.len(), message_type: None },
            },
        };
        self.handle(connection, location, meaning)
    }

    /// Answers a message if it is a ping or a pong, ahead of messages that wait. Returns whether it was one.
    pub(super) fn answer_ping(&mut self, connection: &mut Connection, kind: DataKind, bytes: &[u8]) -> bool {
        let meaning = match kind {
            DataKind::Text => Self::read_text(bytes).ok(),
            DataKind::Binary if bytes.starts_with(format::ENCRYPTED) && connection.secured().is_some() => None,
            DataKind::Binary => match format::classify_binary(bytes, connection.uses_message_pack) {
                Binary::MessagePack { value, message_type } => Some(packed(bytes, value, message_type)),
                Binary::Compressed | Binary::Other => None,
            },
        };
        match meaning {
            Some(Meaning::Ping(ping)) => self.send_pong(connection, &ping),
            Some(Meaning::Pong) => self.count_consumed(connection, 0),
            _ => return false,
        }
        connection.last_data_millis = self.now_millis;
        true
    }

    fn send_pong(&mut self, connection: &mut Connection, ping: &Ping) {
        let mut pong = [0; 160];
        let pong = ping.pong(self.wall_millis, &mut pong);
        frame::put(&mut self.replies, Opcode::Text, pong);
        self.count_consumed(connection, 1);
    }

    fn read_text(text: &[u8]) -> Result<Meaning, Violation> {
        if simdutf8::basic::from_utf8(text).is_err() {
            return Err(Violation::InvalidUtf8);
        }
        Ok(meaning(text, format::classify(text)))
    }

    fn handle(
        &mut self,
        connection: &mut Connection,
        location: PayloadLocation,
        meaning: Meaning,
    ) -> Result<(), Violation> {
        connection.last_data_millis = self.now_millis;
        match meaning {
            Meaning::Deliver { kind, data, message_type } => {
                self.count_received(connection);
                self.deliver(connection, kind, location, data, message_type);
            }
            Meaning::Ping(ping) => self.send_pong(connection, &ping),
            Meaning::ClientHello(hello) => self.reply_to_hello(connection, &hello),
            Meaning::Sealed => self.open_sealed(connection, &location),
            Meaning::Pong => self.count_consumed(connection, 0),
            Meaning::Inflate => return self.inflate(connection, location),
        }
        Ok(())
    }

    #[inline]
    pub(super) fn count_received(&mut self, connection: &mut Connection) {
        connection.received += 1;
        self.counters.received += 1;
    }

    pub(super) fn count_consumed(&mut self, connection: &mut Connection, replies: u32) {
        self.count_received(connection);
        connection.consumed += 1;
        self.counters.consumed += 1;
        self.reply_messages += replies;
    }

    /// Inflates a message and processes the result as text. If it is not a zlib stream, or the result is not text, the
    /// message is handed on as it came.
    fn inflate(&mut self, connection: &mut Connection, location: PayloadLocation) -> Result<(), Violation> {
        let bytes = location.bytes(self.intake.bytes());
        let whole = 0..bytes.len();
        let mut inflated = std::mem::take(&mut self.inflated);
        inflated.clear();
        let limit = self.shared.config.max_message_size;
        let result = self.inflater.inflate(&bytes[format::COMPRESSED.len()..], &mut inflated, limit);
        let meaning = result.map(|()| Self::read_text(&inflated));
        let outcome = match meaning {
            Ok(Ok(meaning)) => {
                let length = inflated.len();
                let location = PayloadLocation::Own(inflated, 0..length);
                return self.handle(connection, location, meaning);
            }
            Err(InflateError::TooBig) => Err(Violation::TooBig),
            Ok(Err(_)) | Err(InflateError::Invalid) => {
                self.count_received(connection);
                self.deliver(connection, Kind::Binary, location, whole, None);
                Ok(())
            }
        };
        self.inflated = inflated;
        outcome
    }

    /// Why a message isn't handed on; `None` if it is.
    #[inline]
    fn drop_reason(&self) -> Option<DropReason> {
        match self.overflow {
            Overflow::Wait => None,
            Overflow::Drop | Overflow::DropOldest | Overflow::Disconnect => {
                self.intake.is_full().then_some(DropReason::InboundOverflow)
            }
            Overflow::Discard | Overflow::Echo => Some(DropReason::Discarded),
        }
    }

    pub(super) fn drop_message(&mut self, connection: &mut Connection, reason: DropReason) {
        self.is_overflown |= self.overflow == Overflow::Disconnect && reason == DropReason::InboundOverflow;
        connection.dropped += 1;
        self.counters.dropped[reason as usize] += 1;
    }

    /// Hands a message to the application, or drops it if the application takes none or there is no room.
    pub(super) fn deliver(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        location: PayloadLocation,
        data: Range<usize>,
        message_type: Option<Range<usize>>,
    ) {
        if let Some(reason) = self.drop_reason() {
            return self.drop_message(connection, reason);
        }
        self.counters.malformed += u64::from(kind == Kind::Raw);
        self.intake.push(kind, connection.key, location, data, message_type);
    }
}
