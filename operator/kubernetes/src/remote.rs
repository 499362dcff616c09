//! Commands that access a release from outside: the status of its run, its bundles, its verdicts.

pub mod assert;
pub mod fetch;
mod options;
mod progress;
pub mod reach;
pub mod status;
pub mod watch;
