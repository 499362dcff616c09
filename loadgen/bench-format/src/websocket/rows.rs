//! Rows of connections: their formats, the command that prints them, and what it printed.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A command that prints rows. Ladder runs it once, before the first trial of a run, also of a resumed one, and gives all
/// workers the same rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowsCommand {
    /// The program and its arguments. It runs in the root of the checkout, with ladder's environment.
    pub command: Vec<String>,
    /// The format of what it prints on standard output.
    #[serde(default)]
    pub format: RowsFormat,
    /// Seconds after which it is killed and the run is not begun, from 0.1 to 600.
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: f64,
}

fn default_timeout_seconds() -> f64 {
    30.0
}

/// How a file or an output has rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RowsFormat {
    /// CSV with a header line.
    #[default]
    Csv,
    /// In each line a JSON object of texts and numbers, all with the same names.
    JsonLines,
}

impl RowsFormat {
    /// The format of a file, by the end of its name: `.jsonl` and `.ndjson` are JSON lines.
    pub fn of_file(path: &str) -> Self {
        if path.ends_with(".jsonl") || path.ends_with(".ndjson") { Self::JsonLines } else { Self::Csv }
    }
}

/// What a command printed, for the workers. These are tokens as a rule, so that `Debug` shows only how much it is.
#[derive(Clone, PartialEq, Eq)]
pub struct PrintedRows(Arc<str>);

impl PrintedRows {
    /// The text in the format of its [`RowsCommand`].
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<String> for PrintedRows {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for PrintedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrintedRows({} bytes)", self.0.len())
    }
}

impl Serialize for PrintedRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PrintedRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_rows_are_not_shown() {
        let rows = PrintedRows::from("s3cret".to_owned());
        assert_eq!(format!("{rows:?}"), "PrintedRows(6 bytes)");
        assert_eq!(serde_json::from_str::<PrintedRows>(&serde_json::to_string(&rows).unwrap()).unwrap(), rows);
    }

    #[test]
    fn the_end_of_a_name_says_the_format_of_its_file() {
        let formats = ["a.jsonl", "a.ndjson", "a.csv", "jsonl"].map(RowsFormat::of_file);
        assert_eq!(formats, [RowsFormat::JsonLines, RowsFormat::JsonLines, RowsFormat::Csv, RowsFormat::Csv]);
    }
}
