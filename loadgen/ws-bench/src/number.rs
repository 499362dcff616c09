//! Numbers in binary messages. Pure.

use bench_format::websocket::NumberFormat;

/// Largest number of bytes of a varint: ten groups of seven bits hold 64.
const LONGEST_VARINT: usize = 10;

/// Number of bytes of a format; `None` for a varint, whose length depends on the number.
pub(crate) fn width(format: NumberFormat) -> Option<usize> {
    match format {
        NumberFormat::U8 => Some(1),
        NumberFormat::U16be | NumberFormat::U16le => Some(2),
        NumberFormat::U32be | NumberFormat::U32le => Some(4),
        NumberFormat::U64be | NumberFormat::U64le => Some(8),
        NumberFormat::Varint => None,
    }
}

/// The largest number that a format holds.
pub(crate) fn most(format: NumberFormat) -> u64 {
    width(format).map_or(u64::MAX, |width| u64::MAX >> (64 - 8 * width))
}

/// The bytes of a number, and how many they are. A number that doesn't fit loses its highest bits.
pub(crate) fn encode(format: NumberFormat, number: u64) -> ([u8; LONGEST_VARINT], usize) {
    let mut bytes = [0; LONGEST_VARINT];
    let Some(width) = width(format) else { return varint(number) };
    match format {
        NumberFormat::U16be | NumberFormat::U32be | NumberFormat::U64be => {
            bytes[..width].copy_from_slice(&number.to_be_bytes()[8 - width..]);
        }
        _ => bytes[..width].copy_from_slice(&number.to_le_bytes()[..width]),
    }
    (bytes, width)
}

fn varint(mut number: u64) -> ([u8; LONGEST_VARINT], usize) {
    let mut bytes = [0; LONGEST_VARINT];
    let mut at = 0;
    while number >= 0x80 {
        bytes[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    bytes[at] = number as u8;
    (bytes, at + 1)
}

/// The number at the start of `bytes`, and the number of bytes that it takes; `None` if it isn't complete or, as a
/// varint, exceeds 64 bits.
pub(crate) fn decode(format: NumberFormat, bytes: &[u8]) -> Option<(u64, usize)> {
    let Some(width) = width(format) else { return decode_varint(bytes) };
    let field = bytes.get(..width)?;
    let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    let number = match format {
        NumberFormat::U16le | NumberFormat::U32le | NumberFormat::U64le => field.iter().rev().fold(0, push),
        _ => field.iter().fold(0, push),
    };
    Some((number, width))
}

fn decode_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    for (at, byte) in bytes.iter().take(LONGEST_VARINT).enumerate() {
        let group = u64::from(byte & 0x7F);
        if at == LONGEST_VARINT - 1 && group > 1 {
            return None;
        }
        number |= group << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [NumberFormat; 8] = [
        NumberFormat::U8,
        NumberFormat::U16be,
        NumberFormat::U16le,
        NumberFormat::U32be,
        NumberFormat::U32le,
        NumberFormat::U64be,
        NumberFormat::U64le,
        NumberFormat::Varint,
    ];

    proptest! {
        #[test]
        fn a_number_is_decoded_from_its_own_bytes(number: u64, index in 0..ALL.len()) {
            let format = ALL[index];
            let number = number & most(format);
            let (bytes, length) = encode(format, number);
            prop_assert_eq!(decode(format, &bytes[..length]), Some((number, length)));
            prop_assert_eq!(decode(format, &bytes[..length - 1]), None);
        }

        #[test]
        fn random_bytes_are_a_number_or_none(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            for format in ALL {
                if let Some((_, length)) = decode(format, &bytes) {
                    prop_assert!(length <= bytes.len());
                }
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_specifications() {
        let hex = |format, number| {
            let (bytes, length) = encode(format, number);
            bytes[..length].to_vec()
        };
        assert_eq!(hex(NumberFormat::U16be, 0x0102), [1, 2]);
        assert_eq!(hex(NumberFormat::U32le, 0x0102_0304), [4, 3, 2, 1]);
        // MQTT 5.0, table 1-1.
        assert_eq!(hex(NumberFormat::Varint, 127), [0x7F]);
        assert_eq!(hex(NumberFormat::Varint, 128), [0x80, 0x01]);
        assert_eq!(hex(NumberFormat::Varint, 268_435_455), [0xFF, 0xFF, 0xFF, 0x7F]);
    }
}
