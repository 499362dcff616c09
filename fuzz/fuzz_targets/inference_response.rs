//! Responses of the inference: a result doesn't change when more bytes arrive, and an accepted response matches the
//! request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rust_sync::{inference::response, protocol::messages::Recognised};

fuzz_target!(|bytes: &[u8]| {
    // Also with a valid head, so that the fuzzer reaches bodies.
    let length = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes.len());
    for bytes in [bytes.to_vec(), [length.as_bytes(), bytes].concat()] {
        let Ok(Some(found)) = response::parse(&bytes) else { continue };
        assert!(found.body.end <= bytes.len() && found.body.end <= response::MAXIMAL_BYTES);
        assert_eq!(response::parse(&bytes[..found.body.end]), Ok(Some(found.clone())));
        for cut in found.body.end.saturating_sub(40)..found.body.end {
            assert_eq!(response::parse(&bytes[..cut]), Ok(None), "cut at {cut} of {}", found.body.end);
        }
        if let Ok(recognised) = Recognised::parse(&bytes[found.body.clone()], 2, 4) {
            assert!(recognised.rms.is_finite() && !recognised.transcript.is_empty());
            assert_eq!((recognised.samples, recognised.audio_bytes), (2560, 1280));
        }
    }
});
