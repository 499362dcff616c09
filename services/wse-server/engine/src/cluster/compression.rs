//! Compression of payloads if it pays: zstd at level 1, one zstd frame per message, as the protocol defines.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use super::frame::{FrameError, LARGEST};

/// Shorter payloads, in bytes, aren't compressed: setting up a context for each costs more time than the bytes are
/// worth.
const MIN_BYTES: usize = 1024;
/// The zstd level: the fastest.
const LEVEL: i32 = 1;
/// How many payloads are skipped after one that didn't become short enough. The number doubles with each further one.
const FIRST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 1024;

/// The compressor, with what it has learnt about the payloads so far.
struct AdaptiveCompressor {
    context: Option<Compressor<'static>>,
    out: Vec<u8>,
    /// How many payloads are still to be skipped.
    skipped: u32,
    /// How many are skipped after the next failure.
    pause: u32,
}

thread_local! {
    /// One per thread: a publisher compresses on its own thread, once for all peers.
    static COMPRESSOR: RefCell<AdaptiveCompressor> = RefCell::new(AdaptiveCompressor {
        context: Compressor::new(LEVEL).ok(),
        out: Vec::new(),
        skipped: 0,
        pause: FIRST_PAUSE,
    });
}

/// Compresses the payload and calls `put` with the result if that saves at least an eighth. Returns whether it did.
pub(super) fn compress(payload: &[u8], put: impl FnOnce(&[u8])) -> bool {
    payload.len() >= MIN_BYTES && COMPRESSOR.with_borrow_mut(|compressor| compressor.compress(payload, put))
}

impl AdaptiveCompressor {
    fn compress(&mut self, payload: &[u8], put: impl FnOnce(&[u8])) -> bool {
        if self.skipped > 0 {
            self.skipped -= 1;
            return false;
        }
        let Some(context) = &mut self.context else { return false };
        // The buffer is as large as a result that pays; zstd fails beyond it.
        let maximum = payload.len() - payload.len() / 8;
        if self.out.len() < maximum {
            self.out.resize(maximum, 0);
        }
        let Ok(bytes) = context.compress_to_buffer(payload, &mut self.out[..maximum]) else {
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
pub(super) struct FrameDecompressor {
    context: Decompressor<'static>,
    out: Vec<u8>,
}

impl FrameDecompressor {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { context: Decompressor::new()?, out: Vec::new() })
    }

    /// Decompresses a payload to at most [`LARGEST`] bytes.
    ///
    /// # Errors
    /// [`FrameError::Compressed`] if it isn't compressed or is larger.
    pub(super) fn decompress(&mut self, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
        // The buffer is allocated only for peers that send compressed payloads.
        self.out.resize(LARGEST, 0);
        let decompressed = self.context.decompress_to_buffer(payload, &mut self.out[..]);
        decompressed.map(|bytes| self.out[..bytes].to_vec()).map_err(|_| FrameError::Compressed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn compressed_payload(payload: &[u8]) -> Option<Vec<u8>> {
        let mut out = None;
        compress(payload, |compressed| out = Some(compressed.to_vec())).then_some(())?;
        out
    }

    #[test]
    fn only_long_payloads_are_compressed_and_they_are_restored() {
        assert_eq!(compressed_payload(&[b'x'; MIN_BYTES - 1]), None);
        let text = br#"{"t":"tick","p":{"symbol":"ES","px":5234.75}}"#.repeat(100);
        let compressed = compressed_payload(&text).unwrap();
        assert!(compressed.len() < text.len() / 8, "{}", compressed.len());
        assert_eq!(FrameDecompressor::new().unwrap().decompress(&compressed), Ok(text));
    }

    #[test]
    fn incompressible_payloads_are_tried_less_and_less_often() {
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let random: Vec<u8> = (0..4096).map(|_| noise()).collect();
        let text = vec![b'x'; 4096];
        assert_eq!(compressed_payload(&random), None);
        let skipped = (0..100).take_while(|_| compressed_payload(&text).is_none()).count();
        assert_eq!(skipped, FIRST_PAUSE as usize);
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; LARGEST + 1], 1).unwrap();
        assert!(bomb.len() < 1000);
        let mut decompressor = FrameDecompressor::new().unwrap();
        assert_eq!(decompressor.decompress(&bomb), Err(FrameError::Compressed));
        let maximum = zstd::bulk::compress(&vec![0; LARGEST], 1).unwrap();
        assert_eq!(decompressor.decompress(&maximum).map(|out| out.len()), Ok(LARGEST));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decompressed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(out) = FrameDecompressor::new().unwrap().decompress(&bytes) {
                prop_assert!(out.len() <= LARGEST);
            }
        }
    }
}
