//! The equations between the counters of workers and service, for example: what was sent was delivered or dropped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All equations of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Books {
    /// Equations over the whole trial.
    pub equations: Vec<Equation>,
    /// The comparison of single connections; absent if the service has no books for each connection.
    pub connections: Option<ConnectionCheck>,
}

impl Books {
    /// Whether every equation holds, over the trial and for each connection.
    pub fn balance(&self) -> bool {
        self.equations.iter().all(Equation::holds)
            && self.connections.as_ref().is_none_or(|check| check.mismatched == 0)
    }
}

/// One equation, with the counts of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Equation {
    /// The equation as text, for example `sent = delivered + dropped`.
    pub name: String,
    /// Value of the left side.
    pub left: u64,
    /// Value of the right side: the sum of its terms.
    pub right: u64,
    /// Name and value of each term of the right side.
    pub terms: Vec<(String, u64)>,
}

impl Equation {
    /// Creates an equation. The sum wraps, because sums of sequence numbers are modulo 2^64.
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

/// The comparison of both sides' books, connection by connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionCheck {
    /// Number of connections compared.
    pub compared: u64,
    /// Number of connections whose books differ or that only one side knows.
    pub mismatched: u64,
    /// Descriptions of the first mismatches.
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
