//! Counts WebSocket frames in a stream of bytes without keeping them. Pure.
//!
//! It reads headers only and skips payloads, which is the least work that still counts messages. Control frames, which
//! are rare, are kept because they must be answered.

/// A violation of RFC 6455 after which the frames can't be counted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// A control frame, unmasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// 8 Close, 9 Ping, 10 Pong.
    pub opcode: u8,
    /// At most 125 bytes.
    pub payload: Vec<u8>,
}

/// The state of one connection's stream.
#[derive(Debug, Default)]
pub struct Counter {
    /// The received part of an incomplete header.
    header: Vec<u8>,
    /// Payload bytes of the current frame that were not received yet.
    remaining: u64,
    /// The incomplete control frame, with its mask.
    control: Option<(Control, [u8; 4])>,
    /// Complete data messages so far.
    messages: u64,
    /// Whether the current frame completes a message.
    ends_message: bool,
}

impl Counter {
    /// Complete data messages so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Handles the next bytes of the stream; calls `on_control` for each complete control frame.
    ///
    /// # Errors
    /// [`Violation`] when a frame is unmasked, uses reserved bits or opcodes, or has an invalid control header. The
    /// counter can't be used afterwards.
    pub fn feed(&mut self, mut bytes: &[u8], mut on_control: impl FnMut(Control)) -> Result<(), Violation> {
        loop {
            bytes = self.consume_payload(bytes, &mut on_control);
            if bytes.is_empty() {
                return Ok(());
            }
            // The header is nearly always complete, and then isn't copied.
            let used = if self.header.is_empty() { self.parse_header(bytes)? } else { None };
            bytes = match used {
                Some(used) => &bytes[used..],
                None => self.parse_split_header(bytes)?,
            };
        }
    }

    /// Skips the rest of the current payload; returns the bytes after it.
    fn consume_payload<'a>(&mut self, bytes: &'a [u8], on_control: &mut impl FnMut(Control)) -> &'a [u8] {
        let taken = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(bytes.len());
        self.remaining -= taken as u64;
        if let Some((control, mask)) = &mut self.control {
            for byte in &bytes[..taken] {
                control.payload.push(byte ^ mask[control.payload.len() % 4]);
            }
        }
        if self.remaining == 0 {
            self.messages += u64::from(std::mem::take(&mut self.ends_message));
            if let Some((control, _)) = self.control.take() {
                on_control(control);
            }
        }
        &bytes[taken..]
    }

    /// Parses the header at the start of `bytes`; returns its length, or `None` when it is incomplete.
    fn parse_header(&mut self, bytes: &[u8]) -> Result<Option<usize>, Violation> {
        let [first, second, ..] = *bytes else { return Ok(None) };
        let (opcode, fin, length) = (first & 0x0f, first & 0x80 != 0, second & 0x7f);
        let is_control = opcode >= 8;
        let reserved = first & 0x70 != 0 || matches!(opcode, 3..=7 | 11..);
        if reserved || second & 0x80 == 0 || (is_control && (!fin || length > 125)) {
            return Err(Violation);
        }
        let extended = match length {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let size = 2 + extended + 4;
        if bytes.len() < size {
            return Ok(None);
        }
        self.remaining = match extended {
            0 => u64::from(length),
            _ => bytes[2..2 + extended].iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)),
        };
        if is_control {
            let mask = bytes[size - 4..size].try_into().expect("a mask has four bytes");
            self.control = Some((Control { opcode, payload: Vec::new() }, mask));
        } else {
            self.ends_message = fin;
        }
        Ok(Some(size))
    }

    /// Collects a header that arrives in parts; returns the bytes after it.
    fn parse_split_header<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Violation> {
        for (index, byte) in bytes.iter().enumerate() {
            self.header.push(*byte);
            let header = std::mem::take(&mut self.header);
            if self.parse_header(&header)?.is_some() {
                return Ok(&bytes[index + 1..]);
            }
            self.header = header;
        }
        Ok(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame with a payload of `length` bytes.
    fn frame(first: u8, length: usize) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut frame = vec![first];
        match length {
            0..=125 => frame.push(0x80 | length as u8),
            126..=65_535 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend((0..length).map(|index| b'x' ^ mask[index % 4]));
        frame
    }

    fn count(stream: &[u8], piece: usize) -> Result<(u64, Vec<Control>), Violation> {
        let mut counter = Counter::default();
        let mut controls = Vec::new();
        for bytes in stream.chunks(piece) {
            counter.feed(bytes, |control| controls.push(control))?;
        }
        Ok((counter.messages(), controls))
    }

    #[test]
    fn the_count_does_not_depend_on_how_the_stream_is_cut() {
        let sizes = [0, 1, 125, 126, 175, 65_535, 65_536];
        let mut stream: Vec<u8> = sizes.iter().flat_map(|size| frame(0x81, *size)).collect();
        stream.extend(frame(0x89, 3));
        stream.extend(frame(0x82, 175));
        stream.extend(frame(0x88, 2));
        let controls = [(9, 3), (8, 2)].map(|(opcode, size)| Control { opcode, payload: vec![b'x'; size] });
        for piece in (1..20).chain([175, 4096, stream.len()]) {
            assert_eq!(count(&stream, piece), Ok((8, controls.to_vec())), "pieces of {piece}");
        }
    }

    #[test]
    fn fragments_make_one_message_and_may_have_a_ping_between_them() {
        let stream = [frame(0x01, 10), frame(0x89, 0), frame(0x00, 10), frame(0x80, 10)].concat();
        let (messages, controls) = count(&stream, stream.len()).unwrap();
        assert_eq!((messages, controls.len()), (1, 1));
    }

    #[test]
    fn a_message_is_counted_when_its_last_byte_has_arrived() {
        let stream = frame(0x81, 10);
        assert_eq!(count(&stream[..stream.len() - 1], 100).unwrap().0, 0);
        assert_eq!(count(&stream, 100).unwrap().0, 1);
    }

    #[test]
    fn frames_that_a_client_must_not_send_are_violations() {
        let unmasked = [0x81, 0x01, b'x'].to_vec();
        for stream in [unmasked, frame(0xc1, 1), frame(0x83, 1), frame(0x09, 1), frame(0x88, 126)] {
            assert_eq!(count(&stream, 1), Err(Violation));
        }
    }
}
