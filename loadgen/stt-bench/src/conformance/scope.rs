//! Selects the cases to check from the level and the names that the user gave.

use super::{
    case::Case,
    cases::CASES,
    level::{Exceptions, Level},
};

/// Selection of cases, and exceptions for them.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Cases above this level are left out.
    pub level: Level,
    /// Names of the cases to check; empty means all cases of the level.
    pub only: Vec<String>,
    /// Declared exceptions. The command line allows them only for cases of level strict.
    pub exceptions: Exceptions,
}

impl Scope {
    /// Selected cases, in the order of the report.
    pub fn cases(&self) -> impl Iterator<Item = &'static Case> + '_ {
        let is_selected = |case: &&Case| self.only.is_empty() || self.only.iter().any(|name| name == case.name);
        CASES.iter().filter(|case| case.level <= self.level).filter(is_selected)
    }
}

/// Names of the cases whose level is exactly this one.
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
