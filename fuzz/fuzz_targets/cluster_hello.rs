//! The first frames of a peer, and lists of addresses: a hello is encoded as it was, no input proves the secret, and an
//! address on this machine resolves to nothing else.
#![no_main]

use std::net::ToSocketAddrs;

use libfuzzer_sys::fuzz_target;
use wse_engine::cluster::{self, frame};

fuzz_target!(|bytes: &[u8]| {
    // The second frame is the proof.
    let used = frame::parse(bytes).ok().flatten().map_or(0, |(_, used)| used);
    let (first, proof) = bytes.split_at(used);
    cluster::greeted(first, proof);
    for (address, is_local) in cluster::gossiped(bytes) {
        // Names other than `localhost` aren't looked up here.
        if is_local && !address.to_ascii_lowercase().starts_with("localhost") {
            let mut resolved = address.to_socket_addrs().unwrap_or_else(|error| panic!("{address}: {error}"));
            assert!(resolved.all(|resolved| resolved.ip().to_canonical().is_loopback()), "{address}");
        }
    }
});
