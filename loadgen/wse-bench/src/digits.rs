//! Decimal numbers of any length in a service's messages. Pure.

/// The number at the start, modulo 2^64; `None` without a digit.
#[inline]
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    let mut any = false;
    let number = digits.fold(0_u64, |number, digit| {
        any = true;
        number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
    });
    any.then_some(number)
}
