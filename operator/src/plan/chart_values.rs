//! The values of the chart, as far as a plan in them can be checked before it is installed.

use std::{collections::BTreeMap, fs, path::Path};

use bench_format::plan::WirePlan;
use serde::Deserialize;
use serde_json::Value;

use super::{Mistake, Mistakes, scale::Memory};

/// What is read of the values.
#[derive(Debug, Deserialize)]
struct Values {
    services: BTreeMap<String, Entry>,
    protocols: BTreeMap<String, Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    resources: Resources,
}

#[derive(Debug, Deserialize)]
struct Resources {
    memory: String,
}

/// The plan in a values file over a chart's own values, and the memory that pods get.
///
/// # Errors
/// When a file can't be read, or with every mistake in the plan's structure or in a quantity of memory.
pub fn read(chart: &Path, path: &Path) -> Result<(WirePlan, Memory), Mistakes> {
    let mut all = parsed(&chart.join("values.yaml"))?;
    merge(&mut all, parsed(path)?);
    let plan = all.get_mut("plan").map(Value::take).unwrap_or_default();
    let plan = super::read::parse(&plan.to_string(), path)?;
    let values: Values = serde_json::from_value(all).map_err(|error| mistake(path, "", error.to_string()))?;
    let memory = |section: &str, entries: BTreeMap<String, Entry>| {
        let bytes = entries.into_iter().map(|(name, entry)| {
            let memory = entry.resources.memory;
            let place = format!("{section}.{name}.resources.memory");
            let bytes = bytes(&memory).ok_or_else(|| {
                mistake(path, &place, format!("\"{memory}\" is no quantity of memory; give a number with Mi or Gi"))
            });
            Ok((name, bytes?))
        });
        bytes.collect::<Result<_, Mistakes>>()
    };
    let (services, workers) = (memory("services", values.services)?, memory("protocols", values.protocols)?);
    Ok((plan, Memory::Pods { services, workers }))
}

fn parsed(path: &Path) -> Result<Value, Mistakes> {
    let text =
        fs::read_to_string(path).map_err(|error| mistake(path, "", format!("failed to read the values: {error}")))?;
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| mistake(path, "", error.to_string()))
}

fn mistake(path: &Path, place: &str, message: String) -> Mistakes {
    Mistakes(vec![Mistake { file: path.into(), place: place.into(), message }])
}

/// Merges as Helm does: maps key by key, everything else replaced.
fn merge(into: &mut Value, over: Value) {
    match (into, over) {
        (Value::Object(into), Value::Object(over)) => {
            over.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (_, Value::Null) => {}
        (into, over) => *into = over,
    }
}

/// Bytes of a quantity such as `512Mi`, `2G` or `1000`; `None` if it is none.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    (number > 0.0).then_some((number * scale) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: &str = "plan: {schema: 1, name: small, why: w, seed: 1, services: [a], window_seconds: 1, ladders: []}\n\
        services: {a: {resources: {memory: 512Mi}}, b: {resources: {memory: 1G}}}\n\
        protocols: {wse: {resources: {memory: 256Mi}}}\n";

    fn read_with(values: &str) -> Result<(WirePlan, Memory), String> {
        let chart = tempfile::tempdir().unwrap();
        let path = chart.path().join("mine.yaml");
        fs::write(chart.path().join("values.yaml"), CHART).unwrap();
        fs::write(&path, values).unwrap();
        read(chart.path(), &path).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn a_values_file_is_merged_over_those_of_the_chart() {
        let (plan, memory) = read_with("plan: {name: mine}\nservices: {a: {resources: {memory: 2Gi}}}\n").unwrap();
        assert_eq!((plan.name.as_str(), plan.seed), ("mine", 1));
        let Memory::Pods { services, workers } = memory else { panic!("of a machine") };
        assert_eq!(services, [("a".into(), 2 << 30), ("b".into(), 1_000_000_000)].into());
        assert_eq!(workers, [("wse".into(), 256 << 20)].into());
    }

    #[test]
    fn mistakes_have_their_place() {
        let found = read_with("services: {a: {resources: {memory: lots}}}\n").unwrap_err();
        assert!(found.contains("mine.yaml: services.a.resources.memory: \"lots\" is no quantity of memory"), "{found}");
        let found = read_with("plan: {nmae: mine}\n").unwrap_err();
        assert!(found.contains("did you mean `name`?"), "{found}");
    }

    #[test]
    fn quantities_of_memory_are_bytes() {
        let found = ["1000", "1k", "1.5Gi", "64Mi", "", "Mi", "1Xi", "-1"].map(bytes);
        assert_eq!(found, [Some(1000), Some(1000), Some(3 << 29), Some(64 << 20), None, None, None, None]);
    }
}
