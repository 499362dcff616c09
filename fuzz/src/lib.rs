//! What several fuzz targets share: JSON documents with some of their values changed, and the registry and the machine
//! for which plans are checked.
//!
//! Random bytes are hardly ever a document, so inputs say what is changed in a valid one. Each change takes
//! [`CHANGE_BYTES`]: which value (two bytes), what it becomes (one), and a number for that (eight).

use std::{path::Path, sync::LazyLock};

use operator::{plan::check::MachineLimits, registry::Registry};
use serde_json::{Map, Value};

/// The registry of this checkout.
pub static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../services/services.toml");
    Registry::load(Path::new(path)).expect("the registry is valid")
});
/// A machine on which every plan of this checkout can climb.
pub const MACHINE: MachineLimits = MachineLimits { cpus: 2, no_fractions: None };

/// Bytes of one change.
pub const CHANGE_BYTES: usize = 11;
/// Most changes of one document: more rarely leave anything that is accepted.
const MOST_CHANGES: usize = 24;
/// Largest integer that every program reads exactly from JSON (RFC 8259, 6).
const LARGEST_INTEGER: u64 = (1 << 53) - 1;

/// The document with the changes of `input`; without bytes it is the same.
pub fn changed(document: &str, input: &[u8]) -> Value {
    let mut value: Value = serde_json::from_str(document).expect("the document is valid");
    for change in input.chunks_exact(CHANGE_BYTES).take(MOST_CHANGES) {
        let which = usize::from(u16::from_le_bytes([change[0], change[1]]));
        let number = u64::from_le_bytes(change[3..].try_into().expect("eight bytes are left"));
        let count = leaves(&value);
        if count > 0 {
            change_leaf(&mut value, &mut (which % count), change[2], number);
        }
    }
    value
}

/// The number of values that are no containers with content.
fn leaves(value: &Value) -> usize {
    match value {
        Value::Object(fields) if !fields.is_empty() => fields.values().map(leaves).sum(),
        Value::Array(items) if !items.is_empty() => items.iter().map(leaves).sum(),
        _ => 1,
    }
}

/// Changes the leaf before which `left` others come. Returns whether it was found.
fn change_leaf(value: &mut Value, left: &mut usize, kind: u8, number: u64) -> bool {
    match value {
        Value::Object(fields) if !fields.is_empty() => change_in_object(fields, left, kind, number),
        Value::Array(items) if !items.is_empty() => items.iter_mut().any(|item| change_leaf(item, left, kind, number)),
        leaf if *left == 0 => {
            *leaf = replacement(kind, number);
            true
        }
        _ => {
            *left -= 1;
            false
        }
    }
}

fn change_in_object(fields: &mut Map<String, Value>, left: &mut usize, kind: u8, number: u64) -> bool {
    let names: Vec<String> = fields.keys().cloned().collect();
    names.iter().any(|name| {
        // One kind of change removes the field instead of changing its value.
        if kind % 10 == 9 && *left == 0 && leaves(&fields[name]) == 1 {
            return fields.remove(name).is_some();
        }
        change_leaf(fields.get_mut(name).expect("it is one of the names"), left, kind, number)
    })
}

fn replacement(kind: u8, number: u64) -> Value {
    match kind % 10 {
        0 => (number & LARGEST_INTEGER).into(),
        1 => (number % 16).into(),
        2 => LARGEST_INTEGER.into(),
        // Absent where the bits aren't a finite number.
        3 => f64::from_bits(number).into(),
        4 => (number % 1_000_000_000).into(),
        5 => (-((number % 1000) as i64)).into(),
        6 => Value::Null,
        7 => number.to_string().into(),
        _ => (number as f64 / 1e9).into(),
    }
}
