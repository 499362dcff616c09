//! Composes the messages of one template in a buffer that is used again.
//!
//! Messages of a template differ only in their slots, and mostly not in the slots' widths. The last message stays in
//! the buffer, and the next one overwrites its slots; only a slot that becomes wider or narrower makes it compose the
//! whole message.

use loadgen_core::workload::Opcode;

use super::{Part, Slot, Template, Value, Values};
use crate::number;

/// Largest difference between two numbers that is added digit by digit. Numbers of messages grow by one, due times by a
/// few microseconds, and most of their digits stay.
const SMALL: u64 = 10_000;

/// Composes messages of one template.
#[derive(Clone, Debug)]
pub struct Composer {
    template: Template,
    /// The message that was composed last.
    buffer: Vec<u8>,
    slots: Vec<Slot>,
    /// What the slots are in the last message; empty before the first.
    written: Vec<Written>,
}

/// A slot in the last message.
#[derive(Clone, Copy, Debug)]
struct Written {
    from: usize,
    length: usize,
    /// The number; 0 for a text.
    number: u64,
}

impl Composer {
    /// Creates a composer, which has composed nothing yet.
    pub fn new(template: Template) -> Self {
        let slots = template.slots().cloned().collect();
        Self { template, buffer: Vec::new(), slots, written: Vec::new() }
    }

    /// The message with these values.
    #[inline]
    pub fn compose(&mut self, values: &Values<'_>) -> (Opcode, &[u8]) {
        if self.buffer.is_empty() || !self.overwrite(values) {
            self.template.build(values, &mut self.buffer, &mut self.written);
        }
        (self.template.opcode, &self.buffer)
    }

    /// Writes the slots over those of the last message. Returns `false` if one has another width.
    #[inline]
    fn overwrite(&mut self, values: &Values<'_>) -> bool {
        for (slot, written) in self.slots.iter().zip(&mut self.written) {
            let place = &mut self.buffer[written.from..written.from + written.length];
            let fits = match (slot.value(values), slot.format) {
                (Value::Text(text), _) => copy(place, text),
                (Value::Number(number), format) => {
                    let before = std::mem::replace(&mut written.number, number);
                    match (number.checked_sub(before), format) {
                        (Some(0), _) => true,
                        (Some(more @ ..SMALL), None) => add_digits(place, more),
                        (_, None) => copy(place, itoa::Buffer::new().format(number).as_bytes()),
                        (_, Some(format)) => {
                            let (bytes, length) = number::encode(format, number);
                            copy(place, &bytes[..length])
                        }
                    }
                }
            };
            if !fits {
                return false;
            }
        }
        true
    }
}

impl Template {
    /// The message with these values, for one that isn't composed often.
    pub fn bytes(&self, values: &Values<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.build(values, &mut bytes, &mut Vec::new());
        bytes
    }

    #[cold]
    fn build(&self, values: &Values<'_>, buffer: &mut Vec<u8>, written: &mut Vec<Written>) {
        buffer.clear();
        written.clear();
        // Of each length that is open: its format, where its content starts, and the first slot in it.
        let mut open = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(bytes) => buffer.extend_from_slice(bytes),
                Part::Slot(slot) => {
                    let from = buffer.len();
                    let number = append(buffer, slot, values);
                    written.push(Written { from, length: buffer.len() - from, number });
                }
                Part::Open(format) => open.push((*format, buffer.len(), written.len())),
                Part::Close => {
                    let Some((format, from, first_slot)) = open.pop() else { continue };
                    let (length, width) = number::encode(format, (buffer.len() - from) as u64);
                    buffer.splice(from..from, length[..width].iter().copied());
                    written[first_slot..].iter_mut().for_each(|slot| slot.from += width);
                }
            }
        }
    }
}

/// Appends a slot; returns its number, or 0 for a text.
fn append(buffer: &mut Vec<u8>, slot: &Slot, values: &Values<'_>) -> u64 {
    let number = match slot.value(values) {
        Value::Text(text) => {
            buffer.extend_from_slice(text);
            return 0;
        }
        Value::Number(number) => number,
    };
    match slot.format {
        None => buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        Some(format) => {
            let (bytes, length) = number::encode(format, number);
            buffer.extend_from_slice(&bytes[..length]);
        }
    }
    number
}

#[inline]
fn copy(place: &mut [u8], bytes: &[u8]) -> bool {
    let fits = place.len() == bytes.len();
    if fits {
        place.copy_from_slice(bytes);
    }
    fits
}

/// Adds to the number that the digits are; returns `false` if the sum needs more digits.
#[inline]
fn add_digits(place: &mut [u8], mut more: u64) -> bool {
    for digit in place.iter_mut().rev() {
        let sum = u64::from(*digit - b'0') + more;
        *digit = b'0' + (sum % 10) as u8;
        more = sum / 10;
        if more == 0 {
            return true;
        }
    }
    false
}
