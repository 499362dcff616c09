//! Converts an application's event into an envelope of the protocol. The caller provides values, clock and new ids
//! through the trait [`Host`].

use crate::instant::Instant;

/// The name of a field of an event, of its metadata or of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Name {
    V,
    T,
    P,
    Id,
    Ts,
    Seq,
    C,
    Type,
    EventType,
    Payload,
    Metadata,
    EventId,
    Timestamp,
    CorrelationId,
    Priority,
    Pri,
    Version,
    TraceId,
    OriginalEventType,
    LatencyMs,
    Cid,
    EventVersion,
}

impl Name {
    /// All names, in the order of their discriminants.
    pub const ALL: [Self; 22] = [
        Self::V,
        Self::T,
        Self::P,
        Self::Id,
        Self::Ts,
        Self::Seq,
        Self::C,
        Self::Type,
        Self::EventType,
        Self::Payload,
        Self::Metadata,
        Self::EventId,
        Self::Timestamp,
        Self::CorrelationId,
        Self::Priority,
        Self::Pri,
        Self::Version,
        Self::TraceId,
        Self::OriginalEventType,
        Self::LatencyMs,
        Self::Cid,
        Self::EventVersion,
    ];

    /// The name as it is written in an event or envelope.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V => "v",
            Self::T => "t",
            Self::P => "p",
            Self::Id => "id",
            Self::Ts => "ts",
            Self::Seq => "seq",
            Self::C => "c",
            Self::Type => "type",
            Self::EventType => "event_type",
            Self::Payload => "payload",
            Self::Metadata => "_metadata",
            Self::EventId => "event_id",
            Self::Timestamp => "timestamp",
            Self::CorrelationId => "correlation_id",
            Self::Priority => "priority",
            Self::Pri => "pri",
            Self::Version => "version",
            Self::TraceId => "trace_id",
            Self::OriginalEventType => "original_event_type",
            Self::LatencyMs => "latency_ms",
            Self::Cid => "cid",
            Self::EventVersion => "event_version",
        }
    }
}

/// The fields that an event must have to count as an envelope. The sequence number may be missing.
const ENVELOPE: [Name; 5] = [Name::V, Name::T, Name::P, Name::Id, Name::Ts];
/// The protocol version, in the field `v` of each envelope.
const VERSION: i64 = 1;
/// The types of the protocol's own messages.
const PROTOCOL_TYPES: [&str; 6] =
    ["server_ready", "snapshot_complete", "client_hello_ack", "connection_state_change", "error", "pong"];

/// The category of a message type: `WSE` for the protocol's own messages (the engine has the same list), `S` for
/// snapshots, `U` for all others.
#[must_use]
pub fn category(message_type: &str) -> &'static str {
    if PROTOCOL_TYPES.contains(&message_type) {
        "WSE"
    } else if message_type.starts_with("snapshot_") || message_type.contains("_snapshot") {
        "S"
    } else {
        "U"
    }
}

/// The operations on values that the conversion needs. An implementation decides what a value is: JSON or a Python
/// object.
pub trait Host {
    /// A reference to a value; cloning it must be cheap.
    type Value: Clone;
    /// The error of the implementation.
    type Error;

    /// The value of the field `name`, which may be null. `None` if `map` isn't a map or has no such field.
    ///
    /// # Errors
    /// Returns the implementation's error if the look-up fails.
    fn get(&self, map: &Self::Value, name: Name) -> Result<Option<Self::Value>, Self::Error>;
    /// The value under a name that is itself a value, as in [`Self::get`].
    ///
    /// # Errors
    /// Returns the implementation's error if the look-up fails.
    fn look_up(&self, map: &Self::Value, name: &Self::Value) -> Result<Option<Self::Value>, Self::Error>;
    /// Sets a field of a map, in place.
    ///
    /// # Errors
    /// Returns the implementation's error if the map can't be changed.
    fn put(&self, map: &Self::Value, name: Name, value: Self::Value) -> Result<(), Self::Error>;
    /// A new map with these fields in this order.
    ///
    /// # Errors
    /// Returns the implementation's error if the map can't be created.
    fn map(&self, fields: Vec<(Name, Self::Value)>) -> Result<Self::Value, Self::Error>;
    /// A copy that JSON can represent. If the value is a map, the field `without` is left out.
    ///
    /// # Errors
    /// Returns the implementation's error if the value can't be converted, or is nested too deep.
    fn json(&self, value: &Self::Value, without: Option<Name>) -> Result<Self::Value, Self::Error>;
    /// Whether the value is null (`None` in Python).
    fn is_null(&self, value: &Self::Value) -> bool;
    /// Whether the value is a map.
    fn is_map(&self, value: &Self::Value) -> bool;
    /// Whether the value is an integer; a boolean isn't one.
    fn is_integer(&self, value: &Self::Value) -> bool;
    /// The value as text: a text itself, anything else as its JSON form is written.
    ///
    /// # Errors
    /// Returns the implementation's error if the value can't be converted.
    fn text(&self, value: &Self::Value) -> Result<Self::Value, Self::Error>;
    /// Calls `read` with a text that [`Self::text`] returned, and returns its result.
    ///
    /// # Errors
    /// Returns the implementation's error if the value isn't a text.
    fn read<R>(&self, text: &Self::Value, read: impl FnOnce(&str) -> R) -> Result<R, Self::Error>;
    /// Creates a text value.
    fn string(&self, text: &str) -> Self::Value;
    /// Creates an integer value.
    fn integer(&self, number: i64) -> Self::Value;
    /// Creates a unique id for an envelope.
    fn new_id(&self) -> Self::Value;
    /// The current time of the wall clock.
    fn now(&self) -> Instant;
}

/// Converts an event (a map) into an envelope. An event that is an envelope already is returned itself, with `sequence`
/// as its `seq` if it had none. `types` maps the application's event types to the protocol's.
///
/// # Errors
/// Returns the first error of the implementation of [`Host`].
pub fn transform<W: Host>(host: &W, event: &W::Value, sequence: i64, types: &W::Value) -> Result<W::Value, W::Error> {
    if is_envelope(host, event)? {
        if host.get(event, Name::Seq)?.is_none() {
            host.put(event, Name::Seq, host.integer(sequence))?;
        }
        return Ok(event.clone());
    }
    let source = Source { host, event, metadata: host.get(event, Name::Metadata)? };
    source.envelope(sequence, types)
}

fn is_envelope<W: Host>(host: &W, event: &W::Value) -> Result<bool, W::Error> {
    for name in ENVELOPE {
        if host.get(event, name)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The protocol's type of an event, and the application's type if it differs.
struct Types<V> {
    message_type: V,
    original: Option<V>,
}

/// The event and metadata from which an envelope's fields are taken.
struct Source<'a, W: Host> {
    host: &'a W,
    event: &'a W::Value,
    metadata: Option<W::Value>,
}

impl<W: Host> Source<'_, W> {
    fn envelope(&self, sequence: i64, types: &W::Value) -> Result<W::Value, W::Error> {
        let host = self.host;
        let given = self.given_type()?;
        let Types { message_type, original } = self.types(given.as_ref(), types)?;
        let now = host.now();
        let time = self.metadata_field(Name::Timestamp, Name::Timestamp)?.map(|time| host.text(&time)).transpose()?;
        let age = match &time {
            Some(time) => host.read(time, Instant::parse)?.map(|time| time.age_millis(now)),
            None => None,
        };
        let mut fields = Vec::with_capacity(13);
        fields.push((Name::C, self.category(&message_type)?));
        fields.push((Name::T, message_type));
        fields.push((Name::Id, self.id()?));
        fields.push((Name::Ts, time.unwrap_or_else(|| host.string(&now.to_string()))));
        fields.push((Name::Seq, host.integer(sequence)));
        fields.push((Name::P, self.payload(given)?));
        fields.push((Name::V, host.integer(VERSION)));
        fields.extend(original.map(|original| (Name::OriginalEventType, original)));
        fields.extend(age.map(|millis| (Name::LatencyMs, host.integer(millis))));
        fields.extend(self.metadata_text(Name::CorrelationId)?.map(|id| (Name::Cid, id)));
        fields.extend(self.priority()?.map(|priority| (Name::Pri, priority)));
        fields.push((Name::EventVersion, self.version()?));
        fields.extend(self.metadata_text(Name::TraceId)?.map(|id| (Name::TraceId, id)));
        host.map(fields)
    }

    /// A field of the event; `None` if it is missing or null.
    fn event_field(&self, name: Name) -> Result<Option<W::Value>, W::Error> {
        Ok(self.host.get(self.event, name)?.filter(|value| !self.host.is_null(value)))
    }

    /// A field of the metadata, or else a field of the event; `None` if both are missing or null.
    fn metadata_field(&self, name: Name, event_field: Name) -> Result<Option<W::Value>, W::Error> {
        if let Some(metadata) = &self.metadata
            && let Some(value) = self.host.get(metadata, name)?
            && !self.host.is_null(&value)
        {
            return Ok(Some(value));
        }
        self.event_field(event_field)
    }

    fn metadata_text(&self, name: Name) -> Result<Option<W::Value>, W::Error> {
        self.metadata_field(name, name)?.map(|value| self.host.text(&value)).transpose()
    }

    /// The application's type of the event, with the field that contains it.
    fn given_type(&self) -> Result<Option<(Name, W::Value)>, W::Error> {
        for name in [Name::EventType, Name::Type] {
            if let Some(value) = self.event_field(name)? {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }

    /// The protocol's type, and the application's type if it differs. Without a mapping the type is converted to lower
    /// case.
    fn types(&self, given: Option<&(Name, W::Value)>, types: &W::Value) -> Result<Types<W::Value>, W::Error> {
        let host = self.host;
        let Some((_, given)) = given else {
            return Ok(Types { message_type: host.string("unknown"), original: None });
        };
        let original = host.text(given)?;
        let mapped = host.look_up(types, &original)?.filter(|mapped| !host.is_null(mapped));
        let (message_type, is_same) = match mapped {
            Some(mapped) => {
                let mapped = host.text(&mapped)?;
                let is_same = host.read(&mapped, |mapped| host.read(&original, |original| original == mapped))??;
                (mapped, is_same)
            }
            None => match host.read(&original, lower_case)? {
                Some(lower) => (host.string(&lower), false),
                None => (original.clone(), true),
            },
        };
        Ok(Types { message_type, original: (!is_same).then_some(original) })
    }

    fn category(&self, message_type: &W::Value) -> Result<W::Value, W::Error> {
        match self.event_field(Name::C)? {
            Some(given) => self.host.text(&given),
            None => Ok(self.host.string(self.host.read(message_type, category)?)),
        }
    }

    fn id(&self) -> Result<W::Value, W::Error> {
        Ok(self.metadata_text(Name::EventId)?.unwrap_or_else(|| self.host.new_id()))
    }

    /// The event's payload if that is a map, or else the event itself without its metadata. In the latter case a type
    /// in the field `type` is also copied to `event_type`, the protocol's name for it.
    fn payload(&self, given: Option<(Name, W::Value)>) -> Result<W::Value, W::Error> {
        if let Some(payload) = self.event_field(Name::Payload)?.filter(|payload| self.host.is_map(payload)) {
            return self.host.json(&payload, None);
        }
        let payload = self.host.json(self.event, Some(Name::Metadata))?;
        if let Some((Name::Type, given)) = given {
            self.host.put(&payload, Name::EventType, self.host.json(&given, None)?)?;
        }
        Ok(payload)
    }

    fn priority(&self) -> Result<Option<W::Value>, W::Error> {
        Ok(self.metadata_field(Name::Priority, Name::Pri)?.filter(|value| self.host.is_integer(value)))
    }

    fn version(&self) -> Result<W::Value, W::Error> {
        let version = match self.event_field(Name::Version)? {
            Some(version) => Some(version),
            None => self.metadata_field(Name::Version, Name::Version)?,
        };
        let version = version.filter(|value| self.host.is_integer(value));
        Ok(version.unwrap_or_else(|| self.host.integer(1)))
    }
}

/// The text in lower case; `None` if it is in lower case already.
fn lower_case(text: &str) -> Option<String> {
    let is_lower = text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_lower { None } else { Some(text.to_lowercase()).filter(|lower| lower != text) }
}

#[cfg(test)]
mod tests;
