//! What a service sends to the generator: a frame is found whole or not at all, never beyond the bytes that are there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadgen_core::frame::parse;

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(frame)) = parse(bytes) else { return };
    assert!(frame.length <= bytes.len() && frame.payload.len() < frame.length);
    assert_eq!(parse(&bytes[..frame.length]), Ok(Some(frame)));
    for cut in 0..frame.length {
        assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut} of {}", frame.length);
    }
});
