//! Recovery positions of clients: the result is every later message, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::{Position, fuzzed};

fuzz_target!(|input: (u8, u32, i64, bool, u8)| {
    let (published, epoch, offset, knows_epoch, maximum) = input;
    let epoch = (!knows_epoch).then_some(epoch);
    let result = fuzzed::recover(usize::from(published), epoch, offset, usize::from(maximum));
    let Position { offset: last, .. } = result.position;
    assert_eq!(last, i64::from(published) - 1);
    // The log in this test keeps sixteen messages.
    let first = (i64::from(published) - 16).max(0);
    let missed = last.saturating_sub(offset);
    let is_stored = offset >= first - 1 && offset <= last;
    let is_recoverable = result.knows_epoch && is_stored && missed <= i64::from(maximum);
    assert_eq!(result.missed.is_some(), is_recoverable, "{input:?}");
    if let Some(offsets) = result.missed {
        assert!(offsets.into_iter().eq(offset + 1..=last));
    }
});
