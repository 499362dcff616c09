//! Compression of messages: a response is accepted only if a worker could have sent what it says; messages are inflated up to the
//! bound, and what is compressed comes back unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loadgen_core::deflate::{DeflateOffer, Deflater, Inflater, Negotiated};

const LARGEST: usize = 4096;
fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (response, messages) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let offer = DeflateOffer { compress_sent: true, ..DeflateOffer::default() };
    let Ok(agreed) = offer.accept(response) else { return };
    assert_eq!(offer.accept(agreed.to_string().as_bytes()), Ok(agreed), "what is reported says the same");
    inflate_all(agreed, messages);
    come_back(agreed, messages);
});

/// Inflates messages, each behind its length in two bytes.
fn inflate_all(agreed: Negotiated, mut messages: &[u8]) {
    let (mut inflater, mut out) = (Inflater::default(), Vec::new());
    while let Some((length, rest)) = messages.split_first_chunk::<2>() {
        let (message, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*length).into()));
        messages = rest;
        if agreed.server_no_context_takeover {
            inflater.reset();
        }
        let inflated = inflater.inflate(message, &mut out, LARGEST);
        assert!(out.capacity() <= 2 * LARGEST, "{}", out.capacity());
        if inflated.is_err() {
            return;
        }
        assert!(out.len() <= LARGEST);
    }
}

fn come_back(agreed: Negotiated, message: &[u8]) {
    let (mut deflater, mut inflater) = (Deflater::new(agreed.client_max_window_bits), Inflater::default());
    let (mut compressed, mut out) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        deflater.deflate(message, &mut compressed);
        assert_eq!(inflater.inflate(&compressed, &mut out, message.len()), Ok(()));
        assert_eq!(out, message);
    }
}
