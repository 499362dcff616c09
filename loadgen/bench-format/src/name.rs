//! Names that become names of files and folders: of runs, services, workloads, variants and histograms.
//!
//! A [`Name`] is checked where it is deserialised, so no path that is built from names leaves its folder.

use std::{borrow::Borrow, borrow::Cow, fmt, ops::Deref, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Largest length of a name, in bytes.
const MAX_BYTES: usize = 64;
/// The same rule for JSON Schema. A name may not begin with a dot, so `.`, `..` and hidden files are none.
const PATTERN: &str = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$";

/// A name of 1 to 64 characters out of `A-Z a-z 0-9 . _ -` that doesn't begin with a dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(Cow<'static, str>);

/// The error for a text that isn't a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name; use 1 to {MAX_BYTES} letters, digits, `-`, `_` and `.`, the first of them not `.`")]
pub struct InvalidName(String);

impl Name {
    /// Converts a constant of the program to a name.
    ///
    /// # Panics
    /// If the text is not a name.
    pub const fn from_static(text: &'static str) -> Self {
        assert!(is_name(text), "the text is not a name");
        Self(Cow::Borrowed(text))
    }

    /// Converts a text to a name.
    ///
    /// # Errors
    /// [`InvalidName`] if it is not a name.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        if is_name(&text) { Ok(Self(Cow::Owned(text))) } else { Err(InvalidName(text.chars().take(100).collect())) }
    }

    /// The name as a string slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > MAX_BYTES || bytes[0] == b'.' {
        return false;
    }
    // A constant function can't use iterators.
    let mut at = 0;
    while at < bytes.len() {
        if !(bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'.' | b'_' | b'-')) {
            return false;
        }
        at += 1;
    }
    true
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.into_owned()
    }
}

impl From<&Name> for String {
    fn from(name: &Name) -> Self {
        name.as_str().to_owned()
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Name {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other.as_str()
    }
}

impl PartialEq<Name> for String {
    fn eq(&self, other: &Name) -> bool {
        self.as_str() == other.as_str()
    }
}

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A name that becomes the name of a file or folder.",
            "pattern": PATTERN,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_name_is_plain_text_in_json() {
        let name: Name = serde_json::from_str("\"ping-latency_2.5\"").unwrap();
        assert_eq!(
            (serde_json::to_string(&name).unwrap().as_str(), &*name),
            ("\"ping-latency_2.5\"", "ping-latency_2.5")
        );
    }

    #[test]
    fn a_text_that_could_leave_its_folder_is_refused_as_a_value_and_as_a_key() {
        let long = "a".repeat(65);
        for invalid in ["", ".", "..", "../x", "a/b", "/etc", ".lock", "a b", "a\0", "ä", "a\n", "a\\b", &long] {
            let json = serde_json::to_string(invalid).unwrap();
            let error = serde_json::from_str::<Name>(&json).unwrap_err().to_string();
            assert!(error.contains("is not a name; use 1 to 64 letters"), "{error}");
            assert!(serde_json::from_str::<BTreeMap<Name, u32>>(&format!("{{{json}: 1}}")).is_err(), "{invalid}");
        }
    }
}
