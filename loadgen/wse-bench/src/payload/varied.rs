//! Messages that differ: as many types as asked for, each with other keys and another length.
//!
//! A service that remembers the shape of the last message, and a processor that learns the branches of one, are faster
//! at messages that are alike. Real applications send many kinds. Pure.

use super::{NUMBER, Template, padding, write_digits};

/// Most shapes: one for each subset of the optional keys.
pub const MOST_SHAPES: u32 = 1 << OPTIONAL.len();
/// The keys that a message may lack, with their values, sorted.
const OPTIONAL: [(&str, &str); 8] = [
    ("account", r#""acc_01HQ3""#),
    ("price", "5234.75"),
    ("qty", "2"),
    ("score", "0.87"),
    ("side", r#""buy""#),
    ("symbol", r#""ES""#),
    ("tags", r#"["momentum","breakout"]"#),
    ("ts", "1771857000"),
];
/// 2^64 divided by the golden ratio: its multiples modulo 2^64 are evenly spread and follow no short pattern.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Composes messages of several shapes.
pub struct Varied {
    templates: Vec<Template>,
}

impl Varied {
    pub(super) fn new(size_bytes: usize, shapes: u32) -> Self {
        let shapes = shapes.clamp(1, MOST_SHAPES);
        // Spread over all subsets, so that few shapes differ as much as many.
        let subset = |shape: u32| (u64::from(shape) * u64::from(MOST_SHAPES) / u64::from(shapes)) as u32;
        Self { templates: (0..shapes).map(|shape| template(size_bytes, shape, subset(shape))).collect() }
    }

    #[inline]
    pub(super) fn payload(&mut self, sequence: u64) -> &[u8] {
        let turn = sequence.wrapping_mul(GOLDEN) >> 32;
        let shape = (turn * self.templates.len() as u64) >> 32;
        let template = &mut self.templates[shape as usize];
        write_digits(&mut template.bytes[template.number.clone()], sequence);
        &template.bytes
    }
}

/// The message of a shape, which has the optional keys whose bits are set in `keys`. Its padding is a part of that of
/// the nominal size, so that lengths are spread up to it.
fn template(size_bytes: usize, shape: u32, keys: u32) -> Template {
    let padding = padding(size_bytes) * (keys as usize + 1) / MOST_SHAPES as usize;
    let data = format!(r#""{}""#, "x".repeat(padding));
    let optional = OPTIONAL.iter().enumerate().filter(|(bit, _)| keys >> bit & 1 == 1).map(|(_, field)| *field);
    let mut fields: Vec<(&str, &str)> = optional.collect();
    fields.push(("seq", NUMBER));
    if padding > 0 {
        fields.push(("data", &data));
    }
    fields.sort_unstable();
    let fields: Vec<String> = fields.into_iter().map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
    Template::new(format!(r#"{{"p":{{{}}},"t":"update_{shape:03}"}}"#, fields.join(",")), NUMBER)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::{super::FIRST_SEQUENCE, *};

    fn messages(size_bytes: usize, shapes: u32, count: u64) -> Vec<(Value, usize)> {
        let mut varied = Varied::new(size_bytes, shapes);
        let message = |n| {
            let bytes = varied.payload(FIRST_SEQUENCE + n);
            let value: Value = serde_json::from_slice(bytes).unwrap();
            assert_eq!(value["p"]["seq"], FIRST_SEQUENCE + n);
            (value, bytes.len())
        };
        (0..count).map(message).collect()
    }

    #[test]
    fn every_type_occurs_equally_often_and_has_keys_of_its_own() {
        let messages = messages(175, MOST_SHAPES, 256 * 40);
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut keys: BTreeSet<Vec<String>> = BTreeSet::new();
        for (value, _) in &messages {
            *counts.entry(value["t"].as_str().unwrap().to_owned()).or_default() += 1;
            keys.insert(value["p"].as_object().unwrap().keys().cloned().collect());
        }
        assert_eq!((counts.len(), keys.len()), (256, 256));
        assert!(counts.values().all(|count| (35..=45).contains(count)), "{counts:?}");
    }

    #[test]
    fn lengths_are_spread_up_to_the_nominal_size() {
        for (size, least, most) in [(175, 55, 175), (1024, 60, 1014)] {
            let lengths: BTreeSet<usize> = messages(size, 256, 5000).into_iter().map(|(_, length)| length).collect();
            let (first, last) = (*lengths.first().unwrap(), *lengths.last().unwrap());
            assert!(first <= least && last <= most && last > most * 9 / 10 && lengths.len() > 50, "{first} to {last}");
        }
    }

    #[test]
    fn the_next_type_does_not_follow_from_the_last() {
        let types: Vec<String> =
            messages(175, 256, 2000).iter().map(|(value, _)| value["t"].as_str().unwrap().to_owned()).collect();
        let repeated = types.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let following: BTreeSet<&[String]> = types.windows(2).collect();
        assert!(repeated < 20 && following.len() > 500, "{repeated} repeated, {} successions", following.len());
    }

    #[test]
    fn keys_are_sorted() {
        for (value, length) in messages(300, 7, 100) {
            assert_eq!(serde_json::to_string(&value).unwrap().len(), length);
        }
    }
}
