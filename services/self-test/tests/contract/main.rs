//! Tests the service's contract and its flaws through real sockets.

mod client;
mod flaws;
mod process;
mod service;
