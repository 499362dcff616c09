//! What the threads of a process did, by the kernel's counters: how long each ran, and how long it waited for a CPU.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kernel's counters of one thread since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadReading {
    /// Id of the thread, which no other thread of the machine has.
    pub id: u32,
    /// Name of the thread.
    pub name: String,
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Time in which it could have run and waited for a CPU, in nanoseconds; absent if the kernel doesn't count it.
    pub wait_ns: Option<u64>,
    /// How many times it got a CPU; absent if the kernel doesn't count it.
    pub turns: Option<u64>,
}

/// What the threads of a process did between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadsUse {
    /// Name of the busiest thread: the one that ran and waited for a CPU the longest.
    pub busiest: String,
    /// CPU time of the busiest thread, in nanoseconds.
    pub busiest_cpu_ns: u64,
    /// Time in which the busiest thread waited for a CPU, in nanoseconds; absent if the kernel doesn't count it.
    pub busiest_wait_ns: Option<u64>,
    /// Time in which threads waited for a CPU, summed over all of them, in nanoseconds; absent if the kernel doesn't
    /// count it.
    pub wait_ns: Option<u64>,
    /// How many times threads got a CPU, summed over all of them; absent if the kernel doesn't count it.
    pub turns: Option<u64>,
}

impl ThreadsUse {
    /// The use between two readings of the same process; `None` if the second has no thread.
    ///
    /// A thread that is only in the second reading counts from 0: it started in between, or had hardly run before.
    pub fn between(from: &[ThreadReading], to: &[ThreadReading]) -> Option<Self> {
        let grown = |later: Option<u64>, earlier: Option<u64>| Some(later?.saturating_sub(earlier.unwrap_or(0)));
        let since = |to: &ThreadReading| {
            let before = from.iter().find(|thread| thread.id == to.id);
            ThreadReading {
                cpu_ns: to.cpu_ns.saturating_sub(before.map_or(0, |before| before.cpu_ns)),
                wait_ns: grown(to.wait_ns, before.and_then(|before| before.wait_ns)),
                turns: grown(to.turns, before.and_then(|before| before.turns)),
                ..to.clone()
            }
        };
        let threads: Vec<ThreadReading> = to.iter().map(since).collect();
        let busiest = threads.iter().max_by_key(|thread| thread.cpu_ns + thread.wait_ns.unwrap_or(0))?;
        Some(Self {
            busiest: busiest.name.clone(),
            busiest_cpu_ns: busiest.cpu_ns,
            busiest_wait_ns: busiest.wait_ns,
            wait_ns: threads.iter().map(|thread| thread.wait_ns).sum(),
            turns: threads.iter().map(|thread| thread.turns).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: u32, cpu_ns: u64, wait_ns: u64) -> ThreadReading {
        ThreadReading { id, name: format!("t{id}"), cpu_ns, wait_ns: Some(wait_ns), turns: Some(cpu_ns / 10) }
    }

    #[test]
    fn the_busiest_thread_is_the_one_that_ran_and_waited_the_longest_in_between() {
        // Thread 1 ran longer in all, thread 3 started in between, thread 4 has ended.
        let from = [thread(1, 900, 0), thread(2, 100, 10), thread(4, 500, 500)];
        let to = [thread(1, 950, 0), thread(2, 140, 90), thread(3, 70, 0)];
        let used = ThreadsUse::between(&from, &to).unwrap();
        assert_eq!((used.busiest.as_str(), used.busiest_cpu_ns, used.busiest_wait_ns), ("t2", 40, Some(80)));
        assert_eq!((used.wait_ns, used.turns), (Some(80), Some(5 + 4 + 7)));
        assert_eq!(ThreadsUse::between(&from, &[]), None);
    }

    #[test]
    fn without_counted_waits_the_busiest_thread_is_the_one_that_ran_the_longest() {
        let ticks = |id, cpu_ns| ThreadReading { wait_ns: None, turns: None, ..thread(id, cpu_ns, 0) };
        let used = ThreadsUse::between(&[ticks(1, 5)], &[ticks(1, 9), ticks(2, 3)]).unwrap();
        assert_eq!((used.busiest.as_str(), used.busiest_cpu_ns), ("t1", 4));
        assert_eq!((used.busiest_wait_ns, used.wait_ns, used.turns), (None, None, None));
    }
}
