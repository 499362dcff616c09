//! The audio that speech sessions send ([`audio`]), and what inference must say about it ([`expected`]). Pure.
//!
//! A crate of its own because it computes: it is optimised in every profile, and what sends and receives needn't be.

pub mod audio;
pub mod expected;
