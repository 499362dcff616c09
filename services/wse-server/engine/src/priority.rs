//! The priority levels of messages. No I/O.

/// The five levels of the protocol's `pri`. They matter on a connection whose client reads too slowly: there, messages
/// of a higher level are sent first, and when the queue is full, those of the lowest level are dropped first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `pri` 1 and below 3.
    Background,
    /// `pri` 3 and 4.
    Low,
    /// `pri` 5 to 7, and every message without a `pri`.
    #[default]
    Normal,
    /// `pri` 8 and 9.
    High,
    /// `pri` 10 and above: what a client must get even if it gets nothing else.
    Critical,
}

/// One value per level, in the order of [`Level::ALL`].
pub(crate) type PerLevel = [u64; Level::ALL.len()];

impl Level {
    /// All levels, from the lowest to the highest.
    pub const ALL: [Self; 5] = [Self::Background, Self::Low, Self::Normal, Self::High, Self::Critical];
    /// The labels of the levels in metrics, in the order of [`Level::ALL`].
    pub(crate) const LABELS: [&'static str; Self::ALL.len()] = ["background", "low", "normal", "high", "critical"];

    /// The level of a `pri`. The protocol names 1, 3, 5, 8 and 10; a value between two of them has the lower one's
    /// level.
    pub fn of(priority: i64) -> Self {
        match priority {
            ..=2 => Self::Background,
            3..=4 => Self::Low,
            5..=7 => Self::Normal,
            8..=9 => Self::High,
            10.. => Self::Critical,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_map_to_levels_and_intermediate_numbers_to_the_level_below() {
        assert_eq!([1, 3, 5, 8, 10].map(Level::of), Level::ALL);
        assert_eq!(
            [i64::MIN, 0, 2, 4, 7, 9, i64::MAX].map(|priority| Level::of(priority) as usize),
            [0, 0, 0, 1, 2, 3, 4]
        );
        assert!(Level::Critical > Level::Background);
    }
}
