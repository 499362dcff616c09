//! `rust_transform_event`: converts an application's event into an envelope of the protocol.

use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyBool, PyDict, PyInt, PyString},
};
use uuid::Uuid;
use wse_utilities::{
    instant::Instant,
    transform::{self, Host, Name},
};

use super::objects::{MAX_DEPTH, json_safe, json_safe_dict};

/// Access to Python values for the conversion. Its errors are the exceptions that Python raises.
struct Interpreter<'py>(Python<'py>);

impl<'py> Interpreter<'py> {
    /// The interned Python string of a name, created once for the process.
    fn name(&self, name: Name) -> &Bound<'py, PyString> {
        static NAMES: PyOnceLock<[Py<PyString>; Name::ALL.len()]> = PyOnceLock::new();
        let intern_all = || Name::ALL.map(|name| PyString::intern(self.0, name.as_str()).unbind());
        NAMES.get_or_init(self.0, intern_all)[name as usize].bind(self.0)
    }
}

impl<'py> Host for Interpreter<'py> {
    type Value = Bound<'py, PyAny>;
    type Error = PyErr;

    fn get(&self, map: &Self::Value, name: Name) -> PyResult<Option<Self::Value>> {
        self.look_up(map, self.name(name).as_any())
    }

    fn look_up(&self, map: &Self::Value, name: &Self::Value) -> PyResult<Option<Self::Value>> {
        map.cast::<PyDict>().map_or(Ok(None), |dict| dict.get_item(name))
    }

    fn put(&self, map: &Self::Value, name: Name, value: Self::Value) -> PyResult<()> {
        map.set_item(self.name(name), value)
    }

    fn map(&self, fields: Vec<(Name, Self::Value)>) -> PyResult<Self::Value> {
        let dict = PyDict::new(self.0);
        for (name, value) in fields {
            dict.set_item(self.name(name), value)?;
        }
        Ok(dict.into_any())
    }

    fn json(&self, value: &Self::Value, without: Option<Name>) -> PyResult<Self::Value> {
        match (value.cast::<PyDict>(), without) {
            (Ok(dict), Some(name)) => Ok(json_safe_dict(dict, Some(self.name(name)), MAX_DEPTH)?.into_any()),
            _ => json_safe(value, MAX_DEPTH),
        }
    }

    fn is_null(&self, value: &Self::Value) -> bool {
        value.is_none()
    }

    fn is_map(&self, value: &Self::Value) -> bool {
        value.is_instance_of::<PyDict>()
    }

    fn is_integer(&self, value: &Self::Value) -> bool {
        value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>()
    }

    fn text(&self, value: &Self::Value) -> PyResult<Self::Value> {
        if value.is_exact_instance_of::<PyString>() {
            return Ok(value.clone());
        }
        Ok(json_safe(value, MAX_DEPTH)?.str()?.into_any())
    }

    fn read<R>(&self, text: &Self::Value, read: impl FnOnce(&str) -> R) -> PyResult<R> {
        Ok(read(text.cast::<PyString>()?.to_str()?))
    }

    fn string(&self, text: &str) -> Self::Value {
        PyString::new(self.0, text).into_any()
    }

    fn integer(&self, number: i64) -> Self::Value {
        PyInt::new(self.0, number).into_any()
    }

    fn new_id(&self) -> Self::Value {
        self.string(Uuid::now_v7().hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }

    fn now(&self) -> Instant {
        // A clock before 1970 counts as 1970-01-01T00:00:00Z.
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        Instant(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

/// Converts an application's event into an envelope of the protocol. `event_type_map` maps the application's event
/// types to the protocol's.
///
/// An event with `v`, `t`, `p`, `id` and `ts` is an envelope already: it is returned itself, with `seq` added if it has
/// none. Otherwise a new dict is created, with values that JSON can hold.
///
/// Raises ValueError if the event is nested more than 64 deep, or contains itself.
#[pyfunction]
pub(crate) fn rust_transform_event<'py>(
    py: Python<'py>,
    event: Bound<'py, PyDict>,
    sequence: i64,
    event_type_map: Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    transform::transform(&Interpreter(py), event.as_any(), sequence, event_type_map.as_any())
}
