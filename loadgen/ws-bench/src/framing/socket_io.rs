//! Binary events and acknowledgements of Socket.IO (protocol 5): a text that announces attachments, and each attachment in a
//! binary message behind it. Pure.

use loadgen_core::workload::Opcode;

use super::{LONGEST, MALFORMED, Rest, TOO_LONG, TOO_MANY, Uncuttable};

/// Most attachments of a message. The library's own limit is 10.
pub const MOST_ATTACHMENTS: usize = 64;
/// Begins a Socket.IO packet in an Engine.IO message.
const PACKET: u8 = b'4';

/// Passes complete messages to `handle`: a text, or a text with its attachments behind it.
///
/// # Errors
/// [`Uncuttable`], if attachments are too many or too long, come without a text, or another packet comes before them.
pub(super) fn cut(
    rest: &mut Rest,
    opcode: Opcode,
    payload: &[u8],
    mut handle: impl FnMut(&[u8]),
) -> Result<(), Uncuttable> {
    if opcode == Opcode::Binary {
        if rest.attachments == 0 {
            return Err(MALFORMED);
        }
        if rest.bytes.len() + payload.len() > LONGEST {
            return Err(TOO_LONG);
        }
        rest.bytes.extend_from_slice(payload);
        rest.attachments -= 1;
        if rest.attachments == 0 {
            handle(&rest.bytes);
            rest.bytes = Vec::new();
        }
        return Ok(());
    }
    // The transport's own packets, such as its pings, belong to no message.
    if rest.attachments > 0 && payload.first() == Some(&PACKET) {
        return Err(MALFORMED);
    }
    match announced(payload)? {
        0 => handle(payload),
        _ if payload.len() > LONGEST => return Err(TOO_LONG),
        count => {
            rest.bytes = payload.to_vec();
            rest.attachments = count;
        }
    }
    Ok(())
}

/// The number of attachments that a text announces: `451-[…` is an event with one, `462-7[…` an acknowledgement with two.
fn announced(text: &[u8]) -> Result<usize, Uncuttable> {
    let ([PACKET, b'5', rest @ ..] | [PACKET, b'6', rest @ ..]) = text else { return Ok(0) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || rest.get(digits) != Some(&b'-') {
        return Err(MALFORMED);
    }
    let number = std::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse().ok());
    number.filter(|number| *number <= MOST_ATTACHMENTS).ok_or(TOO_MANY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(messages: &[(Opcode, &[u8])]) -> Result<Vec<Vec<u8>>, Uncuttable> {
        let (mut rest, mut found) = (Rest::default(), Vec::new());
        for (opcode, payload) in messages {
            cut(&mut rest, *opcode, payload, |message| found.push(message.to_vec()))?;
        }
        Ok(found)
    }

    fn text(text: &str) -> (Opcode, &[u8]) {
        (Opcode::Text, text.as_bytes())
    }

    fn binary(bytes: &[u8]) -> (Opcode, &[u8]) {
        (Opcode::Binary, bytes)
    }

    #[test]
    fn a_message_is_whole_with_its_last_attachment() {
        let event = r#"451-["e",{"_placeholder":true,"num":0}]"#;
        let expected = [event.as_bytes(), &[1, 2]].concat();
        assert_eq!(all(&[text(event)]).unwrap(), [[0; 0]; 0]);
        assert_eq!(all(&[text(event), binary(&[1, 2])]).unwrap(), [expected]);
        let two = [text("462-7[]"), binary(b"a"), text("2"), binary(b"b"), text("42[]")];
        assert_eq!(all(&two).unwrap(), [&b"2"[..], b"462-7[]ab", b"42[]"], "a ping of the transport may come between");
    }

    #[test]
    fn texts_without_attachments_are_messages() {
        let texts = ["0{}", "40", "42[\"e\"]", "437[1]", "450-[]", "2", ""];
        assert_eq!(all(&texts.map(text)).unwrap(), texts.map(str::as_bytes));
    }

    #[test]
    fn what_does_not_belong_together_ends_the_connection() {
        assert_eq!(all(&[binary(b"x")]), Err(MALFORMED));
        assert_eq!(all(&[text("451-[]"), text("42[]")]), Err(MALFORMED));
        assert_eq!(all(&[text("451-[]"), text("451-[]")]), Err(MALFORMED));
        for wrong in ["45", "45[]", "45-[]", "451[]", "46x-"] {
            assert_eq!(all(&[text(wrong)]), Err(MALFORMED), "{wrong}");
        }
    }

    #[test]
    fn attachments_without_end_end_the_connection() {
        assert_eq!(all(&[text("4565-[]")]), Err(TOO_MANY));
        assert_eq!(all(&[text("4599999999999999999999-[]")]), Err(TOO_MANY));
        let megabyte = vec![b'x'; LONGEST - 6];
        assert_eq!(all(&[text("452-[]"), binary(&megabyte)]).unwrap(), [[0; 0]; 0]);
        assert_eq!(all(&[text("452-[]"), binary(&megabyte), binary(b"x")]), Err(TOO_LONG));
        let long = format!("451-[{}]", "x".repeat(LONGEST));
        assert_eq!(all(&[text(&long)]), Err(TOO_LONG));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_or_keep_more_than_the_longest_message(
            messages in prop::collection::vec((any::<bool>(), prop_oneof!["4[2-6][0-9]{0,3}-?.*", ".*"]), 0..20),
        ) {
            let mut rest = Rest::default();
            for (is_text, payload) in &messages {
                let opcode = if *is_text { Opcode::Text } else { Opcode::Binary };
                if cut(&mut rest, opcode, payload.as_bytes(), |_| ()).is_err() {
                    break;
                }
                prop_assert!(rest.bytes.len() <= LONGEST && rest.attachments <= MOST_ATTACHMENTS);
                prop_assert_eq!(rest.bytes.is_empty(), rest.attachments == 0);
            }
        }
    }
}
