//! The mistakes of a section, each with its place and how to correct it.

use std::fmt::Display;

/// Mistakes in the order in which they were found.
#[derive(Debug, Default)]
pub struct Mistakes {
    list: Vec<(String, String)>,
}

impl Mistakes {
    /// Adds one: a place such as `open[1].expect.when.regex`, and what to do about it.
    pub fn add(&mut self, place: impl Into<String>, message: impl Display) {
        self.list.push((place.into(), message.to_string()));
    }

    /// Number of mistakes that were added so far.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The mistakes as places and messages.
    pub fn into_list(self) -> Vec<(String, String)> {
        self.list
    }
}
