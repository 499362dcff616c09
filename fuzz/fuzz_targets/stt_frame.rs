//! Frames of a session: any split of the bytes and both paths through the parser give the same messages; nothing
//! follows an end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rust_sync::protocol::{MAXIMAL_MESSAGE, Meaning, meaning_of};

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (chunk, audio, bytes) = input;
    // Inputs are short, so whole frames of audio are put before them to use both paths.
    let frame = [vec![0x82, 0xFE, 0x02, 0x80, 1, 2, 3, 4], vec![audio; 640]].concat();
    let bytes = [frame.repeat(usize::from(audio % 4)).as_slice(), bytes].concat();
    let unsplit = meaning_of([bytes.as_slice()], true);
    assert_eq!(unsplit, meaning_of(bytes.chunks(usize::from(chunk) + 1), true));
    assert_eq!(unsplit, meaning_of(bytes.chunks(usize::from(chunk) + 1), false));
    for meaning in &unsplit {
        match meaning {
            Meaning::Text(message) | Meaning::Binary(message) => assert!(message.len() <= MAXIMAL_MESSAGE),
            Meaning::Ping(payload) => assert!(payload.len() <= 125),
            Meaning::Close(_) | Meaning::Refused(_) => assert_eq!(Some(meaning), unsplit.last()),
        }
    }
});
