//! The harness measured: real `ladder`, real worker, and services whose behaviour is known (`services/self-test`).
//!
//! Each self-test is a check on a bundle and at least one bundle that the same check must refuse: a check that can't
//! fail proves nothing. They need the machine to themselves, take a few minutes, and run with
//! `cargo test -p operator --test self_test_harness -- --test-threads 1`.

mod add_a_service;
mod bad_input;
mod books;
mod ceiling;
mod every_driver;
mod freeze;
mod known_delay;
mod outside;
mod protocol_check;
mod publications;
mod raw_client;
mod run;
mod slow_generator;
mod stt_books;
mod stt_deaths;
mod stt_freeze;
mod stt_known_delay;
mod stt_replicas;
mod stt_starved;
