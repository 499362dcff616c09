//! Parses published messages: `{"c":"U","t":"fanout_tick","p":{"seq":N,"ts_us":T,…}}`. Pure.
//!
//! One thread receives millions per second. So the parser expects the usual form and compares every byte with it, and
//! searches only a message that differs.

use loadgen_core::workload::Delivery;
use memchr::memmem;

use crate::digits::number;

/// The bytes before the sequence number.
const HEAD: &[u8; 38] = br#"{"c":"U","t":"fanout_tick","p":{"seq":"#;
/// The bytes between the sequence number and the time.
const STAMP: &[u8; 9] = br#","ts_us":"#;
const TYPE: &[u8] = br#""fanout_tick""#;
const NUMBER: &[u8] = br#""seq":"#;
const TIME: &[u8] = br#""ts_us":"#;
/// Largest sequence number and time; larger ones are wrong.
const MOST: u64 = 1 << 62;

/// Classifies a text message: published, wrong, or another.
#[inline]
pub fn delivery(payload: &[u8]) -> Delivery {
    // Arrays of known length are compared in a few words each; patterns would be compared byte by byte.
    if let Some((head, remaining)) = payload.split_first_chunk()
        && head == HEAD
        && let Some((sequence, remaining)) = digits(remaining)
        && let Some((stamp, remaining)) = remaining.split_first_chunk()
        && stamp == STAMP
        && let Some(due_unix_us) = time(remaining)
    {
        return Delivery::Published { sequence, due_unix_us };
    }
    elsewhere(payload)
}

/// Classifies a message of another form: an older server's without the category, or one with other fields first.
#[cold]
fn elsewhere(payload: &[u8]) -> Delivery {
    if memmem::find(payload, TYPE).is_none() {
        return Delivery::Other;
    }
    let after_digit =
        |name: &[u8]| memmem::find(payload, name).and_then(|at| number(payload[at + name.len()..].trim_ascii_start()));
    match (after_digit(NUMBER), after_digit(TIME)) {
        (Some(sequence @ ..=MOST), Some(due_unix_us @ ..=MOST)) => Delivery::Published { sequence, due_unix_us },
        _ => Delivery::Wrong,
    }
}

/// A time in microseconds: it has sixteen digits from the year 2001 to 2286, which are read in two halves.
#[inline]
fn time(bytes: &[u8]) -> Option<u64> {
    if let Some((first_half, remaining)) = bytes.split_first_chunk::<8>()
        && let Some((second_half, remaining)) = remaining.split_first_chunk::<8>()
        && let ((first_half, 8), (second_half, 8)) = (leading_digits(*first_half), leading_digits(*second_half))
        && !remaining.first().is_some_and(u8::is_ascii_digit)
    {
        return Some(first_half * POWERS[8] + second_half);
    }
    digits(bytes).map(|(number, _)| number)
}

/// The decimal number at the start, and the bytes after it; `None` without a digit, and for a number that is too large.
#[inline]
fn digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (mut number, mut remaining) = (0_u64, bytes);
    // Eight digits at a time: a time has sixteen, a sequence number few.
    while let Some(eight) = remaining.first_chunk::<8>() {
        let (next, count) = leading_digits(*eight);
        if number > ROOM[count] {
            return None;
        }
        number = number * POWERS[count] + next;
        remaining = &remaining[count..];
        if count < 8 {
            return (remaining.len() < bytes.len()).then_some((number, remaining));
        }
    }
    while let [digit @ b'0'..=b'9', after_digit @ ..] = remaining {
        if number > MOST / 10 {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
        remaining = after_digit;
    }
    (remaining.len() < bytes.len()).then_some((number, remaining))
}

const POWERS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// The largest number to which this many digits can be appended.
const ROOM: [u64; 9] = {
    let (mut room, mut count) = ([0; 9], 0);
    while count < room.len() {
        room[count] = MOST / POWERS[count];
        count += 1;
    }
    room
};

/// The number and the count of the digits that eight bytes begin with: adjacent digits are combined to pairs, pairs to
/// fours, fours to eight.
#[inline]
fn leading_digits(bytes: [u8; 8]) -> (u64, usize) {
    let word = u64::from_le_bytes(bytes);
    let values = word.wrapping_sub(0x3030_3030_3030_3030);
    // A byte below '0' borrows and one above '9' carries: either sets its highest bit. This may also change the bytes
    // after it, which aren't used.
    let non_digits = (values | word.wrapping_add(0x4646_4646_4646_4646)) & 0x8080_8080_8080_8080;
    let count = (non_digits.trailing_zeros() / 8) as usize;
    if count == 0 {
        return (0, 0);
    }
    // Zeros in place of the missing leading digits.
    let values = values << (64 - 8 * count);
    let pairs = (values.wrapping_mul(10).wrapping_add(values >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_FFFF_0000_FFFF;
    (fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xFFFF_FFFF, count)
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
        let tick = r#"{"c":"U","t":"fanout_tick","p":{"seq":42,"ts_us":1700000000000000,"s":"ES","px":5234.75,"q":2}}"#;
        assert_eq!(of(tick), TICK);
        assert_eq!(of(&tick.replace(r#""c":"U","#, "")), TICK, "as older servers publish");
        assert_eq!(of(&format!("U{tick}")), TICK, "with the legacy prefix");
        assert_eq!(of(r#"{"p":{"ts_us": 1700000000000000,"q":2,"seq": 42},"t":"fanout_tick"}"#), TICK);
    }

    #[test]
    fn a_message_that_is_not_a_publication_is_ignored() {
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
        fn digits_are_read_as_the_standard_library_reads_them(number in 0..MOST, after_digit in "[^0-9].{0,20}") {
            let text = format!("{number}{after_digit}");
            prop_assert_eq!(digits(text.as_bytes()), Some((number, after_digit.as_bytes())));
        }

        #[test]
        fn a_timestamp_of_any_length_is_read_as_a_number(number in 0..MOST, short in 0_u64..1000, after_digit in "[^0-9].{0,20}") {
            for number in [number, short, 1_700_000_000_000_000 + short] {
                prop_assert_eq!(time(format!("{number}{after_digit}").as_bytes()), Some(number));
                prop_assert_eq!(time(number.to_string().as_bytes()), Some(number));
            }
        }

        #[test]
        fn eight_bytes_begin_with_the_digits_that_they_begin_with(bytes: [u8; 8]) {
            let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let plain = std::str::from_utf8(&bytes[..count]).unwrap().parse().unwrap_or(0);
            prop_assert_eq!(leading_digits(bytes), (plain, count));
        }

        #[test]
        fn digits_end_where_something_else_comes(number in 0_u64..100_000_000, at in 0_usize..9, wrong: u8) {
            let mut bytes: [u8; 8] = format!("{number:08}").into_bytes().try_into().unwrap();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = wrong;
            }
            let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let plain = std::str::from_utf8(&bytes[..count]).unwrap().parse().unwrap_or(0);
            prop_assert_eq!(leading_digits(bytes), (plain, count));
        }
    }
}
