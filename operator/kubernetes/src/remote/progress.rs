//! What the status of a run means for those who wait for its end, and the lines that they print meanwhile.

use std::collections::BTreeSet;

use crate::live::{Problem, State, Status, TrialStatus};

/// What the status of a run means for its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// No run is requested.
    NoRun,
    /// The run has ended; its bundle decides.
    Ended,
    /// The run is not finished yet.
    Running,
    /// The run will not end by itself; the reason.
    Stuck(String),
}

/// The trials, searches and problems that were printed already.
#[derive(Debug, Default)]
pub(super) struct Printed {
    /// Id of the run; absent before the first status.
    pub(super) run: Option<String>,
    trials: BTreeSet<String>,
    searches: BTreeSet<String>,
    problem: Option<Problem>,
}

impl Printed {
    /// The new lines since the last status, in the format of `ladder run`: ended trials and searches, and interruptions.
    pub(super) fn new_lines(&mut self, status: &Status) -> Vec<String> {
        let mut lines = Vec::new();
        if self.run.as_ref() != Some(&status.run_id) {
            *self = Self { run: Some(status.run_id.clone()), ..Self::default() };
            // A problem from before the first request may be resolved.
            self.problem.clone_from(&status.last_problem);
            lines.push(format!("waiting for the end of run {}", status.run_id));
        }
        for ended in status.trials.iter().filter(|trial| trial.standing.is_some()) {
            if self.trials.insert(ended.trial.clone()) {
                lines.push(line(ended));
            }
        }
        for ended in status.searches.iter().filter(|search| search.standing.is_some()) {
            if self.searches.insert(ended.search.clone()) {
                lines.push(format!("{}: {}", ended.search, ended.description));
            }
        }
        if self.problem != status.last_problem {
            self.problem.clone_from(&status.last_problem);
            // A failed trial is also a problem, and has its own line.
            let description = status.last_problem.iter().map(|problem| problem.description.clone());
            lines.extend(
                description.filter(|description| !status.trials.iter().any(|trial| line(trial) == *description)),
            );
        }
        lines
    }
}

fn line(trial: &TrialStatus) -> String {
    let failed = if ["failed", "crashed"].contains(&trial.state.as_str()) { "failed: " } else { "" };
    format!("{}: {failed}{}", trial.trial, trial.description)
}

/// What the status means.
pub(super) fn progress(status: &Status) -> Progress {
    match status.state {
        _ if !status.not_ready.is_empty() && status.state == State::Idle => {
            Progress::Stuck(status.not_ready.join("\n"))
        }
        _ if status.run_id.is_empty() && status.ready => Progress::NoRun,
        State::Finished => Progress::Ended,
        State::Idle => Progress::Stuck(status.description.clone()),
        _ => Progress::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::SearchStatus;

    fn trial(name: &str, state: &str, description: &str) -> TrialStatus {
        let ended = ["finished", "crashed", "failed"].contains(&state).then(|| "pass".to_owned());
        TrialStatus {
            trial: name.into(),
            state: state.into(),
            validity: None,
            standing: ended,
            description: description.into(),
        }
    }

    fn problem(description: &str) -> Option<Problem> {
        Some(Problem { at: description.into(), description: description.into() })
    }

    #[test]
    fn each_trial_is_printed_once_when_it_has_ended() {
        let mut printed = Printed::default();
        let mut status =
            Status { run_id: "r".into(), last_problem: problem("an earlier problem"), ..Status::default() };
        status.trials = vec![trial("a", "finished", "passed, 7 delivered/s"), trial("b", "started", "attempt 1")];
        assert_eq!(printed.new_lines(&status), ["waiting for the end of run r", "a: passed, 7 delivered/s"]);
        assert_eq!(printed.new_lines(&status), Vec::<String>::new());
        status.trials[1] = trial("b", "failed", "no such image");
        status.last_problem = problem("b: failed: no such image");
        assert_eq!(printed.new_lines(&status), ["b: failed: no such image"]);
        status.trials.push(trial("c", "crashed", "service_oom: pod p ran out of memory"));
        status.last_problem = problem("c: failed: service_oom: pod p ran out of memory");
        assert_eq!(printed.new_lines(&status), ["c: failed: service_oom: pod p ran out of memory"]);
    }

    #[test]
    fn a_search_is_printed_once_when_it_has_its_result() {
        let search = |standing: Option<&str>, description: &str| SearchStatus {
            search: "a/b/c".into(),
            standing: standing.map(Into::into),
            description: description.into(),
            ..SearchStatus::default()
        };
        let mut printed = Printed::default();
        let mut status = Status { run_id: "r".into(), ..Status::default() };
        status.searches = vec![search(None, "rounds")];
        assert_eq!(printed.new_lines(&status), ["waiting for the end of run r"]);
        status.searches = vec![search(Some("pass"), "confirmed 40")];
        assert_eq!(printed.new_lines(&status), ["a/b/c: confirmed 40"]);
        assert_eq!(printed.new_lines(&status), Vec::<String>::new());
    }

    #[test]
    fn an_interruption_is_printed_and_another_run_starts_anew() {
        let mut printed = Printed::default();
        let mut status = Status { run_id: "r".into(), ..Status::default() };
        status.trials = vec![trial("a", "started", "attempt 1")];
        printed.new_lines(&status);
        status.last_problem = problem("a: interrupted, to be repeated: worker 0 was killed");
        assert_eq!(printed.new_lines(&status), ["a: interrupted, to be repeated: worker 0 was killed"]);
        let next = Status { run_id: "s".into(), ..status };
        assert_eq!(printed.new_lines(&next), ["waiting for the end of run s"]);
    }

    #[test]
    fn the_progress_of_a_run_follows_from_its_status() {
        let status = |run: &str, state: State, ready: bool| Status {
            run_id: run.into(),
            state,
            ready,
            description: "a message".into(),
            ..Status::default()
        };
        let cases = [
            (status("", State::Idle, true), Progress::NoRun),
            (status("r", State::Climbing, true), Progress::Running),
            (status("r", State::Blocked, false), Progress::Running),
            (status("r", State::Finished, true), Progress::Ended),
            (status("r", State::Idle, true), Progress::Stuck("a message".into())),
            (
                Status { not_ready: vec!["plan.yaml: why: empty".into()], ..status("", State::Idle, false) },
                Progress::Stuck("plan.yaml: why: empty".into()),
            ),
        ];
        for (status, expected) in cases {
            assert_eq!(progress(&status), expected, "{status:?}");
        }
    }
}
