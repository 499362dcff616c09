//! The rules for what a connection may subscribe to. No I/O.

use super::glob;

/// The most rules of a connection, as each is compared with each subscription.
const MAX_RULES: usize = 1024;
/// The largest product of the bytes of a topic and of all rules that it is compared with: some 20 ms of work. The rules
/// of a token, which has 8 KiB, are always below it.
const MOST_STEPS: usize = 1 << 23;

/// Compares a rule with a topic.
type Comparison = fn(&str, &str) -> bool;

/// Rules for a connection's topics, as names or patterns. A denial wins. Without any permission, everything that isn't
/// denied is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicAcl {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl TopicAcl {
    /// Creates rules from the names and patterns that are allowed and denied.
    ///
    /// # Errors
    /// Returns a [`TopicError`](super::TopicError) if there are too many rules or one is not a valid topic. The caller
    /// must then allow the client nothing, not everything.
    pub fn new(allow: Vec<String>, deny: Vec<String>) -> Result<Self, super::TopicError> {
        if allow.len() + deny.len() > MAX_RULES {
            return Err(super::TopicError::TooManyRules { rules: allow.len() + deny.len(), maximum: MAX_RULES });
        }
        for rule in allow.iter().chain(&deny) {
            super::check(rule)?;
        }
        Ok(Self { allow, deny })
    }

    /// Rules that allow nothing, for a token whose rules are invalid.
    pub(crate) fn nothing() -> Self {
        Self { allow: Vec::new(), deny: vec!["*".into()] }
    }

    /// Whether a connection may subscribe to `topic`. A pattern is allowed if every name that it matches is.
    ///
    /// # Errors
    /// [`TopicError::TooCostly`](super::TopicError::TooCostly) if the topic and the rules are too long together.
    pub fn permits(&self, topic: &str) -> Result<bool, super::TopicError> {
        let rules = self.allow.iter().chain(&self.deny).map(String::len).sum();
        if topic.len().saturating_mul(rules) > MOST_STEPS {
            return Err(super::TopicError::TooCostly { topic: topic.len(), rules, maximum: MOST_STEPS });
        }
        // A name is matched, which costs far less than a comparison of two patterns.
        let (denies, allows): (Comparison, Comparison) =
            if glob::is_pattern(topic) { (glob::overlaps, glob::covers) } else { (glob::matches, glob::matches) };
        let is_denied = self.deny.iter().any(|rule| denies(rule, topic));
        Ok(!is_denied && (self.allow.is_empty() || self.allow.iter().any(|rule| allows(rule, topic))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(allow: &[&str], deny: &[&str]) -> TopicAcl {
        let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        TopicAcl::new(owned(allow), owned(deny)).unwrap()
    }

    #[test]
    fn deny_rules_win_and_without_allow_rules_all_other_topics_are_allowed() {
        let both = acl(&["news.*"], &["news.secret.*"]);
        assert!(
            both.permits("news.today").unwrap()
                && !both.permits("news.secret.x").unwrap()
                && !both.permits("other").unwrap()
        );
        let denials = acl(&[], &["news.secret.*"]);
        assert!(denials.permits("other").unwrap() && !denials.permits("news.secret.x").unwrap());
        assert!(acl(&[], &[]).permits("anything").unwrap());
        assert!(!TopicAcl::nothing().permits("anything").unwrap());
    }

    #[test]
    fn a_pattern_cannot_bypass_a_rule() {
        assert!(!acl(&[], &["news.secret.*"]).permits("*").unwrap());
        assert!(!acl(&[], &["news.secret.*"]).permits("news.s*").unwrap());
        assert!(!acl(&["news.*"], &[]).permits("*").unwrap());
        assert!(acl(&["news.*"], &["sport.*"]).permits("news.s?*").unwrap());
    }

    #[test]
    fn rules_are_bounded_and_validated() {
        assert!(TopicAcl::new(vec!["x".into(); 1025], Vec::new()).is_err());
        assert!(TopicAcl::new(vec!["a\nb".into()], Vec::new()).is_err());
        assert!(TopicAcl::new(Vec::new(), vec![String::new()]).is_err());
    }

    #[test]
    fn a_comparison_that_would_take_long_is_refused() {
        let rule = format!("{}*", "a?".repeat(255));
        let rules = acl(&[rule.as_str(); 40], &[]);
        assert_eq!(rules.permits(&"a".repeat(100)), Ok(false));
        let costly = rules.permits(&"a*".repeat(256)).unwrap_err();
        assert!(matches!(costly, super::super::TopicError::TooCostly { topic: 512, rules: 20_440, .. }), "{costly}");
    }
}
