//! Decodes the bytes of messages into Python objects without an intermediate tree. One visitor serves JSON and
//! MessagePack.
//!
//! Only complete messages are decoded here. The caller decides what happens with a malformed one.

use pyo3::{
    IntoPyObjectExt, intern,
    prelude::*,
    types::{PyBytes, PyDict, PyFloat, PyList, PyString},
};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::names::{self, Names};

/// How integers from 2^63 to 2^64 - 1 are decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integers {
    /// As Python integers, without loss.
    Exact,
    /// As Python floats, as the reference does.
    Reference,
}

/// Decodes the values of messages, one message after another.
pub(crate) struct Decoder<'a, 'py> {
    py: Python<'py>,
    names: &'a mut Names,
    integers: Integers,
}

/// The message can't be decoded; the text is the reason.
#[derive(Debug)]
pub(crate) struct Malformed(pub(crate) String);

impl<'a, 'py> Decoder<'a, 'py> {
    /// A decoder that takes strings from `names` and adds new ones to it.
    pub(crate) fn new(py: Python<'py>, names: &'a mut Names, integers: Integers) -> Self {
        Self { py, names, integers }
    }

    /// The token of the interpreter that this thread is attached to.
    pub(crate) fn py(&self) -> Python<'py> {
        self.py
    }

    /// A Python string. Short ones come from the table of names.
    pub(crate) fn string(&mut self, text: &str) -> Bound<'py, PyAny> {
        names::value(self.names, self.py, text).into_any()
    }

    /// Decodes a JSON message and shortens the keys of its envelope: `type` becomes `t`, `payload` becomes `p`.
    pub(crate) fn json(&mut self, data: &[u8]) -> Result<Bound<'py, PyAny>, Malformed> {
        let value = self.json_value(data)?;
        self.shorten(value)
    }

    /// Decodes a MessagePack message and shortens its keys as [`Self::json`] does. The engine must have found it valid:
    /// one complete value with nothing behind it.
    pub(crate) fn messagepack(&mut self, data: &[u8]) -> Result<Bound<'py, PyAny>, Malformed> {
        let value = self.messagepack_value(data)?;
        self.shorten(value)
    }

    /// Decodes JSON that isn't a message; no key is renamed.
    pub(crate) fn json_value(&mut self, data: &[u8]) -> Result<Bound<'py, PyAny>, Malformed> {
        // UTF-8 is checked once for the whole text instead of once for each string.
        let text = simdutf8::basic::from_utf8(data).map_err(malformed)?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = self.deserialize(&mut deserializer).map_err(malformed)?;
        deserializer.end().map_err(malformed)?;
        Ok(value)
    }

    /// Decodes MessagePack that isn't a message; no key is renamed. It must be valid as for [`Self::messagepack`].
    pub(crate) fn messagepack_value(&mut self, data: &[u8]) -> Result<Bound<'py, PyAny>, Malformed> {
        self.deserialize(&mut rmp_serde::Deserializer::from_read_ref(data)).map_err(malformed)
    }

    /// Renames the keys `type` and `payload` of an envelope to `t` and `p`, unless it has those keys already.
    fn shorten(&mut self, value: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Malformed> {
        if let Ok(envelope) = value.cast::<PyDict>() {
            let py = self.py;
            for (long, short) in [(intern!(py, "type"), intern!(py, "t")), (intern!(py, "payload"), intern!(py, "p"))] {
                rename(envelope, long, short).map_err(malformed)?;
            }
        }
        Ok(value)
    }
}

fn malformed(error: impl std::fmt::Display) -> Malformed {
    Malformed(error.to_string())
}

fn rename(envelope: &Bound<'_, PyDict>, long: &Bound<'_, PyString>, short: &Bound<'_, PyString>) -> PyResult<()> {
    if !envelope.contains(short)?
        && let Some(value) = envelope.get_item(long)?
    {
        envelope.del_item(long)?;
        envelope.set_item(short, value)?;
    }
    Ok(())
}

impl<'de, 'py> DeserializeSeed<'de> for &mut Decoder<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for &mut Decoder<'_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON or MessagePack value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(self.py.None().into_bound(self.py))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        value.into_bound_py_any(self.py).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        value.into_bound_py_any(self.py).map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        if value > i64::MAX as u64 && self.integers == Integers::Reference {
            return self.visit_f64(value as f64);
        }
        value.into_bound_py_any(self.py).map_err(E::custom)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(PyFloat::new(self.py, value).into_any())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(self.string(value))
    }

    fn visit_bytes<E: serde::de::Error>(self, value: &[u8]) -> Result<Self::Value, E> {
        Ok(PyBytes::new(self.py, value).into_any())
    }

    /// A MessagePack extension becomes a list of its type and its bytes.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let list = PyList::empty(self.py);
        while let Some(item) = items.next_element_seed(&mut *self)? {
            list.append(item).map_err(A::Error::custom)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.py);
        while let Some(key) = entries.next_key_seed(Key(&mut *self))? {
            let value = entries.next_value_seed(&mut *self)?;
            dict.set_item(key, value).map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

/// Decodes a key of a map. Strings come from the table of names. A MessagePack key can have any type; Python refuses it
/// if it isn't hashable.
struct Key<'d, 'a, 'py>(&'d mut Decoder<'a, 'py>);

impl<'de, 'py> DeserializeSeed<'de> for Key<'_, '_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for Key<'_, '_, 'py> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(self.0.names.get(self.0.py, value).into_any())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        self.0.visit_unit()
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        self.0.visit_bool(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        self.0.visit_i64(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        self.0.visit_u64(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        self.0.visit_f64(value)
    }

    fn visit_bytes<E: serde::de::Error>(self, value: &[u8]) -> Result<Self::Value, E> {
        self.0.visit_bytes(value)
    }
}
