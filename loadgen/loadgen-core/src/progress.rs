//! A progress line for a person at a terminal. It is silent unless standard error is a terminal.

use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

/// A line with a spinner. It disappears when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows the line and starts its spinner.
    pub fn start(description: impl Into<String>) -> Self {
        if !stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner().with_message(description.into());
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("the template is a constant"));
        // Ten updates per second, because each redraw costs CPU of the generator.
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
