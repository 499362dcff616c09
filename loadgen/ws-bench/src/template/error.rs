//! What is wrong with a template.

use std::fmt;

use super::Kind;

/// Longest piece of a template that an error quotes, in characters.
const LONGEST_QUOTE: usize = 100;

/// A mistake in a template: which template, where, what, and what is possible there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of {template:?}: {problem}; known here: {known}")]
pub struct TemplateError {
    /// The template, cut if it is long.
    pub template: String,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
    /// The placeholders that are known at this place of a section.
    pub known: String,
}

/// The kind of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A placeholder has no closing braces.
    Unclosed,
    /// No placeholder has this name.
    Unknown(String),
    /// The placeholder has no value at this place of a section.
    NotHere(Kind),
    /// No value of this name was captured before, or no column has it.
    NoName {
        /// `{{captured.NAME}}` or `{{row.NAME}}`.
        kind: Kind,
        /// What the template calls it.
        name: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// The bounds of `{{random A B}}` are not two numbers, the smaller one first.
    Bounds(String),
    /// A choice has no texts to choose from.
    NoChoice,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed => write!(f, "{{{{ without }}}}"),
            Self::Unknown(name) => write!(f, "there is no placeholder {{{{{name}}}}}"),
            Self::NotHere(kind) => write!(f, "{} has no value here", kind.syntax()),
            Self::NoName { kind, name, names } => {
                let what = if *kind == Kind::Row { "column of the rows" } else { "value captured before" };
                let names = if names.is_empty() { "there is none".to_owned() } else { names.join(", ") };
                write!(f, "no {what} has the name {name:?} ({names})")
            }
            Self::Bounds(bounds) => {
                write!(f, "{bounds:?} are no bounds; give two whole numbers, the smaller one first: {{{{random 1 6}}}}")
            }
            Self::NoChoice => write!(f, "the choice has no texts; separate them by |: {{{{choice A|B}}}}"),
        }
    }
}

impl TemplateError {
    /// The mistake at byte `at` of `text`.
    pub(super) fn new(text: &str, at: usize, problem: Problem, kinds: &[Kind]) -> Self {
        let known: Vec<_> = kinds.iter().map(|kind| kind.syntax()).collect();
        let mut template: String = text.chars().take(LONGEST_QUOTE).collect();
        if template.len() < text.len() {
            template.push('…');
        }
        Self {
            template,
            column: text[..at].chars().count() + 1,
            problem,
            known: if known.is_empty() { "no placeholders".into() } else { known.join(" ") },
        }
    }
}
