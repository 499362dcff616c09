//! Checks that a service published as many messages in a window as its schedule requires. Pure.
//!
//! The lateness of a message is part of its latency, which counts from the due time. A publisher that reports 500
//! messages per second and is silent for most of the window isn't late: its messages were never due, and no receiver
//! misses them.

use std::fmt;

use bench_format::result::ReceiverBook;

/// A publisher's schedule, and what its receivers got.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled<'a> {
    /// Messages per second that the plan requires.
    pub rate_per_second: f64,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    /// The books of the receiving connections.
    pub receivers: &'a [&'a ReceiverBook],
    /// Messages due in the window that all receivers got together.
    pub received: u64,
    /// Smallest share of the schedule that must have been due, 0 to 1.
    pub share: f64,
}

/// The error of a window in which more or fewer messages were due than the schedule requires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleDeviation {
    received: u64,
    scheduled: f64,
}

impl fmt::Display for ScheduleDeviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { received, scheduled } = self;
        write!(f, "the service did not publish at its reported rate: {received} messages due in the window arrived, ")?;
        write!(f, "and by its rate {scheduled:.0} were due")
    }
}

impl Scheduled<'_> {
    /// The deviation from the schedule, or `None` if the window matches it. A message that a receiver missed was due. A
    /// receiver that left before the end of the window isn't owed any message. One message at each edge of the window
    /// is tolerated.
    pub fn deviation(&self) -> Option<ScheduleDeviation> {
        let each = self.rate_per_second * self.window_ns as f64 / 1e9;
        let complete = self.receivers.iter().filter(|book| book.closed && book.reached).count() as f64;
        let sum = |of: fn(&ReceiverBook) -> u64| self.receivers.iter().map(|book| of(book)).sum::<u64>() as f64;
        let all = self.receivers.len() as f64;
        let tolerance = each * (1.0 - self.share) + 1.0;
        let minimum = complete * (each - tolerance) - sum(|book| book.missing + book.wrong);
        let maximum = all * (each + tolerance) + sum(|book| book.duplicated);
        let fits = (minimum..=maximum).contains(&(self.received as f64));
        (!fits).then_some(ScheduleDeviation { received: self.received, scheduled: all * each })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> ReceiverBook {
        ReceiverBook { reached: true, closed: true, ..ReceiverBook::default() }
    }

    /// Whether ten receivers deviate that got `received` messages of 200 per second in two seconds.
    fn deviation(first: ReceiverBook, received: u64) -> bool {
        let complete_receiver = complete();
        let receivers: Vec<_> = [&first].into_iter().chain([&complete_receiver; 9]).collect();
        let schedule = Scheduled {
            rate_per_second: 200.0,
            window_ns: 2_000_000_000,
            receivers: &receivers,
            received,
            share: 0.995,
        };
        schedule.deviation().is_some()
    }

    #[test]
    fn a_followed_schedule_has_no_deviation() {
        assert!(!deviation(complete(), 4000));
        assert!(!deviation(complete(), 4000 - 20 - 10), "half a percent, and one at an edge of each");
        assert!(deviation(complete(), 4000 - 20 - 11));
        assert!(!deviation(complete(), 4000 + 20 + 10));
        assert!(deviation(complete(), 4000 + 20 + 11));
    }

    #[test]
    fn a_publisher_that_was_silent_is_not_late() {
        assert!(deviation(complete(), 0));
        assert!(deviation(complete(), 2000));
    }

    #[test]
    fn missing_messages_were_due() {
        assert!(!deviation(ReceiverBook { missing: 70, ..complete() }, 3930));
        assert!(!deviation(ReceiverBook { wrong: 70, ..complete() }, 3930));
        assert!(deviation(ReceiverBook { missing: 10, ..complete() }, 3930));
    }

    #[test]
    fn a_duplicate_was_due_once() {
        assert!(!deviation(ReceiverBook { duplicated: 70, ..complete() }, 4070));
        assert!(deviation(ReceiverBook { duplicated: 10, ..complete() }, 4070));
    }

    #[test]
    fn a_receiver_that_left_early_is_due_fewer_messages() {
        assert!(!deviation(ReceiverBook { closed: false, ..complete() }, 3600));
        assert!(!deviation(ReceiverBook { reached: false, ..complete() }, 3600));
        assert!(deviation(ReceiverBook { reached: false, ..complete() }, 3500), "the nine others are");
    }

    #[test]
    fn it_reports_received_and_due_messages() {
        let description = ScheduleDeviation { received: 8, scheduled: 1600.0 }.to_string();
        assert!(
            description.ends_with("8 messages due in the window arrived, and by its rate 1600 were due"),
            "{description}"
        );
    }
}
