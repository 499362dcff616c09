//! Python's objects as messages can hold them.

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    sync::PyOnceLock,
    types::{
        PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple, PyType,
    },
};

/// Containers within containers.
pub(super) const MAXIMAL_DEPTH: usize = 64;

/// What an object becomes of which nothing is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The dict of its attributes, if it has one.
    Attributes,
    /// Text.
    Text,
}

/// One level deeper.
pub(super) fn deeper(depth: usize) -> PyResult<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        PyValueError::new_err(format!(
            "the value is nested more than {MAXIMAL_DEPTH} deep, or contains itself: flatten it"
        ))
    })
}

/// Calls `act` with every key and value until it says no. It sees the dict as it was at first, whatever becomes of it.
pub(super) fn every_entry<'py, E: From<PyErr>>(
    dict: &Bound<'py, PyDict>,
    mut act: impl FnMut(Bound<'py, PyAny>, Bound<'py, PyAny>) -> Result<bool, E>,
) -> Result<bool, E> {
    // A copy of ours alone: the iterator of a dict that changes under it panics, and `act` may run Python.
    for (key, value) in dict.copy()?.iter() {
        if !act(key, value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether JSON can hold it as it is.
fn is_plain(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_none()
}

/// Something closer to plain: the value of an enumeration, the items of a set, the text of an id or a time, or what
/// `unknown` says.
pub(super) fn plainer<'py>(value: &Bound<'py, PyAny>, unknown: Unknown) -> PyResult<Bound<'py, PyAny>> {
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
    if unknown == Unknown::Attributes
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

/// Bytes as text: UTF-8, or else each byte the character with its number.
pub(super) fn text_of_bytes(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.iter().copied().map(char::from).collect(), str::to_owned)
}

/// The bytes of `bytes` or `bytearray`.
pub(super) fn bytes_of(value: &Bound<'_, PyAny>) -> Option<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Some(bytes.as_bytes().to_vec());
    }
    value.cast::<PyByteArray>().ok().map(|bytes| bytes.to_vec())
}

/// A copy that JSON can hold: what is plain stays the same object.
pub(super) fn json_safe<'py>(value: &Bound<'py, PyAny>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    if is_plain(value) {
        return Ok(value.clone());
    }
    let py = value.py();
    let depth = deeper(depth)?;
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
    json_safe(&plainer(value, Unknown::Attributes)?, depth)
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
    // Most have nothing to convert: then the copy is all there is to do.
    let is_safe = |(key, value): &(Bound<'py, PyAny>, Bound<'py, PyAny>)| {
        key.is_exact_instance_of::<PyString>() && is_plain(value)
    };
    if copy.iter().all(|entry| is_safe(&entry)) {
        return Ok(copy);
    }
    let safe = PyDict::new(dict.py());
    for (key, value) in copy.iter() {
        safe.set_item(json_key(&key, depth)?, json_safe(&value, depth)?)?;
    }
    Ok(safe)
}

/// A key of a JSON object, as Python's own writer has it.
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
