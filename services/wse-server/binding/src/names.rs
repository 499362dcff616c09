//! A cache of short strings that occur often (keys of objects, message types, common values), kept as Python strings.
//!
//! The table has a fixed size. A new string replaces the one in its slot. The table must stay small enough for the
//! first-level CPU cache.

use pyo3::{prelude::*, types::PyString};

/// A power of two. With 40 bytes a slot the table takes 20 KiB.
const SLOTS: usize = 512;
/// Longer strings are created each time. They are rare as keys, and comparing one costs as much as creating it.
const LONGEST_BYTES: usize = 30;
/// String values up to this length are mostly from a small vocabulary. Longer ones are mostly times, ids and free text.
const LONGEST_VALUE_BYTES: usize = 16;

/// A cached string, with its UTF-8 bytes for the comparison.
struct Slot {
    bytes: [u8; LONGEST_BYTES],
    length: u8,
    text: Option<Py<PyString>>,
}

/// The table of cached strings.
pub(crate) struct Names {
    slots: Vec<Slot>,
}

impl Default for Names {
    fn default() -> Self {
        let empty = || Slot { bytes: [0; LONGEST_BYTES], length: 0, text: None };
        Self { slots: (0..SLOTS).map(|_| empty()).collect() }
    }
}

impl Names {
    /// The Python string for `text`. It is the same object as in the last call if the table still holds it.
    pub(crate) fn get<'py>(&mut self, py: Python<'py>, text: &str) -> Bound<'py, PyString> {
        let bytes = text.as_bytes();
        if bytes.len() > LONGEST_BYTES {
            return PyString::new(py, text);
        }
        let slot = &mut self.slots[slot_of(bytes, SLOTS)];
        if slot.length as usize == bytes.len()
            && &slot.bytes[..bytes.len()] == bytes
            && let Some(text) = &slot.text
        {
            return text.bind(py).clone();
        }
        let made = PyString::new(py, text);
        slot.bytes[..bytes.len()].copy_from_slice(bytes);
        slot.length = bytes.len() as u8;
        slot.text = Some(made.clone().unbind());
        made
    }
}

/// The Python string for a value, from the table if it is short.
pub(crate) fn value<'py>(names: &mut Names, py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    if text.len() > LONGEST_VALUE_BYTES { PyString::new(py, text) } else { names.get(py, text) }
}

/// The slot of a string among `slots` (a power of two), computed from its length and both ends. Names that differ only
/// in the middle share a slot and replace each other.
pub(crate) fn slot_of(bytes: &[u8], slots: usize) -> usize {
    let (head, tail) = if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
        (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
    } else if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
        (u64::from(u32::from_le_bytes(*head)), u64::from(u32::from_le_bytes(*tail)))
    } else {
        (bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)), 0)
    };
    let hash = (head ^ tail.rotate_left(29) ^ bytes.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (hash >> (u64::BITS - slots.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_always_the_same_object() {
        Python::initialize();
        Python::attach(|py| {
            let mut names = Names::default();
            let first = names.get(py, "symbol");
            assert!(names.get(py, "symbol").is(&first));
            assert_eq!(first, "symbol");
        });
    }

    #[test]
    fn names_in_the_same_slot_are_never_confused() {
        Python::initialize();
        Python::attach(|py| {
            let mut names = Names::default();
            for round in 0..3 {
                for number in 0..2000 {
                    let name = format!("n{number}");
                    assert_eq!(names.get(py, &name), name.as_str(), "round {round}");
                }
            }
            let long = "x".repeat(LONGEST_BYTES + 1);
            assert_eq!(names.get(py, &long), long.as_str());
            assert_eq!(names.get(py, ""), "");
        });
    }
}
