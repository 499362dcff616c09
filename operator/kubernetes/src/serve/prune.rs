//! Removes bundles that are beyond what is kept: the oldest ones, if a number or an age is set.

use std::{fs, io, path::Path, time::Duration};

use bench_format::{
    Name,
    run::{Run, RunState},
};
use driver::clock;

/// Which bundles are kept; without a limit all of them are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// So many runs that have ended, the newest ones.
    pub runs: Option<u32>,
    /// Runs that ended in the last so many days.
    pub days: Option<u32>,
}

/// Name of a folder whose bundle is being removed: hidden, so that half of a bundle is never listed or served.
const REMOVED: &str = ".removed-";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The runs to remove, oldest first: those that have ended and are beyond a limit. The requested run and those that can
/// still be resumed are kept at any age.
pub(super) fn surplus<'a>(stored: &'a [Run], keep: Keep, requested: &str, now_unix_ns: u64) -> Vec<&'a Name> {
    let mut ended: Vec<(&str, &Name)> = stored
        .iter()
        .filter(|run| run.state != RunState::Running && run.id != requested)
        .filter_map(|run| Some((run.finished_at.as_deref()?, &run.id)))
        .collect();
    // RFC 3339 in UTC sorts as text.
    ended.sort_unstable();
    let requested_is_stored = stored.iter().any(|run| run.id == requested && run.state != RunState::Running);
    let others = keep.runs.map(|runs| (runs as usize).saturating_sub(usize::from(requested_is_stored)));
    let beyond = others.map_or(0, |others| ended.len().saturating_sub(others));
    let oldest_kept = keep.days.map(|days| {
        let age_ns = u64::try_from((DAY * days).as_nanos()).unwrap_or(u64::MAX);
        clock::rfc3339(now_unix_ns.saturating_sub(age_ns))
    });
    let is_old = |finished_at: &str| oldest_kept.as_deref().is_some_and(|oldest| finished_at < oldest);
    let numbered = ended.iter().enumerate();
    numbered
        .filter(|(place, (finished_at, _))| *place < beyond || is_old(finished_at))
        .map(|(_, (_, id))| *id)
        .collect()
}

/// Removes the bundle of a run. What an earlier removal left is removed, too.
///
/// # Errors
/// The file system's error; the bundle is then either whole or no longer listed.
pub(super) fn remove(results: &Path, id: &Name) -> io::Result<()> {
    let aside = results.join(format!("{REMOVED}{id}"));
    if aside.exists() {
        fs::remove_dir_all(&aside)?;
    }
    fs::rename(results.join(id.as_str()), &aside)?;
    fs::remove_dir_all(aside)
}

/// Removes what removals that were interrupted left.
pub(super) fn clean(results: &Path) {
    let folders = fs::read_dir(results).into_iter().flatten().flatten();
    let left = folders.filter(|folder| folder.file_name().to_str().is_some_and(|name| name.starts_with(REMOVED)));
    // The next start tries again.
    left.for_each(|folder| drop(fs::remove_dir_all(folder.path())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_file::fixture;

    const NOW: &str = "2026-11-10T00:00:00Z";

    fn run(id: &'static str, state: RunState, finished_at: Option<&str>) -> Run {
        Run { finished_at: finished_at.map(Into::into), ..fixture::run(id, state) }
    }

    fn now_unix_ns() -> u64 {
        // Nine days after the first of the runs below.
        let days = 20_767_u64;
        let ns = days * u64::try_from(DAY.as_nanos()).unwrap();
        assert_eq!(clock::rfc3339(ns), NOW);
        ns
    }

    fn removed(keep: Keep, requested: &str) -> Vec<String> {
        let stored = [
            run("newest", RunState::Finished, Some("2026-11-09T12:00:00Z")),
            run("oldest", RunState::Failed, Some("2026-11-01T00:00:00Z")),
            run("open", RunState::Running, None),
            run("middle", RunState::Superseded, Some("2026-11-05T00:00:00Z")),
        ];
        surplus(&stored, keep, requested, now_unix_ns()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_a_limit_every_bundle_is_kept() {
        assert_eq!(removed(Keep::default(), ""), Vec::<String>::new());
    }

    #[test]
    fn the_newest_runs_are_kept_and_the_requested_one_is_among_them() {
        let keep = |runs| Keep { runs: Some(runs), days: None };
        assert_eq!(removed(keep(2), ""), ["oldest"]);
        assert_eq!(removed(keep(2), "newest"), ["oldest"]);
        assert_eq!(removed(keep(1), "oldest"), ["middle", "newest"]);
        assert_eq!(
            removed(keep(0), "open"),
            ["oldest", "middle", "newest"],
            "one that can be resumed is never removed"
        );
    }

    #[test]
    fn older_runs_are_removed_by_the_day_on_which_they_ended() {
        let keep = |days| Keep { runs: None, days: Some(days) };
        assert_eq!(removed(keep(5), ""), ["oldest"]);
        assert_eq!(removed(keep(4), ""), ["oldest", "middle"]);
        assert_eq!(removed(keep(9), ""), Vec::<String>::new());
        assert_eq!(removed(keep(4), "oldest"), ["middle"]);
        assert_eq!(removed(keep(u32::MAX), ""), Vec::<String>::new());
    }

    #[test]
    fn a_removed_bundle_is_gone_and_what_a_crash_left_is_cleaned() {
        let results = tempfile::tempdir().unwrap();
        for folder in ["a/trials", "b", ".removed-a/trials", ".operator"] {
            fs::create_dir_all(results.path().join(folder)).unwrap();
        }
        remove(results.path(), &Name::from_static("a")).unwrap();
        fs::create_dir_all(results.path().join(".removed-c/trials")).unwrap();
        clean(results.path());
        let mut left: Vec<_> = fs::read_dir(results.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".operator", "b"]);
        assert!(remove(results.path(), &Name::from_static("a")).is_err(), "it isn't there");
    }
}
