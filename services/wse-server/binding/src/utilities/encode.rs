//! Encodes Python dicts as JSON and MessagePack, without an intermediate tree.

use std::cell::RefCell;

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};

use super::{
    objects::{MAX_DEPTH, UnknownObject, bytes_of, json_key, next_depth, to_plain_value},
    value_error,
};

/// The format that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON. Keys become text, bytes hexadecimal text; NaN and infinities become null.
    Json,
    /// MessagePack, which has byte strings and allows keys of any type.
    MessagePack,
}

/// A Python value that is being written.
pub(super) struct Encoder<'a, 'py> {
    value: &'a Bound<'py, PyAny>,
    format: Format,
    /// How many more levels of containers it may have.
    depth: usize,
    /// The exception that Python raised. It is kept here because a serializer reports only its own error type.
    raised: &'a RefCell<Option<PyErr>>,
}

impl<'py> Encoder<'_, 'py> {
    /// Runs `write` with the value of `dict`. An exception that Python raised meanwhile is returned in place of the
    /// serializer's error.
    pub(super) fn encode<T>(
        dict: &Bound<'py, PyDict>,
        format: Format,
        write: impl FnOnce(&Encoder<'_, 'py>) -> T,
    ) -> PyResult<T> {
        let raised = RefCell::new(None);
        let written = write(&Encoder { value: dict.as_any(), format, depth: MAX_DEPTH, raised: &raised });
        raised.into_inner().map_or(Ok(written), Err)
    }

    /// Writes a dict as JSON text.
    pub(super) fn json(dict: &Bound<'py, PyDict>) -> PyResult<Vec<u8>> {
        Encoder::encode(dict, Format::Json, |value| serde_json::to_vec(value))?.map_err(value_error)
    }

    /// Writes a dict as MessagePack.
    pub(super) fn message_pack(dict: &Bound<'py, PyDict>) -> PyResult<Vec<u8>> {
        let mut bytes = Vec::with_capacity(128);
        Encoder::encode(dict, Format::MessagePack, |value| rmp_serde::encode::write(&mut bytes, value))?
            .map_err(value_error)?;
        Ok(bytes)
    }

    fn inner<'b>(&'b self, value: &'b Bound<'py, PyAny>, depth: usize) -> Encoder<'b, 'py> {
        Encoder { value, format: self.format, depth, raised: self.raised }
    }

    /// Keeps the exception that Python raised, and stops the serializer.
    fn checked<T, E: serde::ser::Error>(&self, result: PyResult<T>) -> Result<T, E> {
        result.map_err(|error| {
            let text = error.to_string();
            *self.raised.borrow_mut() = Some(error);
            E::custom(text)
        })
    }

    fn integer<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(number) = self.value.extract::<i64>() {
            return serializer.serialize_i64(number);
        }
        let too_large = |_| PyValueError::new_err("an integer is beyond 64 bits: give it as text");
        let number = self.checked(self.value.extract::<u64>().map_err(too_large))?;
        serializer.serialize_u64(number)
    }

    fn map<S: Serializer>(&self, dict: &Bound<'py, PyDict>, serializer: S) -> Result<S::Ok, S::Error> {
        let depth = self.checked(next_depth(self.depth))?;
        // A private copy: the number of entries is written before the entries, and writing them may run Python code
        // that changes the original.
        let dict = self.checked(dict.copy())?;
        let mut map = serializer.serialize_map(Some(dict.len()))?;
        for (key, value) in dict.iter() {
            let value = self.inner(&value, depth);
            match (key.cast_exact::<PyString>(), self.format) {
                (Ok(key), _) => map.serialize_entry(self.checked(key.to_str())?, &value)?,
                (_, Format::Json) => {
                    let key = self.checked(json_key(&key, depth))?;
                    map.serialize_entry(self.checked(key.to_str())?, &value)?;
                }
                (_, Format::MessagePack) => map.serialize_entry(&self.inner(&key, depth), &value)?,
            }
        }
        map.end()
    }

    fn list<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let depth = self.checked(next_depth(self.depth))?;
        let items: Vec<_> = self.checked(self.value.try_iter().and_then(Iterator::collect))?;
        let mut list = serializer.serialize_seq(Some(items.len()))?;
        for item in &items {
            list.serialize_element(&self.inner(item, depth))?;
        }
        list.end()
    }

    fn bytes<S: Serializer>(&self, bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match self.format {
            Format::MessagePack => serializer.serialize_bytes(bytes),
            Format::Json => serializer.collect_str(&Hexadecimal(bytes)),
        }
    }
}

struct Hexadecimal<'a>(&'a [u8]);

impl std::fmt::Display for Hexadecimal<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Serialize for Encoder<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.value;
        if let Ok(text) = value.cast_exact::<PyString>() {
            return serializer.serialize_str(self.checked(text.to_str())?);
        }
        if value.is_exact_instance_of::<PyInt>() {
            return self.integer(serializer);
        }
        if value.is_none() {
            return serializer.serialize_unit();
        }
        if let Ok(truth) = value.cast::<PyBool>() {
            return serializer.serialize_bool(truth.is_true());
        }
        if let Ok(number) = value.cast_exact::<PyFloat>() {
            return serializer.serialize_f64(number.value());
        }
        if let Ok(dict) = value.cast::<PyDict>() {
            return self.map(dict, serializer);
        }
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            return self.list(serializer);
        }
        if let Some(bytes) = bytes_of(value) {
            return self.bytes(&bytes, serializer);
        }
        let depth = self.checked(next_depth(self.depth))?;
        let plain = self.checked(to_plain_value(value, UnknownObject::Text))?;
        // If one step doesn't lead to a type handled above, the value is a subclass of one, or the recursion ends with
        // an error at the maximum depth.
        self.inner(&plain, depth).serialize(serializer).map_err(S::Error::custom)
    }
}
