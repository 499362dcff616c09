//! Upgrade requests: a result doesn't change when more bytes arrive, and no token is accepted by chance.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::{JwtConfig, JwtKey, handshake, jwt::Gate};

fuzz_target!(|bytes: &[u8]| {
    let parsed = handshake::parse(bytes);
    if let Ok(Some(request)) = &parsed {
        assert!(request.end <= bytes.len() && request.end <= handshake::MAX_REQUEST);
        let key = JwtKey::secret(b"a secret that no input can know!").expect("it is long enough");
        let gate = Gate::new(&JwtConfig::new(vec![key]));
        assert!(gate.admit(request.cookies.iter().copied(), request.authorization).is_err());
        // Bytes after the request don't matter.
        assert_eq!(handshake::parse(&bytes[..request.end]).as_ref(), Ok(&Some(handshake_of(bytes, request.end))));
    }
    // A prefix of a valid request is never rejected, but incomplete.
    if let Ok(Some(request)) = &parsed {
        for cut in 0..request.end {
            assert_eq!(handshake::parse(&bytes[..cut]), Ok(None), "cut at {cut} of {}", request.end);
        }
    }
});

fn handshake_of(bytes: &[u8], end: usize) -> handshake::Request<'_> {
    handshake::parse(bytes).ok().flatten().filter(|request| request.end == end).expect("it was parsed before")
}
