//! What comes from Redis: read whole or not at all, however it is cut; a header is what was written, and nothing is made up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::redis::{
    header::Header,
    resp::{self, Incoming},
};

fuzz_target!(|bytes: &[u8]| {
    let mut at = 0;
    // As a subscriber reads: one behind the other, until something is missing or wrong.
    while let Ok(Some((incoming, used))) = resp::incoming(&bytes[at..]) {
        assert!(used > 0 && at + used <= bytes.len());
        // What stands behind it doesn't matter, and a part of it is never taken for the whole or for wrong.
        assert_eq!(resp::incoming(&bytes[at..at + used]), Ok(Some((incoming.clone(), used))));
        for cut in [1, used / 2, used - 1] {
            assert_eq!(resp::incoming(&bytes[at..at + cut.min(used - 1)]), Ok(None));
        }
        if let Incoming::Message(message) = incoming {
            let length = message.channel.len() + message.payload.len() + message.pattern.map_or(0, <[u8]>::len);
            assert!(length < used);
            header(message.payload);
        }
        at += used;
    }
    header(bytes);
});

fn header(payload: &[u8]) {
    match Header::split(payload) {
        Ok((Some(header), text)) => {
            let mut written = Vec::new();
            header.put(&mut written);
            assert_eq!(written.len(), header.length());
            assert_eq!([&written, text].concat(), payload);
        }
        Ok((None, text)) => assert!(text == payload && payload.first() != Some(&1)),
        Err(_) => assert_eq!(payload.first(), Some(&1)),
    }
}
