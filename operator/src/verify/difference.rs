//! Finds the first difference between a stored value and the one computed again. Pure.
//!
//! Histograms are compared by their counts: two releases of a compressor may deflate the same counts to other bytes.

use std::fmt::Write;

use bench_format::histogram::inflated;
use serde::Serialize;
use serde_json::Value;

/// Number of characters of a value that a message quotes.
const LONGEST: usize = 100;

/// The first field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Place of the field, for example `figures.delivered_per_second` or `workers[1].program`.
    pub field: String,
    /// The stored value; `nothing` if there is none.
    pub stored: String,
    /// The value that was computed again; `nothing` if there is none.
    pub computed: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { field, stored, computed } = self;
        write!(f, "{field}: it has {stored}, and the trial's files give {computed}")
    }
}

/// The first difference between a stored value and a computed one, in the order of the fields' names.
pub fn first(stored: &Value, computed: &impl Serialize) -> Option<Difference> {
    let computed = serde_json::to_value(computed).expect("our types have no map keys but strings");
    let mut field = String::new();
    let (stored, computed) = differing(&mut field, Some(stored), Some(&computed))?;
    Some(Difference { field: field.trim_start_matches('.').into(), stored, computed })
}

/// Descends to the first difference. `field` is then its place, and otherwise what it was.
fn differing(field: &mut String, stored: Option<&Value>, computed: Option<&Value>) -> Option<(String, String)> {
    let length = field.len();
    let found = match (stored, computed) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            let mut names: Vec<&String> = names.collect();
            names.sort_unstable();
            names.into_iter().find_map(|name| {
                field.truncate(length);
                write!(field, ".{name}").expect("a string takes all that is written");
                differing(field, a.get(name), b.get(name))
            })
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => (0..a.len().max(b.len())).find_map(|index| {
            field.truncate(length);
            write!(field, "[{index}]").expect("a string takes all that is written");
            differing(field, a.get(index), b.get(index))
        }),
        (stored, computed) if stored == computed => None,
        (Some(Value::String(a)), Some(Value::String(b))) if field.ends_with(".v2") && same_counts(a, b) => None,
        (stored, computed) => Some((quoted(stored), quoted(computed))),
    };
    if found.is_none() {
        field.truncate(length);
    }
    found
}

/// Whether two encoded histograms have the same counts.
pub fn same_counts(a: &str, b: &str) -> bool {
    a == b || inflated(a).ok().zip(inflated(b).ok()).is_some_and(|(a, b)| a == b)
}

fn quoted(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".into() };
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use bench_format::histogram::Recorder;
    use serde_json::json;

    use super::*;

    /// The bytes of a histogram as a compressor that saves nothing writes them.
    fn stored_without_compression(bytes: &[u8]) -> String {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::none());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        let deflated = encoder.finish().unwrap();
        let head = [0x1c84_9314_u32.to_be_bytes(), (deflated.len() as u32).to_be_bytes()].concat();
        STANDARD.encode([head, deflated].concat())
    }

    fn found(stored: Value, computed: Value) -> String {
        first(&stored, &computed).map(|difference| difference.to_string()).unwrap_or_default()
    }

    #[test]
    fn the_first_field_that_differs_is_named_with_both_values() {
        let stored = json!({"a": [{"b": 1}, {"b": 2}], "c": 1});
        assert_eq!(found(stored.clone(), stored.clone()), "");
        let computed = json!({"a": [{"b": 1}, {"b": 3}], "c": 2});
        assert_eq!(found(stored.clone(), computed), "a[1].b: it has 2, and the trial's files give 3");
        assert_eq!(
            found(stored, json!({"a": [], "c": 1})),
            "a[0]: it has {\"b\":1}, and the trial's files give nothing"
        );
    }

    #[test]
    fn a_field_that_only_one_side_has_is_a_difference() {
        assert_eq!(found(json!({"a": null}), json!({})), "a: it has null, and the trial's files give nothing");
        assert_eq!(found(json!({}), json!({"x": {"y": 1}})), "x: it has nothing, and the trial's files give {\"y\":1}");
    }

    #[test]
    fn numbers_above_those_of_a_float_are_compared_exactly() {
        let large = u64::MAX - 1;
        assert_ne!(found(json!({"sum": large}), json!({"sum": u64::MAX})), "");
    }

    #[test]
    fn histograms_are_compared_by_their_counts() {
        let mut recorder = Recorder::new();
        (1..=1000).for_each(|value| recorder.record(value * value));
        let bytes = inflated(&recorder.encode().v2).unwrap();
        let other = stored_without_compression(&bytes);
        assert_ne!(other, recorder.encode().v2);
        assert_eq!(found(json!({"h": {"v2": other}}), json!({"h": {"v2": recorder.encode().v2}})), "");
        recorder.record(5);
        assert!(found(json!({"h": {"v2": other}}), json!({"h": {"v2": recorder.encode().v2}})).starts_with("h.v2: "));
    }
}
