//! The CPU of the service's process over a trial, where it runs on this machine.
//!
//! Storms and counted pings end when they are done, so nobody can read the service at an end that isn't known yet. Its CPU
//! clock is therefore read again and again, and the window is cut out afterwards.

use std::{
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use loadgen_core::{clock::monotonic_ns, neighbour::Neighbour};

/// Between two readings at first: what ends early is short. A reading costs about a microsecond.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Between two readings later on.
const PAUSE: Duration = Duration::from_millis(20);
/// So many readings are close together.
const CLOSE_READINGS: usize = 500;
/// A window shorter than this says nothing of anybody's CPU, in nanoseconds.
const SHORTEST_NS: u64 = 20_000_000;

/// A thread that reads the clock.
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Track>,
}

/// CPU used up to each of several moments, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track(Vec<Reading>);

/// One reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    /// Nanoseconds of the monotonic clock.
    at_ns: u64,
    /// CPU used since the process started, in nanoseconds.
    cpu_ns: u64,
}

impl Watch {
    /// Reads at once, and from then on from a thread of its own.
    pub fn start(neighbour: Neighbour) -> Self {
        let mut track = Track::default();
        track.read(&neighbour);
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            loop {
                let pause = if track.0.len() < CLOSE_READINGS { FIRST_PAUSE } else { PAUSE };
                let on = stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout);
                // The track of a process that is gone ends before the window does.
                if !track.read(&neighbour) || !on {
                    return track;
                }
            }
        });
        Self { stop, thread }
    }

    /// Reads once more, and ends.
    pub fn finish(self) -> Track {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

impl Track {
    /// Takes a reading; says whether there was one to take.
    fn read(&mut self, neighbour: &Neighbour) -> bool {
        let reading = neighbour.cpu_ns().map(|cpu_ns| Reading { at_ns: monotonic_ns(), cpu_ns });
        self.0.extend(reading);
        reading.is_some()
    }

    /// CPU used between two moments of the monotonic clock, in nanoseconds. Nothing for a moment too short to tell, and
    /// where the readings don't reach.
    pub fn used(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        if to_ns < from_ns + SHORTEST_NS {
            return None;
        }
        self.at(to_ns)?.checked_sub(self.at(from_ns)?)
    }

    /// CPU used up to a moment between two readings.
    fn at(&self, moment_ns: u64) -> Option<u64> {
        let next = self.0.partition_point(|reading| reading.at_ns < moment_ns);
        let (before, after) = (self.0.get(next.checked_sub(1)?)?, self.0.get(next)?);
        let share = (moment_ns - before.at_ns) as f64 / (after.at_ns - before.at_ns) as f64;
        Some(before.cpu_ns + ((after.cpu_ns - before.cpu_ns) as f64 * share) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn track(readings: &[(u64, u64)]) -> Track {
        Track(readings.iter().map(|(at, cpu)| Reading { at_ns: at * MS, cpu_ns: cpu * MS }).collect())
    }

    #[test]
    fn a_window_is_cut_out_between_readings() {
        let track = track(&[(0, 100), (100, 150), (200, 250)]);
        assert_eq!(track.used(50 * MS, 150 * MS), Some(75 * MS));
        assert_eq!(track.used(100 * MS, 200 * MS), Some(100 * MS));
    }

    #[test]
    fn what_the_readings_do_not_reach_is_not_guessed() {
        let track = track(&[(100, 1), (200, 2)]);
        assert_eq!(track.used(50 * MS, 150 * MS), None);
        assert_eq!(track.used(150 * MS, 250 * MS), None);
        assert_eq!(track.used(110 * MS, 120 * MS), None, "too short to tell");
    }

    #[test]
    fn a_process_that_works_shows() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let neighbour = Neighbour::listening(listener.local_addr().unwrap()).unwrap();
        let from_ns = monotonic_ns() + 5 * MS;
        let watch = Watch::start(neighbour);
        while monotonic_ns() < from_ns + 60 * MS {
            std::hint::spin_loop();
        }
        let used = watch.finish().used(from_ns, from_ns + 50 * MS).unwrap();
        // Other tests of this process work, too; a busy machine gives less than all of the time.
        assert!(used > MS, "{used} ns");
    }
}
