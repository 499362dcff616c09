//! Encryption of version 2: no input opens as the next message, and data frames come out as they went in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::encryption;

fuzz_target!(|input: (&[u8], &[u8])| encryption::frames(input.0, input.1));
