//! Shortens texts from the wire for display in results.

/// Returns the first 300 characters of a text, with an ellipsis if it is longer.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
