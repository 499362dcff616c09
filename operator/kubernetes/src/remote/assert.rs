//! `ladder assert` for a run in a cluster: optionally waits for its end, printing a line for each trial that ends
//! meanwhile, and then judges as for a bundle on disk.

use std::{collections::BTreeSet, fs, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use operator::assert::{self as judge, Standing};
use tokio::time::{Instant, sleep};

use super::{fetch::bundle_into, options::ReleaseOptions, reach::Operator};
use crate::live::{Problem, State, Status, TrialStatus};

/// Interval between two requests for the status.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `ladder assert`.
#[derive(Debug, Args)]
pub struct Assert {
    #[command(flatten)]
    location: ReleaseOptions,
    /// Wait for the end of the run.
    #[arg(long)]
    wait: bool,
    /// Longest wait, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    timeout: u64,
    /// Also write JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// What the status of a run means for the assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// No run is requested.
    NoRun,
    /// The run has ended; its bundle decides.
    Ended,
    /// The run is not finished yet.
    Running,
    /// The run will not end by itself; the reason.
    Stuck(String),
}

/// Asserts on the requested run; no requested run counts as a pass.
///
/// # Errors
/// When the operator can't be reached, the run can't end, or it doesn't end in time.
pub async fn assert(arguments: &Assert) -> anyhow::Result<u8> {
    let operator = Operator::reach(&arguments.location.location()).await?;
    let deadline = Instant::now() + Duration::from_secs(arguments.timeout);
    let mut printed = Printed::default();
    loop {
        let status: anyhow::Result<Status> = operator.get("/api/status").await;
        match status.map(|status| (progress(&status), status)) {
            Ok((Progress::NoRun, _)) => {
                println!("no run is requested (run.id is empty): nothing to assert");
                return Ok(Standing::Pass.exit_code());
            }
            Ok((Progress::Ended, status)) => {
                // Trials that had ended before the first request are printed once, by the judgement below.
                if printed.run.is_some() {
                    printed.new_lines(&status).iter().for_each(|line| eprintln!("{line}"));
                }
                return judged(&operator, &status.run_id, arguments).await;
            }
            Ok((Progress::Stuck(description), _)) => bail!("{description}"),
            Ok((Progress::Running, status)) if !arguments.wait => {
                let ended = status.trials.iter().filter(|trial| trial.standing.is_some()).count();
                bail!(
                    "run {} is not finished ({ended} of {} trials); wait with --wait",
                    status.run_id,
                    status.trials.len()
                );
            }
            Ok((Progress::Running, status)) => printed.new_lines(&status).iter().for_each(|line| eprintln!("{line}")),
            // The operator may be restarting.
            Err(error) if arguments.wait && Instant::now() < deadline => eprintln!("ladder: {error:#}; trying again"),
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            bail!("the run did not end within {} s", arguments.timeout);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The trials and problems that were printed already.
#[derive(Debug, Default)]
struct Printed {
    run: Option<String>,
    trials: BTreeSet<String>,
    problem: Option<Problem>,
}

impl Printed {
    /// The new lines since the last status, in the format of `ladder run`: ended trials and interruptions.
    fn new_lines(&mut self, status: &Status) -> Vec<String> {
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
    let failed = if trial.state == "failed" { "failed: " } else { "" };
    format!("{}: {failed}{}", trial.trial, trial.description)
}

fn progress(status: &Status) -> Progress {
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

/// Judges the bundle's files by the same rules as a bundle on disk.
async fn judged(operator: &Operator, id: &str, arguments: &Assert) -> anyhow::Result<u8> {
    let folder = tempfile::tempdir().context("failed to create a folder for the bundle's files")?;
    let bundle = folder.path().join(id);
    let is_needed = |path: &str| path == "run.json" || path.ends_with("/result.json");
    bundle_into(operator, id, &bundle, is_needed).await?;
    let asserted = judge::bundle(&bundle)?;
    let standing = judge::worst(&asserted);
    print!("{}", judge::lines(&asserted));
    println!("run {id}: {}", standing.as_str());
    if let Some(path) = &arguments.junit {
        fs::write(path, judge::junit(id, &asserted)).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(standing.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(name: &str, state: &str, description: &str) -> TrialStatus {
        let ended = ["finished", "failed"].contains(&state).then(|| "pass".to_owned());
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
