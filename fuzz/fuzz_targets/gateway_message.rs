//! Messages of a gateway to its load generator: each is parsed or rejected, and for any frame numbers in it the frames
//! of a session stay accounted for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stt_bench::{
    coverage::Coverage,
    protocol::{Message, parse},
};

/// Frames that the session has sent, and those of them that are covered.
const SENT: u64 = 120;
const COVERED: u64 = 50;

fuzz_target!(|text: &[u8]| {
    let (oldest, newest, numbers) = match parse(text) {
        Ok(Message::Partial(partial)) => {
            assert!(!partial.transcript.is_empty() && partial.frames > 0 && partial.samples > 0);
            (partial.oldest_frame_seq, partial.newest_frame_seq, vec![partial.rms, partial.flush_lateness_ms])
        }
        Ok(Message::Error(error)) => {
            (error.oldest_frame_seq, error.newest_frame_seq, vec![error.oldest_age_ms, error.newest_age_ms])
        }
        Err(violation) => return assert!(!violation.to_string().is_empty()),
    };
    assert!(numbers.iter().all(|number| number.is_finite() && *number >= 0.0));
    assert!(1 <= oldest && oldest <= newest);
    let mut coverage = Coverage { to: COVERED };
    let covered = coverage.take(oldest, newest, SENT);
    assert!((COVERED..=SENT).contains(&coverage.to));
    assert_eq!(coverage.to - COVERED, covered.gap + covered.newly_covered);
    assert_eq!(covered.newly_covered + covered.again + covered.beyond, (newest - oldest).saturating_add(1));
});
