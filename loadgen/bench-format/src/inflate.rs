//! Inflates what other processes have deflated, with a bound that doesn't come with the data.

use std::io::Read;

use flate2::read::ZlibDecoder;

/// Why a stream was refused.
#[derive(Debug, thiserror::Error)]
pub enum InflateError {
    /// The data is not a zlib stream, or ends early.
    #[error("failed to inflate: {0}")]
    Broken(#[from] std::io::Error),
    /// The stream holds more than the bound.
    #[error("inflates to more than {0} bytes")]
    TooLarge(usize),
}

/// Inflates a zlib stream to at most `limit` bytes. The length that the data claims is not used.
///
/// # Errors
/// [`InflateError`] when the stream is broken or longer.
pub fn inflate(deflated: &[u8], limit: usize) -> Result<Vec<u8>, InflateError> {
    let inflated = first_bytes(deflated, limit + 1)?;
    if inflated.len() > limit { Err(InflateError::TooLarge(limit)) } else { Ok(inflated) }
}

/// The first `count` bytes of what a stream holds, or all if it holds fewer.
fn first_bytes(deflated: &[u8], count: usize) -> std::io::Result<Vec<u8>> {
    let mut inflated = Vec::new();
    ZlibDecoder::new(deflated).take(count as u64).read_to_end(&mut inflated)?;
    Ok(inflated)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    fn deflated(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn output_up_to_the_limit_is_inflated_and_more_is_refused() {
        let stream = deflated(&[7; 1000]);
        assert_eq!(inflate(&stream, 1000).unwrap(), [7; 1000]);
        assert!(matches!(inflate(&stream, 999), Err(InflateError::TooLarge(999))));
    }

    #[test]
    fn a_zip_bomb_takes_no_more_memory_than_the_limit() {
        let bomb = deflated(&vec![0; 64 << 20]);
        assert!(matches!(inflate(&bomb, 1 << 16), Err(InflateError::TooLarge(_))));
        assert!(first_bytes(&bomb, (1 << 16) + 1).unwrap().capacity() <= 1 << 18);
    }

    #[test]
    fn a_truncated_or_invalid_stream_is_refused() {
        let stream = deflated(b"hello");
        for broken in [&stream[..stream.len() - 5], b"hello", b""] {
            assert!(matches!(inflate(broken, 100), Err(InflateError::Broken(_))), "{broken:?}");
        }
    }
}
