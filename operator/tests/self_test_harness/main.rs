//! Tests of the harness itself: the real `ladder` and a real worker, against services of known behaviour
//! (`services/self-test`).
//!
//! Each self-test is a check of a bundle, with at least one bundle that the same check must refuse: a check that can't
//! fail proves nothing. The tests need the machine to themselves and take a few minutes. Run them with `cargo test -p
//! operator --test self_test_harness -- --test-threads 1`.

mod add_a_service;
mod bad_input;
mod books;
mod bound;
mod busy_machine;
mod ceiling;
mod counters;
mod every_driver;
mod freeze;
mod known_delay;
mod outside;
mod pairs;
mod pilots;
mod protocol_check;
mod publications;
mod raw_client;
mod rows;
mod run;
mod slow_generator;
mod stt_books;
mod stt_deaths;
mod stt_freeze;
mod stt_known_delay;
mod stt_omission;
mod stt_replicas;
mod stt_starved;
mod turnover;
mod usage;
mod websocket;
