//! Turns a client's frames into messages: joins fragments and lets control frames through between them. No I/O.
//!
//! Frames are unmasked in place. A message of one frame, as nearly every message is, is not copied here.

use std::ops::Range;

use crate::frame::{self, Header, Opcode, Violation};

/// The type of a message, from the opcode of its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// UTF-8 text. [`Receiver`] checks the fragments of a message; the caller checks the whole message.
    Text,
    /// Binary data, which isn't checked.
    Binary,
}

/// What the next frame is.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The bytes end within a frame. The number is the frame's length, header included, if its header is complete.
    Incomplete(Option<usize>),
    /// A fragment of a message that isn't complete, or a pong: there is nothing to do.
    Consumed {
        /// Where the next frame starts.
        next: usize,
    },
    /// A message of one frame, unmasked in place.
    Complete {
        /// Whether the message is text or binary.
        kind: DataKind,
        /// Where the payload is in the buffer.
        payload: Range<usize>,
        /// Where the next frame starts.
        next: usize,
    },
    /// A message of several frames, joined.
    Joined {
        /// Whether the message is text or binary.
        kind: DataKind,
        /// The joined payload of all frames.
        payload: Vec<u8>,
        /// Where the next frame starts.
        next: usize,
    },
    /// A ping, which the caller answers with a pong of the same payload (RFC 6455 5.5.2).
    Ping {
        /// Where the payload is in the buffer.
        payload: Range<usize>,
        /// Where the next frame starts.
        next: usize,
    },
    /// A Close frame; the bytes after it are ignored.
    Close {
        /// The close code, if the frame has one.
        code: Option<u16>,
    },
}

#[derive(Debug)]
struct Fragments {
    kind: DataKind,
    bytes: Vec<u8>,
    /// How many bytes of a text are known to be UTF-8; a character that may be incomplete is not counted.
    checked: usize,
}

impl Fragments {
    /// Checks the part of a text that has arrived, so that an invalid text ends the connection before it is complete.
    fn check(&mut self) -> Result<(), Violation> {
        if self.kind == DataKind::Text {
            self.checked += prefix_of_text(&self.bytes[self.checked..])?;
        }
        Ok(())
    }
}

/// How many of the bytes are whole characters; the bytes after them may be the beginning of another one.
fn prefix_of_text(bytes: &[u8]) -> Result<usize, Violation> {
    match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => Ok(bytes.len()),
        Err(error) if error.error_len().is_none() => Ok(error.valid_up_to()),
        Err(_) => Err(Violation::InvalidUtf8),
    }
}

/// The state of one connection between frames: the fragments of an incomplete message. Without any it is one pointer
/// wide.
#[derive(Debug, Default)]
pub struct Receiver {
    fragments: Option<Box<Fragments>>,
}

impl Receiver {
    /// Reads the frame that starts at `at` and unmasks it in place. A message may have at most `limit` bytes.
    ///
    /// # Errors
    /// Returns the [`Violation`] of the protocol that ends the connection.
    #[inline]
    pub fn step(&mut self, bytes: &mut [u8], at: usize, limit: usize) -> Result<Step, Violation> {
        let Some(header) = frame::parse_header(&bytes[at..], limit)? else { return Ok(Step::Incomplete(None)) };
        self.check_order(&header, limit)?;
        let next = at + header.frame_bytes();
        if next > bytes.len() {
            return Ok(Step::Incomplete(Some(header.frame_bytes())));
        }
        let payload = at + header.header_bytes..next;
        frame::unmask(&mut bytes[payload.clone()], header.mask);
        match header.opcode {
            Opcode::Text if header.fin => Ok(Step::Complete { kind: DataKind::Text, payload, next }),
            Opcode::Binary if header.fin => Ok(Step::Complete { kind: DataKind::Binary, payload, next }),
            Opcode::Text => self.begin(DataKind::Text, &bytes[payload], next),
            Opcode::Binary => self.begin(DataKind::Binary, &bytes[payload], next),
            Opcode::Continuation => self.proceed(header.fin, &bytes[payload], next),
            Opcode::Ping => Ok(Step::Ping { payload, next }),
            Opcode::Pong => Ok(Step::Consumed { next }),
            Opcode::Close => frame::close_code(&bytes[payload]).map(|code| Step::Close { code }),
        }
    }

    /// Checks what the header alone shows, before the payload has arrived.
    fn check_order(&self, header: &Header, limit: usize) -> Result<(), Violation> {
        match (&self.fragments, header.opcode) {
            (None, Opcode::Continuation) => Err(Violation::UnexpectedContinuation),
            (Some(_), Opcode::Text | Opcode::Binary) => Err(Violation::ExpectedContinuation),
            (Some(fragments), Opcode::Continuation) if fragments.bytes.len() + header.payload_bytes > limit => {
                Err(Violation::TooBig)
            }
            _ => Ok(()),
        }
    }

    /// Checks the part of an incomplete frame that has arrived, as the rest may take long: a text that is invalid
    /// already ends the connection now. `bytes` begin with the frame and are not changed. The first `checked` bytes of
    /// its payload are whole characters, as an earlier call has returned; they are not looked at again, so that a frame
    /// that arrives byte by byte costs no more than one that arrives at once. Returns how many bytes are known to be
    /// whole characters now.
    ///
    /// # Errors
    /// Returns [`Violation::InvalidUtf8`] if the text can't become UTF-8 any more.
    pub fn check_incomplete(&self, bytes: &[u8], checked: usize, limit: usize) -> Result<usize, Violation> {
        let Ok(Some(header)) = frame::parse_header(bytes, limit) else { return Ok(checked) };
        let before = match (&self.fragments, header.opcode) {
            (None, Opcode::Text) => &[][..],
            (Some(fragments), Opcode::Continuation) if fragments.kind == DataKind::Text && checked == 0 => {
                &fragments.bytes[fragments.checked..]
            }
            (Some(fragments), Opcode::Continuation) if fragments.kind == DataKind::Text => &[],
            _ => return Ok(checked),
        };
        let mut text = before.to_vec();
        text.extend_from_slice(&bytes[header.header_bytes + checked..]);
        let mut mask = header.mask;
        mask.rotate_left(checked % 4);
        frame::unmask(&mut text[before.len()..], mask);
        Ok(checked + prefix_of_text(&text)?.saturating_sub(before.len()))
    }

    /// How many bytes of an incomplete message are kept.
    pub fn held_bytes(&self) -> usize {
        self.fragments.as_ref().map_or(0, |fragments| fragments.bytes.len())
    }

    /// Drops an incomplete message, as its connection is closed.
    pub(crate) fn forget(&mut self) {
        self.fragments = None;
    }

    fn begin(&mut self, kind: DataKind, payload: &[u8], next: usize) -> Result<Step, Violation> {
        let mut fragments = Fragments { kind, bytes: payload.to_vec(), checked: 0 };
        fragments.check()?;
        self.fragments = Some(Box::new(fragments));
        Ok(Step::Consumed { next })
    }

    fn proceed(&mut self, fin: bool, payload: &[u8], next: usize) -> Result<Step, Violation> {
        let Some(mut fragments) = self.fragments.take() else {
            // `check_order` has refused this frame already.
            return Ok(Step::Consumed { next });
        };
        fragments.bytes.extend_from_slice(payload);
        if fin {
            return Ok(Step::Joined { kind: fragments.kind, payload: fragments.bytes, next });
        }
        fragments.check()?;
        self.fragments = Some(fragments);
        Ok(Step::Consumed { next })
    }
}

/// A masked frame as a client sends it, for tests, fuzzing and benches; the engine itself never sends masked frames.
pub fn client_frame(fin: bool, opcode: Opcode, mask: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + frame::MAX_HEADER);
    frame::put_header(&mut bytes, opcode, payload.len());
    bytes[0] = bytes[0] & 0x7F | u8::from(fin) << 7;
    bytes[1] |= 0x80;
    bytes.extend_from_slice(&mask);
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    frame::unmask(&mut bytes[start..], mask);
    bytes
}

/// What a client's bytes mean when they arrive in `chunks`. Tests and fuzzing compare the results of different chunks.
pub fn messages_of<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Vec<Outcome> {
    let (mut receiver, mut buffer, mut outcomes) = (Receiver::default(), Vec::new(), Vec::new());
    for chunk in chunks {
        buffer.extend_from_slice(chunk);
        let mut at = 0;
        loop {
            let (outcome, next) = match receiver.step(&mut buffer, at, limit) {
                Ok(Step::Incomplete(_)) => break,
                Ok(Step::Consumed { next }) => (None, next),
                Ok(Step::Complete { kind, payload, next }) => {
                    (Some(Outcome::Message(kind, buffer[payload].to_vec())), next)
                }
                Ok(Step::Joined { kind, payload, next }) => (Some(Outcome::Message(kind, payload)), next),
                Ok(Step::Ping { payload, next }) => (Some(Outcome::Ping(buffer[payload].to_vec())), next),
                Ok(Step::Close { code }) => {
                    outcomes.push(Outcome::Close(code));
                    return outcomes;
                }
                Err(violation) => {
                    outcomes.push(Outcome::Violation(violation));
                    return outcomes;
                }
            };
            outcomes.extend(outcome);
            at = next;
        }
        buffer.drain(..at);
    }
    outcomes
}

/// One result of a client's bytes, for [`messages_of`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A complete message with its payload.
    Message(DataKind, Vec<u8>),
    /// A ping with its payload.
    Ping(Vec<u8>),
    /// A Close frame with its code, if it has one.
    Close(Option<u16>),
    /// A protocol violation, which ends the connection.
    Violation(Violation),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MASK: [u8; 4] = [9, 8, 7, 6];

    fn client(fin: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
        client_frame(fin, opcode, MASK, payload)
    }

    fn outcomes(frames: &[Vec<u8>]) -> Vec<Outcome> {
        messages_of([frames.concat().as_slice()], 64)
    }

    #[test]
    fn fragments_are_joined_around_a_ping() {
        let frames = [
            client(false, Opcode::Text, b"one "),
            client(true, Opcode::Ping, b"?"),
            client(false, Opcode::Continuation, b"two "),
            client(true, Opcode::Continuation, b"three"),
            client(true, Opcode::Binary, b"next"),
        ];
        let expected = [
            Outcome::Ping(b"?".to_vec()),
            Outcome::Message(DataKind::Text, b"one two three".to_vec()),
            Outcome::Message(DataKind::Binary, b"next".to_vec()),
        ];
        assert_eq!(outcomes(&frames), expected);
    }

    #[test]
    fn fragments_in_the_wrong_order_end_the_connection() {
        let lone = [client(true, Opcode::Continuation, b"x")];
        assert_eq!(outcomes(&lone), [Outcome::Violation(Violation::UnexpectedContinuation)]);
        let twice = [client(false, Opcode::Text, b"x"), client(true, Opcode::Text, b"y")];
        assert_eq!(outcomes(&twice), [Outcome::Violation(Violation::ExpectedContinuation)]);
    }

    #[test]
    fn fragments_together_must_not_exceed_the_limit() {
        let fits = [client(false, Opcode::Binary, &[0; 32]), client(true, Opcode::Continuation, &[0; 32])];
        assert_eq!(outcomes(&fits).len(), 1);
        let beyond = [client(false, Opcode::Binary, &[0; 32]), client(true, Opcode::Continuation, &[0; 33])];
        assert_eq!(outcomes(&beyond), [Outcome::Violation(Violation::TooBig)]);
    }

    #[test]
    fn text_with_invalid_utf8_is_refused_at_the_fragment_that_proves_it() {
        // Half a character at the end of a fragment is allowed; a byte that can't continue it is not.
        let halves = [client(false, Opcode::Text, b"\xCE"), client(false, Opcode::Continuation, b"\xBA\xE1\xBD")];
        assert_eq!(outcomes(&halves), []);
        let bad = [halves[0].clone(), client(false, Opcode::Continuation, b"\xBA\xED\xA0")];
        assert_eq!(outcomes(&bad), [Outcome::Violation(Violation::InvalidUtf8)]);
        let binary = [client(false, Opcode::Binary, b"\xFF"), client(true, Opcode::Continuation, b"\xFE")];
        assert_eq!(outcomes(&binary), [Outcome::Message(DataKind::Binary, b"\xFF\xFE".to_vec())]);
    }

    #[test]
    fn invalid_utf8_is_detected_before_its_frame_is_complete() {
        let mut receiver = Receiver::default();
        let check = |receiver: &Receiver, frame: &[u8]| -> Vec<bool> {
            let mut checked = 0;
            let mut is_fine = |cut| match receiver.check_incomplete(&frame[..cut], checked, 64) {
                Ok(now) => {
                    assert!(now >= checked && receiver.check_incomplete(&frame[..cut], 0, 64) == Ok(now));
                    checked = now;
                    true
                }
                Err(_) => false,
            };
            (0..frame.len()).map(&mut is_fine).collect()
        };
        let frame = client(true, Opcode::Text, b"\xCE\xBA\xED\xA0\x80!");
        let fine = check(&receiver, &frame);
        // Six bytes of header; the fourth byte of the text makes it a surrogate.
        assert_eq!(fine.iter().position(|is_fine| !is_fine), Some(6 + 4), "{fine:?}");
        receiver.step(&mut client(false, Opcode::Text, b"\xCE"), 0, 64).unwrap();
        assert!(check(&receiver, &client(true, Opcode::Continuation, b"\xBA fine")).iter().all(|is_fine| *is_fine));
        let bad = check(&receiver, &client(true, Opcode::Continuation, b"no continuation"));
        assert_eq!(bad.iter().position(|is_fine| !is_fine), Some(6 + 1), "{bad:?}");
    }

    #[test]
    fn a_text_that_arrives_byte_by_byte_is_checked_once() {
        let text = "é€𝄞 and ASCII ".repeat(100);
        for fragments in [0, 1] {
            let mut receiver = Receiver::default();
            // The first two of four bytes of a character are in the fragment before.
            let (first, rest) = text.as_bytes().split_at(if fragments == 0 { 0 } else { 7 });
            if fragments > 0 {
                receiver.step(&mut client(false, Opcode::Text, first), 0, 4096).unwrap();
            }
            let opcode = if fragments == 0 { Opcode::Text } else { Opcode::Continuation };
            let frame = client(true, opcode, rest);
            let mut checked = 0;
            for cut in 0..frame.len() {
                let now = receiver.check_incomplete(&frame[..cut], checked, 4096).unwrap();
                let arrived = cut.saturating_sub(8);
                assert!(now <= arrived && arrived - now < 4, "{arrived} arrived, {now} need no second look");
                checked = now;
            }
        }
    }

    #[test]
    fn frames_after_a_close_are_ignored() {
        let frames = [client(true, Opcode::Close, &1000_u16.to_be_bytes()), client(true, Opcode::Text, b"late")];
        assert_eq!(outcomes(&frames), [Outcome::Close(Some(1000))]);
    }

    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let opcode = prop_oneof![
            4 => Just(Opcode::Text), 4 => Just(Opcode::Binary), 2 => Just(Opcode::Continuation),
            1 => Just(Opcode::Ping), 1 => Just(Opcode::Pong),
        ];
        let frame = (any::<bool>(), opcode, any::<[u8; 4]>(), prop::collection::vec(any::<u8>(), 0..200));
        let frame = frame.prop_map(|(fin, opcode, mask, mut payload)| {
            payload.truncate(if opcode.is_control() { 125 } else { 200 });
            client_frame(fin || opcode.is_control(), opcode, mask, &payload)
        });
        prop::collection::vec(frame, 0..12).prop_map(|frames| frames.concat())
    }

    proptest! {
        #[test]
        fn the_messages_are_the_same_however_the_bytes_are_split(
            bytes in frames(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let starts = std::iter::once(0).chain(cuts.iter().copied());
            let ends = cuts.iter().copied().chain(std::iter::once(bytes.len()));
            let chunks: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect();
            prop_assert_eq!(messages_of(chunks, 256), messages_of([bytes.as_slice()], 256));
        }
    }
}
