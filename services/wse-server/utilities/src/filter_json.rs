//! Filters over JSON values. Integers and floats are equal if their numeric values are; booleans are not numbers.

use std::{borrow::Cow, cmp::Ordering};

use serde_json::{Number, Value as Json};

use crate::filter::{Comparison, FieldTest, FilterError, ItemTest, Kind, Value};

/// A JSON value of an event or of criteria. A name of a field can stand where a value is expected.
#[derive(Clone, Debug)]
pub enum Node<'a> {
    /// A JSON value of any type, borrowed from the event or the criteria.
    Value(&'a Json),
    /// The name of a field, which acts as a string.
    Name(&'a str),
}

fn compare_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn are_equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => compare_numbers(a, b) == Some(Ordering::Equal),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b)),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| are_equal(a, b)))
        }
        _ => a == b,
    }
}

fn compare(a: &Json, b: &Json) -> Option<Ordering> {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => compare_numbers(a, b),
        (Json::String(a), Json::String(b)) => Some(a.cmp(b)),
        (Json::Array(a), Json::Array(b)) => {
            let unequal = a.iter().zip(b).find(|(a, b)| !are_equal(a, b));
            unequal.map_or_else(|| Some(a.len().cmp(&b.len())), |(a, b)| compare(a, b))
        }
        _ => None,
    }
}

impl Node<'_> {
    fn with<R>(&self, act: impl FnOnce(&Json) -> R) -> R {
        match self {
            Self::Value(value) => act(value),
            Self::Name(name) => act(&Json::String((*name).to_owned())),
        }
    }
}

impl Value for Node<'_> {
    type Error = FilterError;

    fn kind(&self) -> Kind {
        match self {
            Self::Name(_) | Self::Value(Json::String(_)) => Kind::Text,
            Self::Value(Json::Null) => Kind::Null,
            Self::Value(Json::Bool(value)) => Kind::Bool(*value),
            Self::Value(Json::Array(_)) => Kind::List,
            Self::Value(Json::Object(_)) => Kind::Map,
            Self::Value(Json::Number(_)) => Kind::Other,
        }
    }

    fn text(&self) -> Result<Cow<'_, str>, FilterError> {
        Ok(match self {
            Self::Name(name) => Cow::Borrowed(name),
            Self::Value(Json::String(text)) => Cow::Borrowed(text),
            Self::Value(value) => Cow::Owned(value.to_string()),
        })
    }

    fn field(&self, name: &str) -> Result<Option<Self>, FilterError> {
        Ok(match self {
            Self::Value(value) => value.get(name).map(Self::Value),
            Self::Name(_) => None,
        })
    }

    fn field_named(&self, name: &Self) -> Result<Option<Self>, FilterError> {
        self.field(&name.text()?)
    }

    fn every_field(&self, test: &mut FieldTest<'_, Self>) -> Result<bool, FilterError> {
        let Self::Value(Json::Object(map)) = self else { return Ok(true) };
        for (name, value) in map {
            if !test(&Node::Name(name), &Node::Value(value))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn every_item(&self, test: &mut ItemTest<'_, Self>) -> Result<bool, FilterError> {
        let Self::Value(Json::Array(items)) = self else { return Ok(true) };
        for item in items {
            if !test(&Node::Value(item))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn equals(&self, other: &Self) -> Result<bool, FilterError> {
        Ok(self.with(|a| other.with(|b| are_equal(a, b))))
    }

    fn compares(&self, comparison: Comparison, other: &Self) -> Result<bool, FilterError> {
        let order = self.with(|a| other.with(|b| compare(a, b)));
        Ok(order.is_some_and(|order| match comparison {
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
        }))
    }

    fn holds(&self, item: &Self) -> Result<bool, FilterError> {
        Ok(match self {
            Self::Value(Json::Array(items)) => item.with(|item| items.iter().any(|one| are_equal(one, item))),
            Self::Value(Json::Object(map)) => item.kind() == Kind::Text && map.contains_key(&*item.text()?),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        filter::{MAX_DEPTH, matches},
        pattern::Patterns,
    };

    fn event() -> Json {
        json!({"a": 1, "n": null, "s": "hello", "l": [1, 2, "x"], "d": {"e": {"f": 5}}, "x.y": 7, "t": true, "big": 1e300})
    }

    fn match_event(criteria: &Json) -> Result<bool, FilterError> {
        matches(&Node::Value(&event()), &Node::Value(criteria), &Patterns::default())
    }

    fn assert_each_matches(expected: bool, criteria: &[Json]) {
        for criteria in criteria {
            assert_eq!(match_event(criteria), Ok(expected), "{criteria}");
        }
    }

    #[test]
    fn a_field_equals_its_value_and_all_fields_must() {
        assert_each_matches(
            true,
            &[json!({}), json!({"a": 1}), json!({"a": 1.0, "s": "hello"}), json!({"l": [1.0, 2, "x"]})],
        );
        assert_each_matches(false, &[json!({"a": 2}), json!({"a": "1"}), json!({"a": 1, "s": "x"}), json!({"t": 1})]);
    }

    #[test]
    fn a_missing_field_equals_null() {
        assert_each_matches(true, &[json!({"zz": null}), json!({"n": null}), json!({"d.e.f.g": null})]);
        assert_each_matches(false, &[json!({"zz": 1}), json!({"": 1}), json!({".": 1})]);
    }

    #[test]
    fn a_dotted_path_descends_into_maps_only() {
        assert_each_matches(true, &[json!({"d.e.f": 5}), json!({"d.e.f": {"$gt": 4}})]);
        assert_each_matches(false, &[json!({"x.y": 7}), json!({"l.0": 1}), json!({"s.0": "h"})]);
    }

    #[test]
    fn a_map_is_read_as_operators_and_never_as_a_value() {
        assert_each_matches(true, &[json!({"a": {}}), json!({"a": {"$gte": 1, "$lt": 2}})]);
        let unknown = [json!({"a": {"$foo": 1}}), json!({"a": {"$eq": 1, "$foo": 1}}), json!({"d": {"e": {"f": 5}}})];
        assert_each_matches(false, &unknown);
    }

    #[test]
    fn equality_treats_a_missing_field_as_null_and_list_operators_do_not() {
        let yes = [
            json!({"zz": {"$eq": null}}),
            json!({"zz": {"$ne": 1}}),
            json!({"a": {"$ne": 2}}),
            json!({"zz": {"$nin": [null]}}),
            json!({"n": {"$in": [null]}}),
            json!({"a": {"$in": [3, 1.0]}}),
            json!({"a": {"$nin": [2]}}),
        ];
        let no = [
            json!({"zz": {"$ne": null}}),
            json!({"n": {"$ne": null}}),
            json!({"zz": {"$in": [null]}}),
            json!({"n": {"$nin": [null]}}),
            json!({"l": {"$in": [1]}}),
            json!({"a": {"$in": []}}),
        ];
        assert_each_matches(true, &yes);
        assert_each_matches(false, &no);
    }

    #[test]
    fn comparisons_are_true_only_between_values_with_an_order() {
        let yes = [
            json!({"a": {"$gt": 0.5}}),
            json!({"a": {"$lte": 1}}),
            json!({"s": {"$gt": "a"}}),
            json!({"l": {"$gt": [1]}}),
            json!({"l": {"$lt": [1, 3]}}),
            json!({"big": {"$gt": u64::MAX}}),
        ];
        let no = [
            json!({"a": {"$gt": "0"}}),
            json!({"n": {"$gt": 0}}),
            json!({"zz": {"$lt": 5}}),
            json!({"t": {"$gte": true}}),
            json!({"a": {"$gt": 1}}),
            json!({"a": {"$lt": 1}}),
        ];
        assert_each_matches(true, &yes);
        assert_each_matches(false, &no);
    }

    #[test]
    fn exists_checks_the_name_and_not_the_value() {
        assert_each_matches(true, &[json!({"n": {"$exists": true}}), json!({"zz": {"$exists": false}})]);
        assert_each_matches(false, &[json!({"n": {"$exists": false}}), json!({"zz": {"$exists": true}})]);
    }

    #[test]
    fn text_operators_use_the_written_form_of_values() {
        let yes = [
            json!({"s": {"$regex": "h.l"}}),
            json!({"a": {"$regex": "1"}}),
            json!({"s": {"$contains": "ell"}}),
            json!({"l": {"$contains": 2}}),
            json!({"d": {"$contains": "e"}}),
            json!({"s": {"$startswith": "he", "$endswith": "lo"}}),
        ];
        let no = [
            json!({"s": {"$regex": "ell"}}),
            json!({"l": {"$contains": "xx"}}),
            json!({"d": {"$contains": 5}}),
            json!({"zz": {"$startswith": ""}}),
            json!({"zz": {"$contains": ""}}),
            json!({"zz": {"$regex": ""}}),
        ];
        assert_each_matches(true, &yes);
        assert_each_matches(false, &no);
    }

    #[test]
    fn start_from_latest_and_logical_operators_override_the_other_keys() {
        let yes = [
            json!({"start_from_latest": false, "a": 2, "$and": [{"a": 2}]}),
            json!({"$and": [{"a": 1}, {"s": "hello"}], "a": 2}),
            json!({"$or": [{"a": 2}, {"a": 1}], "a": 2}),
            json!({"$and": [{"a": 1}], "$or": []}),
            json!({"$and": [], "a": 2}),
            json!({"$and": [{"$or": [{"a": 2}, {"start_from_latest": 1}]}]}),
        ];
        assert_each_matches(true, &yes);
        assert_each_matches(
            false,
            &[json!({"$or": []}), json!({"$and": [{"a": 1}, {"a": 2}]}), json!({"$not": {"a": 1}})],
        );
    }

    #[test]
    fn an_operand_of_the_wrong_type_is_an_error_that_names_the_expected_type() {
        for (criteria, message) in [
            (json!({"$and": 5}), "$and takes a list of criteria, and was given 5"),
            (json!({"$or": [5]}), "$or takes a list of criteria, and was given 5"),
            (json!({"a": {"$in": {}}}), "$in takes a list, and was given {}"),
            (json!({"a": {"$exists": "yes"}}), "$exists takes true or false, and was given yes"),
            (json!({"s": {"$startswith": null}}), "$startswith takes text, and was given null"),
        ] {
            let error = match_event(&criteria).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.is_type_error()), (message, true));
        }
        let error = match_event(&json!({"s": {"$regex": "("}})).unwrap_err();
        assert!(
            error.to_string().starts_with(r#"$regex: the pattern "(" is not a valid"#) && !error.is_type_error(),
            "{error}"
        );
    }

    fn nested(depth: usize) -> Json {
        (1..depth).fold(json!({"a": 1}), |criteria, _| json!({"$and": [criteria]}))
    }

    #[test]
    fn criteria_that_are_nested_too_deep_are_refused() {
        assert_eq!(match_event(&nested(MAX_DEPTH)), Ok(true));
        assert_eq!(match_event(&nested(MAX_DEPTH + 1)), Err(FilterError::TooDeep));
    }

    fn scalar() -> impl Strategy<Value = Json> {
        prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            (-3..3i64).prop_map(Json::from),
            "[ab]{0,2}".prop_map(Json::from)
        ]
    }

    proptest! {
        #[test]
        fn a_negated_operator_is_the_opposite_where_the_field_exists(value in scalar(), operand in scalar()) {
            let event = json!({"a": value});
            let evaluate = |operator: &str, operand: &Json| {
                matches(&Node::Value(&event), &Node::Value(&json!({"a": {operator: operand}})), &Patterns::default()).unwrap()
            };
            prop_assert_eq!(evaluate("$eq", &operand), !evaluate("$ne", &operand));
            prop_assert_eq!(evaluate("$in", &json!([operand])), evaluate("$eq", &operand));
            prop_assert_eq!(evaluate("$nin", &json!([operand])), evaluate("$ne", &operand));
            prop_assert!(!(evaluate("$gt", &operand) && evaluate("$lte", &operand)));
            prop_assert_eq!(evaluate("$gte", &operand), evaluate("$gt", &operand) || evaluate("$gte", &operand) && evaluate("$lte", &operand));
        }

        #[test]
        fn any_json_is_evaluated_or_refused_without_a_panic(event: String, criteria in "\\PC{0,40}") {
            let criteria: Json = serde_json::from_str(&criteria).unwrap_or_else(|_| json!({&criteria: {&event: criteria}}));
            let _ = matches(&Node::Value(&json!({"a": event})), &Node::Value(&criteria), &Patterns::default());
        }
    }
}
