//! Converts batches into events as the reference has them: tuples of kind, connection id and decoded data.

use pyo3::{
    intern,
    prelude::*,
    types::{PyBytes, PyString},
};
use wse_engine::{Batch, Kind, Message};

use crate::{
    names::Names,
    running::Running,
    shapes::Shapes,
    values::{Decoder, Integers},
};

/// One event: its kind, the connection's id (`None` for presence events) and its data.
pub(crate) type Event<'py> = (Bound<'py, PyString>, Option<Bound<'py, PyString>>, Bound<'py, PyAny>);

/// The name of an event's kind, as the reference has it. Both JSON and MessagePack messages are `msg`.
pub(crate) fn kind_name(py: Python<'_>, kind: Kind) -> Bound<'_, PyString> {
    let name = match kind {
        Kind::Connect => intern!(py, "connect"),
        Kind::AuthConnect => intern!(py, "auth_connect"),
        Kind::Json | Kind::MessagePack => intern!(py, "msg"),
        Kind::Raw => intern!(py, "raw"),
        Kind::Binary => intern!(py, "bin"),
        Kind::Disconnect => intern!(py, "disconnect"),
        Kind::PresenceJoin => intern!(py, "presence_join"),
        Kind::PresenceLeave => intern!(py, "presence_leave"),
    };
    name.clone()
}

/// Decodes a whole batch and frees its memory.
pub(crate) fn decode<'py>(py: Python<'py>, running: &Running, batch: Batch) -> Vec<Event<'py>> {
    let mut events = Vec::with_capacity(batch.len());
    running.with_names(|names| {
        running.with_shapes(|shapes| {
            // Consecutive messages mostly belong to one connection, so its id is looked up once for each run.
            let mut last = None;
            for message in batch.iter() {
                if matches!(message.kind, Kind::PresenceJoin | Kind::PresenceLeave) {
                    let (kind, data) = decode_one(py, running, names, shapes, &message);
                    events.push((kind_name(py, kind), None, data));
                    continue;
                }
                let id = match &last {
                    Some((key, id)) if *key == message.connection => Bound::clone(id),
                    _ => {
                        let known = running.id(py, message.connection);
                        known.unwrap_or_else(|| PyString::new(py, message.message_type.unwrap_or("")))
                    }
                };
                last = Some((message.connection, id.clone()));
                let (kind, data) = decode_one(py, running, names, shapes, &message);
                events.push((kind_name(py, kind), Some(id), data));
            }
        })
    });
    running.forget(batch.iter().filter(|message| message.kind == Kind::Disconnect).map(|message| message.connection));
    events
}

/// The data of an event, and its final kind: a message that can't be decoded becomes `raw` (JSON) or `bin`
/// (MessagePack).
fn decode_one<'py>(
    py: Python<'py>,
    running: &Running,
    names: &mut Names,
    shapes: &mut Shapes,
    message: &Message<'_>,
) -> (Kind, Bound<'py, PyAny>) {
    let mut decoder = Decoder::new(py, names, Integers::Reference);
    let value = match message.kind {
        Kind::Json => match shapes.json(&mut decoder, message.message_type.unwrap_or(""), message.data) {
            Ok(value) => value,
            Err(_) => {
                running.server.count_malformed(1);
                return (Kind::Raw, text(py, message.data));
            }
        },
        Kind::MessagePack => match decoder.messagepack(message.data) {
            Ok(value) => value,
            // Valid MessagePack that Python can't represent: a map with a key that isn't hashable.
            Err(_) => return (Kind::Binary, PyBytes::new(py, message.data).into_any()),
        },
        Kind::Binary => PyBytes::new(py, message.data).into_any(),
        Kind::Connect | Kind::AuthConnect | Kind::Raw => text(py, message.data),
        Kind::PresenceJoin | Kind::PresenceLeave => {
            decoder.json(message.data).expect("the engine wrote it, and checked the data in it")
        }
        Kind::Disconnect => py.None().into_bound(py),
    };
    (message.kind, value)
}

fn text<'py>(py: Python<'py>, data: &[u8]) -> Bound<'py, PyAny> {
    PyString::new(py, &String::from_utf8_lossy(data)).into_any()
}
