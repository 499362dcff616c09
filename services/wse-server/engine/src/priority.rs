//! How urgent it is what waits for a client. Pure.

/// The five levels of the protocol's `pri`. They matter on a connection whose client doesn't keep up: a higher level
/// overtakes a lower one there, and where there is no room the lowest is given up first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `pri` 1: nobody waits for it.
    Background,
    /// `pri` 3.
    Low,
    /// `pri` 5, and everything that says nothing of it.
    #[default]
    Normal,
    /// `pri` 8.
    High,
    /// `pri` 10: what a client must know even if it gets nothing else.
    Critical,
}

/// One number for each level.
pub(crate) type PerLevel = [u64; Level::ALL.len()];

impl Level {
    /// From the lowest to the highest.
    pub const ALL: [Self; 5] = [Self::Background, Self::Low, Self::Normal, Self::High, Self::Critical];
    /// Their names, in the same order, as metrics have them.
    pub(crate) const LABELS: [&'static str; Self::ALL.len()] = ["background", "low", "normal", "high", "critical"];

    /// The level of a `pri`. The protocol names 1, 3, 5, 8 and 10; what lies between belongs to the one below.
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
    fn the_numbers_of_the_protocol_are_levels_and_those_between_belong_to_the_one_below() {
        assert_eq!([1, 3, 5, 8, 10].map(Level::of), Level::ALL);
        assert_eq!(
            [i64::MIN, 0, 2, 4, 7, 9, i64::MAX].map(|priority| Level::of(priority) as usize),
            [0, 0, 0, 1, 2, 3, 4]
        );
        assert!(Level::Critical > Level::Background);
    }
}
