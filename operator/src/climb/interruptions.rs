//! How long interruptions are waited for, and how often a trial is measured: the only place that decides it. Pure.
//!
//! An interruption says nothing about the service: a lost node, an unreachable registry, an API server that is away. They
//! are often one outage, so the budget is one of time, from its first interruption until a trial has ended. While it
//! lasts, the trial is tried again; afterwards each trial is tried once.

use std::time::Duration;

use tokio::time::Instant;

/// Pause before the first new attempt after an interrupted start. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Number of times that a trial is measured: once, and again after the interruption that cut it off.
const MAX_MEASUREMENTS: u32 = 2;

/// How long a climb tries again after interruptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget(pub Duration);

impl Default for RetryBudget {
    /// Long enough for a node to come back, or for its pods to be given up by the cluster (six minutes by default).
    fn default() -> Self {
        Self(Duration::from_secs(15 * 60))
    }
}

/// Where a trial was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// While its service or workers started.
    Start,
    /// While it was measured.
    Trial,
}

/// What to do after an interruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Try again after this pause.
    After(Duration),
    /// Don't try this trial again; why.
    GiveUp(String),
}

/// The interruptions since a trial has ended.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    /// The first of them; absent where there was none.
    since: Option<Instant>,
    pause: Duration,
    /// Number of times that measuring the current trial was interrupted.
    measured: u32,
    last_reason: String,
}

impl Interruptions {
    /// Records an interruption, and decides what follows.
    pub(super) fn add(&mut self, place: Place, budget: RetryBudget, now: Instant) -> Retry {
        let lasted = now - *self.since.get_or_insert(now);
        if place == Place::Trial {
            self.measured += 1;
            if self.measured >= MAX_MEASUREMENTS {
                return Retry::GiveUp(format!("interrupted {MAX_MEASUREMENTS} times while it was measured"));
            }
        }
        if lasted >= budget.0 {
            return Retry::GiveUp(format!("given up after {} s of interruptions", lasted.as_secs()));
        }
        if place == Place::Trial {
            return Retry::After(Duration::ZERO);
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        Retry::After(self.pause)
    }

    /// Whether a reason is another one than the last time, and therefore worth a message.
    pub(super) fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.last_reason != reason;
        reason.clone_into(&mut self.last_reason);
        is_news
    }

    /// The trial was given up, or could not be measured. An outage may last on.
    pub(super) fn next_trial(&mut self) {
        self.measured = 0;
    }

    /// A trial has a result, so there is no outage any more.
    pub(super) fn over(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: RetryBudget = RetryBudget(Duration::from_secs(60));

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn starts_are_tried_again_ever_more_rarely_until_the_time_is_over() {
        let (mut interruptions, start) = (Interruptions::default(), Instant::now());
        let mut at = |after: u64| interruptions.add(Place::Start, BUDGET, start + seconds(after));
        let pauses: Vec<Retry> = (0..7).map(&mut at).collect();
        let expected = [500, 1000, 2000, 4000, 8000, 15_000, 15_000].map(|ms| Retry::After(Duration::from_millis(ms)));
        assert_eq!(pauses, expected);
        assert_eq!(at(59), Retry::After(LONGEST_PAUSE));
        assert_eq!(at(61), Retry::GiveUp("given up after 61 s of interruptions".into()));
    }

    #[test]
    fn a_trial_is_measured_at_most_twice() {
        let (mut interruptions, now) = (Interruptions::default(), Instant::now());
        assert_eq!(interruptions.add(Place::Trial, BUDGET, now), Retry::After(Duration::ZERO));
        assert!(matches!(interruptions.add(Place::Start, BUDGET, now), Retry::After(_)));
        let end = Retry::GiveUp("interrupted 2 times while it was measured".into());
        assert_eq!(interruptions.add(Place::Trial, BUDGET, now), end);
        interruptions.next_trial();
        assert_eq!(interruptions.add(Place::Trial, BUDGET, now), Retry::After(Duration::ZERO));
    }

    #[test]
    fn an_outage_costs_its_budget_once_and_ends_with_a_result() {
        let (mut interruptions, start) = (Interruptions::default(), Instant::now());
        let given_up = |retry| matches!(retry, Retry::GiveUp(_));
        interruptions.add(Place::Start, BUDGET, start);
        assert!(given_up(interruptions.add(Place::Start, BUDGET, start + seconds(60))));
        interruptions.next_trial();
        assert!(given_up(interruptions.add(Place::Start, BUDGET, start + seconds(90))), "the next trial waits no more");
        interruptions.over();
        assert!(!given_up(interruptions.add(Place::Start, BUDGET, start + seconds(100))));
    }

    #[test]
    fn a_reason_that_repeats_is_no_news() {
        let mut interruptions = Interruptions::default();
        assert_eq!(["a", "a", "b", "a"].map(|reason| interruptions.is_news(reason)), [true, false, true, true]);
    }
}
