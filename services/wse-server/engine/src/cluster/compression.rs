//! Compression of payloads if it pays: zstd at level 1, one zstd frame per message, as the protocol defines.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use super::frame::{FrameError, LARGEST};

/// Shorter payloads, in bytes, aren't compressed: setting up a context for each costs more time than the bytes are
/// worth.
const WORTH_A_TRY: usize = 1024;
/// The zstd level: the fastest.
const LEVEL: i32 = 1;
/// How many payloads are skipped after one that didn't become short enough. The number doubles with each further one.
const FIRST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 1024;

/// The compressor, with what it has learnt about the payloads so far.
struct Shrinker {
    context: Option<Compressor<'static>>,
    out: Vec<u8>,
    /// How many payloads are still to be skipped.
    skipped: u32,
    /// How many are skipped after the next failure.
    pause: u32,
}

thread_local! {
    /// One per thread: a publisher compresses on its own thread, once for all peers.
    static SHRINKER: RefCell<Shrinker> = RefCell::new(Shrinker {
        context: Compressor::new(LEVEL).ok(),
        out: Vec::new(),
        skipped: 0,
        pause: FIRST_PAUSE,
    });
}

/// Compresses the payload and calls `put` with the result if that saves at least an eighth. Returns whether it did.
pub(super) fn shorten(payload: &[u8], put: impl FnOnce(&[u8])) -> bool {
    payload.len() >= WORTH_A_TRY && SHRINKER.with_borrow_mut(|shrinker| shrinker.shorten(payload, put))
}

impl Shrinker {
    fn shorten(&mut self, payload: &[u8], put: impl FnOnce(&[u8])) -> bool {
        if self.skipped > 0 {
            self.skipped -= 1;
            return false;
        }
        let Some(context) = &mut self.context else { return false };
        // The buffer is as large as a result that pays; zstd fails beyond it.
        let most = payload.len() - payload.len() / 8;
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        let Ok(bytes) = context.compress_to_buffer(payload, &mut self.out[..most]) else {
            self.skipped = self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            return false;
        };
        self.pause = FIRST_PAUSE;
        put(&self.out[..bytes]);
        true
    }
}

/// The decompressor, whose output is bounded.
pub(super) struct Stretcher {
    context: Decompressor<'static>,
    out: Vec<u8>,
}

impl Stretcher {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { context: Decompressor::new()?, out: Vec::new() })
    }

    /// Decompresses a payload to at most [`LARGEST`] bytes.
    ///
    /// # Errors
    /// [`FrameError::Compressed`] if it isn't compressed or is larger.
    pub(super) fn stretch(&mut self, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
        // The buffer is allocated only for peers that send compressed payloads.
        self.out.resize(LARGEST, 0);
        let stretched = self.context.decompress_to_buffer(payload, &mut self.out[..]);
        stretched.map(|bytes| self.out[..bytes].to_vec()).map_err(|_| FrameError::Compressed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shortened(payload: &[u8]) -> Option<Vec<u8>> {
        let mut out = None;
        shorten(payload, |short| out = Some(short.to_vec())).then_some(())?;
        out
    }

    #[test]
    fn short_payloads_stay_as_they_are_and_long_ones_come_back() {
        assert_eq!(shortened(&[b'x'; WORTH_A_TRY - 1]), None);
        let text = br#"{"t":"tick","p":{"symbol":"ES","px":5234.75}}"#.repeat(100);
        let short = shortened(&text).unwrap();
        assert!(short.len() < text.len() / 8, "{}", short.len());
        assert_eq!(Stretcher::new().unwrap().stretch(&short), Ok(text));
    }

    #[test]
    fn what_does_not_become_shorter_is_tried_less_and_less() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let random: Vec<u8> = (0..4096).map(|_| noise()).collect();
        let text = vec![b'x'; 4096];
        assert_eq!(shortened(&random), None);
        let skipped = (0..100).take_while(|_| shortened(&text).is_none()).count();
        assert_eq!(skipped, FIRST_PAUSE as usize);
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; LARGEST + 1], 1).unwrap();
        assert!(bomb.len() < 1000);
        let mut stretcher = Stretcher::new().unwrap();
        assert_eq!(stretcher.stretch(&bomb), Err(FrameError::Compressed));
        let most = zstd::bulk::compress(&vec![0; LARGEST], 1).unwrap();
        assert_eq!(stretcher.stretch(&most).map(|out| out.len()), Ok(LARGEST));
    }

    proptest! {
        #[test]
        fn any_bytes_are_stretched_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(out) = Stretcher::new().unwrap().stretch(&bytes) {
                prop_assert!(out.len() <= LARGEST);
            }
        }
    }
}
