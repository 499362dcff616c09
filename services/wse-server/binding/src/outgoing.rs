//! Encodes Python objects as JSON and MessagePack without an intermediate tree, for the events that an application
//! sends.
//!
//! Each object is encoded as by the reference server, except where that would lose data without an error.

use std::{borrow::Cow, cell::RefCell};

use pyo3::{
    exceptions::PyValueError,
    intern,
    prelude::*,
    pybacked::PyBackedStr,
    types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple},
};
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use wse_engine::{
    Server,
    events::{Event, Value, sort_members},
};

/// The deepest nesting of containers, the event included. Common parsers accept this depth.
const MAX_DEPTH: usize = 128;

/// Sends an event to one connection. The interpreter is held only while Python objects are read. Returns the size of
/// the payload in bytes, or 0 if nothing was sent.
pub(crate) fn send(
    py: Python<'_>,
    server: &Server,
    connection: &str,
    event: &Bound<'_, PyDict>,
    compression_threshold: usize,
) -> PyResult<usize> {
    let raised = RefCell::new(None);
    let members = members(event, 1, &raised)?;
    match server.write_event(connection, &Event::new(members), compression_threshold) {
        Ok(None) => Ok(0),
        Ok(Some(outgoing)) => Ok(py.detach(|| server.send_outgoing(outgoing))),
        Err(error) => Err(raised.take().unwrap_or_else(|| PyValueError::new_err(error.to_string()))),
    }
}

/// The exception that Python raised while an object was written.
type Raised = RefCell<Option<PyErr>>;

/// A Python object that is being written.
struct Object<'a, 'py> {
    object: Bound<'py, PyAny>,
    /// The number of containers around it.
    depth: usize,
    raised: &'a Raised,
}

/// The name of a member: the string that Python holds, or a converted one.
enum Name {
    Backed(PyBackedStr),
    Owned(String),
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        match self {
            Self::Backed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

/// The text of a Python string. An unpaired surrogate, which UTF-8 can't represent, becomes U+FFFD.
fn text<'a>(string: &'a Bound<'_, PyString>) -> Cow<'a, str> {
    string.to_string_lossy()
}

/// The text of a key: a string is kept, anything else is converted with `str()`.
fn name(key: &Bound<'_, PyAny>) -> PyResult<Name> {
    match key.cast::<PyString>() {
        Ok(string) => match PyBackedStr::try_from(string.clone()) {
            Ok(backed) => Ok(Name::Backed(backed)),
            Err(_) => Ok(Name::Owned(text(string).into_owned())),
        },
        Err(_) => Ok(Name::Owned(text(&key.str()?).into_owned())),
    }
}

/// The members of a dict, in its order.
fn members<'a, 'py>(
    dict: &Bound<'py, PyDict>,
    depth: usize,
    raised: &'a Raised,
) -> PyResult<Vec<(Name, Object<'a, 'py>)>> {
    // All items are collected first, because converting a key to text can run Python code that changes the dict.
    let items: Vec<_> = dict.iter().collect();
    items.into_iter().map(|(key, object)| Ok((name(&key)?, Object { object, depth, raised }))).collect()
}

impl<'a, 'py> Object<'a, 'py> {
    /// Keeps the exception that Python raised, and returns the serializer error that ends the encoding.
    fn fail<E: serde::ser::Error>(&self, error: PyErr) -> E {
        let converted = E::custom(&error);
        *self.raised.borrow_mut() = Some(error);
        converted
    }

    /// The depth of the objects inside this one.
    fn next_depth<E: serde::ser::Error>(&self) -> Result<usize, E> {
        if self.depth < MAX_DEPTH {
            return Ok(self.depth + 1);
        }
        Err(self.fail(PyValueError::new_err(format!("nested more than {MAX_DEPTH} deep, or contains itself"))))
    }

    fn dict<S: Serializer>(&self, dict: &Bound<'py, PyDict>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = members(dict, self.next_depth()?, self.raised).map_err(|error| self.fail(error))?;
        sort_members(&mut members);
        let mut map = serializer.serialize_map(Some(members.len()))?;
        for (name, value) in &members {
            map.serialize_entry(name.as_ref(), value)?;
        }
        map.end()
    }

    fn items<S: Serializer>(
        &self,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let depth = self.next_depth()?;
        // All items are collected first, because writing one can run Python code that changes the list.
        let items: Vec<_> = items.map(|object| Object { object, depth, raised: self.raised }).collect();
        let mut sequence = serializer.serialize_seq(Some(items.len()))?;
        for item in &items {
            sequence.serialize_element(item)?;
        }
        sequence.end()
    }

    /// An integer that doesn't fit into 64 signed bits is written as text, because parsers would drop digits of the
    /// number.
    fn integer<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.object.extract::<i64>() {
            Ok(integer) => serializer.serialize_i64(integer),
            Err(_) => self.as_str(serializer),
        }
    }

    /// Writes the `isoformat()` of an object that has that method, such as a date or time, or else its `str()`.
    fn other<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let py = self.object.py();
        let method = self.object.getattr_opt(intern!(py, "isoformat")).map_err(|error| self.fail(error))?;
        if let Some(method) = method {
            let converted = method.call0().map_err(|error| self.fail(error))?;
            if let Ok(converted) = converted.cast::<PyString>() {
                return serializer.serialize_str(&text(converted));
            }
        }
        self.as_str(serializer)
    }

    fn as_str<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let converted = self.object.str().map_err(|error| self.fail(error))?;
        serializer.serialize_str(&text(&converted))
    }

    /// The content of `bytes`, `bytearray` and `memoryview` objects; `None` for other types.
    fn bytes(&self) -> Option<PyResult<Vec<u8>>> {
        if let Ok(bytes) = self.object.cast::<PyBytes>() {
            return Some(Ok(bytes.as_bytes().to_vec()));
        }
        let has_buffer = self.object.is_instance_of::<PyByteArray>() || self.object.is_instance_of::<PyMemoryView>();
        has_buffer.then(|| PyByteArray::from(&self.object).map(|bytes| bytes.to_vec()))
    }
}

/// Two lower-case hexadecimal digits for each byte.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

impl Serialize for Object<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = &self.object;
        if let Ok(string) = object.cast::<PyString>() {
            return serializer.serialize_str(&text(string));
        }
        if object.is_none() {
            return serializer.serialize_unit();
        }
        // Before the test for integers, because `bool` is a subclass of `int`.
        if let Ok(value) = object.cast::<PyBool>() {
            return serializer.serialize_bool(value.is_true());
        }
        if object.is_instance_of::<PyInt>() {
            return self.integer(serializer);
        }
        if let Ok(value) = object.cast::<PyFloat>() {
            let value = value.value();
            // JSON has no NaN and no infinities; they become null.
            return if value.is_finite() { serializer.serialize_f64(value) } else { serializer.serialize_unit() };
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            return self.dict(dict, serializer);
        }
        if let Ok(list) = object.cast::<PyList>() {
            return self.items(list.iter(), serializer);
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return self.items(tuple.iter(), serializer);
        }
        match self.bytes() {
            Some(Ok(bytes)) => serializer.serialize_str(&hex(&bytes)),
            Some(Err(error)) => Err(self.fail(error)),
            None => self.other(serializer),
        }
    }
}

impl Value for Object<'_, '_> {
    fn as_text(&self) -> Option<Cow<'_, str>> {
        self.object.cast::<PyString>().ok().map(text)
    }

    fn as_integer(&self) -> Option<i64> {
        let is_integer = self.object.is_instance_of::<PyInt>() && !self.object.is_instance_of::<PyBool>();
        is_integer.then(|| self.object.extract().ok()).flatten()
    }
}
