//! Encryption: every public key in a hello is accepted or rejected without a panic, data that wasn't sealed for the
//! connection doesn't open, and data that was sealed for it does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::{ClientHello, encryption};

/// The generator of P-256 in base64, which is a valid public key.
const GENERATOR: &str = "BGsX0fLhLEJH+Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT+NC4v4af5uO5+tKfA+eFivOM1drMV7Oy7ZAaDe/UfU=";

fuzz_target!(|bytes: &[u8]| {
    for hello in [ClientHello::parse(bytes), ClientHello::unpack(bytes)] {
        if let Some(key) = hello.key {
            encryption::accepts(&key, bytes);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        encryption::accepts(text, bytes);
    }
    assert!(encryption::accepts(GENERATOR, bytes));
});
