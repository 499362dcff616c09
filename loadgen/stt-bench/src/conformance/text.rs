//! Text from the wire, as results show it.

/// At most 300 characters of a text.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
