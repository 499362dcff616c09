//! The rules for what a connection may subscribe to. No I/O.

use super::glob;

/// The most rules of a connection, as each is compared with each subscription.
const MAXIMAL_RULES: usize = 1024;

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
    /// Returns a [`TopicError`](super::TopicError) if there are too many rules or one is no valid topic. The caller
    /// must then allow the client nothing, not everything.
    pub fn new(allow: Vec<String>, deny: Vec<String>) -> Result<Self, super::TopicError> {
        if allow.len() + deny.len() > MAXIMAL_RULES {
            return Err(super::TopicError::TooManyRules { rules: allow.len() + deny.len(), maximum: MAXIMAL_RULES });
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
    pub fn permits(&self, topic: &str) -> bool {
        let is_denied = self.deny.iter().any(|rule| glob::overlaps(rule, topic));
        !is_denied && (self.allow.is_empty() || self.allow.iter().any(|rule| glob::covers(rule, topic)))
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
        assert!(both.permits("news.today") && !both.permits("news.secret.x") && !both.permits("other"));
        let denials = acl(&[], &["news.secret.*"]);
        assert!(denials.permits("other") && !denials.permits("news.secret.x"));
        assert!(acl(&[], &[]).permits("anything"));
        assert!(!TopicAcl::nothing().permits("anything"));
    }

    #[test]
    fn a_pattern_cannot_bypass_a_rule() {
        assert!(!acl(&[], &["news.secret.*"]).permits("*"));
        assert!(!acl(&[], &["news.secret.*"]).permits("news.s*"));
        assert!(!acl(&["news.*"], &[]).permits("*"));
        assert!(acl(&["news.*"], &["sport.*"]).permits("news.s?*"));
    }

    #[test]
    fn rules_are_bounded_and_validated() {
        assert!(TopicAcl::new(vec!["x".into(); 1025], Vec::new()).is_err());
        assert!(TopicAcl::new(vec!["a\nb".into()], Vec::new()).is_err());
        assert!(TopicAcl::new(Vec::new(), vec![String::new()]).is_err());
    }
}
