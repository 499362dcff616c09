//! Finds the message in an echo of it: reads the sequence number where it stands, composes all else again in thought,
//! and compares. Nothing is written.

use bench_format::websocket::NumberFormat;

use super::{Part, Slot, Source, Template, Value, Values};
use crate::number;

impl Template {
    /// The sequence number of the message that these bytes are; `None` if they are no message of this template with
    /// these values. Of the values, `sequence` and `due_us` are read from the bytes instead.
    pub fn sequence_of(&self, bytes: &[u8], values: &Values<'_>) -> Option<u64> {
        self.find(0, 0, bytes, values)
    }

    /// Continues at part `from` and byte `at` up to the first sequence number.
    fn find(&self, from: usize, mut at: usize, bytes: &[u8], values: &Values<'_>) -> Option<u64> {
        for (index, part) in self.parts.iter().enumerate().skip(from) {
            let rest = bytes.get(at..)?;
            at += match part {
                Part::Literal(literal) => rest.starts_with(literal).then_some(literal.len())?,
                Part::Open(format) => number::decode(*format, rest)?.1,
                Part::Close => 0,
                Part::Slot(slot) => match &slot.source {
                    Source::Sequence => {
                        let (sequence, _) = read_number(rest, slot.format)?;
                        return self.equals(bytes, &Values { sequence, ..*values }).then_some(sequence);
                    }
                    Source::Choice(texts) => {
                        let is_new = |n: usize| !texts[..n].contains(&texts[n]);
                        let here = texts.iter().enumerate().filter(|(n, text)| is_new(*n) && rest.starts_with(text));
                        return here
                            .map(|(_, text)| self.find(index + 1, at + text.len(), bytes, values))
                            .find_map(|found| found);
                    }
                    Source::Payload(payload) => payload.size,
                    Source::Random(_) | Source::DueUs | Source::PacketId => read_number(rest, slot.format)?.1,
                    _ => slot_length(slot, rest, values)?,
                },
            };
        }
        None
    }

    /// Whether the bytes are the message with these values, apart from its due time.
    fn equals(&self, bytes: &[u8], values: &Values<'_>) -> bool {
        self.is_walked(bytes, values).is_some()
    }

    fn is_walked(&self, bytes: &[u8], values: &Values<'_>) -> Option<()> {
        // The ends of the lengths that are open.
        let mut ends = [0; 16];
        let (mut depth, mut at) = (0, 0);
        for part in &self.parts {
            let rest = bytes.get(at..)?;
            at += match part {
                Part::Literal(literal) => rest.starts_with(literal).then_some(literal.len())?,
                Part::Open(format) => {
                    let (length, width) = read_number(rest, Some(*format))?;
                    *ends.get_mut(depth)? = (at + width).checked_add(usize::try_from(length).ok()?)?;
                    depth += 1;
                    width
                }
                Part::Close => {
                    depth = depth.checked_sub(1)?;
                    (ends[depth] == at).then_some(0)?
                }
                Part::Slot(Slot { source: Source::DueUs, format, .. }) => read_number(rest, *format)?.1,
                Part::Slot(slot) => slot_length(slot, rest, values)?,
            };
        }
        (at == bytes.len()).then_some(())
    }
}

/// The length of a slot's text, if the bytes begin with it.
fn slot_length(slot: &Slot, bytes: &[u8], values: &Values<'_>) -> Option<usize> {
    match slot.value(values) {
        Value::Text(text) => bytes.starts_with(text).then_some(text.len()),
        Value::Number(number) => {
            let (mut digits, encoded);
            let text = match slot.format {
                None => {
                    digits = itoa::Buffer::new();
                    digits.format(number).as_bytes()
                }
                Some(format) => {
                    encoded = number::encode(format, number);
                    &encoded.0[..encoded.1]
                }
            };
            bytes.starts_with(text).then_some(text.len())
        }
    }
}

/// The number at the start of the bytes in its shortest form, and its length.
fn read_number(bytes: &[u8], format: Option<NumberFormat>) -> Option<(u64, usize)> {
    match format {
        Some(format) => {
            let (number, length) = number::decode(format, bytes)?;
            (number::encode(format, number).1 == length).then_some((number, length))
        }
        None => digits(bytes),
    }
}

/// The number that the digits at the start are; `None` without digits, with a leading zero, or above 64 bits.
pub fn digits(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
    if length == 0 || (length > 1 && bytes[0] == b'0') {
        return None;
    }
    let push = |number: u64, byte: &u8| number.checked_mul(10)?.checked_add(u64::from(byte - b'0'));
    bytes[..length].iter().try_fold(0, push).map(|number| (number, length))
}

impl Template {
    /// Whether a number could run into what stands before or behind it, so that an echo could be that of another message:
    /// the digits of two numbers, or of a number and a text.
    pub fn has_unclear_number(&self) -> bool {
        let is_unclear_after = |(at, first): (usize, &Part)| {
            let mut rest = self.parts[at + 1..].iter();
            // Up to the first part that separates them for certain.
            let mut is_over = false;
            let is_near = |part: &&Part| !std::mem::replace(&mut is_over, !may_be_digits(part));
            ends_unclear(first)
                && rest
                    .by_ref()
                    .take_while(is_near)
                    .any(|part| begins_with_digit(part) && (is_unknown_number(first) || is_unknown_number(part)))
        };
        self.parts.iter().enumerate().any(is_unclear_after)
    }
}

/// Whether it is a number in digits that isn't known before the echo is read; where the others end is known.
fn is_unknown_number(part: &Part) -> bool {
    matches!(part, Part::Slot(Slot { source, format: None, .. })
        if matches!(source, Source::Sequence | Source::PacketId | Source::DueUs | Source::Random(_)))
}

fn ends_unclear(part: &Part) -> bool {
    let ends_with_digit = |text: &[u8]| text.last().is_some_and(u8::is_ascii_digit);
    match part {
        Part::Slot(Slot { source: Source::Choice(texts), .. }) => texts.iter().any(|text| ends_with_digit(text)),
        _ => is_unknown_number(part),
    }
}

fn begins_with_digit(part: &Part) -> bool {
    let begins = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
    match part {
        Part::Literal(bytes) => begins(bytes),
        Part::Close => false,
        // Its bytes can be digits.
        Part::Open(_) | Part::Slot(Slot { format: Some(_), .. }) => true,
        Part::Slot(slot) => match &slot.source {
            Source::Choice(texts) => texts.iter().any(|text| begins(text)),
            Source::Payload(_) => false,
            // Numbers, and texts that aren't known yet.
            _ => true,
        },
    }
}

/// Whether it may be nothing but digits, or nothing at all.
fn may_be_digits(part: &Part) -> bool {
    let is_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    match part {
        Part::Literal(bytes) => is_digits(bytes),
        Part::Open(_) | Part::Slot(Slot { format: Some(_), .. }) | Part::Close => true,
        Part::Slot(slot) => match &slot.source {
            Source::Choice(texts) => texts.iter().any(|text| is_digits(text)),
            Source::Payload(payload) => payload.size == 0,
            _ => true,
        },
    }
}
