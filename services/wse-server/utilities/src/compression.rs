//! zlib (RFC 1950): deflating with a state that is made once, inflating within a limit, and books of both.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// What a stream may inflate to.
pub const MAXIMAL_INFLATED_BYTES: usize = 10 << 20;
/// The levels, from the fastest to the smallest.
pub const LEVELS: std::ops::RangeInclusive<u32> = 1..=9;
/// Output grows by this much at a time.
const STEP_BYTES: usize = 16 << 10;
/// More than zlib's header, trailer and a stored block's frame, so that most messages fit at once.
const OVERHEAD_BYTES: usize = 64;

/// Why there are no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// No level of ours.
    #[error("the compression level is {0}: give 1 (the fastest) to 9 (the smallest)")]
    Level(i64),
    /// No zlib stream, or not the whole of one, or something behind it.
    #[error("the {0} bytes are no whole zlib stream")]
    Invalid(usize),
    /// It would be larger than the limit.
    #[error("the {0} bytes inflate to more than {MAXIMAL_INFLATED_BYTES}: send it in parts")]
    TooBig(usize),
    /// The library refused, which it has no reason to.
    #[error("the compression library failed")]
    Library,
}

/// A level, checked.
///
/// # Errors
/// When it is none of [`LEVELS`].
pub fn level(level: i64) -> Result<u32, CompressionError> {
    u32::try_from(level).ok().filter(|level| LEVELS.contains(level)).ok_or(CompressionError::Level(level))
}

/// What a thread keeps: making a state costs more than deflating a message with it.
#[derive(Default)]
struct States {
    /// With its level.
    deflate: Option<(u32, Compress)>,
    inflate: Option<Decompress>,
}

thread_local! {
    static STATES: RefCell<States> = RefCell::default();
}

/// The zlib stream of `data`.
///
/// # Errors
/// When `level` is none of [`LEVELS`].
pub fn compress(data: &[u8], level: u32) -> Result<Vec<u8>, CompressionError> {
    if !LEVELS.contains(&level) {
        return Err(CompressionError::Level(i64::from(level)));
    }
    STATES.with_borrow_mut(|states| {
        if let Some((_, state)) = states.deflate.as_mut().filter(|(made_for, _)| *made_for == level) {
            state.reset();
            return deflate(state, data);
        }
        let (_, state) = states.deflate.insert((level, Compress::new(Compression::new(level), true)));
        deflate(state, data)
    })
}

fn deflate(state: &mut Compress, data: &[u8]) -> Result<Vec<u8>, CompressionError> {
    // Text shrinks to less than half; what doesn't grows in steps.
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

/// What the zlib stream `data` inflates to, at most [`MAXIMAL_INFLATED_BYTES`]. Memory grows with what comes out, never
/// with what is announced.
///
/// # Errors
/// When it isn't exactly one whole stream, or inflates to more.
pub fn decompress(data: &[u8]) -> Result<Vec<u8>, CompressionError> {
    decompress_within(data, MAXIMAL_INFLATED_BYTES)
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
        // One byte more than the limit, so that a stream of exactly the limit still gets to its end.
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

/// Whether `data` of so many bytes is worth it: more than the threshold.
#[must_use]
pub fn should_compress(bytes: usize, threshold_bytes: usize) -> bool {
    bytes > threshold_bytes
}

/// What was compressed so far, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// Streams that were made.
    pub compressed: u64,
    /// Streams that were inflated.
    pub decompressed: u64,
    /// Messages that could not be compressed.
    pub compression_failures: u64,
    /// Streams that could not be inflated.
    pub decompression_failures: u64,
    /// What streams are smaller than their messages; negative where they are larger.
    pub bytes_saved: i64,
}

/// `part` of `part + rest`, from 0 to 1; 0 of nothing.
fn share(part: u64, rest: u64) -> f64 {
    if part == 0 { 0.0 } else { part as f64 / (part + rest) as f64 }
}

impl CompressionStats {
    /// The share of messages that could be compressed, from 0 to 1.
    #[must_use]
    pub fn compression_success_rate(&self) -> f64 {
        share(self.compressed, self.compression_failures)
    }

    /// The share of streams that could be inflated, from 0 to 1.
    #[must_use]
    pub fn decompression_success_rate(&self) -> f64 {
        share(self.decompressed, self.decompression_failures)
    }

    /// Bytes saved by one stream on average.
    #[must_use]
    pub fn average_bytes_saved(&self) -> f64 {
        if self.compressed == 0 { 0.0 } else { self.bytes_saved as f64 / self.compressed as f64 }
    }

    /// Counts what came of compressing a message of `bytes`.
    pub fn count_compressed(&mut self, bytes: usize, stream: Option<&[u8]>) {
        match stream {
            Some(stream) => {
                self.compressed += 1;
                self.bytes_saved += bytes as i64 - stream.len() as i64;
            }
            None => self.compression_failures += 1,
        }
    }

    /// Counts what came of inflating a stream.
    pub fn count_decompressed(&mut self, is_good: bool) {
        if is_good { self.decompressed += 1 } else { self.decompression_failures += 1 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_comes_back_at_every_level_smaller() {
        let message = br#"{"t":"trade","p":{"symbol":"ES","price":5021.25}}"#.repeat(40);
        for level in LEVELS {
            let stream = compress(&message, level).unwrap();
            assert!(stream.len() < message.len() / 4, "level {level}: {} bytes", stream.len());
            // The deflate method with a window of 32 KiB, and a checksum over both bytes (RFC 1950, 2.2).
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
    fn a_level_is_one_of_nine() {
        for bad in [-1, 0, 10, i64::MAX] {
            assert_eq!(level(bad), Err(CompressionError::Level(bad)));
        }
        assert_eq!((level(1), level(9)), (Ok(1), Ok(9)));
        assert_eq!(compress(b"x", 0), Err(CompressionError::Level(0)));
    }

    #[test]
    fn a_bomb_is_refused_and_exactly_the_limit_is_not() {
        let bomb = compress(&vec![0; MAXIMAL_INFLATED_BYTES + 1], 9).unwrap();
        assert_eq!(decompress(&bomb), Err(CompressionError::TooBig(bomb.len())));
        let stream = compress(&[7; 40_000], 6).unwrap();
        assert_eq!(decompress_within(&stream, 40_000).map(|out| out.len()), Ok(40_000));
        assert_eq!(decompress_within(&stream, 39_999), Err(CompressionError::TooBig(stream.len())));
    }

    #[test]
    fn a_torn_or_followed_stream_is_invalid_and_the_next_one_still_inflates() {
        let stream = compress(b"hello hello hello", 6).unwrap();
        let followed = [&stream[..], b"x"].concat();
        for bad in [&stream[..stream.len() - 1], &followed, b"", b"no zlib"] {
            assert_eq!(decompress(bad), Err(CompressionError::Invalid(bad.len())), "{bad:x?}");
        }
        assert_eq!(decompress(&stream).as_deref(), Ok(&b"hello hello hello"[..]));
    }

    #[test]
    fn only_more_than_the_threshold_is_worth_it() {
        assert_eq!([9, 10, 11].map(|bytes| should_compress(bytes, 10)), [false, false, true]);
    }

    #[test]
    fn the_books_count_both_ways_and_their_failures() {
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
        fn whatever_is_compressed_comes_back(
            data in prop::collection::vec(any::<u8>(), 0..5000),
            repeat in 1..20usize,
            level in 1..=9u32,
        ) {
            let data = data.repeat(repeat);
            prop_assert_eq!(decompress(&compress(&data, level).unwrap()), Ok(data));
        }

        #[test]
        fn whatever_is_inflated_never_exceeds_its_limit(data in prop::collection::vec(any::<u8>(), 0..500)) {
            let framed = [&[0x78, 0x9C], &data[..]].concat();
            if let Ok(out) = decompress_within(&framed, 1000) {
                prop_assert!(out.len() <= 1000);
            }
        }
    }
}
