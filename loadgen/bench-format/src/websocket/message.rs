//! Messages of a `websocket` section: templates of what is sent, and conditions on what is received.
//!
//! Placeholders in templates stand between double braces: `{{sequence}}` is the number of the message on its connection,
//! from 0; `{{packet_id}}` is 1 plus that number modulo 65 535; `{{connection}}` and `{{worker}}` are indices from 0;
//! `{{due_us}}` is the due time in microseconds since the Unix epoch; `{{payload}}` is random text of the ladder's
//! `message.size_bytes` and `{{payload_bytes}}` that number, for protocols that announce a length in digits;
//! `{{random A B}}` is a number from A to B; `{{choice A|B|C}}` is one of the texts;
//! `{{captured.NAME}}` is a value of the opening; `{{row.NAME}}` is a column of the connection's row. All random choices
//! follow from the plan's seed, the connection and the sequence number.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A message to send: text or binary, exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// A text message, as a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// A binary message, field by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binary: Vec<BinaryField>,
}

/// A message of the load: text or binary, exactly one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageTemplate {
    /// How often the message is drawn, relative to the others.
    #[serde(default = "one")]
    pub weight: u32,
    /// A text message, as a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// A binary message, field by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binary: Vec<BinaryField>,
    /// Binary messages that are sent right behind it and belong to it, each field by field; only with `framing: socket-io`.
    /// All messages have the same number of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Vec<BinaryField>>,
}

/// A field of a binary message; exactly one of its fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BinaryField {
    /// A template whose text becomes UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes in hexadecimal digits; spaces are allowed between bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
    /// Digits or a placeholder, written in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<BinaryNumber>,
    /// The length of further fields, and then these fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<BinaryLength>,
}

/// A number in a binary message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BinaryNumber {
    /// How the number is written.
    pub format: NumberFormat,
    /// Digits, or one placeholder that stands for a number.
    pub value: String,
}

/// Fields of a binary message behind their length in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BinaryLength {
    /// How the length is written.
    pub format: NumberFormat,
    /// The fields behind the length.
    pub of: Vec<BinaryField>,
}

/// How a number is written in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NumberFormat {
    /// One byte, from 0 to 255.
    U8,
    /// Two bytes, the highest first.
    U16be,
    /// Two bytes, the lowest first.
    U16le,
    /// Four bytes, the highest first.
    U32be,
    /// Four bytes, the lowest first.
    U32le,
    /// Eight bytes, the highest first.
    U64be,
    /// Eight bytes, the lowest first.
    U64le,
    /// Groups of seven bits, the lowest first; all bytes but the last have the highest bit set (MQTT, LEB128).
    Varint,
}

/// A condition on a message; all of its fields that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The whole message is this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<String>,
    /// The message begins with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_with: Option<String>,
    /// The message contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
    /// The message contains a match of this regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// The message begins with these bytes, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hex: Option<String>,
    /// The message is JSON, and the values at these JSON pointers (RFC 6901) are these: the text of a string, the digits of
    /// a number, `true`, `false` or `null`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub json: BTreeMap<String, String>,
}

/// A value in a message; exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extract {
    /// The message is JSON, and the value is at this JSON pointer (RFC 6901).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// The first group of the first match of this regular expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// A number at a place in the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<BytesAt>,
}

/// A number at a place in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BytesAt {
    /// Number of bytes before it.
    pub offset: u32,
    /// How the number is written.
    pub format: NumberFormat,
}

fn one() -> u32 {
    1
}
