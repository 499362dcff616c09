//! Regular expressions of filters: compiled once, matched from the start of a text in linear time, forgotten in turn.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use regex_automata::{
    Anchored, Input,
    meta::{BuildError, Regex},
};

/// Patterns that are remembered.
pub const MAXIMAL_PATTERNS: usize = 1024;
/// The longest pattern that is compiled.
pub const MAXIMAL_PATTERN_BYTES: usize = 4096;
/// What one compiled pattern may occupy, so that a short one with large counts doesn't take all memory.
const MAXIMAL_COMPILED_BYTES: usize = 1 << 20;

/// Why a pattern can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Longer than any filter needs.
    #[error("the pattern has {0} bytes: give {MAXIMAL_PATTERN_BYTES} at most")]
    Long(usize),
    /// No regular expression, or one that can't be matched in linear time.
    #[error("the pattern {pattern:?} is no regular expression without look-around and back-references: {why}")]
    Syntax {
        /// The pattern.
        pattern: String,
        /// What the parser says.
        why: String,
    },
    /// Its counts multiply.
    #[error("the pattern {0:?} is too large once compiled: give smaller counts")]
    Large(String),
}

/// Compiled patterns, the latest [`MAXIMAL_PATTERNS`] of them. Any thread may use it.
#[derive(Debug, Default)]
pub struct Patterns {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    compiled: HashMap<Arc<str>, Arc<Regex>>,
    order: VecDeque<Arc<str>>,
}

impl Patterns {
    /// Whether `text` begins with a match of `pattern`.
    ///
    /// # Errors
    /// When it is no pattern that can be matched.
    pub fn matches(&self, pattern: &str, text: &str) -> Result<bool, PatternError> {
        Ok(self.compiled(pattern)?.is_match(Input::new(text).anchored(Anchored::Yes)))
    }

    fn compiled(&self, pattern: &str) -> Result<Arc<Regex>, PatternError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = known.compiled.get(pattern) {
            return Ok(Arc::clone(compiled));
        }
        drop(known);
        let compiled = Arc::new(compile(pattern)?);
        known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remember(pattern.into(), &compiled);
        Ok(compiled)
    }

    /// How many patterns are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).order.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Known {
    fn remember(&mut self, pattern: Arc<str>, compiled: &Arc<Regex>) {
        if self.compiled.insert(Arc::clone(&pattern), Arc::clone(compiled)).is_some() {
            // Another thread compiled it meanwhile.
            return;
        }
        self.order.push_back(pattern);
        if self.order.len() > MAXIMAL_PATTERNS
            && let Some(oldest) = self.order.pop_front()
        {
            self.compiled.remove(&oldest);
        }
    }
}

fn compile(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > MAXIMAL_PATTERN_BYTES {
        return Err(PatternError::Long(pattern.len()));
    }
    let config = Regex::config().nfa_size_limit(Some(MAXIMAL_COMPILED_BYTES));
    Regex::builder().configure(config).build(pattern).map_err(|error| refused(pattern, &error))
}

fn refused(pattern: &str, error: &BuildError) -> PatternError {
    if error.size_limit().is_some() {
        return PatternError::Large(pattern.to_owned());
    }
    // The parser draws the pattern and points at it; what is wrong is in its last line.
    let told = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    let why = told.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    PatternError::Syntax { pattern: pattern.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_from_the_start_but_need_not_reach_the_end() {
        let patterns = Patterns::default();
        for (pattern, text, expected) in [
            ("hel", "hello", true),
            ("ell", "hello", false),
            ("x|ello", "hello", false),
            ("x|hel", "hello", true),
            ("", "", true),
            ("(?x) hel # a comment", "hello", true),
            ("hello$", "hello", true),
            ("hell$", "hello", false),
            ("(?i)HEL", "hello", true),
            (r"\w+é", "àé", true),
        ] {
            assert_eq!(patterns.matches(pattern, text), Ok(expected), "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        let patterns = Patterns::default();
        for (pattern, why) in [("(", "unclosed group"), ("(?=h)", "look-around"), (r"(a)\1", "backreferences")] {
            let Err(PatternError::Syntax { why: told, .. }) = patterns.matches(pattern, "x") else {
                panic!("{pattern}")
            };
            assert!(told.contains(why) && !told.contains('\n'), "{told}");
        }
        assert_eq!(patterns.matches(&"x".repeat(5000), "x"), Err(PatternError::Long(5000)));
        let large = r"(\w{100}){100}";
        assert_eq!(patterns.matches(large, "x"), Err(PatternError::Large(large.into())));
        assert!(patterns.is_empty());
    }

    #[test]
    fn the_oldest_pattern_is_forgotten() {
        let patterns = Patterns::default();
        for number in 0..MAXIMAL_PATTERNS + 5 {
            assert_eq!(patterns.matches(&number.to_string(), &number.to_string()), Ok(true));
        }
        assert_eq!(patterns.len(), MAXIMAL_PATTERNS);
        let known = patterns.known.lock().unwrap();
        assert!(!known.compiled.contains_key("4") && known.compiled.contains_key("5"));
        assert_eq!(known.compiled.len(), MAXIMAL_PATTERNS);
    }

    #[test]
    fn a_pattern_that_backtracks_elsewhere_takes_no_time_here() {
        assert_eq!(Patterns::default().matches("(a*)*b", &"a".repeat(100_000)), Ok(false));
    }
}
