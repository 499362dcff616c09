//! Published messages as a receiver reads them: `{"c":"U","t":"fanout_tick","p":{"seq":N,"ts_us":T,…}}`. Pure.
//!
//! Millions per second come to one thread. So a message is taken to look like all others, every byte of that is verified,
//! and only one that doesn't is searched.

use loadgen_core::workload::Delivery;
use memchr::memmem;

use crate::protocol::number;

/// How a published message begins, up to its number.
const HEAD: &[u8] = br#"{"c":"U","t":"fanout_tick","p":{"seq":"#;
/// What stands between its number and its time.
const STAMP: &[u8] = br#","ts_us":"#;
const TYPE: &[u8] = br#""fanout_tick""#;
const NUMBER: &[u8] = br#""seq":"#;
const TIME: &[u8] = br#""ts_us":"#;
/// Numbers beyond are no count of messages, in whatever time.
const MOST: u64 = 1 << 62;

/// What a text message is to a receiver.
#[inline]
pub fn delivery(payload: &[u8]) -> Delivery {
    if let Some(rest) = payload.strip_prefix(HEAD)
        && let Some((sequence, rest)) = digits(rest)
        && let Some(rest) = rest.strip_prefix(STAMP)
        && let Some((due_unix_us, _)) = digits(rest)
    {
        return Delivery::Published { sequence, due_unix_us };
    }
    elsewhere(payload)
}

/// The same for one that looks different: an older server's without its category, or one with other fields before.
#[cold]
fn elsewhere(payload: &[u8]) -> Delivery {
    if memmem::find(payload, TYPE).is_none() {
        return Delivery::Other;
    }
    let behind =
        |name: &[u8]| memmem::find(payload, name).and_then(|at| number(payload[at + name.len()..].trim_ascii_start()));
    match (behind(NUMBER), behind(TIME)) {
        (Some(sequence @ ..=MOST), Some(due_unix_us @ ..=MOST)) => Delivery::Published { sequence, due_unix_us },
        _ => Delivery::Wrong,
    }
}

/// The decimal number at the start, and what follows it; nothing for none and for one that is too long to be one.
#[inline]
fn digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (mut number, mut rest) = (0_u64, bytes);
    // Eight at a time: a time has sixteen, a number few.
    while let Some((eight, behind)) = rest.split_first_chunk::<8>()
        && let Some(next) = eight_digits(*eight)
    {
        if number > MOST / 100_000_000 {
            return None;
        }
        number = number * 100_000_000 + next;
        rest = behind;
    }
    while let [digit @ b'0'..=b'9', behind @ ..] = rest {
        if number > MOST / 10 {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
        rest = behind;
    }
    (rest.len() < bytes.len()).then_some((number, rest))
}

/// Eight digits at once, if they are: neighbours are added up to pairs, pairs to fours, fours to eight.
#[inline]
fn eight_digits(bytes: [u8; 8]) -> Option<u64> {
    let word = u64::from_le_bytes(bytes);
    let values = word.wrapping_sub(0x3030_3030_3030_3030);
    // A byte below '0' borrows, one above '9' carries: either shows in its highest bit.
    if (values | (word.wrapping_add(0x4646_4646_4646_4646))) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = (values * 10 + (values >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_FFFF_0000_FFFF;
    Some((fours * 10_000 + (fours >> 32)) & 0xFFFF_FFFF)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Delivery {
        delivery(text.as_bytes())
    }

    const TICK: Delivery = Delivery::Published { sequence: 42, due_unix_us: 1_700_000_000_000_000 };

    #[test]
    fn a_published_message_has_its_number_and_its_time() {
        let ours = r#"{"c":"U","t":"fanout_tick","p":{"seq":42,"ts_us":1700000000000000,"s":"ES","px":5234.75,"q":2}}"#;
        assert_eq!(of(ours), TICK);
        assert_eq!(of(&ours.replace(r#""c":"U","#, "")), TICK, "as older servers publish");
        assert_eq!(of(&format!("U{ours}")), TICK, "with the legacy prefix");
        assert_eq!(of(r#"{"p":{"ts_us": 1700000000000000,"q":2,"seq": 42},"t":"fanout_tick"}"#), TICK);
    }

    #[test]
    fn what_is_no_published_message_is_none() {
        assert_eq!(of(r#"{"c":"WSE","t":"ping","p":{"server_time":"x"},"seq":3}"#), Delivery::Other);
        assert_eq!(of(r#"{"c":"WSE","id":"x","p":{},"seq":1,"t":"server_hello","v":1}"#), Delivery::Other);
        assert_eq!(of(""), Delivery::Other);
    }

    #[test]
    fn one_without_a_number_or_a_time_is_wrong() {
        for text in [
            r#"{"c":"U","t":"fanout_tick","p":{"seq":42}}"#,
            r#"{"c":"U","t":"fanout_tick","p":{"ts_us":1700000000000000}}"#,
            r#"{"c":"U","t":"fanout_tick","p":{"seq":-1,"ts_us":1700000000000000}}"#,
            r#"{"c":"U","t":"fanout_tick","p":{"seq":99999999999999999999,"ts_us":1700000000000000}}"#,
        ] {
            assert_eq!(of(text), Delivery::Wrong, "{text}");
        }
    }

    proptest! {
        #[test]
        fn digits_are_read_as_the_standard_library_reads_them(number in 0..MOST, behind in "[^0-9].{0,20}") {
            let text = format!("{number}{behind}");
            prop_assert_eq!(digits(text.as_bytes()), Some((number, behind.as_bytes())));
        }

        #[test]
        fn eight_bytes_are_a_number_only_if_all_are_digits(bytes: [u8; 8]) {
            let plain = bytes.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(&bytes).unwrap().parse().unwrap());
            prop_assert_eq!(eight_digits(bytes), plain);
        }

        #[test]
        fn eight_digits_are_their_number(number in 0_u64..100_000_000, at in 0_usize..8, wrong: u8) {
            let mut bytes: [u8; 8] = format!("{number:08}").into_bytes().try_into().unwrap();
            prop_assert_eq!(eight_digits(bytes), Some(number));
            bytes[at] = wrong;
            prop_assert_eq!(eight_digits(bytes).is_some(), wrong.is_ascii_digit());
        }
    }
}
