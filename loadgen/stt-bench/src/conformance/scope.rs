//! Which cases are checked.

use super::{
    case::Case,
    cases::CASES,
    level::{Exceptions, Level},
};

/// What of the contract is checked.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// How much of it.
    pub level: Level,
    /// Only these cases; empty means all of the level.
    pub only: Vec<String>,
    /// Only of cases that may have one.
    pub exceptions: Exceptions,
}

impl Scope {
    /// Its cases, in the order of the report.
    pub fn cases(&self) -> impl Iterator<Item = &'static Case> + '_ {
        let asked = |case: &&Case| self.only.is_empty() || self.only.iter().any(|name| name == case.name);
        CASES.iter().filter(|case| case.level <= self.level).filter(asked)
    }
}

/// The names of the cases that only a level has.
pub fn names_of(level: Level) -> Vec<&'static str> {
    CASES.iter().filter(|case| case.level == level).map(|case| case.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_leaves_out_what_a_library_does_by_itself() {
        let count = |level| Scope { level, ..Scope::default() }.cases().count();
        assert_eq!((count(Level::Core), count(Level::Strict)), (CASES.len() - 8, CASES.len()));
        assert_eq!(
            names_of(Level::Strict),
            [
                "oversized",
                "oversized-fragments",
                "unmasked",
                "reserved",
                "bad-control",
                "unknown-path",
                "wrong-method",
                "bad-upgrade"
            ]
        );
    }
}
