//! Frames of a service to the load generator: each is parsed completely or not at all, and lies inside the input. A frame is either
//! a plain one or the first of a compressed message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadgen_core::frame::{Frame, Violation, parse, parse_compressed};

fuzz_target!(|bytes: &[u8]| {
    let (plain, compressed) = (parse(bytes), parse_compressed(bytes));
    if bytes.len() >= 2 {
        assert!([plain, compressed].contains(&Err(Violation::Reserved)));
    }
    is_whole(bytes, plain, parse);
    is_whole(bytes, compressed, parse_compressed);
});

type Parsed<'a> = Result<Option<Frame<'a>>, Violation>;

fn is_whole(bytes: &[u8], parsed: Parsed<'_>, parse: impl Fn(&[u8]) -> Parsed<'_>) {
    let Ok(Some(frame)) = parsed else { return };
    assert!(frame.length <= bytes.len() && frame.payload.len() < frame.length);
    assert_eq!(parse(&bytes[..frame.length]), Ok(Some(frame)));
    for cut in 0..frame.length {
        assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut} of {}", frame.length);
    }
}
