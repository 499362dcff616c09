//! Encryption: whatever a hello calls a key is answered or refused, and nothing is opened that wasn't sealed for the
//! connection; what was sealed for it comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::{Hello, encryption};

/// The curve's generator, in base64: a key that every exchange accepts.
const GENERATOR: &str = "BGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfU=";

fuzz_target!(|bytes: &[u8]| {
    for hello in [Hello::parse(bytes), Hello::unpack(bytes)] {
        if let Some(key) = hello.key {
            encryption::accepts(&key, bytes);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        encryption::accepts(text, bytes);
    }
    assert!(encryption::accepts(GENERATOR, bytes));
});
