//! A timer wheel: which connections are due in which millisecond. It does no I/O and reads no clock.

use std::time::{Duration, Instant};

/// Number of slots, one per millisecond; a power of two that exceeds the longest delay of an entry.
const SLOTS: u64 = 2048;
const WORDS: usize = SLOTS as usize / 64;

/// Entries by the millisecond in which they are due. The cost of an insertion and of a removal doesn't depend on their
/// number.
#[derive(Debug)]
pub struct Wheel {
    origin: Instant,
    slots: Vec<Vec<u64>>,
    /// Bit set of the slots that are not empty.
    occupied: [u64; WORDS],
    /// The first millisecond whose slot has not been taken.
    next: u64,
}

impl Wheel {
    /// Creates an empty wheel that counts milliseconds from `origin`.
    pub fn new(origin: Instant) -> Self {
        Self { origin, slots: (0..SLOTS).map(|_| Vec::new()).collect(), occupied: [0; WORDS], next: 0 }
    }

    /// Inserts `key` for the time `due`. It is taken then or up to a millisecond later. An entry beyond the wheel's range
    /// is taken earlier: the range begins where entries were last taken, which may be long ago. Returns when it is due,
    /// `due` or earlier.
    pub fn insert(&mut self, key: u64, due: Instant) -> Instant {
        let since = due.saturating_duration_since(self.origin);
        let millisecond = u64::try_from(since.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let last = self.next + SLOTS - 1;
        let slot = (millisecond.clamp(self.next, last) % SLOTS) as usize;
        self.slots[slot].push(key);
        self.occupied[slot / 64] |= 1 << (slot % 64);
        due.min(self.origin + Duration::from_millis(last))
    }

    /// Moves the entries that are due to the end of `taken`, in the order of their slots.
    pub fn take_due(&mut self, now: Instant, taken: &mut impl Extend<u64>) {
        let end = (now.saturating_duration_since(self.origin).as_millis() as u64).saturating_add(1);
        while let Some(millisecond) = self.first_occupied().filter(|first| *first < end) {
            let slot = (millisecond % SLOTS) as usize;
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            taken.extend(self.slots[slot].drain(..));
            self.next = millisecond + 1;
        }
        self.next = self.next.max(end);
    }

    /// When the first entry is due; `None` if the wheel is empty.
    pub fn next_due(&self) -> Option<Instant> {
        self.first_occupied().map(|millisecond| self.origin + Duration::from_millis(millisecond))
    }

    fn first_occupied(&self) -> Option<u64> {
        let first = (self.next % SLOTS) as usize;
        let distance = (0..=WORDS).find_map(|step| {
            let word = (first / 64 + step) % WORDS;
            // The first word is checked twice: first its bits from `first` on, and at the end those before it.
            let mask = match step {
                0 => !0 << (first % 64),
                WORDS => !(!0 << (first % 64)),
                _ => !0,
            };
            let bits = self.occupied[word] & mask;
            (bits != 0).then(|| (word * 64 + bits.trailing_zeros() as usize + SLOTS as usize - first) % SLOTS as usize)
        })?;
        Some(self.next + distance as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(wheel: &mut Wheel, now: Instant) -> Vec<u64> {
        let mut taken = Vec::new();
        wheel.take_due(now, &mut taken);
        taken
    }

    #[test]
    fn an_entry_comes_once_and_never_early() {
        let origin = Instant::now();
        let mut wheel = Wheel::new(origin);
        wheel.insert(7, origin + Duration::from_micros(2500));
        assert_eq!(wheel.next_due(), Some(origin + Duration::from_millis(3)));
        assert!(taken(&mut wheel, origin + Duration::from_micros(2999)).is_empty());
        assert_eq!(taken(&mut wheel, origin + Duration::from_millis(3)), [7]);
        assert_eq!((wheel.next_due(), taken(&mut wheel, origin + Duration::from_secs(60))), (None, vec![]));
    }

    #[test]
    fn an_entry_beyond_the_wheel_is_due_earlier_and_its_time_is_returned() {
        let origin = Instant::now();
        let mut wheel = Wheel::new(origin);
        let end_of_range = origin + Duration::from_millis(SLOTS - 1);
        assert_eq!(wheel.insert(1, origin + Duration::from_secs(3600)), end_of_range);
        assert_eq!(wheel.next_due(), Some(end_of_range));
        let within = origin + Duration::from_micros(2500);
        assert_eq!(wheel.insert(2, within), within);
        assert_eq!(wheel.insert(3, origin), origin);
    }

    proptest! {
        #[test]
        fn all_entries_come_in_order_at_the_first_look_after_they_are_due(
            steps in proptest::collection::vec((0_u64..2_000_000, 0_u64..3_000_000), 1..200),
        ) {
            let origin = Instant::now();
            let mut wheel = Wheel::new(origin);
            let (mut now, mut expected) = (origin, Vec::new());
            for (key, (ahead_us, wait_us)) in steps.into_iter().enumerate() {
                let due = now + Duration::from_micros(ahead_us);
                prop_assert_eq!(wheel.insert(key as u64, due), due);
                expected.push((due, key as u64));
                now += Duration::from_micros(wait_us);
                let fired = taken(&mut wheel, now);
                // The wheel's resolution is a millisecond: an entry that became due within the last one may still be in
                // it.
                for (due, key) in &expected {
                    prop_assert!(!fired.contains(key) || *due <= now);
                    prop_assert!(fired.contains(key) || *due + Duration::from_millis(1) > now);
                }
                let due_of = |key: &u64| expected.iter().find(|(_, inserted)| inserted == key).unwrap().0;
                let times: Vec<u128> = fired.iter().map(|key| (due_of(key) - origin).as_nanos().div_ceil(1_000_000)).collect();
                prop_assert!(times.is_sorted());
                expected.retain(|(_, key)| !fired.contains(key));
                prop_assert_eq!(wheel.next_due().is_none(), expected.is_empty());
            }
        }
    }
}
