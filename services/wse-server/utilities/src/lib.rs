//! What an application of the WSE protocol needs beside the server. No sockets, no clock of its own, no Python.
//!
//! [`crypto`] agrees on a key and seals messages with it; [`bucket`] limits a rate.

pub mod bucket;
pub mod crypto;
