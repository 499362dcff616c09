//! `rust_match_event`: tests a dict against criteria without converting either. Equality and order are Python's own.

use std::{borrow::Cow, sync::LazyLock};

use pyo3::{
    basic::CompareOp,
    exceptions::{PyTypeError, PyValueError},
    intern,
    prelude::*,
    types::{PyBool, PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple},
};
use wse_utilities::{
    filter::{self, Comparison, FieldTest, FilterError, ItemTest, Kind, Value},
    pattern::Patterns,
};

use super::objects::every_entry;

/// Compiled patterns, shared by all filters of the process.
static PATTERNS: LazyLock<Patterns> = LazyLock::new(Patterns::default);

struct Object<'py>(Bound<'py, PyAny>);

/// An exception: the filter's own error, or one that Python raised.
struct Raised(PyErr);

impl From<FilterError> for Raised {
    fn from(error: FilterError) -> Self {
        let class = if error.is_type_error() { PyTypeError::new_err } else { PyValueError::new_err };
        Self(class(error.to_string()))
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

/// `false` where Python raises `TypeError`, because the two types can't be compared.
fn if_comparable(py: Python<'_>, result: PyResult<bool>) -> Result<bool, Raised> {
    match result {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(false),
        other => Ok(other?),
    }
}

impl<'py> Object<'py> {
    fn get(&self, name: &Bound<'py, PyString>) -> Result<Option<Self>, Raised> {
        let Ok(dict) = self.0.cast::<PyDict>() else { return Ok(None) };
        Ok(dict.get_item(name)?.map(Self))
    }
}

impl<'py> Value for Object<'py> {
    type Error = Raised;

    fn kind(&self) -> Kind {
        let value = &self.0;
        if value.is_instance_of::<PyString>() {
            Kind::Text
        } else if value.is_instance_of::<PyDict>() {
            Kind::Map
        } else if value.is_none() {
            Kind::Null
        } else if let Ok(truth) = value.cast::<PyBool>() {
            Kind::Bool(truth.is_true())
        } else if value.is_instance_of::<PyList>()
            || value.is_instance_of::<PyTuple>()
            || value.is_instance_of::<PySet>()
            || value.is_instance_of::<PyFrozenSet>()
        {
            Kind::List
        } else {
            Kind::Other
        }
    }

    fn text(&self) -> Result<Cow<'_, str>, Raised> {
        match self.0.cast::<PyString>() {
            Ok(text) => Ok(Cow::Borrowed(text.to_str()?)),
            Err(_) => Ok(Cow::Owned(self.0.str()?.to_str()?.to_owned())),
        }
    }

    fn field(&self, name: &str) -> Result<Option<Self>, Raised> {
        let py = self.0.py();
        match name {
            "start_from_latest" => self.get(intern!(py, "start_from_latest")),
            "$and" => self.get(intern!(py, "$and")),
            "$or" => self.get(intern!(py, "$or")),
            other => self.get(&PyString::new(py, other)),
        }
    }

    fn field_named(&self, name: &Self) -> Result<Option<Self>, Raised> {
        let Ok(dict) = self.0.cast::<PyDict>() else { return Ok(None) };
        Ok(dict.get_item(&name.0)?.map(Self))
    }

    fn every_field(&self, test: &mut FieldTest<'_, Self>) -> Result<bool, Raised> {
        match self.0.cast::<PyDict>() {
            Ok(dict) => every_entry(dict, |key, value| test(&Self(key), &Self(value))),
            Err(_) => Ok(true),
        }
    }

    fn every_item(&self, test: &mut ItemTest<'_, Self>) -> Result<bool, Raised> {
        for item in self.0.try_iter()? {
            if !test(&Self(item?))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equals(&self, other: &Self) -> Result<bool, Raised> {
        Ok(self.0.eq(&other.0)?)
    }

    fn compares(&self, comparison: Comparison, other: &Self) -> Result<bool, Raised> {
        let operator = match comparison {
            Comparison::Greater => CompareOp::Gt,
            Comparison::GreaterOrEqual => CompareOp::Ge,
            Comparison::Less => CompareOp::Lt,
            Comparison::LessOrEqual => CompareOp::Le,
        };
        let result =
            self.0.rich_compare(&other.0, operator).and_then(|comparison_result| comparison_result.is_truthy());
        if_comparable(self.0.py(), result)
    }

    fn holds(&self, item: &Self) -> Result<bool, Raised> {
        // An item that isn't hashable is in no set and in no dict.
        if_comparable(self.0.py(), self.0.contains(&item.0))
    }
}

/// Whether an event meets criteria such as `{"p.price": {"$gt": 5}, "t": "trade"}`.
///
/// The operators are `$eq $ne $gt $gte $lt $lte $in $nin $exists $regex $contains $startswith $endswith`; `$and` and
/// `$or` take lists of criteria. An unknown operator is always false. Patterns match from the start of the text.
///
/// Raises ValueError if a pattern can't be used or the criteria are nested more than 32 deep, and TypeError if an
/// operand has the wrong type or a key isn't text.
#[pyfunction]
pub(crate) fn rust_match_event(event: Bound<'_, PyDict>, criteria: Bound<'_, PyDict>) -> PyResult<bool> {
    filter::matches(&Object(event.into_any()), &Object(criteria.into_any()), &PATTERNS).map_err(|Raised(error)| error)
}
