//! The readings at the window's start and end, and the processes that both of them have. Pure.

use std::collections::BTreeMap;

use bench_format::result::{ProcessReading, Reading};

use crate::{case::Case, rates::seconds};

/// A load whose window is shorter than this share of the planned window ended by itself; its own window counts.
const ENDED_EARLY: f64 = 0.95;

/// Shortest load, in nanoseconds, for which the service's readings are used if it ended by itself. A reading takes some
/// milliseconds, so counters and CPU of a shorter load say nothing.
const SHORTEST_READ_NS: u64 = 20_000_000;

/// The processes of a reading, by name: the service's companions, or its replicas.
pub(crate) type Processes = BTreeMap<String, ProcessReading>;

/// The readings at the window's start and end.
pub(crate) struct Edges<'a> {
    pub(crate) start: &'a Reading,
    pub(crate) end: &'a Reading,
    /// Time that what was read in between covers, in seconds.
    pub(crate) seconds: f64,
}

impl<'a> Edges<'a> {
    /// `None` if a reading is missing, or if the load was too short to read.
    pub(crate) fn of(case: &Case<'a>) -> Option<Self> {
        let (start, end) = (case.service.readings.window_start.as_ref()?, case.service.readings.window_end.as_ref()?);
        if ended_early(case) && case.merged.window.duration_ns < SHORTEST_READ_NS {
            return None;
        }
        // Rates cover the time between the readings, which differs from the window, so a late reading doesn't inflate
        // them.
        let between = seconds(end.unix_ns.saturating_sub(start.unix_ns));
        let duration = if ended_early(case) { seconds(case.merged.window.duration_ns) } else { between };
        Some(Self { start, end, seconds: duration })
    }
}

/// Whether the load ended by itself (all connections opened, all messages answered) before the end of the window.
pub(crate) fn ended_early(case: &Case<'_>) -> bool {
    (case.merged.window.duration_ns as f64) < case.trial.window_ns as f64 * ENDED_EARLY
}

/// The processes that two readings have, with their names. One that is missing from either reading is left out.
pub(crate) fn in_both<'a>(
    earlier: &'a Processes,
    later: &'a Processes,
) -> impl Iterator<Item = (&'a str, &'a ProcessReading, &'a ProcessReading)> {
    earlier.iter().filter_map(|(name, from)| Some((name.as_str(), from, later.get(name)?)))
}
