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
    /// Whether every equation that isn't a remark holds, over the trial and for each connection.
    pub fn balance(&self) -> bool {
        self.equations.iter().all(|equation| equation.is_remark || equation.holds())
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
    /// A difference is a remark and doesn't make the trial invalid, because the service's counters may count other things,
    /// too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_remark: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Equation {
    /// Creates an equation. The sum wraps, because sums of sequence numbers are modulo 2^64.
    pub fn new(name: &str, left: u64, terms: impl IntoIterator<Item = (String, u64)>) -> Self {
        let terms: Vec<_> = terms.into_iter().collect();
        let right = terms.iter().fold(0_u64, |sum, (_, term)| sum.wrapping_add(*term));
        Self { name: name.into(), left, right, terms, is_remark: false }
    }

    /// Whether both sides are equal.
    pub fn holds(&self) -> bool {
        self.left == self.right
    }

    /// Both sides of an equation that doesn't hold, as text; `None` if it holds.
    pub fn difference(&self) -> Option<String> {
        if self.holds() {
            return None;
        }
        let terms: Vec<String> = self.terms.iter().map(|(name, count)| format!("{name} {count}")).collect();
        Some(format!("{}: {} against {} ({})", self.name, self.left, self.right, terms.join(", ")))
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
    fn a_difference_that_is_a_remark_leaves_the_books_balanced() {
        let mut books = Books {
            equations: vec![Equation::new("sent = delivered", 3, [("delivered".into(), 2)])],
            connections: None,
        };
        assert_eq!(books.equations[0].difference().as_deref(), Some("sent = delivered: 3 against 2 (delivered 2)"));
        assert!(!books.balance());
        books.equations[0].is_remark = true;
        assert!(books.balance());
    }

    #[test]
    fn an_equation_holds_only_when_both_sides_agree() {
        assert!(Equation::new("sent = delivered", 3, [("delivered".into(), 3)]).holds());
        assert!(!Equation::new("sent = delivered", 3, [("delivered".into(), 2)]).holds());
    }
}
