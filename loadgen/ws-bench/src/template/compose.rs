//! Composes the messages of one template in a buffer that is used again.
//!
//! Messages of a template differ only in their slots, and mostly not in the slots' widths. The last message stays in
//! the buffer, and the next one overwrites its slots; only a slot that becomes wider or narrower makes it compose the
//! whole message.

use loadgen_core::workload::Opcode;

use super::{Part, Slot, Template, Value, Values, number};

/// Composes messages of one template.
#[derive(Clone, Debug)]
pub struct Composer {
    template: Template,
    /// The last message.
    buffer: Vec<u8>,
    slots: Vec<Slot>,
    /// Places of the slots in the last message; empty before the first.
    spans: Vec<Span>,
    is_composed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: usize,
    length: usize,
}

impl Composer {
    /// Creates a composer.
    pub fn new(template: Template) -> Self {
        let slots = template.slots().cloned().collect();
        Self { template, buffer: Vec::new(), slots, spans: Vec::new(), is_composed: false }
    }

    /// The message with these values.
    #[inline]
    pub fn compose(&mut self, values: &Values<'_>) -> (Opcode, &[u8]) {
        if !self.is_composed || !self.overwrite(values) {
            self.template.build(values, &mut self.buffer, &mut self.spans);
            self.is_composed = true;
        }
        (self.template.opcode, &self.buffer)
    }

    /// Writes the slots over those of the last message. Returns `false` if one has another width.
    #[inline]
    fn overwrite(&mut self, values: &Values<'_>) -> bool {
        for (slot, span) in self.slots.iter().zip(&self.spans) {
            let place = &mut self.buffer[span.from..span.from + span.length];
            let fits = match (slot.value(values), slot.format) {
                (Value::Text(text), _) => copy(place, text),
                (Value::Number(number), None) => write_digits(place, number),
                (Value::Number(number), Some(format)) => {
                    let (bytes, length) = number::encode(format, number);
                    copy(place, &bytes[..length])
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
    fn build(&self, values: &Values<'_>, buffer: &mut Vec<u8>, spans: &mut Vec<Span>) {
        buffer.clear();
        spans.clear();
        // Of each length that is open: its format, where its content starts, and the first slot in it.
        let mut open = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(bytes) => buffer.extend_from_slice(bytes),
                Part::Slot(slot) => {
                    let from = buffer.len();
                    append(buffer, slot, values);
                    spans.push(Span { from, length: buffer.len() - from });
                }
                Part::Open(format) => open.push((*format, buffer.len(), spans.len())),
                Part::Close => {
                    let Some((format, from, first_slot)) = open.pop() else { continue };
                    let (length, width) = number::encode(format, (buffer.len() - from) as u64);
                    buffer.splice(from..from, length[..width].iter().copied());
                    spans[first_slot..].iter_mut().for_each(|span| span.from += width);
                }
            }
        }
    }
}

fn append(buffer: &mut Vec<u8>, slot: &Slot, values: &Values<'_>) {
    match (slot.value(values), slot.format) {
        (Value::Text(text), _) => buffer.extend_from_slice(text),
        (Value::Number(number), None) => buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
        (Value::Number(number), Some(format)) => {
            let (bytes, length) = number::encode(format, number);
            buffer.extend_from_slice(&bytes[..length]);
        }
    }
}

#[inline]
fn copy(place: &mut [u8], bytes: &[u8]) -> bool {
    let fits = place.len() == bytes.len();
    if fits {
        place.copy_from_slice(bytes);
    }
    fits
}

/// Writes a number into exactly this place; returns `false` if its digits need another width.
#[inline]
fn write_digits(place: &mut [u8], mut number: u64) -> bool {
    for (at, digit) in place.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at == 0;
        }
    }
    false
}
