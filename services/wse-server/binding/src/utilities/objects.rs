//! Conversions of Python objects to what a message can hold.

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    sync::PyOnceLock,
    types::{
        PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple, PyType,
    },
};

/// The most containers within one another. It also stops at an object that contains itself.
pub(super) const MAX_DEPTH: usize = 64;

/// How an object of an unknown type is represented.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownObject {
    /// As the dict of its attributes (`__dict__`), if it has one, or else as `str()` of it.
    Attributes,
    /// As `str()` of it.
    Text,
}

/// The remaining depth one level down. It is an error at the last level.
pub(super) fn next_depth(depth: usize) -> PyResult<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        PyValueError::new_err(format!("the value is nested more than {MAX_DEPTH} deep, or contains itself: flatten it"))
    })
}

/// Calls `act` with each key and value until it returns `false`. Iterates over the dict as it was at the call, even if
/// `act` changes it.
pub(super) fn every_entry<'py, E: From<PyErr>>(
    dict: &Bound<'py, PyDict>,
    mut act: impl FnMut(Bound<'py, PyAny>, Bound<'py, PyAny>) -> Result<bool, E>,
) -> Result<bool, E> {
    // A private copy: `act` may run Python code, and iterating a dict that changes panics.
    for (key, value) in dict.copy()?.iter() {
        if !act(key, value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether JSON can hold the value without conversion.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_none()
}

/// One step closer to a plain value: the value of an enum member, the items of a set, the `isoformat()` of a date or
/// time, or what `unknown` selects.
pub(super) fn to_plain_value<'py>(value: &Bound<'py, PyAny>, unknown: UnknownObject) -> PyResult<Bound<'py, PyAny>> {
    static ENUM: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = value.py();
    if value.is_instance(ENUM.import(py, "enum", "Enum")?)? {
        return value.getattr("value");
    }
    if value.is_instance_of::<PySet>() || value.is_instance_of::<PyFrozenSet>() {
        return Ok(value.try_iter()?.collect::<PyResult<Vec<_>>>()?.into_pyobject(py)?.into_any());
    }
    if value.is_instance_of::<PyType>() {
        return Ok(value.str()?.into_any());
    }
    if let Some(method) = value.getattr_opt("isoformat")? {
        return method.call0();
    }
    if unknown == UnknownObject::Attributes
        && !is_uuid(value)?
        && let Some(attributes) = value.getattr_opt("__dict__")?
    {
        return Ok(attributes);
    }
    Ok(value.str()?.into_any())
}

fn is_uuid(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    value.is_instance(UUID.import(value.py(), "uuid", "UUID")?)
}

/// Bytes as text: decoded as UTF-8, or else as Latin-1 (each byte is the character with its number).
pub(super) fn text_of_bytes(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

/// The content of a `bytes` or `bytearray` object; `None` for other types.
pub(super) fn bytes_of(value: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    value.cast::<PyByteArray>().ok().map(|bytes| bytes.to_vec())
}

/// A copy that JSON can hold. Plain values are not copied.
pub(super) fn json_safe<'py>(value: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    if is_plain(value) {
        return Ok(value.clone());
    }
    let py = value.py();
    let depth = next_depth(depth)?;
    if let Ok(dict) = value.cast::<PyDict>() {
        return Ok(json_safe_dict(dict, None, depth)?.into_any());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| json_safe(&item?, depth)).collect::<PyResult<Vec<_>>>()?;
        return Ok(PyList::new(py, items)?.into_any());
    }
    if let Some(bytes) = bytes_of(value) {
        return Ok(PyString::new(py, &text_of_bytes(&bytes)).into_any());
    }
    json_safe(&to_plain_value(value, UnknownObject::Attributes)?, depth)
}

/// A copy of a dict that JSON can hold, without the key `without`.
pub(super) fn json_safe_dict<'py>(
    dict: &Bound<'py, PyDict>,
    without: Option<&Bound<'py, PyString>>,
    depth: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let copy = dict.copy()?;
    if let Some(without) = without
        && copy.contains(without)?
    {
        copy.del_item(without)?;
    }
    // Most values are plain and stay in the copy. Conversions may run Python code, but it can't reach the copy.
    let mut converted = Vec::new();
    for (key, value) in copy.iter() {
        if !key.is_exact_instance_of::<PyString>() {
            return with_text_keys(&copy, depth);
        }
        if !is_plain(&value) {
            converted.push((key, json_safe(&value, depth)?));
        }
    }
    for (key, value) in converted {
        copy.set_item(key, value)?;
    }
    Ok(copy)
}

fn with_text_keys<'py>(dict: &Bound<'py, PyDict>, depth: usize) -> PyResult<Bound<'py, PyDict>> {
    let safe = PyDict::new(dict.py());
    for (key, value) in dict.iter() {
        safe.set_item(json_key(&key, depth)?, json_safe(&value, depth)?)?;
    }
    Ok(safe)
}

/// The key of a JSON object, converted as Python's `json` module does.
pub(super) fn json_key<'py>(key: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = key.cast_exact::<PyString>() {
        return Ok(text.clone());
    }
    let py = key.py();
    if key.is_none() {
        return Ok(PyString::new(py, "null"));
    }
    if let Ok(truth) = key.cast::<PyBool>() {
        return Ok(PyString::new(py, if truth.is_true() { "true" } else { "false" }));
    }
    json_safe(key, depth)?.str()
}
