//! Keeps a nominated load at a distance from the known bounds. A trial closer to a bound than the width would give
//! little information.

use super::{grid::split, record::Bounds};

/// The first and the last place that may be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Place of the smallest load.
    pub(super) first: usize,
    /// Place of the largest load.
    pub(super) last: usize,
}

impl Limits {
    /// The place to measure instead of `requested`. It is at least `width` from both bounds, and on a limit where it would
    /// be closer than `width` to that limit. `None` where the bounds leave no room.
    pub(super) fn adjusted(&self, requested: usize, width: usize, bounds: Bounds) -> Option<usize> {
        if bounds.upper.is_some_and(|upper| upper <= self.first || requested >= upper) {
            return None;
        }
        if bounds.lower.is_some_and(|lower| lower >= self.last || requested <= lower) {
            return None;
        }
        let (low, high) = (bounds.lower.unwrap_or(self.first), bounds.upper.unwrap_or(self.last));
        // A limit may be measured itself; a bound has already been measured.
        let (low_free, high_free) = (bounds.lower.is_none(), bounds.upper.is_none());
        let requested = requested.clamp(low, high);
        if width >= high - low {
            return low_free.then_some(low).or(high_free.then_some(high));
        }
        let (mut soft_low, mut soft_high) = (low + width, high - width);
        if soft_low > soft_high {
            (soft_low, soft_high) = (split(low, high, width), split(low, high, width));
        }
        Some(match requested {
            requested if requested < soft_low => {
                if low_free {
                    low
                } else {
                    soft_low
                }
            }
            requested if requested > soft_high => {
                if high_free {
                    high
                } else {
                    soft_high
                }
            }
            requested => requested,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(requested: usize, lower: impl Into<Option<usize>>, upper: impl Into<Option<usize>>) -> Option<usize> {
        let bounds = Bounds { lower: lower.into(), upper: upper.into() };
        Limits { first: 0, last: 100 }.adjusted(requested, 4, bounds)
    }

    #[test]
    fn a_load_near_a_limit_becomes_the_limit_and_one_near_a_bound_keeps_a_width_away() {
        assert_eq!(
            [adjusted(2, None, None), adjusted(50, None, None), adjusted(98, None, None)],
            [Some(0), Some(50), Some(100)]
        );
        assert_eq!([adjusted(21, 20, None), adjusted(97, 20, None)], [Some(24), Some(100)]);
        assert_eq!([adjusted(2, None, 20), adjusted(19, None, 20)], [Some(0), Some(16)]);
        assert_eq!([adjusted(21, 20, 40), adjusted(39, 20, 40), adjusted(30, 20, 40)], [Some(24), Some(36), Some(30)]);
    }

    #[test]
    fn no_load_is_measured_between_narrow_bounds() {
        assert_eq!(adjusted(22, 20, 24), None);
        assert_eq!(adjusted(22, 20, 25), Some(22), "five places hold one split");
        assert_eq!(
            [adjusted(20, 20, 40), adjusted(40, 20, 40), adjusted(0, None, 0), adjusted(101, 100, None)],
            [None; 4]
        );
    }
}
