//! Sends signals to a process and all its descendants, found in `/proc`, so that they reach all of a gateway that has
//! several processes.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Maximum number of scans of `/proc` for descendants that were started in the meantime. A stopped process starts no
/// others.
const LOOKS: usize = 10;

/// Sends a signal to a process and all its descendants. SIGSTOP is also sent to those that were started in the
/// meantime.
///
/// # Errors
/// Fails if the signal cannot be sent to `root`. Failures for descendants are ignored, since these may start and end at
/// any time.
pub fn signal(root: u32, signal: Signal) -> Result<(), String> {
    let mut reached: Vec<u32> = Vec::new();
    for _ in 0..LOOKS {
        let mut new_members: Vec<u32> = family(root).into_iter().filter(|pid| !reached.contains(pid)).collect();
        // The oldest process stops first and continues last, so that no process observes a stopped descendant.
        if signal != Signal::STOP {
            new_members.reverse();
        }
        for &pid in &new_members {
            let sent = Pid::from_raw(pid as i32).map_or(Ok(()), |pid| kill_process(pid, signal));
            sent.or_else(|error| match pid == root {
                true => Err(format!("failed to send {signal:?} to process {pid}: {error}")),
                false => Ok(()),
            })?;
        }
        reached.extend(&new_members);
        if new_members.is_empty() || signal != Signal::STOP {
            break;
        }
    }
    Ok(())
}

/// The process and its descendants, parents before children. Without `/proc` it returns only the process.
fn family(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(parent).collect();
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&of) = family.get(next) {
        let children = parents.iter().filter(|(pid, parent)| *parent == of && !family.contains(pid));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        family.extend(children);
        next += 1;
    }
    family
}

/// Pid and parent pid of a process from its entry in `/proc`; none for other entries and ended processes.
fn parent(entry: fs::DirEntry) -> Option<(u32, u32)> {
    let pid = entry.file_name().to_str()?.parse().ok()?;
    let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
    Some((pid, parent_in(&stat)?))
}

/// Parent pid: the fourth field of `/proc/<pid>/stat` (proc_pid_stat(5)). The second field is the program's name in
/// parentheses, which may contain any character.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        thread::sleep,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("12 (a) b (c)) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("12 (sh"), None);
    }

    /// Waits up to 10 seconds until all these processes have the state `wanted` (third field of `/proc/<pid>/stat`).
    fn until(pids: &[u32], wanted: char) {
        let state = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').and_then(|(_, fields)| fields.trim_start().chars().next())
        };
        let started = Instant::now();
        while !pids.iter().all(|pid| state(pid) == Some(wanted)) {
            assert!(started.elapsed() < Duration::from_secs(10), "{:?}", pids.iter().map(state).collect::<Vec<_>>());
            sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_stopped_gateway_stops_with_its_workers() {
        let script = "sh -c 'sleep 60; true'; true";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        while family(shell.id()).len() < 3 {
            assert!(started.elapsed() < Duration::from_secs(10));
            sleep(Duration::from_millis(5));
        }
        let family = family(shell.id());
        signal(shell.id(), Signal::STOP).unwrap();
        until(&family, 'T');
        signal(shell.id(), Signal::CONT).unwrap();
        until(&family, 'S');
        signal(shell.id(), Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert!(signal(shell.id(), Signal::CONT).is_err());
    }
}
