//! The equations that make a number publishable: what was sent is what was delivered plus what was dropped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All equations of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Books {
    /// Over the whole trial.
    pub equations: Vec<Equation>,
    /// Per connection; absent where the service keeps no books per connection.
    pub connections: Option<ConnectionCheck>,
}

impl Books {
    /// Whether every equation holds, for the trial and for each connection.
    pub fn balance(&self) -> bool {
        self.equations.iter().all(Equation::holds)
            && self.connections.as_ref().is_none_or(|check| check.mismatched == 0)
    }
}

/// One equation with both sides as counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Equation {
    /// In words: `sent = delivered + dropped`.
    pub name: String,
    /// The left side.
    pub left: u64,
    /// The right side, summed.
    pub right: u64,
    /// The terms of the right side.
    pub terms: Vec<(String, u64)>,
}

impl Equation {
    /// An equation from its left side and the named terms of its right side. Sums wrap: sequence sums are modulo 2^64.
    pub fn new(name: &str, left: u64, terms: impl IntoIterator<Item = (String, u64)>) -> Self {
        let terms: Vec<_> = terms.into_iter().collect();
        let right = terms.iter().fold(0_u64, |sum, (_, term)| sum.wrapping_add(*term));
        Self { name: name.into(), left, right, terms }
    }

    /// Whether both sides are equal.
    pub fn holds(&self) -> bool {
        self.left == self.right
    }
}

/// The per-connection comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionCheck {
    /// Connections compared.
    pub compared: u64,
    /// Connections on which the sides differ, or that one side doesn't know.
    pub mismatched: u64,
    /// The first few, in words.
    pub examples: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equation_holds_only_when_both_sides_agree() {
        assert!(Equation::new("sent = delivered", 3, [("delivered".into(), 3)]).holds());
        assert!(!Equation::new("sent = delivered", 3, [("delivered".into(), 2)]).holds());
    }
}
