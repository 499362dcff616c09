//! Addresses as `HOST:PORT`, the way peers and configurations write them.

/// The longest host name (RFC 1035, 2.3.4), in bytes.
const LONGEST_HOST: usize = 253;

/// The host (without brackets) and the port of an address; `None` if it is not valid.
pub(super) fn split(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    // `parse` takes a sign, which no resolver does.
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|port| *port > 0 && is_number)?;
    let bare = host.strip_prefix('[').map_or(Some(host), |host| host.strip_suffix(']'))?;
    let is_bracketed = bare.len() != host.len();
    let is_host = !bare.is_empty()
        && bare.len() <= LONGEST_HOST
        && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte))
        && bare.contains(':') == is_bracketed;
    is_host.then_some((bare, port))
}
