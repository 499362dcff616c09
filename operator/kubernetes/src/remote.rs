//! From outside of a release: how its run stands, its bundles, its verdicts.

pub mod assert;
pub mod fetch;
pub mod reach;
pub mod status;
