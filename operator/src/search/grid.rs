//! The loads that a search may measure: whole numbers, each one width above the last.
//!
//! Inside the search, a load is a place on this grid and a width is a number of places. Halving and doubling are
//! therefore exact, and an interval of one place is as narrow as the narrowest goal needs.

use super::Goal;

/// Loads in rising order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid(Vec<u32>);

impl Grid {
    /// The loads from the smallest to the largest. Adjacent loads differ by at most `width`, as a share of the larger,
    /// or by 1.
    pub fn new(from: u32, to: u32, width: f64) -> Self {
        let mut loads = vec![from];
        let mut last = from;
        while last < to {
            last = ((f64::from(last) / (1.0 - width)) as u32).max(last + 1).min(to);
            loads.push(last);
        }
        Self(loads)
    }

    /// The load at a place.
    pub fn load(&self, place: usize) -> u32 {
        self.0[place]
    }

    /// The place of the largest load.
    pub fn last(&self) -> usize {
        self.0.len() - 1
    }

    /// The place of the largest load that is not above `load`; the first place when all are.
    pub fn place(&self, load: f64) -> usize {
        self.0.partition_point(|known| f64::from(*known) <= load).saturating_sub(1)
    }
}

/// The width of a goal in places, on a grid whose adjacent loads are `unit` apart.
pub(super) fn places(goal: &Goal, unit: f64) -> usize {
    // The ratio of equal widths may be slightly below 1 because of rounding.
    let places = (-goal.width).ln_1p() / (-unit).ln_1p() * (1.0 + 1e-9);
    (places as usize).max(1)
}

/// Where to split an interval that is wider than `width`: in the middle if two parts are enough; otherwise so that one
/// part is `width` times a power of two, which can be halved down to `width` without a remainder.
pub(super) fn split(lower: usize, upper: usize, width: usize) -> usize {
    let span = upper - lower;
    let mut part = width;
    while span < 2 * part {
        if part % 2 == 1 {
            return lower + span / 2;
        }
        part /= 2;
    }
    while span > 4 * part {
        part *= 2;
    }
    // Of the two possible cuts, the one whose parts are more even.
    lower + if 3 * part > span { part } else { span - 2 * part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_loads_differ_by_a_width_or_by_one() {
        let grid = Grid::new(10, 5000, 0.02);
        for pair in grid.0.windows(2) {
            let (low, high) = (pair[0], pair[1]);
            assert!(low < high && (high - low == 1 || f64::from(high - low) / f64::from(high) <= 0.02), "{pair:?}");
        }
        assert_eq!((grid.load(0), grid.load(grid.last())), (10, 5000));
        assert!(grid.last() < 330, "{}", grid.last());
    }

    #[test]
    fn a_load_between_two_places_is_rounded_down() {
        let grid = Grid::new(100, 110, 0.02);
        assert_eq!(grid.0, [100, 102, 104, 106, 108, 110]);
        assert_eq!([0.0, 100.0, 103.9, 104.0, 1e9].map(|load| grid.place(load)), [0, 0, 1, 2, 5]);
    }

    #[test]
    fn a_split_leaves_a_part_that_can_be_halved_to_the_width() {
        assert_eq!(split(0, 2, 1), 1);
        assert_eq!(split(0, 3, 1), 1);
        assert_eq!(split(10, 110, 1), 10 + 100 - 64, "64 can be halved six times");
        assert_eq!(split(0, 13, 1), 5, "5 and 8 rather than 4 and 9");
        assert_eq!(split(0, 90, 1), 32, "32 and 58 rather than 26 and 64");
        assert_eq!(split(0, 3, 2), 1, "less than twice the width");
    }
}
