//! RESP2, the wire format of Redis: writes commands, reads replies and messages. No I/O.
//!
//! Strings aren't copied. The caller keeps the bytes of an incomplete reply and calls again with more: lengths come
//! first, so a repeated call only costs reading them again.

/// The longest string that is read or written, in bytes; a longer one from the server is [`Malformed`].
pub const LONGEST: usize = 16 << 20;
/// The longest line (a number, a status or an error), in bytes.
const LONGEST_LINE: usize = 64 << 10;
/// The most elements of an array; more than any reply to our commands has.
const MAX_ELEMENTS: usize = 1 << 20;
const DEEPEST: usize = 4;
/// The most characters of a number, with its sign.
const LONGEST_NUMBER: usize = 20;

/// A reply of Redis in RESP2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply<'a> {
    /// A status, such as `OK`.
    Status(&'a [u8]),
    /// The error of a command that was refused.
    Error(&'a [u8]),
    /// A signed number of 64 bits.
    Integer(i64),
    /// A string; `None` is RESP's null string.
    Bulk(Option<&'a [u8]>),
    /// An array; `None` is RESP's null array.
    Array(Option<Vec<RedisReply<'a>>>),
}

/// A message that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The pattern of the subscription through which it came; `None` for a subscription by name.
    pub pattern: Option<&'a [u8]>,
    /// The channel it was published to.
    pub channel: &'a [u8],
    /// The bytes that were published.
    pub payload: &'a [u8],
}

/// What arrives on a connection with subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// A message of a subscribed channel or pattern.
    Message(Message<'a>),
    /// Any reply that is not such a message.
    RedisReply(RedisReply<'a>),
}

/// The bytes are not RESP2, or exceed a limit of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply is not in the Redis protocol")]
pub struct Malformed;

/// A value with the number of bytes that it took; `None` while it is incomplete.
type Read<T> = Result<Option<(T, usize)>, Malformed>;

/// Appends a number in decimal.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0; LONGEST_NUMBER];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the head of a string of `length` bytes. The caller appends the bytes and then [`END`].
pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    out.push(b'$');
    put_number(out, length);
    out.extend_from_slice(END);
}

/// The end of every line and string.
pub(super) const END: &[u8] = b"\r\n";

/// Appends a command: its name and its arguments.
pub fn put_command<'a>(out: &mut Vec<u8>, parts: impl ExactSizeIterator<Item = &'a [u8]>) {
    out.push(b'*');
    put_number(out, parts.len());
    out.extend_from_slice(END);
    for part in parts {
        put_length(out, part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(END);
    }
}

/// Reads the next reply.
///
/// # Errors
/// [`Malformed`] if the bytes are not a reply or exceed a limit.
pub fn reply(bytes: &[u8]) -> Read<RedisReply<'_>> {
    nested(bytes, 0)
}

fn nested(bytes: &[u8], depth: usize) -> Read<RedisReply<'_>> {
    let Some(kind) = bytes.first() else { return Ok(None) };
    let Some((line, head)) = line(bytes)? else { return Ok(None) };
    let simple = match kind {
        b'+' => RedisReply::Status(line),
        b'-' => RedisReply::Error(line),
        b':' => RedisReply::Integer(number(line)?),
        b'$' => return bulk(bytes, line, head).map(|read| read.map(|(bytes, used)| (RedisReply::Bulk(bytes), used))),
        b'*' if depth < DEEPEST => return array(bytes, line, head, depth),
        _ => return Err(Malformed),
    };
    Ok(Some((simple, head)))
}

fn array<'a>(bytes: &'a [u8], line: &[u8], head: usize, depth: usize) -> Read<RedisReply<'a>> {
    let count = match number(line)? {
        -1 => return Ok(Some((RedisReply::Array(None), head))),
        count => usize::try_from(count).ok().filter(|count| *count <= MAX_ELEMENTS).ok_or(Malformed)?,
    };
    // Reserves space for elements that are present: a large count alone takes no memory.
    let (mut elements, mut at) = (Vec::with_capacity(count.min(bytes.len() / 4)), head);
    for _ in 0..count {
        let Some((element, used)) = nested(&bytes[at..], depth + 1)? else { return Ok(None) };
        elements.push(element);
        at += used;
    }
    Ok(Some((RedisReply::Array(Some(elements)), at)))
}

/// The rest of the first line after its first byte, and where the next line begins.
fn line(bytes: &[u8]) -> Read<&[u8]> {
    let Some(end) = memchr::memchr(b'\r', &bytes[..bytes.len().min(LONGEST_LINE)]) else {
        return if bytes.len() < LONGEST_LINE { Ok(None) } else { Err(Malformed) };
    };
    match (bytes.get(1..end), bytes.get(end + 1)) {
        (Some(line), Some(b'\n')) => Ok(Some((line, end + 2))),
        (Some(_), None) => Ok(None),
        _ => Err(Malformed),
    }
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    let (is_negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() >= LONGEST_NUMBER {
        return Err(Malformed);
    }
    let mut number = 0_i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Malformed);
        }
        number = number.checked_mul(10).and_then(|number| number.checked_add(i64::from(digit))).ok_or(Malformed)?;
    }
    Ok(if is_negative { -number } else { number })
}

/// A string whose head is `head` bytes long; `line` is the head without its type and its end.
fn bulk<'a>(bytes: &'a [u8], line: &[u8], head: usize) -> Read<Option<&'a [u8]>> {
    let length = match number(line)? {
        -1 => return Ok(Some((None, head))),
        length => usize::try_from(length).ok().filter(|length| *length <= LONGEST).ok_or(Malformed)?,
    };
    let end = head + length;
    match bytes.get(end..end + END.len()) {
        None => Ok(None),
        Some(END) => Ok(Some((Some(&bytes[head..end]), end + END.len()))),
        Some(_) => Err(Malformed),
    }
}

/// The string at `at`, which must not be null, and where the next one begins.
fn string(bytes: &[u8], at: usize) -> Read<&[u8]> {
    let rest = &bytes[at..];
    match rest.first() {
        None => return Ok(None),
        Some(b'$') => {}
        Some(_) => return Err(Malformed),
    }
    let Some((line, head)) = line(rest)? else { return Ok(None) };
    match bulk(rest, line, head)? {
        None => Ok(None),
        Some((Some(string), used)) => Ok(Some((string, at + used))),
        Some((None, _)) => Err(Malformed),
    }
}

const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n";
const PATTERN_MESSAGE: &[u8] = b"*4\r\n$8\r\npmessage\r\n";

/// Reads the next message or reply of a connection with subscriptions.
///
/// # Errors
/// [`Malformed`] if the bytes are neither a message nor a reply.
pub fn incoming(bytes: &[u8]) -> Read<Incoming<'_>> {
    if bytes.starts_with(MESSAGE) {
        return message(bytes, None, MESSAGE.len());
    }
    if bytes.starts_with(PATTERN_MESSAGE) {
        let Some((pattern, at)) = string(bytes, PATTERN_MESSAGE.len())? else { return Ok(None) };
        return message(bytes, Some(pattern), at);
    }
    Ok(reply(bytes)?.map(|(reply, used)| (Incoming::RedisReply(reply), used)))
}

fn message<'a>(bytes: &'a [u8], pattern: Option<&'a [u8]>, at: usize) -> Read<Incoming<'a>> {
    let Some((channel, at)) = string(bytes, at)? else { return Ok(None) };
    let Some((payload, at)) = string(bytes, at)? else { return Ok(None) };
    Ok(Some((Incoming::Message(Message { pattern, channel, payload }), at)))
}

const PUBLISH: &[u8] = b"*3\r\n$7\r\nPUBLISH\r\n";

/// Appends a PUBLISH. `put_payload` must append exactly `length` bytes.
pub(super) fn put_publish(
    out: &mut Vec<u8>,
    channel: (&[u8], &[u8]),
    length: usize,
    put_payload: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(PUBLISH);
    put_length(out, channel.0.len() + channel.1.len());
    out.extend_from_slice(channel.0);
    out.extend_from_slice(channel.1);
    out.extend_from_slice(END);
    put_length(out, length);
    put_payload(out);
    out.extend_from_slice(END);
}

/// The channel and the payload of a PUBLISH that [`put_publish`] wrote, and its length in bytes; `None` if it is
/// incomplete or another command.
pub(super) fn publish(bytes: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    if !bytes.starts_with(PUBLISH) {
        return None;
    }
    let (channel, at) = string(bytes, PUBLISH.len()).ok()??;
    let (payload, at) = string(bytes, at).ok()??;
    Some((channel, payload, at))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_of_reply_is_read() {
        for (bytes, expected) in [
            (b"+PONG\r\n".as_slice(), RedisReply::Status(b"PONG")),
            (b"-ERR no\r\n", RedisReply::Error(b"ERR no")),
            (b":-12\r\n", RedisReply::Integer(-12)),
            (b"$3\r\na\r\n\r\n", RedisReply::Bulk(Some(b"a\r\n"))),
            (b"$-1\r\n", RedisReply::Bulk(None)),
            (b"*-1\r\n", RedisReply::Array(None)),
            (
                b"*2\r\n$1\r\nx\r\n:1\r\n",
                RedisReply::Array(Some(vec![RedisReply::Bulk(Some(b"x")), RedisReply::Integer(1)])),
            ),
        ] {
            assert_eq!(reply(bytes), Ok(Some((expected, bytes.len()))));
        }
    }

    #[test]
    fn messages_by_name_and_by_pattern_are_read() {
        let by_name = b"*3\r\n$7\r\nmessage\r\n$5\r\nwse:a\r\n$2\r\n{}\r\n";
        let message = Message { pattern: None, channel: b"wse:a", payload: b"{}" };
        assert_eq!(incoming(by_name), Ok(Some((Incoming::Message(message), by_name.len()))));
        let by_pattern = b"*4\r\n$8\r\npmessage\r\n$5\r\nwse:*\r\n$5\r\nwse:a\r\n$2\r\n{}\r\n";
        let message = Message { pattern: Some(b"wse:*"), ..message };
        assert_eq!(incoming(by_pattern), Ok(Some((Incoming::Message(message), by_pattern.len()))));
    }

    #[test]
    fn an_invalid_reply_is_refused_and_allocates_no_memory() {
        for bytes in [
            b"x\r\n".as_slice(),
            b"\r\n",
            b":\r\n",
            b":1x\r\n",
            b":99999999999999999999\r\n",
            b"$-2\r\n",
            b"$16777217\r\n",
            b"*1048577\r\n",
            b"$1\r\nabc",
            b"+a\rb\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
            b"*3\r\n$7\r\nmessage\r\n:1\r\n",
            b"*3\r\n$7\r\nmessage\r\n$-1\r\n$1\r\nx\r\n",
        ] {
            assert_eq!(incoming(bytes), Err(Malformed), "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(reply(&[b'+'; LONGEST_LINE]), Err(Malformed));
        assert_eq!(reply(b"*1000000\r\n"), Ok(None));
    }

    #[test]
    fn published_entries_can_be_read_back() {
        let mut out = Vec::new();
        put_publish(&mut out, (b"wse:", b"a.b"), 3, |out| out.extend_from_slice(b"xyz"));
        assert_eq!(publish(&out), Some((b"wse:a.b".as_slice(), b"xyz".as_slice(), out.len())));
        let mut same = Vec::new();
        put_command(&mut same, [b"PUBLISH".as_slice(), b"wse:a.b", b"xyz"].into_iter());
        assert_eq!(out, same);
        assert_eq!(publish(&out[..out.len() - 1]), None);
    }

    proptest! {
        #[test]
        fn a_message_is_read_completely_or_not_at_all(
            channel in prop::collection::vec(any::<u8>(), 0..40),
            payload in prop::collection::vec(any::<u8>(), 0..300),
            pattern in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        ) {
            let mut bytes = Vec::new();
            let kind: &[u8] = if pattern.is_some() { b"pmessage" } else { b"message" };
            let parts = [kind].into_iter().chain(pattern.as_deref()).chain([&*channel, &*payload]);
            put_command(&mut bytes, parts.collect::<Vec<_>>().into_iter());
            for end in 0..bytes.len() {
                prop_assert_eq!(incoming(&bytes[..end]), Ok(None));
            }
            let length = bytes.len();
            bytes.extend_from_slice(b"more");
            let message = Message { pattern: pattern.as_deref(), channel: &channel, payload: &payload };
            prop_assert_eq!(incoming(&bytes), Ok(Some((Incoming::Message(message), length))));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*'), Just(b'1')], 0..200)) {
            let _ = incoming(&bytes);
            let _ = publish(&bytes);
        }
    }
}
