//! Tests whether an event meets criteria, which are written in a small query language over maps. It builds no
//! intermediate values.
//!
//! The caller defines the values through the trait [`Value`], with their equality and order: JSON in
//! [`crate::filter_json`], Python objects in the binding.

use std::borrow::Cow;

use crate::pattern::{PatternError, Patterns};

/// How deep criteria may be nested in `$and` and `$or`.
pub const MAX_DEPTH: usize = 32;
/// How many characters of a value an error shows.
const SHOWN_CHARACTERS: usize = 60;

/// Why criteria are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The operand of `$regex` isn't a valid pattern.
    #[error("$regex: {0}")]
    Pattern(#[from] PatternError),
    /// The criteria are nested deeper than [`MAX_DEPTH`].
    #[error("the criteria are nested more than {MAX_DEPTH} deep: flatten them")]
    TooDeep,
    /// An operand has a type that the operator doesn't accept.
    #[error("{operator} takes {accepts}, and was given {found}")]
    Operand {
        /// The operator, for example `$in`.
        operator: &'static str,
        /// The type of operand that it accepts.
        accepts: &'static str,
        /// The operand as text, shortened.
        found: String,
    },
    /// The name of a field or an operator isn't text; the string is its beginning.
    #[error("a key of the criteria is {0}: give text")]
    Key(String),
}

impl FilterError {
    /// Whether the error is about the type of a value (`TypeError` in Python) and not about its content (`ValueError`).
    #[must_use]
    pub fn is_type_error(&self) -> bool {
        matches!(self, Self::Operand { .. } | Self::Key(_))
    }
}

/// The type of a value, as far as filters distinguish types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// JSON's `null`, Python's `None`.
    Null,
    /// A boolean, with its value.
    Bool(bool),
    /// A string; names of fields and operators are strings too.
    Text,
    /// A map from names to values.
    Map,
    /// A list of values, or a set.
    List,
    /// A value of any other type, such as a number.
    Other,
}

/// The comparison of an operator such as `$gt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `$gt`: the field is greater than the operand.
    Greater,
    /// `$gte`: the field is greater than the operand or equal to it.
    GreaterOrEqual,
    /// `$lt`: the field is less than the operand.
    Less,
    /// `$lte`: the field is less than the operand or equal to it.
    LessOrEqual,
}

/// A test of one field of a map: its name and its value.
pub type FieldTest<'a, V> = dyn FnMut(&V, &V) -> Result<bool, <V as Value>::Error> + 'a;
/// A test of one item of a list.
pub type ItemTest<'a, V> = dyn FnMut(&V) -> Result<bool, <V as Value>::Error> + 'a;

/// A value of an event or of criteria. The methods that return errors pass on those of the implementation.
pub trait Value: Sized {
    /// The error of the implementation. It can also hold the errors of filters.
    type Error: From<FilterError>;

    /// The value's type. Operators check it before they use a value.
    fn kind(&self) -> Kind;
    /// The value as text: a string itself, any other value as it is written.
    ///
    /// # Errors
    /// Returns the implementation's error if the value can't be converted.
    fn text(&self) -> Result<Cow<'_, str>, Self::Error>;
    /// The value of the field `name`. `None` if this isn't a map or has no such field.
    ///
    /// # Errors
    /// Returns the implementation's error if the look-up fails.
    fn field(&self, name: &str) -> Result<Option<Self>, Self::Error>;
    /// The same as [`Self::field`] for a name that is a value already, which saves a conversion.
    ///
    /// # Errors
    /// Returns the implementation's error if the look-up fails.
    fn field_named(&self, name: &Self) -> Result<Option<Self>, Self::Error>;
    /// Whether `test` returns `true` for all fields of this map. Stops at the first `false`; a value that isn't a map
    /// has no fields.
    ///
    /// # Errors
    /// Returns the first error of `test`, or the implementation's.
    fn every_field(&self, test: &mut FieldTest<'_, Self>) -> Result<bool, Self::Error>;
    /// Whether `test` returns `true` for all items of this list. Stops at the first `false`.
    ///
    /// # Errors
    /// Returns the first error of `test`, or the implementation's.
    fn every_item(&self, test: &mut ItemTest<'_, Self>) -> Result<bool, Self::Error>;
    /// Whether the two values are equal, by the implementation's definition.
    ///
    /// # Errors
    /// Returns the implementation's error if the comparison fails.
    fn equals(&self, other: &Self) -> Result<bool, Self::Error>;
    /// Whether the comparison is true. It is `false` between values that have no order.
    ///
    /// # Errors
    /// Returns the implementation's error if the comparison fails.
    fn compares(&self, comparison: Comparison, other: &Self) -> Result<bool, Self::Error>;
    /// Whether this list contains the item, or this map has a field of that name.
    ///
    /// # Errors
    /// Returns the implementation's error if a comparison fails.
    fn holds(&self, item: &Self) -> Result<bool, Self::Error>;
}

/// Whether `event` meets `criteria`; both are maps.
///
/// - With the key `start_from_latest` the result is `true`, regardless of all other keys.
/// - Otherwise `$and` or else `$or`, a list of criteria, decides. Other keys beside it are ignored.
/// - Otherwise each key must match. A key is a path of field names joined with dots. Its value is a map of operators,
///   all of which must be true, or the value that the field must equal. A missing field equals null only, and `$in` is
///   `false` for it.
///
/// An unknown operator is not an error; it is always `false`.
///
/// # Errors
/// Returns a [`FilterError`] if the criteria are invalid, or the error of a value's implementation.
pub fn matches<V: Value>(event: &V, criteria: &V, patterns: &Patterns) -> Result<bool, V::Error> {
    Filter { patterns }.matches(event, criteria, MAX_DEPTH)
}

struct Filter<'a> {
    patterns: &'a Patterns,
}

impl Filter<'_> {
    fn matches<V: Value>(&self, event: &V, criteria: &V, depth: usize) -> Result<bool, V::Error> {
        let depth = depth.checked_sub(1).ok_or(FilterError::TooDeep)?;
        if criteria.field("start_from_latest")?.is_some() {
            return Ok(true);
        }
        if let Some(all) = criteria.field("$and")? {
            let all = expect(Kind::List, "$and", "a list of criteria", all)?;
            return all.every_item(&mut |one| self.matches(event, criteria_of("$and", one)?, depth));
        }
        if let Some(any) = criteria.field("$or")? {
            let any = expect(Kind::List, "$or", "a list of criteria", any)?;
            // `$or` is true unless all of its criteria are false.
            return Ok(!any.every_item(&mut |one| Ok(!self.matches(event, criteria_of("$or", one)?, depth)?))?);
        }
        criteria.every_field(&mut |path, expected| {
            let found = find(event, path)?;
            if expected.kind() == Kind::Map {
                return expected.every_field(&mut |operator, operand| self.holds(operator, operand, found.as_ref()));
            }
            equals(found.as_ref(), expected)
        })
    }

    /// Whether one operator is true for the field that was found.
    fn holds<V: Value>(&self, operator: &V, operand: &V, found: Option<&V>) -> Result<bool, V::Error> {
        match &*key(operator)? {
            "$eq" => equals(found, operand),
            "$ne" => Ok(!equals(found, operand)?),
            "$gt" => compares(found, Comparison::Greater, operand),
            "$gte" => compares(found, Comparison::GreaterOrEqual, operand),
            "$lt" => compares(found, Comparison::Less, operand),
            "$lte" => compares(found, Comparison::LessOrEqual, operand),
            "$in" => is_in("$in", found, operand),
            "$nin" => Ok(!is_in("$nin", found, operand)?),
            "$exists" => match operand.kind() {
                Kind::Bool(expected) => Ok(found.is_some() == expected),
                _ => Err(operand_error("$exists", "true or false", operand)),
            },
            "$regex" => self.on_text("$regex", found, operand, |pattern, text| {
                Ok(self.patterns.matches(pattern, text).map_err(FilterError::from)?)
            }),
            "$contains" => self.contains(found, operand),
            "$startswith" => self.on_text("$startswith", found, operand, |start, text| Ok(text.starts_with(start))),
            "$endswith" => self.on_text("$endswith", found, operand, |end, text| Ok(text.ends_with(end))),
            _ => Ok(false),
        }
    }

    fn on_text<V: Value>(
        &self,
        operator: &'static str,
        found: Option<&V>,
        operand: &V,
        test: impl FnOnce(&str, &str) -> Result<bool, V::Error>,
    ) -> Result<bool, V::Error> {
        if operand.kind() != Kind::Text {
            return Err(operand_error(operator, "text", operand));
        }
        match found {
            Some(found) => test(&operand.text()?, &found.text()?),
            None => Ok(false),
        }
    }

    fn contains<V: Value>(&self, found: Option<&V>, operand: &V) -> Result<bool, V::Error> {
        match found {
            Some(found) if matches!(found.kind(), Kind::List | Kind::Map) => found.holds(operand),
            _ => self.on_text("$contains", found, operand, |part, text| Ok(text.contains(part))),
        }
    }
}

/// A value as an error message shows it, shortened to [`SHOWN_CHARACTERS`].
fn shown_text<V: Value>(value: &V) -> Result<String, V::Error> {
    let text = value.text()?;
    let mut shown_text: String = text.chars().take(SHOWN_CHARACTERS).collect();
    if shown_text.len() < text.len() {
        shown_text.push('…');
    }
    Ok(shown_text)
}

fn operand_error<V: Value>(operator: &'static str, accepts: &'static str, value: &V) -> V::Error {
    shown_text(value).map_or_else(|error| error, |found| FilterError::Operand { operator, accepts, found }.into())
}

/// Returns `value`, or an error if it isn't of this kind.
fn expect<V: Value>(kind: Kind, operator: &'static str, accepts: &'static str, value: V) -> Result<V, V::Error> {
    if value.kind() == kind { Ok(value) } else { Err(operand_error(operator, accepts, &value)) }
}

fn criteria_of<'a, V: Value>(operator: &'static str, value: &'a V) -> Result<&'a V, V::Error> {
    if value.kind() == Kind::Map { Ok(value) } else { Err(operand_error(operator, "a list of criteria", value)) }
}

fn key<V: Value>(key: &V) -> Result<Cow<'_, str>, V::Error> {
    if key.kind() == Kind::Text { key.text() } else { Err(FilterError::Key(shown_text(key)?).into()) }
}

/// The field at a path. `None` if a name on the path is missing or isn't the name of a map.
fn find<V: Value>(event: &V, path: &V) -> Result<Option<V>, V::Error> {
    let names = key(path)?;
    let Some((first, rest)) = names.split_once('.') else { return event.field_named(path) };
    let mut found = event.field(first)?;
    for name in rest.split('.') {
        let Some(map) = found else { return Ok(None) };
        found = map.field(name)?;
    }
    Ok(found)
}

fn equals<V: Value>(found: Option<&V>, expected: &V) -> Result<bool, V::Error> {
    found.map_or_else(|| Ok(expected.kind() == Kind::Null), |found| found.equals(expected))
}

fn compares<V: Value>(found: Option<&V>, comparison: Comparison, expected: &V) -> Result<bool, V::Error> {
    found.map_or(Ok(false), |found| found.compares(comparison, expected))
}

fn is_in<V: Value>(operator: &'static str, found: Option<&V>, list: &V) -> Result<bool, V::Error> {
    if list.kind() != Kind::List {
        return Err(operand_error(operator, "a list", list));
    }
    found.map_or(Ok(false), |found| list.holds(found))
}
