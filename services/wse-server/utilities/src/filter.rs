//! Whether an event meets criteria: a small query language over maps, walked without building anything. Pure.
//!
//! Values belong to whoever calls ([`Value`]): JSON here, Python's objects in the binding. Equality and order are theirs.

use std::borrow::Cow;

use crate::pattern::{PatternError, Patterns};

/// Criteria within criteria.
pub const MAXIMAL_DEPTH: usize = 32;
/// So much of a value is shown in an error.
const SHOWN_CHARACTERS: usize = 60;

/// What criteria can't say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// `$regex` with something that is no pattern.
    #[error("$regex: {0}")]
    Pattern(#[from] PatternError),
    /// Criteria within criteria within criteria.
    #[error("the criteria are nested more than {MAXIMAL_DEPTH} deep: flatten them")]
    Deep,
    /// An operand of another kind than the operator takes.
    #[error("{operator} takes {takes}, and was given {found}")]
    Operand {
        /// The operator.
        operator: &'static str,
        /// What it takes.
        takes: &'static str,
        /// What it was given, as it is written.
        found: String,
    },
    /// A name of a field or an operator that is no text.
    #[error("a key of the criteria is {0}: give text")]
    Key(String),
}

impl FilterError {
    /// Whether something of another type would do; otherwise, another value.
    #[must_use]
    pub fn is_of_type(&self) -> bool {
        matches!(self, Self::Operand { .. } | Self::Key(_))
    }
}

/// What kind of value one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// Text.
    Text,
    /// Names with values.
    Map,
    /// Values in an order, or none.
    List,
    /// Anything else.
    Other,
}

/// Which comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}

/// A question about a name and a value of a map.
pub type FieldTest<'a, V> = dyn FnMut(&V, &V) -> Result<bool, <V as Value>::Error> + 'a;
/// A question about a value of a list.
pub type ItemTest<'a, V> = dyn FnMut(&V) -> Result<bool, <V as Value>::Error> + 'a;

/// A value of an event or of criteria.
pub trait Value: Sized {
    /// What can go wrong: our mistakes, and the values' own.
    type Error: From<FilterError>;

    /// Its kind.
    fn kind(&self) -> Kind;
    /// What it is as text: itself, or as it is written.
    ///
    /// # Errors
    /// The value's own.
    fn text(&self) -> Result<Cow<'_, str>, Self::Error>;
    /// The value under `name`, if this is a map that has it.
    ///
    /// # Errors
    /// The value's own.
    fn field(&self, name: &str) -> Result<Option<Self>, Self::Error>;
    /// The value under a name that is a value itself: [`Self::field`], without making the name again.
    ///
    /// # Errors
    /// The value's own.
    fn field_named(&self, name: &Self) -> Result<Option<Self>, Self::Error>;
    /// Whether `test` holds for all names and values of this map; it ends with the first for which it doesn't.
    ///
    /// # Errors
    /// Those of `test`, and the value's own.
    fn every_field(&self, test: &mut FieldTest<'_, Self>) -> Result<bool, Self::Error>;
    /// Whether `test` holds for all values of this list; it ends with the first for which it doesn't.
    ///
    /// # Errors
    /// Those of `test`, and the value's own.
    fn every_item(&self, test: &mut ItemTest<'_, Self>) -> Result<bool, Self::Error>;
    /// Whether the two are equal.
    ///
    /// # Errors
    /// The value's own.
    fn equals(&self, other: &Self) -> Result<bool, Self::Error>;
    /// Whether the comparison holds. Never between values that have no order.
    ///
    /// # Errors
    /// The value's own.
    fn compares(&self, comparison: Comparison, other: &Self) -> Result<bool, Self::Error>;
    /// Whether this list has the item, or this map the name.
    ///
    /// # Errors
    /// The value's own.
    fn holds(&self, item: &Self) -> Result<bool, Self::Error>;
}

/// Whether `event` meets `criteria`, both of them maps.
///
/// - `start_from_latest` in them: yes, whatever else they say.
/// - `$and` or else `$or`, a list of criteria: as that says; other keys beside it don't count.
/// - Otherwise all keys must hold. A key is a path of names with dots between them, its value a map of operators, all of
///   which must hold, or what the field must equal. A field that is missing equals nothing (null) and is in no list.
///
/// # Errors
/// When the criteria can't be understood, and what the values themselves raise. An unknown operator is none: it never holds.
pub fn matches<V: Value>(event: &V, criteria: &V, patterns: &Patterns) -> Result<bool, V::Error> {
    Filter { patterns }.matches(event, criteria, MAXIMAL_DEPTH)
}

struct Filter<'a> {
    patterns: &'a Patterns,
}

impl Filter<'_> {
    fn matches<V: Value>(&self, event: &V, criteria: &V, depth: usize) -> Result<bool, V::Error> {
        let depth = depth.checked_sub(1).ok_or(FilterError::Deep)?;
        if criteria.field("start_from_latest")?.is_some() {
            return Ok(true);
        }
        if let Some(all) = criteria.field("$and")? {
            let all = expect(Kind::List, "$and", "a list of criteria", all)?;
            return all.every_item(&mut |one| self.matches(event, criteria_of("$and", one)?, depth));
        }
        if let Some(any) = criteria.field("$or")? {
            let any = expect(Kind::List, "$or", "a list of criteria", any)?;
            // Not all fail: some hold.
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

    /// Whether one operator holds for the field that was found.
    fn holds<V: Value>(&self, operator: &V, wanted: &V, found: Option<&V>) -> Result<bool, V::Error> {
        match &*key(operator)? {
            "$eq" => equals(found, wanted),
            "$ne" => Ok(!equals(found, wanted)?),
            "$gt" => compares(found, Comparison::Greater, wanted),
            "$gte" => compares(found, Comparison::GreaterOrEqual, wanted),
            "$lt" => compares(found, Comparison::Less, wanted),
            "$lte" => compares(found, Comparison::LessOrEqual, wanted),
            "$in" => is_in("$in", found, wanted),
            "$nin" => Ok(!is_in("$nin", found, wanted)?),
            "$exists" => match wanted.kind() {
                Kind::Bool(expected) => Ok(found.is_some() == expected),
                _ => Err(mistaken("$exists", "a truth value", wanted)),
            },
            "$regex" => self.on_text("$regex", found, wanted, |pattern, text| {
                Ok(self.patterns.matches(pattern, text).map_err(FilterError::from)?)
            }),
            "$contains" => self.contains(found, wanted),
            "$startswith" => self.on_text("$startswith", found, wanted, |start, text| Ok(text.starts_with(start))),
            "$endswith" => self.on_text("$endswith", found, wanted, |end, text| Ok(text.ends_with(end))),
            _ => Ok(false),
        }
    }

    fn on_text<V: Value>(
        &self,
        operator: &'static str,
        found: Option<&V>,
        wanted: &V,
        test: impl FnOnce(&str, &str) -> Result<bool, V::Error>,
    ) -> Result<bool, V::Error> {
        if wanted.kind() != Kind::Text {
            return Err(mistaken(operator, "text", wanted));
        }
        match found {
            Some(found) => test(&wanted.text()?, &found.text()?),
            None => Ok(false),
        }
    }

    fn contains<V: Value>(&self, found: Option<&V>, wanted: &V) -> Result<bool, V::Error> {
        match found {
            Some(found) if matches!(found.kind(), Kind::List | Kind::Map) => found.holds(wanted),
            _ => self.on_text("$contains", found, wanted, |part, text| Ok(text.contains(part))),
        }
    }
}

/// A value in an error: as it is written, its beginning if that is long.
fn written<V: Value>(value: &V) -> Result<String, V::Error> {
    let text = value.text()?;
    let mut written: String = text.chars().take(SHOWN_CHARACTERS).collect();
    if written.len() < text.len() {
        written.push('…');
    }
    Ok(written)
}

fn mistaken<V: Value>(operator: &'static str, takes: &'static str, value: &V) -> V::Error {
    written(value).map_or_else(|error| error, |found| FilterError::Operand { operator, takes, found }.into())
}

/// `value` if it is of a kind.
fn expect<V: Value>(kind: Kind, operator: &'static str, takes: &'static str, value: V) -> Result<V, V::Error> {
    if value.kind() == kind { Ok(value) } else { Err(mistaken(operator, takes, &value)) }
}

fn criteria_of<'a, V: Value>(operator: &'static str, value: &'a V) -> Result<&'a V, V::Error> {
    if value.kind() == Kind::Map { Ok(value) } else { Err(mistaken(operator, "a list of criteria", value)) }
}

fn key<V: Value>(key: &V) -> Result<Cow<'_, str>, V::Error> {
    if key.kind() == Kind::Text { key.text() } else { Err(FilterError::Key(written(key)?).into()) }
}

/// The field at a path. A name that leads through something else than a map leads nowhere.
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
        return Err(mistaken(operator, "a list", list));
    }
    found.map_or(Ok(false), |found| list.holds(found))
}
