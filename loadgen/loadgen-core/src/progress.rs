//! What a person sees while a trial runs. Silent unless standard error is a terminal.

use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// A line that turns while something takes its time; it disappears when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Starts turning.
    pub fn start(words: impl Into<String>) -> Self {
        if !stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner().with_message(words.into());
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("the template is a constant"));
        // Ten a second: each redraw costs the generator's CPU.
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
