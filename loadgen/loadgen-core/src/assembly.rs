//! Assembles messages from frames (RFC 6455, section 5.4). Pure.

use std::borrow::Cow;

use crate::frame::{Frame, Opcode, Violation};

/// A complete message: opcode and payload.
pub type Message<'a> = (Opcode, Cow<'a, [u8]>);

/// The fragments of an incomplete message. A message in a single frame isn't copied.
#[derive(Debug, Default)]
pub struct Assembly {
    partial: Option<Box<(Opcode, Vec<u8>)>>,
}

impl Assembly {
    /// Whether no fragmented message is incomplete.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Adds a data frame. Returns the message that it completes.
    ///
    /// # Errors
    /// - [`Violation::Fragments`] if the frame is out of order
    /// - [`Violation::TooLong`] if the message exceeds `largest` bytes
    #[inline]
    pub fn take<'a>(&mut self, frame: &Frame<'a>, largest: usize) -> Result<Option<Message<'a>>, Violation> {
        let received = self.partial.as_ref().map_or(0, |partial| partial.1.len());
        if received + frame.payload.len() > largest {
            return Err(Violation::TooLong);
        }
        match (frame.opcode, self.partial.take()) {
            (Opcode::Continuation, Some(mut partial)) => {
                partial.1.extend_from_slice(frame.payload);
                if frame.last {
                    return Ok(Some((partial.0, Cow::Owned(partial.1))));
                }
                self.partial = Some(partial);
                Ok(None)
            }
            (Opcode::Continuation, None) | (_, Some(_)) => Err(Violation::Fragments),
            (opcode, None) if frame.last => Ok(Some((opcode, Cow::Borrowed(frame.payload)))),
            (opcode, None) => {
                self.partial = Some(Box::new((opcode, frame.payload.to_vec())));
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = 6;

    fn frame(opcode: Opcode, last: bool, payload: &[u8]) -> Frame<'_> {
        Frame { last, opcode, payload, length: payload.len() + 2 }
    }

    /// The result of adding the last of these frames.
    fn taken(frames: &[(Opcode, bool, &[u8])]) -> Result<Option<(Opcode, Vec<u8>)>, Violation> {
        let mut assembly = Assembly::default();
        let mut result = Ok(None);
        for (opcode, last, payload) in frames {
            result = assembly.take(&frame(*opcode, *last, payload), LARGEST);
        }
        result.map(|message| message.map(|(opcode, payload)| (opcode, payload.into_owned())))
    }

    #[test]
    fn a_message_is_whole_with_its_last_frame() {
        use Opcode::{Binary, Continuation, Text};
        assert_eq!(taken(&[(Text, true, b"ab")]), Ok(Some((Text, b"ab".to_vec()))));
        let parts: [(_, _, &[u8]); 3] =
            [(Binary, false, b"ab"), (Continuation, false, b""), (Continuation, true, b"c")];
        assert_eq!(taken(&parts[..1]), Ok(None));
        assert_eq!(taken(&parts[..2]), Ok(None));
        assert_eq!(taken(&parts), Ok(Some((Binary, b"abc".to_vec()))));
        assert_eq!(taken(&[&parts[..], &[(Text, true, b"next")]].concat()), Ok(Some((Text, b"next".to_vec()))));
    }

    #[test]
    fn frames_out_of_order_are_a_violation() {
        use Opcode::{Continuation, Text};
        for last in [false, true] {
            assert_eq!(taken(&[(Continuation, last, b"a")]), Err(Violation::Fragments));
            assert_eq!(taken(&[(Text, false, b"a"), (Text, last, b"b")]), Err(Violation::Fragments));
        }
    }

    #[test]
    fn no_message_grows_beyond_the_largest() {
        use Opcode::{Continuation, Text};
        assert!(taken(&[(Text, false, b"abc"), (Continuation, true, b"def")]).is_ok());
        assert_eq!(taken(&[(Text, false, b"abc"), (Continuation, false, b"defg")]), Err(Violation::TooLong));
        assert_eq!(taken(&[(Text, true, b"abcdefg")]), Err(Violation::TooLong));
    }
}
