//! Messages from Redis: each is parsed completely or not at all for any split, and a header is encoded as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::redis::{
    header::Header,
    resp::{self, Incoming},
};

fuzz_target!(|bytes: &[u8]| {
    let mut at = 0;
    // Like a subscriber: one message after another, until one is incomplete or wrong.
    while let Ok(Some((incoming, used))) = resp::incoming(&bytes[at..]) {
        assert!(used > 0 && at + used <= bytes.len());
        // Bytes after it don't matter, and a part of it is incomplete, neither complete nor wrong.
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
