//! Suggestions for mistyped words. Pure.

/// Least Jaro-Winkler similarity at which a word counts as mistyped.
const SIMILAR: f64 = 0.8;

/// The known word that is most similar to a mistyped one; `None` if none is similar enough.
pub(crate) fn closest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|word| (strsim::jaro_winkler(wrong, word), word))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}
