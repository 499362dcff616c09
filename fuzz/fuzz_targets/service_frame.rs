//! Frames of a service to the load generator: each is parsed completely or not at all, and lies inside the input.
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
