//! Masks JSON: keeps its keys in order, and masks the values that depend on the machine or the run.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{is_the_machines, numbers};

/// Keys whose text values are kept.
const WORDS: [&str; 22] = [
    "after",
    "arrivals",
    "backpressure",
    "before",
    "command",
    "ended_by",
    "figure",
    "format",
    "kind",
    "message",
    "mode",
    "model",
    "name",
    "phase",
    "problems",
    "program",
    "side",
    "stage",
    "test",
    "why",
    "witness",
    "workload",
];
/// Keys whose value depends on the machine and the run, or may be absent.
const CHANCE: [&str; 18] = [
    "bound_by",
    "kernel_bytes_per_connection",
    "max_ms",
    "measured",
    "p50_ms",
    "p95_ms",
    "p999_ms",
    "p99_ms",
    "pass",
    "periods",
    "received_per_second",
    "service_bytes_per_connection",
    "service_cpu_seconds",
    "service_cpu_seconds_per_million",
    "service_cpu_share",
    "throttled_periods",
    "verdict",
    "worker_cpu_share",
];
/// Keys below which this holds for every key.
const ALL_CHANCE: [&str; 2] = ["environment", "percentiles"];

/// Keys that are left out, because whether they are there depends on the machine: what its kernel counts of threads, of a
/// CPU quota and of other programs.
const LEFT_OUT: [&str; 3] = ["machine", "threads", "throttled_ns"];

/// JSON with its keys in their order.
enum Node {
    Null,
    Bool(bool),
    Number,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// A document without what depends on the machine and the run.
pub fn masked(document: &str) -> String {
    let node: Node = serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"));
    shown(&node, &mut Vec::new()) + "\n"
}

/// A node as it is kept; `path` has the keys above it.
fn shown<'a>(node: &'a Node, path: &mut Vec<&'a str>) -> String {
    let key = path.last().copied().unwrap_or_default();
    let by_chance = CHANCE.contains(&key) || path.iter().any(|key| ALL_CHANCE.contains(key));
    match node {
        Node::Map(map) => {
            let entry = |(key, node): &'a (String, Node)| {
                path.push(key);
                let shown = format!("{key:?}: {}", shown(node, path));
                path.pop();
                shown
            };
            let kept = map.iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str()));
            block('{', kept.map(entry).collect(), '}')
        }
        // A term of an equation: its name and a number.
        Node::List(list) if matches!(list[..], [Node::Text(_), Node::Number]) => {
            let Node::Text(name) = &list[0] else { unreachable!("it was looked at above") };
            format!("[{name:?}, #]")
        }
        Node::List(list) => block('[', elements(list, path), ']'),
        _ if by_chance => "?".into(),
        Node::Text(text) if key == "command" => format!("{:?}", numbers(without_folder(text))),
        Node::Text(text) if WORDS.contains(&key) => format!("{:?}", numbers(text)),
        Node::Text(_) => "\"…\"".into(),
        Node::Bool(value) => value.to_string(),
        Node::Number => "#".into(),
        Node::Null => "null".into(),
    }
}

/// A command line whose program has no folder.
fn without_folder(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or_default();
    &command[program.rfind('/').map_or(0, |slash| slash + 1)..]
}

/// The elements of a list; equal ones are kept once, because their number depends on the run.
fn elements<'a>(list: &'a [Node], path: &mut Vec<&'a str>) -> Vec<String> {
    let key = path.last().copied().unwrap_or_default();
    let is_stable = |node: &&Node| !matches!(node, Node::Text(text) if key == "problems" && is_the_machines(text));
    // A second that the window only touches has fewer values, so only the first interval is kept.
    let most = if key == "intervals" { 1 } else { usize::MAX };
    let mut elements: Vec<_> = list.iter().filter(is_stable).take(most).map(|node| shown(node, path)).collect();
    elements.dedup();
    elements
}

fn block(open: char, entries: Vec<String>, close: char) -> String {
    if entries.is_empty() {
        return format!("{open}{close}");
    }
    let lines = entries.join(",\n").replace('\n', "\n  ");
    format!("{open}\n  {lines}\n{close}")
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InOrder)
    }
}

/// Deserializes a map without losing the order of its keys.
struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Number)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
