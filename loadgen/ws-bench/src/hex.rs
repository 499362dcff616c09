//! Bytes in hexadecimal digits.

/// The bytes; spaces are allowed between them.
///
/// # Errors
/// What is wrong, with the place.
pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for group in text.split_ascii_whitespace() {
        for pair in group.as_bytes().chunks(2) {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            match (digit(pair[0]), pair.get(1).copied().and_then(digit)) {
                (Some(high), Some(low)) => bytes.push((high << 4 | low) as u8),
                _ => return Err(format!("{group:?} is not whole bytes in hexadecimal digits; write them as 0d 0a")),
            }
        }
    }
    if bytes.is_empty() { Err("there are no bytes; write them as 0d 0a".into()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_between_bytes_are_allowed() {
        assert_eq!(decode("0dFF 7e").unwrap(), [0x0D, 0xFF, 0x7E]);
        for wrong in ["", " ", "0", "0d0", "0 d", "gg", "é1"] {
            assert!(decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
