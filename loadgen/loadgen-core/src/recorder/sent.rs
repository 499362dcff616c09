//! How many messages one thread sent in each interval of the window, from a counter that is read now and then.

use std::collections::BTreeMap;

use super::INTERVAL_NS;

/// Divides a rising count among the intervals of a window.
///
/// The count is looked at between writes, so what one look finds belongs to the interval in which the last look was.
#[derive(Debug)]
pub(super) struct SentIntervals {
    window_start_ns: u64,
    window_end_ns: u64,
    /// Start of the current interval.
    from_ns: u64,
    /// From when the next look counts: the end of the current interval, or the window's start before it.
    until_ns: u64,
    /// The count when the current interval began; `None` before the window.
    count_at_start: Option<u64>,
    /// Messages by the start of their interval, in nanoseconds from the start of the window.
    sent: BTreeMap<u64, u64>,
}

impl SentIntervals {
    pub(super) fn new(window_start_ns: u64, window_end_ns: u64) -> Self {
        Self {
            window_start_ns,
            window_end_ns,
            from_ns: window_start_ns,
            until_ns: window_start_ns,
            count_at_start: None,
            sent: BTreeMap::new(),
        }
    }

    /// Takes the number of messages sent until `now_ns`.
    #[inline]
    pub(super) fn look(&mut self, count: u64, now_ns: u64) {
        if now_ns >= self.until_ns {
            self.close_interval(count, now_ns);
        }
    }

    #[cold]
    fn close_interval(&mut self, count: u64, now_ns: u64) {
        if let Some(before) = self.count_at_start.replace(count).filter(|before| count > *before) {
            *self.sent.entry(self.from_ns - self.window_start_ns).or_default() += count - before;
        }
        let since_start_ns = now_ns - self.window_start_ns;
        self.from_ns = self.window_start_ns + since_start_ns / INTERVAL_NS * INTERVAL_NS;
        let end_ns = (self.from_ns + INTERVAL_NS).min(self.window_end_ns);
        self.until_ns = if now_ns >= self.window_end_ns { u64::MAX } else { end_ns };
    }

    /// Sets an earlier end of the window, unless it is over.
    pub(super) fn end_window(&mut self, window_end_ns: u64) {
        self.window_end_ns = window_end_ns;
        if self.until_ns != u64::MAX {
            self.until_ns = self.until_ns.min(window_end_ns);
        }
    }

    /// The messages by the start of their interval, in nanoseconds from the start of the window.
    pub(super) fn finish(self) -> BTreeMap<u64, u64> {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = INTERVAL_NS;

    /// The intervals of a window from second 10 to second 13, after looks of `(count, tenths of a second)`.
    fn intervals(looks: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut sent = SentIntervals::new(10 * SECOND, 13 * SECOND);
        looks.iter().for_each(|(count, tenths)| sent.look(*count, tenths * SECOND / 10));
        sent.finish().into_iter().map(|(start_ns, count)| (start_ns / SECOND, count)).collect()
    }

    #[test]
    fn what_is_sent_before_and_after_the_window_is_in_no_interval() {
        let looks = [(5, 99), (7, 100), (8, 105), (17, 110), (37, 120), (67, 130), (99, 131), (200, 150)];
        assert_eq!(intervals(&looks), [(0, 10), (1, 20), (2, 30)]);
    }

    #[test]
    fn a_second_without_a_look_sent_nothing() {
        assert_eq!(intervals(&[(0, 100), (10, 122), (15, 130)]), [(0, 10), (2, 5)]);
    }

    #[test]
    fn an_earlier_end_of_the_window_closes_its_last_interval() {
        let mut sent = SentIntervals::new(0, 9 * SECOND);
        sent.look(0, 0);
        sent.end_window(SECOND / 2);
        sent.look(4, SECOND / 2);
        sent.end_window(SECOND / 2);
        sent.look(9, SECOND);
        assert_eq!(sent.finish(), BTreeMap::from([(0, 4)]));
    }
}
