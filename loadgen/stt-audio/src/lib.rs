//! The audio that speech sessions send ([`audio`]) and the inference results that it must have ([`expected`]). Pure.
//!
//! It is a crate of its own because it computes much: every profile optimises it, which sending and receiving don't
//! need.

pub mod audio;
pub mod expected;
