//! Cuts the messages of the protocol from WebSocket messages. Pure.
//!
//! A hostile service can neither make the rest of a message grow without bound nor a WebSocket message hold messages
//! without number.

use bench_format::websocket::Framing;
use loadgen_core::workload::Opcode;
use memchr::{memchr, memmem};

use crate::number::decode;

mod socket_io;

pub use socket_io::MOST_ATTACHMENTS;

/// Longest message that is put together from several WebSocket messages, in bytes.
pub const LONGEST: usize = 1 << 20;
/// Most messages in one WebSocket message.
pub const MOST_MESSAGES: usize = 1 << 16;
/// Ends a record (SignalR's JSON protocol).
const RECORD_SEPARATOR: u8 = 0x1E;
/// Most bytes of the length in an MQTT packet (MQTT 5.0, section 1.5.5).
const LONGEST_MQTT_LENGTH: usize = 4;

/// The beginning of a message that isn't complete.
#[derive(Debug, Default)]
pub struct Rest {
    bytes: Vec<u8>,
    /// Number of bytes in which no end was found; the next search starts there.
    searched: usize,
    /// Number of attachments that are missing (Socket.IO).
    attachments: usize,
}

/// Why a service's bytes can't be cut; a key in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncuttable(pub &'static str);

const TOO_LONG: Uncuttable = Uncuttable("framing_too_long");
const TOO_MANY: Uncuttable = Uncuttable("framing_too_many");
const MALFORMED: Uncuttable = Uncuttable("framing_malformed");

/// The first message of a stream.
enum Cut {
    /// It isn't complete; in so many bytes there is no end.
    Incomplete(usize),
    /// It has `message` bytes and takes `taken`.
    Message { message: usize, taken: usize },
}

/// Passes each complete message to `handle`; keeps the rest of a stream for the next WebSocket message.
///
/// # Errors
/// [`Uncuttable`], after the messages before it.
pub fn cut(
    framing: Framing,
    rest: &mut Rest,
    opcode: Opcode,
    payload: &[u8],
    mut handle: impl FnMut(&[u8]),
) -> Result<(), Uncuttable> {
    match framing {
        Framing::Frame => {
            handle(payload);
            Ok(())
        }
        Framing::Lines => lines(payload, handle),
        Framing::RecordSeparator => stream(rest, payload, handle, record),
        Framing::Mqtt => stream(rest, payload, handle, packet),
        Framing::Nats => stream(rest, payload, handle, nats),
        Framing::SocketIo => socket_io::cut(rest, opcode, payload, handle),
    }
}

fn lines(payload: &[u8], mut handle: impl FnMut(&[u8])) -> Result<(), Uncuttable> {
    let mut count = 0;
    for line in payload.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            count += 1;
            if count > MOST_MESSAGES {
                return Err(TOO_MANY);
            }
            handle(line);
        }
    }
    Ok(())
}

fn stream(
    rest: &mut Rest,
    payload: &[u8],
    mut handle: impl FnMut(&[u8]),
    first: impl Fn(&[u8], usize) -> Result<Cut, Uncuttable>,
) -> Result<(), Uncuttable> {
    if rest.bytes.is_empty() {
        let (used, searched) = cut_all(payload, 0, &mut handle, first)?;
        rest.bytes.extend_from_slice(&payload[used..]);
        rest.searched = searched;
    } else {
        rest.bytes.extend_from_slice(payload);
        let (used, searched) = cut_all(&rest.bytes, rest.searched, &mut handle, first)?;
        if used == rest.bytes.len() {
            rest.bytes = Vec::new();
        } else {
            rest.bytes.drain(..used);
        }
        rest.searched = searched;
    }
    if rest.bytes.len() > LONGEST { Err(TOO_LONG) } else { Ok(()) }
}

/// Returns the number of bytes used, and how many of the others were searched.
fn cut_all(
    bytes: &[u8],
    mut searched: usize,
    handle: &mut impl FnMut(&[u8]),
    first: impl Fn(&[u8], usize) -> Result<Cut, Uncuttable>,
) -> Result<(usize, usize), Uncuttable> {
    let mut used = 0;
    for _ in 0..MOST_MESSAGES {
        if used == bytes.len() {
            return Ok((used, 0));
        }
        match first(&bytes[used..], searched)? {
            Cut::Incomplete(searched) => return Ok((used, searched)),
            Cut::Message { message, taken } => {
                if message > LONGEST {
                    return Err(TOO_LONG);
                }
                handle(&bytes[used..used + message]);
                used += taken;
                searched = 0;
            }
        }
    }
    if used == bytes.len() { Ok((used, 0)) } else { Err(TOO_MANY) }
}

fn record(bytes: &[u8], searched: usize) -> Result<Cut, Uncuttable> {
    Ok(match memchr(RECORD_SEPARATOR, &bytes[searched..]) {
        Some(at) => Cut::Message { message: searched + at, taken: searched + at + 1 },
        None => Cut::Incomplete(bytes.len()),
    })
}

fn packet(bytes: &[u8], _: usize) -> Result<Cut, Uncuttable> {
    let field = &bytes[1..];
    let is_too_long = field.len() >= LONGEST_MQTT_LENGTH && field[..LONGEST_MQTT_LENGTH].iter().all(|b| b & 0x80 != 0);
    if is_too_long {
        return Err(MALFORMED);
    }
    let Some((length, width)) = decode(bench_format::websocket::NumberFormat::Varint, field) else {
        return Ok(Cut::Incomplete(0));
    };
    let total = 1 + width + length as usize;
    if total > LONGEST {
        return Err(TOO_LONG);
    }
    Ok(if bytes.len() < total { Cut::Incomplete(0) } else { Cut::Message { message: total, taken: total } })
}

fn nats(bytes: &[u8], searched: usize) -> Result<Cut, Uncuttable> {
    let Some(at) = memmem::find(&bytes[searched..], b"\r\n") else {
        // The last byte may be the first of the end.
        return Ok(Cut::Incomplete(bytes.len() - 1));
    };
    let line_length = searched + at;
    let line = &bytes[..line_length];
    if !has_payload(line) {
        return Ok(Cut::Message { message: line_length, taken: line_length + 2 });
    }
    let digits = line.rsplit(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    let length = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok()).ok_or(MALFORMED)?;
    let message = line_length + 2 + length.min(LONGEST + 1);
    if message > LONGEST {
        return Err(TOO_LONG);
    }
    match bytes.get(message..message + 2) {
        None => Ok(Cut::Incomplete(line_length)),
        Some(b"\r\n") => Ok(Cut::Message { message, taken: message + 2 }),
        Some(_) => Err(MALFORMED),
    }
}

/// Whether a payload follows the line. Names of operations may be written in any case (NATS client protocol).
fn has_payload(line: &[u8]) -> bool {
    let name = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    name.eq_ignore_ascii_case(b"MSG") || name.eq_ignore_ascii_case(b"HMSG")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAMS: [Framing; 3] = [Framing::RecordSeparator, Framing::Mqtt, Framing::Nats];

    fn all(framing: Framing, payloads: &[&[u8]]) -> Result<Vec<Vec<u8>>, Uncuttable> {
        let (mut rest, mut messages) = (Rest::default(), Vec::new());
        for payload in payloads {
            cut(framing, &mut rest, Opcode::Text, payload, |message| messages.push(message.to_vec()))?;
        }
        Ok(messages)
    }

    /// A stream of messages, and the messages.
    fn stream_of(framing: Framing, contents: &[Vec<u8>]) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (mut stream, mut messages) = (Vec::new(), Vec::new());
        for content in contents {
            let message = match framing {
                Framing::RecordSeparator => content.iter().map(|byte| byte & 0x0F).collect(),
                Framing::Mqtt if content.len() < 128 => [&[0x30, content.len() as u8], &content[..]].concat(),
                Framing::Mqtt => {
                    [&[0x30, content.len() as u8 | 0x80, (content.len() >> 7) as u8], &content[..]].concat()
                }
                _ if content.len() % 2 == 0 => b"PING".to_vec(),
                _ => [format!("MSG a.b 1 {}\r\n", content.len()).as_bytes(), content].concat(),
            };
            stream.extend_from_slice(&message);
            match framing {
                Framing::RecordSeparator => stream.push(RECORD_SEPARATOR),
                Framing::Nats => stream.extend_from_slice(b"\r\n"),
                _ => {}
            }
            messages.push(message);
        }
        (stream, messages)
    }

    proptest! {
        #[test]
        fn a_stream_gives_the_same_messages_wherever_it_is_cut(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            which in 0..STREAMS.len(),
        ) {
            let (stream, messages) = stream_of(STREAMS[which], &contents);
            let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            places.extend([0, stream.len()]);
            places.sort_unstable();
            let pieces: Vec<_> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            prop_assert_eq!(all(STREAMS[which], &pieces).unwrap(), messages.clone());
            let bytes: Vec<_> = stream.chunks(1).collect();
            prop_assert_eq!(all(STREAMS[which], &bytes).unwrap(), messages);
        }

        #[test]
        fn random_bytes_cause_no_panic(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4)) {
            let payloads: Vec<_> = payloads.iter().map(Vec::as_slice).collect();
            for framing in [Framing::Frame, Framing::Lines, Framing::RecordSeparator, Framing::Mqtt, Framing::Nats] {
                let _ = all(framing, &payloads);
            }
        }
    }

    #[test]
    fn lines_do_not_continue_in_the_next_message() {
        assert_eq!(all(Framing::Lines, &[b"a\nb", b"\n\nc\r\n"]).unwrap(), [b"a", b"b", b"c"]);
    }

    #[test]
    fn an_endless_message_ends_the_connection() {
        let megabyte = vec![b'x'; LONGEST];
        for framing in [Framing::RecordSeparator, Framing::Nats] {
            assert_eq!(all(framing, &[&megabyte, b"x"]), Err(TOO_LONG), "{framing:?}");
        }
        let huge = b"MSG a 1 18446744073709551615\r\n";
        assert_eq!(all(Framing::Nats, &[huge]), Err(TOO_LONG));
        assert_eq!(all(Framing::Nats, &[b"MSG a 1 x\r\n"]), Err(MALFORMED));
        assert_eq!(all(Framing::Mqtt, &[b"\x30\xff\xff\xff\x7f"]), Err(TOO_LONG));
        assert_eq!(all(Framing::Mqtt, &[b"\x30\xff\xff\xff\xff"]), Err(MALFORMED));
    }

    #[test]
    fn messages_without_number_in_one_end_the_connection() {
        let many = vec![RECORD_SEPARATOR; MOST_MESSAGES + 1];
        assert_eq!(all(Framing::RecordSeparator, &[&many]), Err(TOO_MANY));
        assert_eq!(all(Framing::RecordSeparator, &[&many[1..]]).unwrap().len(), MOST_MESSAGES);
        assert_eq!(all(Framing::Lines, &["a\n".repeat(MOST_MESSAGES + 1).as_bytes()]), Err(TOO_MANY));
    }

    #[test]
    fn a_payload_belongs_to_its_line() {
        let stream = b"INFO {}\r\nMSG room.1 1 7\r\nhel\r\nlo\r\nHMSG a 1 2 4\r\n\r\nhi\r\nPING\r\n";
        let messages = all(Framing::Nats, &[stream]).unwrap();
        let expected: [&[u8]; 4] = [b"INFO {}", b"MSG room.1 1 7\r\nhel\r\nlo", b"HMSG a 1 2 4\r\n\r\nhi", b"PING"];
        assert_eq!(messages, expected);
    }
}
