//! The messages and events of one blob, as offsets into it.

use bytes::Bytes;

use crate::key::ConnectionKey;

/// The kind of an entry in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A connection opened without a check of its token: the data is its cookie header, the type its id. The
    /// application sends the `server_ready`.
    Connect,
    /// A connection opened with a valid token: the data is the user's id, the type the connection's id.
    AuthConnect,
    /// The text of a JSON object, without the legacy prefix. Malformed JSON is detected only when the application
    /// parses it.
    Json,
    /// Validated MessagePack, without its prefix.
    MessagePack,
    /// Text that is not a JSON object, unchanged.
    Raw,
    /// A binary frame that is none of the above.
    Binary,
    /// A user joined a topic: the data is a JSON object of topic, user and the user's presence data. It belongs to no
    /// connection.
    PresenceJoin,
    /// A user left a topic; otherwise as [`Kind::PresenceJoin`].
    PresenceLeave,
    /// The connection is closed: no data, the type is its id. It is the connection's last entry.
    Disconnect,
}

impl Kind {
    /// Whether it is a message from the client, not an event of a connection or of presence.
    pub fn is_message(self) -> bool {
        !matches!(self, Self::Connect | Self::AuthConnect | Self::Disconnect | Self::PresenceJoin | Self::PresenceLeave)
    }
}

/// One message or event, as offsets into its segment's blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The connection that it belongs to.
    pub connection: ConnectionKey,
    /// The offset of the data, in bytes.
    pub start: u32,
    /// The offset at which the data ends, in bytes.
    pub end: u32,
    /// The offset of the type, in bytes.
    pub type_start: u32,
    /// The length of the type, in bytes; 0 if there is none.
    pub type_len: u16,
    /// The kind of message or event.
    pub kind: Kind,
}

/// Messages that share one blob.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The bytes as they came off the wire, unmasked in place, with frame headers between the messages.
    pub blob: Bytes,
    /// The messages, in order of arrival.
    pub entries: Vec<Entry>,
}

impl Segment {
    /// The bytes of the type of `entry`, which must belong to this segment; empty if it has none.
    #[inline]
    pub fn label(&self, entry: &Entry) -> &[u8] {
        let start = entry.type_start as usize;
        &self.blob[start..start + usize::from(entry.type_len)]
    }

    /// The message that `entry`, which must belong to this segment, describes.
    pub fn message(&self, entry: &Entry) -> Message<'_> {
        let kind = self.label(entry);
        Message {
            kind: entry.kind,
            connection: entry.connection,
            data: &self.blob[entry.start as usize..entry.end as usize],
            message_type: if kind.is_empty() { None } else { std::str::from_utf8(kind).ok() },
        }
    }
}

/// One message of a batch, borrowed from its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The kind of message or event.
    pub kind: Kind,
    /// The connection that it belongs to.
    pub connection: ConnectionKey,
    /// The data; its meaning depends on the kind.
    pub data: &'a [u8],
    /// The top-level `t` (or `type`) of a JSON object or a MessagePack map, if it is a string without escapes; for a
    /// connection event, the connection's id.
    pub message_type: Option<&'a str>,
}
