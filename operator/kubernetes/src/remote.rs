//! From outside of a release: how its run stands, its bundles, its verdicts.

pub mod assert;
pub mod fetch;
mod options;
pub mod reach;
pub mod status;
