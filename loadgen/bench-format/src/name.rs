//! Names that come from files and from other processes and become parts of paths.

use std::{borrow::Borrow, fmt, ops::Deref, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

/// The longest name, in bytes.
pub const LONGEST: usize = 64;

/// The name of a run, a service, a workload, a variant or a histogram: 1 to 64 characters of `A-Z`, `a-z`, `0-9`, `.`,
/// `_` and `-`, but not `.` or `..`.
///
/// The store builds paths from these names only. A name is checked where it is deserialised, so a name that another
/// process has sent never leads out of the bundle's folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// The error for a text that is no [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name; a name has 1 to {LONGEST} of the characters A-Z, a-z, 0-9, '.', '_' and '-', and is not '.' or '..'")]
pub struct InvalidName(String);

impl Name {
    /// Checks a text.
    ///
    /// # Errors
    /// [`InvalidName`] with the first characters of the text, when it is no name.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
        let text = text.into();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=LONGEST).contains(&text.len()) && text.bytes().all(allowed) && text != "." && text != ".." {
            Ok(Self(text))
        } else {
            Err(InvalidName(text.chars().take(LONGEST).collect()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<String> for Name {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for Name {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Name".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(?!\\.{1,2}$)[A-Za-z0-9._-]{1,64}$" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_the_project_are_names() {
        let longest = "x".repeat(LONGEST);
        for text in ["wse-server", "stt-20261125-120612", "newest_ns", "paced-10", "v1.2", "...", &longest] {
            assert_eq!(Name::new(text).unwrap(), text);
        }
    }

    #[test]
    fn a_text_that_leads_elsewhere_or_is_too_long_is_refused() {
        let long = "x".repeat(LONGEST + 1);
        for text in ["", ".", "..", "a/b", "../x", "a\\b", "a b", "a\0", "ä", "a\n", &long] {
            assert!(Name::new(text).is_err(), "{text:?}");
            assert!(serde_json::from_value::<Name>(text.into()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_message_of_a_refused_name_is_short() {
        let message = Name::new("x/".repeat(100_000)).unwrap_err().to_string();
        assert!(message.len() < 250, "{message}");
    }

    proptest! {
        #[test]
        fn a_name_is_one_ordinary_part_of_a_path(text in ".{0,70}") {
            if let Ok(name) = Name::new(text.clone()) {
                let parts: Vec<_> = std::path::Path::new(name.as_str()).components().collect();
                prop_assert_eq!(parts, [std::path::Component::Normal(text.as_ref())]);
            }
        }
    }
}
