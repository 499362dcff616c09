//! WebSocket frames (RFC 6455, section 5.2): writes a client's frames, valid or not, and parses a server's. Pure.

/// Opcodes of RFC 6455, section 5.2.
pub mod opcode {
    /// A continuation of a fragmented message.
    pub const CONTINUATION: u8 = 0;
    /// First or only frame of a text message.
    pub const TEXT: u8 = 1;
    /// First or only frame of a binary message.
    pub const BINARY: u8 = 2;
    /// Begins or answers the close handshake.
    pub const CLOSE: u8 = 8;
    /// Asks whether the peer still responds.
    pub const PING: u8 = 9;
    /// Answers a ping with the same payload.
    pub const PONG: u8 = 10;
}

/// Longest frame of a server that is accepted, in bytes: far longer than any answer.
const LONGEST_BYTES: u64 = 16 << 20;

/// A frame to send, valid or not.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// FIN bit: whether this is the last frame of its message.
    pub last: bool,
    /// The three reserved bits, as a number from 0 to 7; 0 in a valid frame.
    pub reserved: u8,
    /// Opcode, from 0 to 15; see [`opcode`].
    pub opcode: u8,
    /// Whether the payload is masked, as RFC 6455 requires of a client.
    pub masked: bool,
    /// Payload of the frame, before it is masked.
    pub payload: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// Creates a valid, unfragmented frame.
    pub fn whole(opcode: u8, payload: &'a [u8]) -> Self {
        Self { last: true, reserved: 0, opcode, masked: true, payload }
    }

    /// Appends the encoded frame to `bytes`.
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.last) << 7 | self.reserved << 4 | self.opcode);
        let mask = u8::from(self.masked) << 7;
        match self.payload.len() {
            length @ 0..=125 => bytes.push(mask | length as u8),
            length @ 126..=0xffff => {
                bytes.push(mask | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(mask | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        if !self.masked {
            return bytes.extend(self.payload);
        }
        // The mask need not be secret here. It must not be zero, or a gateway that does not unmask would pass.
        const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
        bytes.extend(KEY);
        bytes.extend(self.payload.iter().enumerate().map(|(at, byte)| byte ^ KEY[at % 4]));
    }
}

/// A frame received from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// FIN bit: whether this is the last frame of its message.
    pub last: bool,
    /// Opcode, from 0 to 15; see [`opcode`].
    pub opcode: u8,
    /// Payload as received; a server's frames are not masked.
    pub payload: Vec<u8>,
}

/// Removes the next complete frame from the front of `bytes`. Returns none if it is not complete.
///
/// # Errors
/// Fails if the frame has reserved bits set, is masked, or is longer than 16 MiB. The text describes the frame.
pub fn take(bytes: &mut Vec<u8>) -> Result<Option<Incoming>, String> {
    let (Some(&first), Some(&second)) = (bytes.first(), bytes.get(1)) else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(format!("a frame with reserved bits set (first byte {first:#04x})"));
    }
    if second & 0x80 != 0 {
        return Err("a masked frame from the server".into());
    }
    let field = |at: std::ops::Range<usize>| bytes.get(at);
    let (header, length) = match second {
        126 => match field(2..4) {
            Some(length) => (4, u64::from(u16::from_be_bytes([length[0], length[1]]))),
            None => return Ok(None),
        },
        127 => match field(2..10) {
            Some(length) => (10, u64::from_be_bytes(length.try_into().expect("eight bytes were taken"))),
            None => return Ok(None),
        },
        length => (2, u64::from(length)),
    };
    if length > LONGEST_BYTES {
        return Err(format!("a frame of {length} bytes"));
    }
    let end = header + length as usize;
    if bytes.len() < end {
        return Ok(None);
    }
    let payload = bytes[header..end].to_vec();
    bytes.drain(..end);
    Ok(Some(Incoming { last: first & 0x80 != 0, opcode: first & 0x0f, payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(frame: &Outgoing) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write_to(&mut bytes);
        bytes
    }

    #[test]
    fn a_masked_frame_is_what_the_standard_shows() {
        // RFC 6455, section 5.7: a single-frame masked text message "Hello" with the mask 37fa213d.
        let hello = written(&Outgoing::whole(opcode::TEXT, b"Hello"));
        assert_eq!(hello, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
    }

    #[test]
    fn frames_of_every_length_come_back() {
        for length in [0, 125, 126, 0xffff, 0x10000] {
            let payload = vec![7; length];
            let mut bytes = written(&Outgoing { masked: false, ..Outgoing::whole(opcode::BINARY, &payload) });
            let mut partial = bytes[..bytes.len() - 1].to_vec();
            assert_eq!(take(&mut partial), Ok(None));
            bytes.push(0x8a);
            let frame = take(&mut bytes).unwrap().unwrap();
            assert_eq!((frame.last, frame.opcode, frame.payload.len()), (true, opcode::BINARY, length));
            assert_eq!(bytes, [0x8a]);
        }
    }

    #[test]
    fn a_forbidden_server_frame_is_named() {
        assert!(take(&mut vec![0xc1, 0]).unwrap_err().contains("reserved"));
        assert!(take(&mut vec![0x81, 0x80]).unwrap_err().contains("masked"));
    }
}
