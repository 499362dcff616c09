//! Compresses and inflates the payloads of messages (RFC 7692, section 7.2). Pure.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::negotiation::MOST_WINDOW_BITS;

/// The end of an empty stored block, with which each compressed message ends and which isn't sent (section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];
/// What an empty message is compressed to (section 7.2.3.6).
const EMPTY: u8 = 0;
/// Space that one step of inflating adds at least, in bytes.
const STEP: usize = 4096;
/// Most ends of a DEFLATE stream in one message. A service has no reason for more than one; each copies a window.
const MOST_ENDS: usize = 16;
/// Size of the largest window, in bytes.
const LARGEST_WINDOW: usize = 1 << MOST_WINDOW_BITS;

/// Compresses messages, one after another.
#[derive(Debug)]
pub struct Deflater {
    compress: Compress,
    pub(super) window_bits: u8,
}

impl Deflater {
    /// Creates a compressor with a window of so many bits, from 9 to 15. It compresses as zlib does by default, which is
    /// what browsers do.
    pub fn new(window_bits: u8) -> Self {
        Self { compress: Compress::new_with_window_bits(Compression::default(), false, window_bits), window_bits }
    }

    /// Compresses a message into `out`, whose content is replaced.
    pub fn deflate(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let from = self.compress.total_in();
        loop {
            let rest = &payload[(self.compress.total_in() - from) as usize..];
            // More than the six bytes of an end, which zlib would otherwise write twice.
            out.reserve(rest.len() / 2 + 64);
            self.compress
                .compress_vec(rest, out, FlushCompress::Sync)
                .expect("a compressor fails only if it is used after its end");
            if out.len() < out.capacity() && (self.compress.total_in() - from) as usize == payload.len() {
                break;
            }
        }
        if out.ends_with(&TAIL) {
            out.truncate(out.len() - TAIL.len());
        }
        if out.is_empty() {
            // Nothing was to be flushed.
            out.push(EMPTY);
        }
    }

    /// Forgets the messages so far, so that the next one can be inflated without them.
    pub fn reset(&mut self) {
        self.compress.reset();
    }
}

/// Why a message can't be inflated; a key in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uninflatable(pub &'static str);

/// The message isn't a DEFLATE stream.
const MALFORMED: Uninflatable = Uninflatable("deflate_malformed");
/// The message has more than the most bytes that are inflated.
const TOO_LONG: Uninflatable = Uninflatable("deflate_too_long");

/// Inflates messages, one after another, with any window.
#[derive(Debug)]
pub struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new_with_window_bits(false, MOST_WINDOW_BITS))
    }
}

impl Inflater {
    /// Inflates a message into `out`, whose content is replaced and which gets no more than `largest` bytes.
    ///
    /// # Errors
    /// [`Uninflatable`]; later messages can't be inflated then.
    pub fn inflate(&mut self, payload: &[u8], out: &mut Vec<u8>, largest: usize) -> Result<(), Uninflatable> {
        out.clear();
        let mut ends = 0;
        self.add(payload, out, largest, &mut ends)?;
        self.add(&TAIL, out, largest, &mut ends)
    }

    fn add(
        &mut self,
        mut input: &[u8],
        out: &mut Vec<u8>,
        largest: usize,
        ends: &mut usize,
    ) -> Result<(), Uninflatable> {
        loop {
            if out.len() == out.capacity() {
                // One byte more than allowed, so that a message which is too long is known by it.
                out.reserve_exact(out.len().max(STEP).min((largest + 1).saturating_sub(out.len()).max(1)));
            }
            let (before_in, before_out) = (self.0.total_in(), out.len());
            let status = self.0.decompress_vec(input, out, FlushDecompress::Sync).map_err(|_| MALFORMED)?;
            let used = (self.0.total_in() - before_in) as usize;
            input = &input[used..];
            if out.len() > largest {
                return Err(TOO_LONG);
            }
            if status == Status::StreamEnd {
                *ends += 1;
                if *ends > MOST_ENDS {
                    return Err(MALFORMED);
                }
                self.continue_after_end(out)?;
            } else if input.is_empty() && out.len() < out.capacity() {
                return Ok(());
            } else if used == 0 && out.len() == before_out {
                return Err(MALFORMED);
            }
        }
    }

    /// Continues behind a final block, which a service may send (section 7.2.3.4), with the message so far as the window.
    fn continue_after_end(&mut self, out: &[u8]) -> Result<(), Uninflatable> {
        self.0.reset(false);
        let window = &out[out.len().saturating_sub(LARGEST_WINDOW)..];
        if !window.is_empty() {
            self.0.set_dictionary(window).map_err(|_| MALFORMED)?;
        }
        Ok(())
    }

    /// Forgets the messages so far.
    pub fn reset(&mut self) {
        self.0.reset(false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGEST: usize = 1 << 20;

    fn inflated(inflater: &mut Inflater, payload: &[u8]) -> Result<Vec<u8>, Uninflatable> {
        let mut out = Vec::new();
        inflater.inflate(payload, &mut out, LARGEST).map(|()| out)
    }

    fn deflated(deflater: &mut Deflater, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        deflater.deflate(payload, &mut out);
        out
    }

    /// The examples of RFC 7692, section 7.2.3, each a message "Hello".
    #[test]
    fn the_examples_of_the_rfc_are_inflated() {
        for (name, payload) in [
            ("7.2.3.1, one compressed block", &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..]),
            ("7.2.3.3, a block without compression", b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"),
            ("7.2.3.4, a final block", &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00]),
            ("7.2.3.5, two blocks", &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00]),
        ] {
            assert_eq!(inflated(&mut Inflater::default(), payload).unwrap(), b"Hello", "{name}");
        }
        assert_eq!(inflated(&mut Inflater::default(), &[0]).unwrap(), b"", "7.2.3.6, an empty message");
    }

    /// RFC 7692, section 7.2.3.2.
    #[test]
    fn with_takeover_the_second_message_refers_to_the_first() {
        let (mut deflater, mut inflater) = (Deflater::new(15), Inflater::default());
        let first = deflated(&mut deflater, b"Hello");
        let second = deflated(&mut deflater, b"Hello");
        assert_eq!(first, [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
        assert_eq!(second, [0xf2, 0x00, 0x11, 0x00, 0x00]);
        for payload in [&first, &second] {
            assert_eq!(inflated(&mut inflater, payload).unwrap(), b"Hello");
        }
        deflater.reset();
        assert_eq!(deflated(&mut deflater, b"Hello"), first);
        inflater.reset();
        assert_eq!(inflated(&mut inflater, &second), Err(MALFORMED), "what it refers to is forgotten");
    }

    #[test]
    fn a_message_after_a_final_block_may_refer_to_it() {
        let mut inflater = Inflater::default();
        let with_final_block = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        assert_eq!(inflated(&mut inflater, &with_final_block).unwrap(), b"Hello");
        assert_eq!(inflated(&mut inflater, &[0xf2, 0x00, 0x11, 0x00, 0x00]).unwrap(), b"Hello");
    }

    #[test]
    fn an_empty_message_is_one_byte_also_between_others() {
        let (mut deflater, mut inflater) = (Deflater::new(9), Inflater::default());
        for payload in [&b""[..], b"", b"abc", b"", b"abc"] {
            let compressed = deflated(&mut deflater, payload);
            assert_eq!(compressed == [0], payload.is_empty(), "{compressed:x?}");
            assert_eq!(inflated(&mut inflater, &compressed).unwrap(), payload);
        }
    }

    #[test]
    fn a_bomb_takes_no_more_memory_than_the_largest_message() {
        let bomb = deflated(&mut Deflater::new(15), &vec![0; 64 << 20]);
        assert!(bomb.len() < 1 << 17);
        let mut out = Vec::new();
        assert_eq!(Inflater::default().inflate(&bomb, &mut out, LARGEST), Err(TOO_LONG));
        assert!(out.capacity() <= LARGEST + 1, "{}", out.capacity());
        let largest = deflated(&mut Deflater::new(15), &vec![0; LARGEST]);
        assert_eq!(inflated(&mut Inflater::default(), &largest).unwrap().len(), LARGEST);
    }

    #[test]
    fn streams_that_end_without_number_are_refused() {
        let empty_final_blocks = [0x03, 0x00].repeat(MOST_ENDS + 1);
        assert_eq!(inflated(&mut Inflater::default(), &empty_final_blocks), Err(MALFORMED));
        assert!(inflated(&mut Inflater::default(), &empty_final_blocks[2..]).is_ok());
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(
            messages in prop::collection::vec(prop::collection::vec(0_u8..4, 0..3000), 1..8),
            noise in prop::collection::vec(any::<u8>(), 0..3000),
            window_bits in 9_u8..=15,
            keeps_context: bool,
        ) {
            let (mut deflater, mut inflater) = (Deflater::new(window_bits), Inflater::default());
            for message in messages.iter().chain([&noise]) {
                let compressed = deflated(&mut deflater, message);
                prop_assert_eq!(&inflated(&mut inflater, &compressed).unwrap(), message);
                if !keeps_context {
                    deflater.reset();
                    inflater.reset();
                }
            }
        }

        #[test]
        fn no_bytes_cause_a_panic_or_more_than_the_largest_message(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4),
            largest in 0_usize..200,
        ) {
            let mut inflater = Inflater::default();
            let mut out = Vec::new();
            for payload in payloads {
                if inflater.inflate(&payload, &mut out, largest).is_err() {
                    break;
                }
                prop_assert!(out.len() <= largest);
            }
        }
    }
}
