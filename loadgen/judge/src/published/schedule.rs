//! Whether what a service published in a window is what its schedule says. Pure.
//!
//! How late it was is in the latency, which counts from when a message was due. A publisher that says "500 per second" and
//! has nothing to say for most of the window is not late: its messages were never due, and nobody misses them.

use std::fmt;

use bench_format::result::ReceiverBook;

/// A schedule, and what was seen of it.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled<'a> {
    /// Messages per second that the service publishes, by the plan.
    pub rate_per_second: f64,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    /// The receivers.
    pub receivers: &'a [&'a ReceiverBook],
    /// Messages due in the window that they got, all together.
    pub received: u64,
    /// Share of the schedule that must have been there.
    pub share: f64,
}

/// A window in which not as much was due as the schedule says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffSchedule {
    received: u64,
    scheduled: f64,
}

impl fmt::Display for OffSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { received, scheduled } = self;
        write!(
            f,
            "the service published another schedule than it tells: {received} messages due in the window came, "
        )?;
        write!(f, "and by its rate {scheduled:.0} were due")
    }
}

impl Scheduled<'_> {
    /// What is wrong with the window, if something is. What a receiver missed was due, and who was not there until the window's
    /// end is owed nothing; one message at an edge isn't looked at.
    pub fn off(&self) -> Option<OffSchedule> {
        let each = self.rate_per_second * self.window_ns as f64 / 1e9;
        let whole = self.receivers.iter().filter(|book| book.closed && book.reached).count() as f64;
        let sum = |of: fn(&ReceiverBook) -> u64| self.receivers.iter().map(|book| of(book)).sum::<u64>() as f64;
        let all = self.receivers.len() as f64;
        let spare = each * (1.0 - self.share) + 1.0;
        let least = whole * (each - spare) - sum(|book| book.missing + book.wrong);
        let most = all * (each + spare) + sum(|book| book.duplicated);
        let fits = (least..=most).contains(&(self.received as f64));
        (!fits).then_some(OffSchedule { received: self.received, scheduled: all * each })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> ReceiverBook {
        ReceiverBook { reached: true, closed: true, ..ReceiverBook::default() }
    }

    /// Ten receivers, 200 messages per second for two seconds, of which so many came.
    fn off(first: ReceiverBook, received: u64) -> bool {
        let others = whole();
        let receivers: Vec<_> = [&first].into_iter().chain([&others; 9]).collect();
        let schedule = Scheduled {
            rate_per_second: 200.0,
            window_ns: 2_000_000_000,
            receivers: &receivers,
            received,
            share: 0.995,
        };
        schedule.off().is_some()
    }

    #[test]
    fn a_schedule_that_was_kept_is_none_to_speak_of() {
        assert!(!off(whole(), 4000));
        assert!(!off(whole(), 4000 - 20 - 10), "half a percent, and one at an edge of each");
        assert!(off(whole(), 4000 - 20 - 11));
        assert!(!off(whole(), 4000 + 20 + 10));
        assert!(off(whole(), 4000 + 20 + 11));
    }

    #[test]
    fn a_publisher_that_was_silent_is_not_late() {
        assert!(off(whole(), 0));
        assert!(off(whole(), 2000));
    }

    #[test]
    fn what_is_missing_was_due_all_the_same() {
        assert!(!off(ReceiverBook { missing: 70, ..whole() }, 3930));
        assert!(!off(ReceiverBook { wrong: 70, ..whole() }, 3930));
        assert!(off(ReceiverBook { missing: 10, ..whole() }, 3930));
    }

    #[test]
    fn what_came_twice_was_due_once() {
        assert!(!off(ReceiverBook { duplicated: 70, ..whole() }, 4070));
        assert!(off(ReceiverBook { duplicated: 10, ..whole() }, 4070));
    }

    #[test]
    fn a_receiver_that_did_not_stay_is_owed_nothing() {
        assert!(!off(ReceiverBook { closed: false, ..whole() }, 3600));
        assert!(!off(ReceiverBook { reached: false, ..whole() }, 3600));
        assert!(off(ReceiverBook { reached: false, ..whole() }, 3500), "the nine others are");
    }

    #[test]
    fn it_says_what_came_and_what_was_due() {
        let words = OffSchedule { received: 8, scheduled: 1600.0 }.to_string();
        assert!(words.ends_with("8 messages due in the window came, and by its rate 1600 were due"), "{words}");
    }
}
