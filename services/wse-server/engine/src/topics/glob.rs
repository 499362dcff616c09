//! Topic names and patterns: `*` matches any run of characters, dots included, and `?` any one character. No I/O.
//!
//! In addition to matching, rules need two questions about sets of names: whether a rule matches every name that a
//! pattern matches, and whether it matches any of them.

/// The most bytes of a topic name or pattern, as it is compared with every publication.
pub(crate) const LONGEST: usize = 512;

/// Whether a text is a pattern and not a name.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether `pattern` matches `name`.
///
/// Backtracks to the last `*` only, which is enough: what an earlier one could match, the last one can too. So it takes
/// at most as many steps as the product of both lengths.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut position) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while position < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, position));
                continue;
            }
            Some(b'?') => {
                at += 1;
                position += character(name, position);
                continue;
            }
            Some(byte) if *byte == name[position] => {
                at += 1;
                position += 1;
                continue;
            }
            _ => {}
        }
        let Some((after_star, from)) = retry else { return false };
        let next = from + character(name, from);
        retry = Some((after_star, next));
        (at, position) = (after_star, next);
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Length in bytes of the character that begins at `at`, as a `?` matches a character and not a byte of it.
fn character(text: &[u8], at: usize) -> usize {
    match text[at] {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
    .min(text.len() - at)
}

/// Whether `rule` matches every name that `requested` (a name or a pattern) matches.
///
/// A result of true is always right. Where both have several wildcards the result may be false although `rule` covers
/// `requested`, which denies the subscription.
pub(crate) fn covers(rule: &str, requested: &str) -> bool {
    relate(rule, requested, &|rule, requested| match (rule, requested) {
        (_, '*') => false,
        ('?', _) => true,
        (rule, requested) => rule == requested,
    })
    .covers
}

/// Whether there is a name that both match.
pub(crate) fn overlaps(one: &str, other: &str) -> bool {
    relate(one, other, &|one, other| one == '?' || other == '?' || one == other).overlaps
}

struct Relation {
    covers: bool,
    overlaps: bool,
}

/// Compares both texts in a table with a row per character of `one`, which holds the reachable positions in `other`.
///
/// A `*` of `one` may match any characters of `other`, wildcards included. For `overlaps`, a `*` of `other` may match
/// any of `one` as well.
fn relate(one: &str, other: &str, same: &dyn Fn(char, char) -> bool) -> Relation {
    let other: Vec<char> = other.chars().collect();
    let mut covering = vec![false; other.len() + 1];
    let mut overlapping = covering.clone();
    covering[0] = true;
    overlapping[0] = true;
    for (index, requested) in other.iter().enumerate() {
        overlapping[index + 1] = overlapping[index] && *requested == '*';
    }
    let mut after = covering.clone();
    for rule in one.chars() {
        step(&covering, &mut after, rule, &other, same, false);
        std::mem::swap(&mut covering, &mut after);
        step(&overlapping, &mut after, rule, &other, same, true);
        std::mem::swap(&mut overlapping, &mut after);
    }
    Relation { covers: covering[other.len()], overlaps: overlapping[other.len()] }
}

/// Computes the row behind `before` in place of `after`.
fn step(
    before: &[bool],
    after: &mut [bool],
    rule: char,
    other: &[char],
    same: &dyn Fn(char, char) -> bool,
    other_may_take: bool,
) {
    after[0] = rule == '*' && before[0];
    for (index, requested) in other.iter().enumerate() {
        after[index + 1] = if rule == '*' {
            before[index + 1] || after[index]
        } else {
            let is_star = *requested == '*';
            (before[index] && !is_star && same(rule, *requested))
                || (other_may_take && is_star && (before[index + 1] || before[index] || after[index]))
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_matches_any_run_and_a_question_mark_one_character() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "a.b"),
            ("a.*", "a.b.c"),
            ("a.*.c", "a.b.b.c"),
            ("a?c", "abc"),
            ("a?c", "aéc"),
            ("*é?", "xéü"),
            ("a", "a"),
            ("**b*", "aab"),
            ("*ab", "aab"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a.*", "a"), ("a?c", "ac"), ("?", ""), ("a", "ab"), ("*b", "ba"), ("a?c", "ab€c")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_rule_covers_a_pattern_only_if_it_holds_for_all_its_names() {
        for (rule, requested) in
            [("*", "*"), ("a.*", "a.b.*"), ("a.*", "a.b"), ("a?", "a?"), ("*", "a?b*"), ("a*", "a*b*")]
        {
            assert!(covers(rule, requested), "{rule} {requested}");
        }
        for (rule, requested) in [("a.*", "*"), ("a?c", "a*c"), ("a.b", "a.?"), ("a", "b"), ("?", "*"), ("a.b", "a.*")]
        {
            assert!(!covers(rule, requested), "{rule} {requested}");
        }
    }

    #[test]
    fn two_patterns_overlap_if_one_name_fits_both() {
        for (one, other) in [("secret.*", "*"), ("a*c", "ab*"), ("a?", "?b"), ("a", "a"), ("*x", "*"), ("a*", "a")] {
            assert!(overlaps(one, other) && overlaps(other, one), "{one} {other}");
        }
        for (one, other) in [("a.*", "b.*"), ("a?", "abc"), ("a", ""), ("*a", "*b"), ("??", "a")] {
            assert!(!overlaps(one, other) && !overlaps(other, one), "{one} {other}");
        }
    }

    /// A slow reference implementation of the matching.
    fn matches_plainly(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=name.len()).any(|taken| matches_plainly(rest, &name[taken..])),
            (['?', rest @ ..], [_, names @ ..]) => matches_plainly(rest, names),
            ([first, rest @ ..], [name, names @ ..]) if first == name => matches_plainly(rest, names),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_plain_definition(pattern in "[ab*?é]{0,7}", name in "[abé]{0,8}") {
            let plain = matches_plainly(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>());
            prop_assert_eq!(matches(&pattern, &name), plain);
        }

        #[test]
        fn covered_patterns_match_nothing_outside_and_disjoint_ones_nothing_inside(
            rule in "[ab*?]{0,5}", requested in "[ab*?]{0,5}", name in "[ab]{0,6}",
        ) {
            if matches(&requested, &name) {
                prop_assert!(!covers(&rule, &requested) || matches(&rule, &name));
                prop_assert!(overlaps(&rule, &requested) || !matches(&rule, &name));
            }
        }
    }
}
