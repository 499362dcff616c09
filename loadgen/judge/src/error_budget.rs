//! What counted errors show about a bound on their share. Pure.
//!
//! No error among 45 000 replies doesn't show a share of 1e-5: one of 6.7e-5 leaves no error behind in one trial of
//! twenty. So a budget is met when the exact upper bound of the share is within it, missed when the lower one is above
//! it (one-sided, 95 %; Clopper & Pearson, Biometrika 1934), and otherwise not shown.
//!
//! Errors of one connection come together. Where a connection has more than one, the bound is that of as many
//! independent events as connections with errors, each as large as the largest of them (Korn & Graubard, 1998, for the
//! effective sample size).

use bench_format::result::{ErrorBudget, Shown, WindowCounts};
use statrs::function::{beta::beta_reg, gamma::gamma_lr};

/// Confidence of each one-sided bound.
const CONFIDENCE: f64 = 0.95;
/// Steps that halve the interval of a bound: enough for all digits of a double.
const HALVINGS: u32 = 80;
/// No budget is planned for more replies than this; a larger need is reported as this.
const MOST_MESSAGES: u64 = 1 << 52;

/// Errors among replies, over one trial or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Failures in the window.
    pub failures: u64,
    /// Replies in the window.
    pub messages: u64,
    /// Connections with a failure; `None` if failures aren't counted by connection.
    pub failing_connections: Option<u64>,
    /// Largest number of failures of one connection; `None` if failures aren't counted by connection.
    pub most_failures: Option<u64>,
}

impl ErrorCounts {
    /// The counts of a window with `failures`.
    pub fn of(window: &WindowCounts, failures: u64) -> Self {
        let WindowCounts { replies, failing_connections, most_failures, .. } = *window;
        Self { failures, messages: replies, failing_connections, most_failures }
    }

    /// Adds the counts of another trial. A connection of one trial is another one than that of the next.
    pub fn add(&mut self, other: &Self) {
        self.failures += other.failures;
        self.messages += other.messages;
        self.failing_connections = self.failing_connections.zip(other.failing_connections).map(|(a, b)| a + b);
        self.most_failures = self.most_failures.zip(other.most_failures).map(|(a, b)| a.max(b));
    }

    /// What these counts show about a share of at most `budget`, which is above 0 and below 1. `None` without replies.
    pub fn shows(&self, budget: f64) -> Option<ErrorBudget> {
        if self.messages == 0 {
            return None;
        }
        let upper_bound = self.upper_bound();
        let shown = if upper_bound <= budget {
            Shown::Met
        } else if self.lower_bound_exceeds(budget) {
            Shown::Missed
        } else {
            Shown::NotShown
        };
        Some(ErrorBudget {
            failures: self.failures,
            messages: self.messages,
            failing_connections: self.failing_connections,
            most_failures: self.most_failures,
            upper_bound,
            shown,
            messages_needed: (shown == Shown::NotShown).then(|| self.messages_needed(budget)),
        })
    }

    /// The share is at most this, 0 to 1.
    pub fn upper_bound(&self) -> f64 {
        match self.clusters() {
            Some((connections, most)) => {
                let mean = halve(0.0, 10.0 * (connections as f64 + 10.0), |mean| {
                    gamma_lr(connections as f64 + 1.0, mean) >= CONFIDENCE
                });
                (mean * most as f64 / self.messages as f64).min(1.0)
            }
            None => halve(0.0, 1.0, |share| is_within(share, self.failures, self.messages)),
        }
    }

    /// Number of replies, of which as many fail as did here, that show a share of at most `budget`.
    pub fn messages_needed(&self, budget: f64) -> u64 {
        let shows = |messages: u64| Self { messages, ..*self }.upper_bound() <= budget;
        let mut enough = self.failures.max(1);
        while !shows(enough) && enough < MOST_MESSAGES {
            enough *= 2;
        }
        let mut too_few = enough / 2;
        while enough - too_few > 1 {
            let between = too_few + (enough - too_few) / 2;
            if shows(between) { enough = between } else { too_few = between }
        }
        enough
    }

    /// Whether the exact lower bound of the share is above `budget`: fewer failures would come with 95 % if the share
    /// were within it.
    fn lower_bound_exceeds(&self, budget: f64) -> bool {
        let (events, chances) = match self.clusters() {
            Some((connections, most)) => (connections, self.messages / most),
            None => (self.failures, self.messages),
        };
        if events == 0 {
            return false;
        }
        let others = chances.saturating_sub(events) as f64 + 1.0;
        // P(at least as many events) at a share of `budget`.
        beta_reg(events as f64, others, budget) < 1.0 - CONFIDENCE
    }

    /// Connections with errors and the most errors of one, if errors came together.
    fn clusters(&self) -> Option<(u64, u64)> {
        self.failing_connections.zip(self.most_failures).filter(|(_, most)| *most > 1)
    }
}

impl From<&ErrorBudget> for ErrorCounts {
    fn from(budget: &ErrorBudget) -> Self {
        let ErrorBudget { failures, messages, failing_connections, most_failures, .. } = *budget;
        Self { failures, messages, failing_connections, most_failures }
    }
}

/// Whether as few failures among `messages` come with at most 5 % if the share is `share`.
fn is_within(share: f64, failures: u64, messages: u64) -> bool {
    match messages.checked_sub(failures) {
        None | Some(0) => share >= 1.0,
        Some(others) => beta_reg(failures as f64 + 1.0, others as f64, share) >= CONFIDENCE,
    }
}

/// The smallest value between `low` and `high` at which `holds`, which is false below it and true above it.
fn halve(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let between = f64::midpoint(low, high);
        if holds(between) { high = between } else { low = between }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(failures: u64, messages: u64) -> ErrorCounts {
        ErrorCounts { failures, messages, failing_connections: Some(failures), most_failures: Some(failures.min(1)) }
    }

    fn shown(counts: ErrorCounts, budget: f64) -> Shown {
        counts.shows(budget).unwrap().shown
    }

    /// As scipy gives them: `beta.ppf(0.95, k + 1, N - k)`.
    #[test]
    fn upper_bounds_are_those_of_clopper_and_pearson() {
        for (failures, messages, bound) in
            [(0, 45_000, 6.656_961_245e-5), (1, 45_000, 1.054_148_263e-4), (3, 100, 7.571_079_38e-2), (5, 5, 1.0)]
        {
            let found = counts(failures, messages).upper_bound();
            assert!((found / bound - 1.0).abs() < 1e-6, "{failures} of {messages}: {found} against {bound}");
        }
    }

    #[test]
    fn a_share_of_1e_5_needs_as_many_messages_as_the_exact_bound_says() {
        let needed = [0, 1, 2, 3, 4, 5].map(|failures| counts(failures, 1).messages_needed(1e-5));
        assert_eq!(needed, [299_572, 474_385, 629_578, 775_364, 915_350, 1_051_301]);
    }

    #[test]
    fn few_messages_without_an_error_show_nothing() {
        let few = counts(0, 45_000).shows(1e-5).unwrap();
        assert_eq!((few.shown, few.messages_needed), (Shown::NotShown, Some(299_572)));
        assert_eq!(shown(counts(0, 300_000), 1e-5), Shown::Met);
        assert_eq!(shown(counts(1, 300_000), 1e-5), Shown::NotShown);
        assert_eq!(shown(counts(20, 300_000), 1e-5), Shown::Missed);
        assert_eq!(counts(0, 0).shows(1e-5), None);
    }

    #[test]
    fn one_error_among_few_messages_is_no_proof_of_a_miss() {
        assert_eq!(shown(counts(1, 10_000), 1e-5), Shown::NotShown, "such a trial comes with 10 % at a share of 1e-5");
        assert_eq!(shown(counts(1, 4_000), 1e-5), Shown::Missed, "and such a one with 4 %");
    }

    #[test]
    fn errors_that_come_together_count_by_connection() {
        let together =
            ErrorCounts { failures: 50, messages: 1_000_000, failing_connections: Some(1), most_failures: Some(50) };
        // gamma.ppf(0.95, 2) = 4.7439 events of 50 errors.
        assert!((together.upper_bound() - 4.743_865e-6 * 50.0).abs() < 1e-9, "{}", together.upper_bound());
        assert_eq!(shown(together, 3e-5), Shown::NotShown, "one connection failed; singly they would show a miss");
        let singly = ErrorCounts { failing_connections: Some(50), most_failures: Some(1), ..together };
        assert_eq!(shown(singly, 3e-5), Shown::Missed);
    }

    #[test]
    fn the_needed_messages_are_the_least_that_show_the_objective_met() {
        for (failures, budget) in [(0, 1e-3), (7, 1e-4), (2, 0.5)] {
            let needed = counts(failures, 1).messages_needed(budget);
            assert_eq!(shown(counts(failures, needed), budget), Shown::Met);
            assert_ne!(shown(counts(failures, needed - 1), budget), Shown::Met);
        }
    }
}
