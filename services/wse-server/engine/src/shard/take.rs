//! What becomes of a message: answered, handed over, or dropped and counted.

use std::ops::Range;

use super::Core;
use crate::{
    config::{Delivery, InboundOverflow},
    connection::Connection,
    envelope::{self, Ping},
    format::{self, Binary, InflateError, Text},
    frame::{self, Opcode, Violation},
    inbound::Kind,
    intake::Place,
    receive::DataKind,
    stats::DropReason,
};

/// What a message means. Ranges count from its start.
enum Meaning {
    Deliver { kind: Kind, data: Range<usize>, message_type: Option<Range<usize>> },
    Ping(Ping),
    Hello(String),
    Pong,
    Inflate,
}

impl Core {
    /// Takes one whole message.
    pub(super) fn message(
        &mut self,
        connection: &mut Connection,
        kind: DataKind,
        place: Place,
    ) -> Result<(), Violation> {
        connection.last_data_millis = self.now_millis;
        let bytes = match &place {
            Place::Arena(range) => &self.intake.bytes()[range.clone()],
            Place::Own(bytes, range) => &bytes[range.clone()],
        };
        let meaning = match kind {
            DataKind::Text => self.read_text(connection, bytes)?,
            DataKind::Binary => match format::classify_binary(bytes, connection.wants_message_pack) {
                Binary::MessagePack { value, message_type } => {
                    Meaning::Deliver { kind: Kind::MessagePack, data: value, message_type }
                }
                Binary::Compressed => Meaning::Inflate,
                Binary::Other => Meaning::Deliver { kind: Kind::Binary, data: 0..bytes.len(), message_type: None },
            },
        };
        self.act(connection, place, meaning)
    }

    fn read_text(&self, connection: &Connection, text: &[u8]) -> Result<Meaning, Violation> {
        if simdutf8::basic::from_utf8(text).is_err() {
            return Err(Violation::InvalidUtf8);
        }
        let raw = || Meaning::Deliver { kind: Kind::Raw, data: 0..text.len(), message_type: None };
        Ok(match format::classify(text) {
            Text::Json { object, message_type } => Meaning::Deliver { kind: Kind::Json, data: object, message_type },
            // A ping that is no JSON is no ping.
            Text::Ping { object } => Ping::parse(&text[object]).map_or_else(raw, Meaning::Ping),
            Text::Hello { object } => {
                let (id, config) = (connection.id, &self.shared.config);
                Meaning::Hello(envelope::server_hello(&text[object], id, config, self.wall_millis))
            }
            Text::Pong => Meaning::Pong,
            Text::Raw => raw(),
        })
    }

    fn act(&mut self, connection: &mut Connection, place: Place, meaning: Meaning) -> Result<(), Violation> {
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
            Meaning::Hello(answer) => {
                frame::put(&mut self.replies, Opcode::Text, answer.as_bytes());
                self.count_answered(connection, 1);
            }
            Meaning::Pong => self.count_answered(connection, 0),
            Meaning::Inflate => return self.inflate(connection, place),
        }
        Ok(())
    }

    fn count_received(&mut self, connection: &mut Connection) {
        connection.received += 1;
        self.counters.received += 1;
    }

    fn count_answered(&mut self, connection: &mut Connection, answers: u32) {
        self.count_received(connection);
        connection.consumed += 1;
        self.counters.consumed += 1;
        self.reply_messages += answers;
    }

    /// Inflates a message and takes what comes out as text; what is no zlib stream, or no text, goes on as it came.
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
        let meaning = result.map(|()| self.read_text(connection, &inflated));
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

    /// Hands a message on, unless there is nobody to take it or no room.
    #[inline]
    fn deliver(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        place: Place,
        data: Range<usize>,
        message_type: Option<Range<usize>>,
    ) {
        let config = &self.shared.config;
        let reason = if config.delivery == Delivery::Discard {
            Some(DropReason::Discarded)
        } else if config.inbound_overflow == InboundOverflow::Drop && self.intake.is_full() {
            Some(DropReason::InboundOverflow)
        } else {
            None
        };
        if let Some(reason) = reason {
            connection.dropped += 1;
            self.counters.dropped[reason as usize] += 1;
            return;
        }
        self.counters.malformed += u64::from(kind == Kind::Raw);
        self.intake.push(kind, connection.key, place, data, message_type);
    }
}
