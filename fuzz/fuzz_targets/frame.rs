//! Frames of a client: any split of the bytes gives the same messages, and no message exceeds the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::receive::{Outcome, messages_of};

const LIMIT: usize = 300;

fuzz_target!(|input: (u8, &[u8])| {
    let (chunk, bytes) = input;
    let unsplit = messages_of([bytes], LIMIT);
    let split = messages_of(bytes.chunks(usize::from(chunk) + 1), LIMIT);
    assert_eq!(unsplit, split);
    let closes = unsplit.iter().filter(|outcome| matches!(outcome, Outcome::Close(_) | Outcome::Violation(_)));
    assert!(closes.count() <= 1);
    for outcome in &unsplit {
        match outcome {
            Outcome::Message(_, message) => assert!(message.len() <= LIMIT),
            Outcome::Ping(payload) => assert!(payload.len() <= 125),
            Outcome::Close(_) | Outcome::Violation(_) => assert_eq!(Some(outcome), unsplit.last()),
        }
    }
});
