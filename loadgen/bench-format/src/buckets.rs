//! Coarse buckets of latencies, for a display while a trial runs: four to each doubling, so that a bucket is at most a
//! quarter wide. Results have exact histograms instead ([`crate::histogram`]).

/// Number of buckets. The first has everything below 1024 ns, the last everything from 120 s on.
pub const BUCKETS: usize = 4 * DOUBLINGS + 1;
/// Number of doublings that have buckets of their own.
const DOUBLINGS: usize = 27;
/// Exponent of the first doubling.
const FIRST: u32 = 10;

/// The bucket of a value in nanoseconds, from 0 to [`BUCKETS`] - 1.
#[inline]
pub fn index(value_ns: u64) -> usize {
    if value_ns < 1 << FIRST {
        return 0;
    }
    let exponent = 63 - value_ns.leading_zeros();
    let quarter = (value_ns >> (exponent - 2)) & 3;
    (4 * (exponent - FIRST) as usize + quarter as usize + 1).min(BUCKETS - 1)
}

/// The least value of a bucket, in nanoseconds; of bucket [`BUCKETS`], the end of the last one.
pub fn least_ns(index: usize) -> u64 {
    match index.min(BUCKETS).checked_sub(1) {
        None => 0,
        Some(from_first) => (4 + (from_first % 4) as u64) << (FIRST as usize - 2 + from_first / 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for at in 0..BUCKETS {
            assert_eq!((index(least_ns(at)), index(least_ns(at + 1) - 1)), (at, at));
        }
        assert_eq!((index(0), index(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn a_bucket_is_at_most_a_quarter_wide() {
        for at in 1..BUCKETS {
            assert!(4 * (least_ns(at + 1) - least_ns(at)) <= least_ns(at), "{at}");
        }
    }
}
