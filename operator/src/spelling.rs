//! What a mistyped word was most likely meant to be. Pure.

/// Closer than this (Jaro-Winkler) two words count as a slip of the pen.
const SIMILAR: f64 = 0.8;

/// The known word that a mistyped one was most likely meant to be.
pub(crate) fn closest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|word| (strsim::jaro_winkler(wrong, word), word))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}
