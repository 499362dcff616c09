//! Takes an answer from a flag, from the person at the terminal, or from its default.
//!
//! Questions are plain lines on standard error and answers are lines of standard input: it works on every terminal and
//! with every screen reader, and there is no mode of the terminal to restore.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, bail};

/// A question with its flag.
pub(super) struct Question<'a> {
    /// The flag that answers it, as it is written on the command line.
    pub(super) flag: &'a str,
    /// The question itself, without an end.
    pub(super) text: &'a str,
    /// The answer to an empty line; absent if there is no sensible one.
    pub(super) default: Option<&'a str>,
}

/// Where answers come from that no flag gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Otherwise {
    Terminal,
    Default,
    /// There is no terminal: the answer is missing.
    Missing,
}

/// Takes answers and remembers which are missing.
#[derive(Debug)]
pub(super) struct Ask {
    otherwise: Otherwise,
    missing: Vec<String>,
}

impl Ask {
    /// Asks at the terminal, if there is one and `defaults` doesn't say to take the defaults.
    pub(super) fn new(defaults: bool) -> Self {
        let has_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        let otherwise = match (defaults, has_terminal) {
            (true, _) => Otherwise::Default,
            (false, true) => Otherwise::Terminal,
            (false, false) => Otherwise::Missing,
        };
        Self { otherwise, missing: Vec::new() }
    }

    /// The checked answer. Where it is missing, the default stands in for it, so that later questions can be put;
    /// `None` if there is no default either.
    ///
    /// # Errors
    /// When the flag's value is wrong, or standard input ends.
    pub(super) fn answer<T>(
        &mut self,
        given: Option<&str>,
        question: &Question<'_>,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<Option<T>> {
        let Question { flag, text, default } = *question;
        let checked = |answer: &str| {
            check(answer.trim()).map_err(|reason| anyhow::anyhow!("{flag} {}: {reason}", quoted(answer)))
        };
        if let Some(given) = given {
            return checked(given).map(Some);
        }
        match (self.otherwise, default) {
            (Otherwise::Terminal, _) => return at_terminal(text, default, &check).map(Some),
            (Otherwise::Default, Some(_)) => {}
            (Otherwise::Default | Otherwise::Missing, _) => self.missing.push(flag.to_owned()),
        }
        default.map(checked).transpose()
    }

    /// Checks that nothing was left unanswered.
    ///
    /// # Errors
    /// When answers are missing; names their flags.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        match (self.missing.is_empty(), self.otherwise) {
            (true, _) => Ok(()),
            (false, Otherwise::Default) => bail!("no default: give {}", self.missing.join(" and ")),
            (false, _) => bail!(
                "no terminal to ask at: give {}; or --defaults, which answers what has a default",
                self.missing.join(", ")
            ),
        }
    }
}

/// The value as a shell takes it, if that is needed.
fn quoted(value: &str) -> String {
    if value.is_empty() || value.contains(char::is_whitespace) { format!("'{value}'") } else { value.to_owned() }
}

/// Asks until the answer is right.
fn at_terminal<T>(text: &str, default: Option<&str>, check: impl Fn(&str) -> Result<T, String>) -> anyhow::Result<T> {
    loop {
        eprint!("{text}{}: ", default.map(|default| format!(" [{default}]")).unwrap_or_default());
        io::stderr().flush().context("failed to ask")?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).context("failed to read an answer")? == 0 {
            eprintln!();
            bail!("standard input ended; nothing was written");
        }
        let answer = line.trim();
        match check(if answer.is_empty() { default.unwrap_or("") } else { answer }) {
            Ok(checked) => return Ok(checked),
            Err(reason) => eprintln!("  {reason}"),
        }
    }
}
