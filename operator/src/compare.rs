//! Comparison of two sides that are measured in pairs until it is decided. Pure, except [`trial`].
//!
//! [`rule`] is the always-valid interval and what it decides, [`figures`] what is compared, and [`course`] which trial is
//! next after those that have ended. [`trial`] reads from a bundle what a comparison needs of a trial, for the climb and
//! for `ladder verify`. `docs/METHODOLOGY.md`, "Comparing two builds", says why.

pub mod course;
pub mod figures;
pub mod rule;
pub mod trial;
