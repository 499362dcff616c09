//! The errors of topic names, subscriptions and rules.

/// Why a topic, or a rule about topics, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// The name is empty or only white space.
    #[error("a topic needs a name, but {given:?} is blank")]
    Empty {
        /// The name as it was given.
        given: String,
    },
    /// The name is too long to be compared with every publication.
    #[error("a topic's name has {maximum} bytes at most, this one has {bytes}; it begins with {beginning:?}")]
    TooLong {
        /// Length of the name in bytes.
        bytes: usize,
        /// The limit in bytes.
        maximum: usize,
        /// The first 40 characters of the name.
        beginning: String,
    },
    /// The name has control characters.
    #[error("a topic's name holds no control characters, but {given:?} does")]
    Control {
        /// The name as it was given.
        given: String,
    },
    /// The connection would have more subscriptions than it may.
    #[error(
        "a connection may have {maximum} subscriptions, this one would have {requested}: unsubscribe some, or raise the limit"
    )]
    TooManySubscriptions {
        /// The number of subscriptions with the requested ones.
        requested: usize,
        /// The most subscriptions that a connection may have.
        maximum: usize,
    },
    /// Comparing the topic with the rules would take too long.
    #[error(
        "a topic of {topic} bytes can't be compared with rules of {rules} bytes: their product may be {maximum} at most; give fewer or shorter rules"
    )]
    TooCostly {
        /// Length of the topic in bytes.
        topic: usize,
        /// Length of all rules together in bytes.
        rules: usize,
        /// The largest product of both.
        maximum: usize,
    },
    /// There are more rules than can be compared with each subscription.
    #[error("a connection's topics may have {maximum} rules, not {rules}")]
    TooManyRules {
        /// The number of rules that were given.
        rules: usize,
        /// The most rules that a connection's topics may have.
        maximum: usize,
    },
}
