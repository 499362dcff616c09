//! zlib compression (RFC 1950). Each thread reuses its compression state, decompression has a size limit, and
//! [`CompressionStats`] counts both.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The largest size of a decompressed message, in bytes.
pub const MAX_INFLATED_BYTES: usize = 10 << 20;
/// The supported compression levels, from the fastest to the one with the smallest output.
pub const LEVELS: std::ops::RangeInclusive<u32> = 1..=9;
/// The output of decompression grows by this many bytes at a time, or by half its size once that is more.
const STEP_BYTES: usize = 16 << 10;
/// More than zlib's header, trailer and the frame of a stored block, so that the output of most messages fits at once.
const OVERHEAD_BYTES: usize = 64;

/// Why compression or decompression failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// The level is not in [`LEVELS`].
    #[error("the compression level is {0}: give 1 (the fastest) to 9 (the smallest)")]
    Level(i64),
    /// The input isn't a zlib stream, is incomplete, or has more bytes behind the stream.
    #[error("the {0} bytes are not a complete zlib stream")]
    Invalid(usize),
    /// The stream decompresses to more than [`MAX_INFLATED_BYTES`].
    #[error("the {0} bytes inflate to more than {MAX_INFLATED_BYTES}: send it in parts")]
    TooBig(usize),
    /// The compression library failed, although the input gives no reason.
    #[error("the compression library failed")]
    Library,
}

/// Checks a compression level.
///
/// # Errors
/// Returns [`CompressionError::Level`] if the level is not in [`LEVELS`].
pub fn level(level: i64) -> Result<u32, CompressionError> {
    u32::try_from(level).ok().filter(|level| LEVELS.contains(level)).ok_or(CompressionError::Level(level))
}

/// Compression states that a thread keeps, because creating one costs more than compressing a message with it.
#[derive(Default)]
struct States {
    /// The state for compression, with the level that it was created for.
    deflate: Option<(u32, Compress)>,
    inflate: Option<Decompress>,
}

thread_local! {
    static STATES: RefCell<States> = RefCell::default();
}

/// Compresses `data` to a zlib stream.
///
/// # Errors
/// Returns [`CompressionError::Level`] if `level` is not in [`LEVELS`].
pub fn compress(data: &[u8], level: u32) -> Result<Vec<u8>, CompressionError> {
    if !LEVELS.contains(&level) {
        return Err(CompressionError::Level(i64::from(level)));
    }
    STATES.with_borrow_mut(|states| {
        if let Some((_, state)) = states.deflate.as_mut().filter(|(state_level, _)| *state_level == level) {
            state.reset();
            return deflate(state, data);
        }
        let (_, state) = states.deflate.insert((level, Compress::new(Compression::new(level), true)));
        deflate(state, data)
    })
}

fn deflate(state: &mut Compress, data: &[u8]) -> Result<Vec<u8>, CompressionError> {
    // Text mostly shrinks to less than half. For other data the output grows in steps.
    let mut out = Vec::with_capacity(data.len() / 2 + OVERHEAD_BYTES);
    loop {
        let (read, written) = (state.total_in(), out.len());
        let rest = &data[read as usize..];
        let status = state.compress_vec(rest, &mut out, FlushCompress::Finish);
        match status.map_err(|_| CompressionError::Library)? {
            Status::StreamEnd => return Ok(out),
            _ if out.len() < out.capacity() && state.total_in() == read && out.len() == written => {
                return Err(CompressionError::Library);
            }
            _ => out.reserve((rest.len() / 4).max(OVERHEAD_BYTES)),
        }
    }
}

/// Decompresses the zlib stream `data` to at most [`MAX_INFLATED_BYTES`]. Memory grows with the actual output,
/// never with a size that the stream announces.
///
/// # Errors
/// Returns [`CompressionError::Invalid`] if `data` isn't exactly one complete stream, and [`CompressionError::TooBig`]
/// if its output exceeds the limit.
pub fn decompress(data: &[u8]) -> Result<Vec<u8>, CompressionError> {
    decompress_within(data, MAX_INFLATED_BYTES)
}

fn decompress_within(data: &[u8], limit: usize) -> Result<Vec<u8>, CompressionError> {
    STATES.with_borrow_mut(|states| {
        let state = states.inflate.get_or_insert_with(|| Decompress::new(true));
        state.reset(true);
        inflate(state, data, limit)
    })
}

fn inflate(state: &mut Decompress, data: &[u8], limit: usize) -> Result<Vec<u8>, CompressionError> {
    let invalid = CompressionError::Invalid(data.len());
    let mut out = Vec::new();
    loop {
        let (read, inflated) = (state.total_in() as usize, out.len());
        // One byte more than the limit, so that the end of a stream of exactly the limit is still read.
        out.reserve((limit + 1 - inflated).min(STEP_BYTES.max(inflated / 2)).min(data.len().saturating_mul(4).max(64)));
        let status = state.decompress_vec(&data[read..], &mut out, FlushDecompress::None).map_err(|_| invalid)?;
        if out.len() > limit {
            return Err(CompressionError::TooBig(data.len()));
        }
        let is_stuck = state.total_in() as usize == read && out.len() == inflated;
        match status {
            Status::StreamEnd if state.total_in() as usize == data.len() => return Ok(out),
            Status::StreamEnd => return Err(invalid),
            _ if is_stuck => return Err(invalid),
            _ => {}
        }
    }
}

/// Whether a message of this size is worth compressing: it must be larger than the threshold.
#[must_use]
pub fn should_compress(bytes: usize, threshold_bytes: usize) -> bool {
    bytes > threshold_bytes
}

/// Counters of compressed and decompressed messages, and of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// Messages that were compressed.
    pub compressed: u64,
    /// Messages that were decompressed.
    pub decompressed: u64,
    /// Messages that could not be compressed.
    pub compression_failures: u64,
    /// Streams that could not be decompressed.
    pub decompression_failures: u64,
    /// By how many bytes compressed messages are smaller than the originals, in total; negative if they are larger.
    pub bytes_saved: i64,
}

/// `part / (part + rest)`, from 0 to 1; 0 if `part` is 0.
fn share(part: u64, rest: u64) -> f64 {
    if part == 0 { 0.0 } else { part as f64 / (part + rest) as f64 }
}

impl CompressionStats {
    /// The share of messages that could be compressed, from 0 to 1; 0 before the first.
    #[must_use]
    pub fn compression_success_rate(&self) -> f64 {
        share(self.compressed, self.compression_failures)
    }

    /// The share of streams that could be decompressed, from 0 to 1; 0 before the first.
    #[must_use]
    pub fn decompression_success_rate(&self) -> f64 {
        share(self.decompressed, self.decompression_failures)
    }

    /// The bytes saved by one compressed message on average; 0 before the first.
    #[must_use]
    pub fn average_bytes_saved(&self) -> f64 {
        if self.compressed == 0 { 0.0 } else { self.bytes_saved as f64 / self.compressed as f64 }
    }

    /// Counts the compression of a message of `bytes`. `stream` is the output, or `None` after a failure.
    pub fn count_compressed(&mut self, bytes: usize, stream: Option<&[u8]>) {
        match stream {
            Some(stream) => {
                self.compressed += 1;
                self.bytes_saved += bytes as i64 - stream.len() as i64;
            }
            None => self.compression_failures += 1,
        }
    }

    /// Counts the decompression of a stream.
    pub fn count_decompressed(&mut self, succeeded: bool) {
        if succeeded { self.decompressed += 1 } else { self.decompression_failures += 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_level_compresses_a_message_and_restores_it() {
        let message = br#"{"t":"trade","p":{"symbol":"ES","price":5021.25}}"#.repeat(40);
        for level in LEVELS {
            let stream = compress(&message, level).unwrap();
            assert!(stream.len() < message.len() / 4, "level {level}: {} bytes", stream.len());
            // 0x78 means the deflate method with a window of 32 KiB. Both bytes together are a multiple of 31 (RFC
            // 1950, 2.2).
            assert_eq!((stream[0], (u16::from(stream[0]) << 8 | u16::from(stream[1])) % 31), (0x78, 0));
            assert_eq!(decompress(&stream).as_ref(), Ok(&message));
        }
    }

    #[test]
    fn the_stream_of_an_independent_library_inflates() {
        // Python: zlib.compress(b"abc", 6).
        let stream = [0x78, 0x9C, 0x4B, 0x4C, 0x4A, 0x06, 0x00, 0x02, 0x4D, 0x01, 0x27];
        assert_eq!(decompress(&stream).as_deref(), Ok(&b"abc"[..]));
    }

    #[test]
    fn levels_from_1_to_9_are_accepted() {
        for bad in [-1, 0, 10, i64::MAX] {
            assert_eq!(level(bad), Err(CompressionError::Level(bad)));
        }
        assert_eq!((level(1), level(9)), (Ok(1), Ok(9)));
        assert_eq!(compress(b"x", 0), Err(CompressionError::Level(0)));
    }

    #[test]
    fn a_bomb_is_refused_and_exactly_the_limit_is_not() {
        let bomb = compress(&vec![0; MAX_INFLATED_BYTES + 1], 9).unwrap();
        assert_eq!(decompress(&bomb), Err(CompressionError::TooBig(bomb.len())));
        let stream = compress(&[7; 40_000], 6).unwrap();
        assert_eq!(decompress_within(&stream, 40_000).map(|out| out.len()), Ok(40_000));
        assert_eq!(decompress_within(&stream, 39_999), Err(CompressionError::TooBig(stream.len())));
    }

    #[test]
    fn a_truncated_or_extended_stream_is_invalid_and_the_next_one_still_inflates() {
        let stream = compress(b"hello hello hello", 6).unwrap();
        let extended = [&stream[..], b"x"].concat();
        for bad in [&stream[..stream.len() - 1], &extended, b"", b"no zlib"] {
            assert_eq!(decompress(bad), Err(CompressionError::Invalid(bad.len())), "{bad:x?}");
        }
        assert_eq!(decompress(&stream).as_deref(), Ok(&b"hello hello hello"[..]));
    }

    #[test]
    fn only_messages_above_the_threshold_are_compressed() {
        assert_eq!([9, 10, 11].map(|bytes| should_compress(bytes, 10)), [false, false, true]);
    }

    #[test]
    fn the_stats_count_both_directions_and_their_failures() {
        let mut stats = CompressionStats::default();
        assert_eq!((stats.compression_success_rate(), stats.average_bytes_saved()), (0.0, 0.0));
        stats.count_compressed(100, Some(&[0; 12]));
        stats.count_compressed(2, Some(&[0; 10]));
        stats.count_compressed(5, None);
        stats.count_decompressed(true);
        stats.count_decompressed(false);
        assert_eq!((stats.bytes_saved, stats.average_bytes_saved()), (80, 40.0));
        assert_eq!((stats.compression_success_rate(), stats.decompression_success_rate()), (2.0 / 3.0, 0.5));
    }

    proptest! {
        #[test]
        fn compressed_data_is_restored(
            data in prop::collection::vec(any::<u8>(), 0..5000),
            repeat in 1..20usize,
            level in 1..=9u32,
        ) {
            let data = data.repeat(repeat);
            prop_assert_eq!(decompress(&compress(&data, level).unwrap()), Ok(data));
        }

        #[test]
        fn inflated_data_never_exceeds_its_limit(data in prop::collection::vec(any::<u8>(), 0..500)) {
            let framed = [&[0x78, 0x9C], &data[..]].concat();
            if let Ok(out) = decompress_within(&framed, 1000) {
                prop_assert!(out.len() <= 1000);
            }
        }
    }
}
