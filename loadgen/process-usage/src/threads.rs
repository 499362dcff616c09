//! What each thread of a process has done since its start: how long it ran, and how long it waited for a CPU.
//!
//! `/proc/PID/task/TID/schedstat` has both in nanoseconds. The kernel adds to the CPU time of a running thread at its
//! timer's ticks, so it may lack the last few milliseconds. A kernel without that file counts ticks of 10 ms in `stat`
//! and no waits.

use std::{fs, path::Path};

use bench_format::result::ThreadReading;

/// A process with more threads is not read, because reading them would take CPU from what is measured.
const MOST_THREADS: usize = 512;
/// A thread that neither ran nor waited for so long, in nanoseconds, is left out.
const HARDLY_RAN_NS: u64 = 1_000_000;
/// Nanoseconds of a tick in `stat`, which Linux gives user programs as 100 per second on every machine.
const TICK_NS: u64 = 10_000_000;

/// The threads of these processes that ran or waited for at least a millisecond, the busiest first.
///
/// `None` if the first process has ended or may not be read, or if there are more than 512 threads.
pub fn threads(pids: &[u32]) -> Option<Vec<ThreadReading>> {
    let mut all = Vec::new();
    for (index, pid) in pids.iter().enumerate() {
        match fs::read_dir(format!("/proc/{pid}/task")) {
            Ok(tasks) => all.extend(tasks.flatten().map(|task| task.path())),
            Err(_) if index > 0 => {}
            Err(_) => return None,
        }
    }
    if all.len() > MOST_THREADS {
        return None;
    }
    // A thread may end in between.
    let mut read: Vec<ThreadReading> = all.iter().filter_map(|task| thread(task)).collect();
    read.retain(|thread| thread.cpu_ns + thread.wait_ns.unwrap_or(0) >= HARDLY_RAN_NS);
    read.sort_by_key(|thread| (std::cmp::Reverse(thread.cpu_ns), thread.id));
    Some(read)
}

/// One thread, from its folder in `/proc`.
fn thread(task: &Path) -> Option<ThreadReading> {
    let id = task.file_name()?.to_str()?.parse().ok()?;
    let text = |file: &str| fs::read_to_string(task.join(file)).ok();
    let name = text("comm").unwrap_or_default().trim().to_owned();
    let reading = ThreadReading { id, name, ..ThreadReading::default() };
    if let Some([cpu_ns, wait_ns, turns]) = text("schedstat").as_deref().and_then(schedstat) {
        return Some(ThreadReading { cpu_ns, wait_ns: Some(wait_ns), turns: Some(turns), ..reading });
    }
    Some(ThreadReading { cpu_ns: ticks(&text("stat")?)? * TICK_NS, ..reading })
}

/// Nanoseconds on a CPU, nanoseconds of waiting for one, and times that it got one.
fn schedstat(text: &str) -> Option<[u64; 3]> {
    let mut fields = text.split_whitespace().map(|field| field.parse().ok());
    Some([fields.next()??, fields.next()??, fields.next()??])
}

/// Ticks in user and kernel mode: fields 14 and 15 of `stat`, counted after the name, which may contain any character.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use std::{
        hint::black_box,
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread as os_thread,
    };

    use super::*;

    #[test]
    fn a_thread_that_works_is_found_with_its_name_and_cpu_time() {
        let stop = AtomicBool::new(false);
        let worked = 50_000_000;
        os_thread::scope(|scope| {
            let spinning = os_thread::Builder::new().name("spinning".into());
            spinning.spawn_scoped(scope, || while !black_box(stop.load(Relaxed)) {}).unwrap();
            let found = loop {
                let read = threads(&[std::process::id()]).unwrap();
                if let Some(found) = read.into_iter().find(|thread| thread.name == "spinning" && thread.cpu_ns > worked)
                {
                    break found;
                }
            };
            stop.store(true, Relaxed);
            assert!(found.id > 0 && found.turns != Some(0), "{found:?}");
        });
    }

    #[test]
    fn an_ended_process_has_no_threads() {
        // Above the largest process id of Linux (2^22).
        assert_eq!(threads(&[5_000_000]), None);
        assert!(threads(&[std::process::id(), 5_000_000]).is_some(), "a child may have ended");
    }

    #[test]
    fn a_kernel_without_schedstat_counts_ticks() {
        let task = tempfile::tempdir().unwrap();
        let folder = task.path().join("71");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("comm"), "a) b\n").unwrap();
        fs::write(folder.join("stat"), "71 (a) b) S 3 7 7 0 -1 0 0 0 0 0 12 30 0 0 20 0 1 0 4711 0 0").unwrap();
        let ticked = ThreadReading { id: 71, name: "a) b".into(), cpu_ns: 420_000_000, ..ThreadReading::default() };
        assert_eq!(thread(&folder), Some(ticked.clone()));
        fs::write(folder.join("schedstat"), "1500 700 3\n").unwrap();
        let exact = ThreadReading { cpu_ns: 1500, wait_ns: Some(700), turns: Some(3), ..ticked };
        assert_eq!(thread(&folder), Some(exact));
    }
}
