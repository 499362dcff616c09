//! An application's event into the protocol's envelope. Pure: values, clock and new ids belong to whoever calls ([`World`]).

use crate::instant::Instant;

/// A field's name, of events, their metadata or envelopes.
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
    /// All names, each at the place that its number says.
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

    /// As it is written.
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

/// The fields of a whole envelope, but for its sequence number.
const ENVELOPE: [Name; 5] = [Name::V, Name::T, Name::P, Name::Id, Name::Ts];
/// The protocol's version.
const VERSION: i64 = 1;
/// Types of the protocol's own messages.
const PROTOCOL_TYPES: [&str; 6] =
    ["server_ready", "snapshot_complete", "client_hello_ack", "connection_state_change", "error", "pong"];

/// The category of messages of a type: the protocol's own (`WSE`), as the engine has it, snapshots (`S`), all else (`U`).
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

/// Where values live.
pub trait World {
    /// A value, cheap to clone.
    type Value: Clone;
    /// What can go wrong.
    type Error;

    /// The value under `name`, if `map` is a map that has it; whatever it is.
    ///
    /// # Errors
    /// The world's own.
    fn get(&self, map: &Self::Value, name: Name) -> Result<Option<Self::Value>, Self::Error>;
    /// The value under a name that is a value.
    ///
    /// # Errors
    /// The world's own.
    fn look_up(&self, map: &Self::Value, name: &Self::Value) -> Result<Option<Self::Value>, Self::Error>;
    /// Puts a value into a map, in place.
    ///
    /// # Errors
    /// The world's own.
    fn put(&self, map: &Self::Value, name: Name, value: Self::Value) -> Result<(), Self::Error>;
    /// A new map with these fields in this order.
    ///
    /// # Errors
    /// The world's own.
    fn map(&self, fields: Vec<(Name, Self::Value)>) -> Result<Self::Value, Self::Error>;
    /// A copy that JSON can hold. Of a map, without the field `without`.
    ///
    /// # Errors
    /// The world's own, and when it is nested too deep.
    fn json(&self, value: &Self::Value, without: Option<Name>) -> Result<Self::Value, Self::Error>;
    /// Whether it is no value.
    fn is_null(&self, value: &Self::Value) -> bool;
    /// Whether it is a map.
    fn is_map(&self, value: &Self::Value) -> bool;
    /// Whether it is an integer.
    fn is_integer(&self, value: &Self::Value) -> bool;
    /// A text as it is; anything else as JSON would have it, written.
    ///
    /// # Errors
    /// The world's own.
    fn text(&self, value: &Self::Value) -> Result<Self::Value, Self::Error>;
    /// What `read` makes of a text that [`Self::text`] gave.
    ///
    /// # Errors
    /// The world's own.
    fn read<R>(&self, text: &Self::Value, read: impl FnOnce(&str) -> R) -> Result<R, Self::Error>;
    /// A new text.
    fn string(&self, text: &str) -> Self::Value;
    /// A new integer.
    fn integer(&self, number: i64) -> Self::Value;
    /// A new id.
    fn new_id(&self) -> Self::Value;
    /// Now.
    fn now(&self) -> Instant;
}

/// The envelope of an event, a map. An event that is an envelope already is given back itself, with `sequence` as its
/// `seq` if it had none. `types` maps the application's types to the protocol's.
///
/// # Errors
/// The world's own.
pub fn transform<W: World>(world: &W, event: &W::Value, sequence: i64, types: &W::Value) -> Result<W::Value, W::Error> {
    if is_envelope(world, event)? {
        if world.get(event, Name::Seq)?.is_none() {
            world.put(event, Name::Seq, world.integer(sequence))?;
        }
        return Ok(event.clone());
    }
    let source = Source { world, event, metadata: world.get(event, Name::Metadata)? };
    source.envelope(sequence, types)
}

fn is_envelope<W: World>(world: &W, event: &W::Value) -> Result<bool, W::Error> {
    for name in ENVELOPE {
        if world.get(event, name)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The protocol's type of an event, and the application's where that is another.
struct Types<V> {
    message_type: V,
    original: Option<V>,
}

/// Where an envelope's fields come from.
struct Source<'a, W: World> {
    world: &'a W,
    event: &'a W::Value,
    metadata: Option<W::Value>,
}

impl<W: World> Source<'_, W> {
    fn envelope(&self, sequence: i64, types: &W::Value) -> Result<W::Value, W::Error> {
        let world = self.world;
        let given = self.given_type()?;
        let Types { message_type, original } = self.types(given.as_ref(), types)?;
        let now = world.now();
        let time = self.of_metadata(Name::Timestamp, Name::Timestamp)?.map(|time| world.text(&time)).transpose()?;
        let age = match &time {
            Some(time) => world.read(time, Instant::parse)?.map(|time| time.age_millis(now)),
            None => None,
        };
        let mut fields = Vec::with_capacity(13);
        fields.push((Name::C, self.category(&message_type)?));
        fields.push((Name::T, message_type));
        fields.push((Name::Id, self.id()?));
        fields.push((Name::Ts, time.unwrap_or_else(|| world.string(&now.to_string()))));
        fields.push((Name::Seq, world.integer(sequence)));
        fields.push((Name::P, self.payload(given)?));
        fields.push((Name::V, world.integer(VERSION)));
        fields.extend(original.map(|original| (Name::OriginalEventType, original)));
        fields.extend(age.map(|millis| (Name::LatencyMs, world.integer(millis))));
        fields.extend(self.text_of_metadata(Name::CorrelationId)?.map(|id| (Name::Cid, id)));
        fields.extend(self.priority()?.map(|priority| (Name::Pri, priority)));
        fields.push((Name::EventVersion, self.version()?));
        fields.extend(self.text_of_metadata(Name::TraceId)?.map(|id| (Name::TraceId, id)));
        world.map(fields)
    }

    /// A field that has a value.
    fn of_event(&self, name: Name) -> Result<Option<W::Value>, W::Error> {
        Ok(self.world.get(self.event, name)?.filter(|value| !self.world.is_null(value)))
    }

    /// A field of the metadata, else one of the event.
    fn of_metadata(&self, name: Name, of_event: Name) -> Result<Option<W::Value>, W::Error> {
        if let Some(metadata) = &self.metadata
            && let Some(value) = self.world.get(metadata, name)?
            && !self.world.is_null(&value)
        {
            return Ok(Some(value));
        }
        self.of_event(of_event)
    }

    fn text_of_metadata(&self, name: Name) -> Result<Option<W::Value>, W::Error> {
        self.of_metadata(name, name)?.map(|value| self.world.text(&value)).transpose()
    }

    /// The application's type: the field it is in, and what it is.
    fn given_type(&self) -> Result<Option<(Name, W::Value)>, W::Error> {
        for name in [Name::EventType, Name::Type] {
            if let Some(value) = self.of_event(name)? {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }

    /// The protocol's type, and the application's where it is another.
    fn types(&self, given: Option<&(Name, W::Value)>, types: &W::Value) -> Result<Types<W::Value>, W::Error> {
        let world = self.world;
        let Some((_, given)) = given else {
            return Ok(Types { message_type: world.string("unknown"), original: None });
        };
        let original = world.text(given)?;
        let mapped = world.look_up(types, &original)?.filter(|mapped| !world.is_null(mapped));
        let (message_type, is_same) = match mapped {
            Some(mapped) => {
                let mapped = world.text(&mapped)?;
                let is_same = world.read(&mapped, |mapped| world.read(&original, |original| original == mapped))??;
                (mapped, is_same)
            }
            None => match world.read(&original, lower_case)? {
                Some(lower) => (world.string(&lower), false),
                None => (original.clone(), true),
            },
        };
        Ok(Types { message_type, original: (!is_same).then_some(original) })
    }

    fn category(&self, message_type: &W::Value) -> Result<W::Value, W::Error> {
        match self.of_event(Name::C)? {
            Some(given) => self.world.text(&given),
            None => Ok(self.world.string(self.world.read(message_type, category)?)),
        }
    }

    fn id(&self) -> Result<W::Value, W::Error> {
        Ok(self.text_of_metadata(Name::EventId)?.unwrap_or_else(|| self.world.new_id()))
    }

    /// The event's payload, or else the event itself, with its type under the name that it has in the protocol.
    fn payload(&self, given: Option<(Name, W::Value)>) -> Result<W::Value, W::Error> {
        if let Some(payload) = self.of_event(Name::Payload)?.filter(|payload| self.world.is_map(payload)) {
            return self.world.json(&payload, None);
        }
        let payload = self.world.json(self.event, Some(Name::Metadata))?;
        if let Some((Name::Type, given)) = given {
            self.world.put(&payload, Name::EventType, self.world.json(&given, None)?)?;
        }
        Ok(payload)
    }

    fn priority(&self) -> Result<Option<W::Value>, W::Error> {
        Ok(self.of_metadata(Name::Priority, Name::Pri)?.filter(|value| self.world.is_integer(value)))
    }

    fn version(&self) -> Result<W::Value, W::Error> {
        let version = match self.of_event(Name::Version)? {
            Some(version) => Some(version),
            None => self.of_metadata(Name::Version, Name::Version)?,
        };
        let version = version.filter(|value| self.world.is_integer(value));
        Ok(version.unwrap_or_else(|| self.world.integer(1)))
    }
}

/// The text in lower case, where that is another.
fn lower_case(text: &str) -> Option<String> {
    let is_lower = text.is_ascii() && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_lower { None } else { Some(text.to_lowercase()).filter(|lower| lower != text) }
}

#[cfg(test)]
mod tests;
