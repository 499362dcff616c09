//! Which frames of a session have been answered: each exactly once, in order. Pure.

/// What an answer to the frames `oldest..=newest` means for the frames of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Frames before it that become lost, because answers come in order.
    pub gap: u64,
    /// Frames of it that had been answered or lost before.
    pub again: u64,
    /// Frames of it that were never sent.
    pub beyond: u64,
    /// Frames of it that are answered for the first time.
    pub newly_covered: u64,
}

impl Covered {
    /// The key of the failure; `None` when the answer follows the one before it.
    pub fn failure(&self) -> Option<&'static str> {
        match self {
            Self { beyond: 1.., .. } => Some("coverage/beyond"),
            Self { again: 1.., .. } => Some("coverage/overlap"),
            Self { gap: 1.., .. } => Some("coverage/gap"),
            _ => None,
        }
    }
}

/// How far a session's frames have been answered. Frames count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Every frame up to this one is answered or lost.
    pub to: u64,
}

impl Coverage {
    /// Marks the frames `oldest..=newest` as answered, when frames up to `sent` exist. `oldest` is at least 1.
    pub fn take(&mut self, oldest: u64, newest: u64, sent: u64) -> Covered {
        let beyond = newest.saturating_sub(sent.max(oldest - 1));
        let newest = newest - beyond;
        let again = self.to.min(newest).saturating_sub(oldest - 1);
        let gap = (oldest - 1).min(sent).saturating_sub(self.to);
        let newly_covered = newest.saturating_sub(self.to.max(oldest - 1));
        self.to = self.to.max(newest.min(sent)).max(self.to + gap);
        Covered { gap, again, beyond, newly_covered }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(to: u64, oldest: u64, newest: u64, sent: u64) -> (Covered, u64) {
        let mut coverage = Coverage { to };
        let covered = coverage.take(oldest, newest, sent);
        (covered, coverage.to)
    }

    #[test]
    fn an_answer_that_follows_covers_its_frames() {
        assert_eq!(take(50, 51, 100, 120), (Covered { newly_covered: 50, ..Default::default() }, 100));
    }

    #[test]
    fn a_gap_is_lost_once() {
        assert_eq!(take(50, 53, 100, 120), (Covered { gap: 2, newly_covered: 48, ..Default::default() }, 100));
        assert_eq!(take(100, 51, 52, 120), (Covered { again: 2, ..Default::default() }, 100));
    }

    #[test]
    fn a_repeated_batch_covers_nothing() {
        let (covered, to) = take(50, 1, 50, 60);
        assert_eq!((covered, to), (Covered { again: 50, ..Default::default() }, 50));
        assert_eq!(covered.failure(), Some("coverage/overlap"));
    }

    #[test]
    fn frames_that_were_never_sent_cover_nothing() {
        assert_eq!(take(50, 51, 70, 60), (Covered { beyond: 10, newly_covered: 10, ..Default::default() }, 60));
        assert_eq!(take(50, 80, 90, 60), (Covered { gap: 10, beyond: 11, ..Default::default() }, 60));
    }

    proptest! {
        /// Compares with a model that marks each frame separately.
        #[test]
        fn counts_are_those_of_frames_counted_one_by_one(sent in 0..60_u64, partials in prop::collection::vec((1..80_u64, 0..40_u64), 0..12)) {
            let mut coverage = Coverage::default();
            let mut settled = [false; 61];
            let mut totals = Covered::default();
            for (oldest, more) in partials {
                let newest = oldest + more;
                let covered = coverage.take(oldest, newest, sent);
                let mut plain = Covered::default();
                for seq in 1..oldest.min(sent + 1) {
                    plain.gap += u64::from(!std::mem::replace(&mut settled[seq as usize], true));
                }
                for seq in oldest..=newest {
                    if seq > sent {
                        plain.beyond += 1;
                    } else if std::mem::replace(&mut settled[seq as usize], true) {
                        plain.again += 1;
                    } else {
                        plain.newly_covered += 1;
                    }
                }
                prop_assert_eq!(covered, plain);
                totals.newly_covered += covered.newly_covered;
                totals.gap += covered.gap;
            }
            prop_assert_eq!(totals.newly_covered + totals.gap, coverage.to);
        }
    }
}
