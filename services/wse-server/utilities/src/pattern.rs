//! A cache of the regular expressions of filters. A pattern is compiled once, matched from the start of a text and in
//! linear time. A full cache drops its oldest pattern.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use regex_automata::{
    Anchored, Input,
    meta::{BuildError, Regex},
};

/// The largest number of patterns in the cache.
pub const MAX_PATTERNS: usize = 1024;
/// The longest pattern that is accepted, in bytes.
pub const MAX_PATTERN_BYTES: usize = 4096;
/// The largest size of one compiled pattern, in bytes. Without this limit a short pattern with large counts could take
/// all memory.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Why a pattern can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern has this many bytes, more than [`MAX_PATTERN_BYTES`].
    #[error("the pattern has {0} bytes: give {MAX_PATTERN_BYTES} at most")]
    Long(usize),
    /// It isn't a regular expression, or it needs look-around or back-references, which can't be matched in linear
    /// time.
    #[error(
        "the pattern {pattern:?} is not a valid regular expression (it can't have look-around and back-references): {reason}"
    )]
    Syntax {
        /// The pattern as it was given.
        pattern: String,
        /// The reason, from the parser's message.
        reason: String,
    },
    /// The compiled pattern would be too large, because repetition counts multiply.
    #[error("the pattern {0:?} is too large once compiled: give smaller counts")]
    Large(String),
}

/// A cache of at most [`MAX_PATTERNS`] compiled patterns that threads can share.
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
    /// Whether `text` begins with a match of `pattern`. Compiles the pattern if it isn't in the cache.
    ///
    /// # Errors
    /// Returns a [`PatternError`] if the pattern is too long, too large once compiled, or not a supported regular
    /// expression.
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

    /// The number of patterns in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).order.len()
    }

    /// Whether the cache is empty.
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
        if self.order.len() > MAX_PATTERNS
            && let Some(oldest) = self.order.pop_front()
        {
            self.compiled.remove(&oldest);
        }
    }
}

fn compile(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(PatternError::Long(pattern.len()));
    }
    let config = Regex::config().nfa_size_limit(Some(MAX_COMPILED_BYTES));
    Regex::builder().configure(config).build(pattern).map_err(|error| pattern_error(pattern, &error))
}

fn pattern_error(pattern: &str, error: &BuildError) -> PatternError {
    if error.size_limit().is_some() {
        return PatternError::Large(pattern.to_owned());
    }
    // The parser's message shows the pattern and marks the position. The reason is in the last line.
    let text = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
    PatternError::Syntax { pattern: pattern.to_owned(), reason }
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
    fn an_invalid_pattern_is_refused_with_a_reason() {
        let patterns = Patterns::default();
        for (pattern, reason) in [("(", "unclosed group"), ("(?=h)", "look-around"), (r"(a)\1", "backreferences")] {
            let Err(PatternError::Syntax { reason: text, .. }) = patterns.matches(pattern, "x") else {
                panic!("{pattern}")
            };
            assert!(text.contains(reason) && !text.contains('\n'), "{text}");
        }
        assert_eq!(patterns.matches(&"x".repeat(5000), "x"), Err(PatternError::Long(5000)));
        let large = r"(\w{100}){100}";
        assert_eq!(patterns.matches(large, "x"), Err(PatternError::Large(large.into())));
        assert!(patterns.is_empty());
    }

    #[test]
    fn the_oldest_pattern_is_forgotten() {
        let patterns = Patterns::default();
        for number in 0..MAX_PATTERNS + 5 {
            assert_eq!(patterns.matches(&number.to_string(), &number.to_string()), Ok(true));
        }
        assert_eq!(patterns.len(), MAX_PATTERNS);
        let known = patterns.known.lock().unwrap();
        assert!(!known.compiled.contains_key("4") && known.compiled.contains_key("5"));
        assert_eq!(known.compiled.len(), MAX_PATTERNS);
    }

    #[test]
    fn a_pattern_that_would_backtrack_exponentially_is_matched_in_linear_time() {
        assert_eq!(Patterns::default().matches("(a*)*b", &"a".repeat(100_000)), Ok(false));
    }
}
