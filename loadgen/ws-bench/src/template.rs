//! Templates of messages: literals and slots, compiled once. Pure.
//!
//! All random choices are a function of the seed, the connection, the sequence number and the slot, so that a message
//! can be composed again when its reply arrives.

mod compile;
mod compose;
mod error;
#[cfg(test)]
mod tests;
mod walk;

use std::{fmt, ops::RangeInclusive, sync::Arc};

use bench_format::websocket::NumberFormat;
use loadgen_core::{schedule::splitmix64, workload::Opcode};

pub use self::{
    compose::Composer,
    error::{Problem, TemplateError},
    walk::digits,
};
use crate::{number, state::LONGEST_CAPTURED};

/// Number of packet ids; 0 is not one (MQTT 5.0, section 2.2.1).
pub const PACKET_IDS: u64 = 65_535;
/// The slot of the choice between messages.
const MESSAGE_SLOT: u32 = u32::MAX;
/// Different starts of a `{{payload}}` in its pool of random text, which stays in the CPU's first cache.
const PAYLOAD_STARTS: usize = 1 << 12;
/// Digits of the largest `u64`.
const MOST_DIGITS: usize = 20;

/// A kind of placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{{sequence}}`: the number of the message
    Sequence,
    /// `{{packet_id}}`: 1 to 65,535, again and again
    PacketId,
    /// `{{connection}}`: index among those of all workers
    Connection,
    /// `{{worker}}`: index of the process
    Worker,
    /// `{{due_us}}`: microseconds since the Unix epoch
    DueUs,
    /// `{{payload}}`: random text of the ladder's size
    Payload,
    /// `{{payload_bytes}}`: that size in digits
    PayloadBytes,
    /// `{{random A B}}`: a number from A to B
    Random,
    /// `{{choice A|B|C}}`: one of the texts
    Choice,
    /// `{{captured.NAME}}`: a value of the opening
    Captured,
    /// `{{row.NAME}}`: a column of the connection's row
    Row,
}

impl Kind {
    /// Every kind, in the order in which mistakes list them.
    pub const ALL: &[Self] = &[
        Self::Sequence,
        Self::PacketId,
        Self::Connection,
        Self::Worker,
        Self::DueUs,
        Self::Payload,
        Self::PayloadBytes,
        Self::Random,
        Self::Choice,
        Self::Captured,
        Self::Row,
    ];

    /// The placeholder as it is written.
    pub fn syntax(self) -> &'static str {
        match self {
            Self::Sequence => "{{sequence}}",
            Self::PacketId => "{{packet_id}}",
            Self::Connection => "{{connection}}",
            Self::Worker => "{{worker}}",
            Self::DueUs => "{{due_us}}",
            Self::Payload => "{{payload}}",
            Self::PayloadBytes => "{{payload_bytes}}",
            Self::Random => "{{random A B}}",
            Self::Choice => "{{choice A|B|C}}",
            Self::Captured => "{{captured.NAME}}",
            Self::Row => "{{row.NAME}}",
        }
    }

    /// Whether it stands for a number.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Payload | Self::Choice | Self::Captured | Self::Row)
    }
}

/// The placeholders that a template may have, and the names that they know.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// Placeholders that have a value here.
    pub kinds: &'static [Kind],
    /// Names of the values that were captured before.
    pub captured: &'a [String],
    /// Columns of the connections' rows, each with the length of its longest value in bytes; absent if they aren't known,
    /// so that any name may be right.
    pub columns: Option<&'a [(String, usize)]>,
    /// The text of `{{payload}}`.
    pub payload: &'a Payload,
}

/// Random text of A to Z and a to z, from which each `{{payload}}` is a piece.
#[derive(Clone, Default, PartialEq)]
pub struct Payload {
    pool: Arc<[u8]>,
    size: usize,
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({})", self.size)
    }
}

impl Payload {
    /// Draws the text for payloads of `size` bytes.
    pub fn new(size: usize, seed: u64) -> Self {
        // No digits: they would run into a number that stands before them.
        const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut random = seed;
        let letter = |_| LETTERS[(splitmix64(&mut random) % LETTERS.len() as u64) as usize];
        Self { pool: (0..size + PAYLOAD_STARTS).map(letter).collect(), size }
    }

    fn piece(&self, random: u64) -> &[u8] {
        let from = random as usize % PAYLOAD_STARTS;
        self.pool.get(from..from + self.size).unwrap_or_default()
    }
}

/// What the placeholders of one message stand for.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// Seed of all random choices, from the assignment.
    pub seed: u64,
    /// Index of the connection among those of all workers.
    pub connection: u32,
    /// Index of the worker.
    pub worker: u32,
    /// Number of the message on its connection, from 0.
    pub sequence: u64,
    /// Due time in microseconds since the Unix epoch.
    pub due_us: u64,
    /// Values of the opening, in the order of their first capture.
    pub captured: &'a [Box<[u8]>],
    /// The connection's row, in the order of the columns.
    pub row: &'a [Box<[u8]>],
}

impl Values<'_> {
    /// 64 random bits for a slot.
    fn draw(&self, slot: u32) -> u64 {
        // Odd multipliers spread the three over all bits, and SplitMix64 mixes their sum.
        let mut state = self.seed
            ^ u64::from(self.connection).wrapping_mul(0x9FB2_1C65_1E98_DF25)
            ^ self.sequence.wrapping_mul(0xD6E8_FEB8_6659_FD93)
            ^ u64::from(slot).wrapping_mul(0xA24B_AED4_963E_E407);
        splitmix64(&mut state)
    }

    /// A number below `total`, which chooses between the messages of a section.
    pub fn choice_of_message(&self, total: u64) -> u64 {
        self.draw(MESSAGE_SLOT) % total
    }
}

/// A template, compiled into literals and slots.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    opcode: Opcode,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Literal(Box<[u8]>),
    Slot(Slot),
    /// The length of the parts up to the matching `Close`.
    Open(NumberFormat),
    Close,
}

/// A placeholder of a template.
#[derive(Clone, Debug, PartialEq)]
struct Slot {
    source: Source,
    /// How a number is written; absent means as digits.
    format: Option<NumberFormat>,
    /// Position among the slots of the template.
    index: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    Sequence,
    PacketId,
    Connection,
    Worker,
    DueUs,
    Payload(Payload),
    PayloadBytes(u64),
    Random(RangeInclusive<u64>),
    Choice(Box<[Box<[u8]>]>),
    Captured(usize),
    /// Column, and the length of its longest value.
    Row(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Number(u64),
    Text(&'a [u8]),
}

impl Source {
    fn kind(&self) -> Kind {
        match self {
            Self::Sequence => Kind::Sequence,
            Self::PacketId => Kind::PacketId,
            Self::Connection => Kind::Connection,
            Self::Worker => Kind::Worker,
            Self::DueUs => Kind::DueUs,
            Self::Payload(_) => Kind::Payload,
            Self::PayloadBytes(_) => Kind::PayloadBytes,
            Self::Random(_) => Kind::Random,
            Self::Choice(_) => Kind::Choice,
            Self::Captured(_) => Kind::Captured,
            Self::Row(..) => Kind::Row,
        }
    }

    /// Largest number that it stands for; `None` for a text.
    fn most(&self) -> Option<u64> {
        match self {
            Self::PacketId => Some(PACKET_IDS),
            Self::Connection | Self::Worker => Some(u64::from(u32::MAX)),
            Self::Random(range) => Some(*range.end()),
            Self::PayloadBytes(size) => Some(*size),
            Self::Sequence | Self::DueUs => Some(u64::MAX),
            Self::Payload(_) | Self::Choice(_) | Self::Captured(_) | Self::Row(..) => None,
        }
    }

    /// Largest number of bytes that its text has.
    fn most_bytes(&self) -> usize {
        match self {
            Self::Payload(payload) => payload.size,
            Self::Choice(texts) => texts.iter().map(|text| text.len()).max().unwrap_or(0),
            Self::Captured(_) => LONGEST_CAPTURED,
            Self::Row(_, longest) => *longest,
            number => number.most().map_or(MOST_DIGITS, |most| most.to_string().len()),
        }
    }
}

impl Slot {
    #[inline]
    fn value<'a>(&'a self, values: &Values<'a>) -> Value<'a> {
        match &self.source {
            Source::Sequence => Value::Number(values.sequence),
            Source::PacketId => Value::Number(1 + values.sequence % PACKET_IDS),
            Source::Connection => Value::Number(u64::from(values.connection)),
            Source::Worker => Value::Number(u64::from(values.worker)),
            Source::DueUs => Value::Number(values.due_us),
            Source::Payload(payload) => Value::Text(payload.piece(values.draw(self.index))),
            Source::PayloadBytes(size) => Value::Number(*size),
            Source::Random(range) => Value::Number(within(range, values.draw(self.index))),
            Source::Choice(texts) => Value::Text(&texts[values.draw(self.index) as usize % texts.len()]),
            Source::Captured(at) => Value::Text(values.captured.get(*at).map_or(&[], |value| value)),
            Source::Row(column, _) => Value::Text(values.row.get(*column).map_or(&[], |value| value)),
        }
    }
}

/// A number of the range. The high half of a product is evenly distributed without a division (Lemire, "Fast random
/// integer generation in an interval", 2019; the bias is below 2^-32 for ranges below 2^32).
fn within(range: &RangeInclusive<u64>, random: u64) -> u64 {
    let count = u128::from(range.end() - range.start()) + 1;
    range.start() + ((u128::from(random) * count) >> 64) as u64
}

impl Template {
    /// Whether its message is text or binary.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Whether it has a placeholder of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.slots().any(|slot| slot.source.kind() == kind)
    }

    /// Whether it has no placeholder.
    pub fn is_constant(&self) -> bool {
        self.slots().next().is_none()
    }

    /// The largest sequence number that all its fields for it can hold.
    pub fn most_sequence(&self) -> u64 {
        let sequences = self.slots().filter(|slot| slot.source == Source::Sequence);
        sequences.filter_map(|slot| slot.format).map(number::most).min().unwrap_or(u64::MAX)
    }

    /// Positions of the columns that it uses.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.slots().filter_map(|slot| match slot.source {
            Source::Row(column, _) => Some(column),
            _ => None,
        })
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.parts.iter().filter_map(|part| match part {
            Part::Slot(slot) => Some(slot),
            _ => None,
        })
    }
}
