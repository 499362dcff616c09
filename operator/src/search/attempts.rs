//! Counts the invalid attempts at a trial and says when it is not made again. Pure.

use super::Fault;

/// Number of attempts at a trial: after so many invalid ones in a row, it is not made again. Those that the machine
/// disturbed don't count.
pub(super) const ATTEMPTS: usize = 3;
/// The same with those that the machine disturbed, which says nothing about the service or the load.
pub(super) const ATTEMPTS_ON_A_BUSY_MACHINE: usize = 10;

/// The invalid attempts at a trial up to now, by their cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    generator: usize,
    machine: usize,
    other: usize,
}

impl Attempts {
    /// Counts an attempt. Returns the cause when the trial is not made again: that of most attempts, since any single
    /// one may be invalid for another.
    pub(super) fn add(&mut self, fault: Fault) -> Option<Fault> {
        match fault {
            Fault::Generator => self.generator += 1,
            Fault::Machine => self.machine += 1,
            Fault::Other => self.other += 1,
        }
        let counted = self.generator + self.other;
        if counted < ATTEMPTS && counted + self.machine < ATTEMPTS_ON_A_BUSY_MACHINE {
            None
        } else if counted < ATTEMPTS {
            Some(Fault::Machine)
        } else if 2 * self.generator > ATTEMPTS {
            Some(Fault::Generator)
        } else {
            Some(Fault::Other)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Fault::{Generator, Machine, Other};

    /// The cause after which a trial is not made again, and the number of attempts.
    fn end(faults: impl IntoIterator<Item = Fault>) -> Option<(Fault, usize)> {
        let mut attempts = Attempts::default();
        faults.into_iter().zip(1..).find_map(|(fault, number)| Some((attempts.add(fault)?, number)))
    }

    #[test]
    fn three_attempts_end_with_the_cause_of_most() {
        assert_eq!(end([Other, Other]), None);
        assert_eq!(end([Other; 5]), Some((Other, 3)));
        assert_eq!(end([Generator, Other, Generator]), Some((Generator, 3)));
        assert_eq!(end([Generator, Other, Other]), Some((Other, 3)));
    }

    #[test]
    fn a_trial_that_the_machine_disturbs_is_made_again_up_to_ten_times() {
        assert_eq!(end([Machine; 9]), None);
        assert_eq!(end([Machine; 20]), Some((Machine, 10)));
        assert_eq!(end([Machine, Generator, Machine, Generator, Machine, Machine, Generator]), Some((Generator, 7)));
        assert_eq!(end([Generator, Generator].into_iter().chain([Machine; 20])), Some((Machine, 10)));
    }
}
