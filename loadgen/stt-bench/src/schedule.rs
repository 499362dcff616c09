//! When each session starts, and where within 20 ms its frames fall. Pure.
//!
//! Sessions start one after another over the ramp. Within the 20 ms between two frames they are spread evenly, with or
//! without a ramp: a generator that sends in bursts measures its own queue.

use loadgen_core::schedule::splitmix64;

use crate::audio::FRAME_NS;

/// 2^64 divided by the golden ratio: its multiples modulo 2^64 are spread evenly for any number of them.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What determines when the sessions of one thread start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Index of the thread's first session among those of all workers.
    pub(crate) first: u64,
    /// Number of sessions of all workers.
    pub(crate) of: u64,
    /// Duration of ramp and spread together, in nanoseconds.
    pub(crate) ramp_ns: u64,
    /// Seed of the trial.
    pub(crate) seed: u64,
}

/// When a session starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionStart {
    /// Index of the session among those of all workers.
    pub(crate) index: u64,
    /// Periods of 20 ms from the start of the load to the session's first frame.
    pub(crate) first_lap: u64,
    /// Offset of its frames within each period, in nanoseconds below 20 ms.
    pub(crate) phase_ns: u32,
}

impl Start {
    /// The place of the thread's session `slot`.
    pub(crate) fn of(&self, slot: u32) -> SessionStart {
        let index = self.first + u64::from(slot);
        let ramp_ns = u128::from(self.ramp_ns) * u128::from(index) / u128::from(self.of.max(1));
        let turn = splitmix64(&mut self.seed.clone()).wrapping_add(index.wrapping_mul(GOLDEN));
        SessionStart {
            index,
            first_lap: ramp_ns as u64 / FRAME_NS,
            phase_ns: ((u128::from(turn) * u128::from(FRAME_NS)) >> 64) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(of: u64, ramp_ns: u64) -> Start {
        Start { first: 0, of, ramp_ns, seed: 7 }
    }

    #[test]
    fn sessions_start_one_after_another_over_the_ramp() {
        let start = start(100, 31_000_000_000);
        let laps: Vec<_> = (0..100).map(|slot| start.of(slot).first_lap).collect();
        assert_eq!((laps[0], laps[50], laps[99]), (0, 775, 1534));
        assert!(laps.is_sorted());
    }

    #[test]
    fn frames_are_spread_evenly_over_20_ms_with_and_without_a_ramp() {
        for (sessions, ramp_ns) in [(50, 0), (1000, 0), (2200, 31_000_000_000)] {
            let start = start(sessions, ramp_ns);
            let mut phases: Vec<_> = (0..sessions as u32).map(|slot| start.of(slot).phase_ns).collect();
            phases.sort_unstable();
            phases.push(phases[0] + FRAME_NS as u32);
            let widest = phases.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            assert!(u64::from(widest) < 3 * FRAME_NS / sessions, "{widest} among {sessions}");
        }
    }

    #[test]
    fn workers_continue_where_the_one_before_ended() {
        let whole = start(10, 1_000_000_000);
        let second = Start { first: 4, ..whole };
        assert_eq!(second.of(2), whole.of(6));
    }

    #[test]
    fn another_seed_turns_the_phases() {
        assert_ne!(start(10, 0).of(3).phase_ns, Start { seed: 8, ..start(10, 0) }.of(3).phase_ns);
    }
}
