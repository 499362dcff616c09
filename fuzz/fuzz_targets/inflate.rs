//! Inflating: output never exceeds the limit, an error leaves no output, and deflated data comes back unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::format::{COMPRESSED, InflateError, Inflater, encode_compressed};

const LIMIT: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let mut inflater = Inflater::default();
    let mut out = b"before".to_vec();
    match inflater.inflate(bytes, &mut out, LIMIT) {
        Ok(()) => assert!(out.len() <= LIMIT + 6 && out.starts_with(b"before")),
        Err(_) => assert_eq!(out, b"before"),
    }
    // The same inflater is usable again, in any state.
    out.clear();
    let compressed = encode_compressed(bytes);
    let result = inflater.inflate(&compressed[COMPRESSED.len()..], &mut out, LIMIT);
    if bytes.len() <= LIMIT {
        assert_eq!((result, out.as_slice()), (Ok(()), bytes));
    } else {
        assert_eq!(result, Err(InflateError::TooBig));
    }
});
