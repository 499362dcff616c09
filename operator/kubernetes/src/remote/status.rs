//! `ladder status`: prints the operator and its run in a few lines.

use std::fmt::Write;

use clap::Args;

use super::{options::ReleaseOptions, reach::Operator};
use crate::live;

/// Limit of the text beside a trial, in characters: long enough for a reason with its pod and image.
const LONGEST_DESCRIPTION: usize = 240;

/// Arguments of `ladder status`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    location: ReleaseOptions,
    /// Print the operator's status as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the status; the exit code is 0 when the operator is ready, otherwise 1.
///
/// # Errors
/// When the operator can't be reached.
pub async fn status(arguments: &Status) -> anyhow::Result<u8> {
    let operator = Operator::reach(&arguments.location.location()).await?;
    let status: live::Status = operator.get("/api/status").await?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", lines(&status));
    }
    Ok(u8::from(!status.ready))
}

/// The status as text.
fn lines(status: &live::Status) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            writeln!(text, "{name:9} {value}").expect("a string takes all that is written");
        }
    };
    line("operator", &format!("{} {}", status.version, if status.ready { "ready" } else { "not ready" }));
    status.not_ready.iter().for_each(|description| line("", description));
    line("state", &status.description);
    line("run", &status.run_id);
    line("plan", &status.plan);
    if let (Some(step), live::State::Climbing) = (&status.step, status.state) {
        let name = serde_json::to_value(step.step).ok().and_then(|name| name.as_str().map(str::to_owned));
        line("step", &format!("{} {}", name.unwrap_or_default(), step.trial.as_deref().unwrap_or_default()));
    }
    if let Some(problem) = &status.last_problem {
        line("problem", &format!("{}: {}", problem.at, problem.description));
    }
    line("", &status.overhead);
    for search in &status.searches {
        let standing = search.standing.as_deref().unwrap_or("search");
        line(standing, format!("{}: {}", search.search, shorten(&search.description)).trim_end_matches(": "));
    }
    let width = status.trials.iter().map(|trial| trial.trial.chars().count()).max().unwrap_or(0);
    for trial in &status.trials {
        let standing = trial.standing.as_deref().unwrap_or(&trial.state);
        let description = format!("{standing:9} {:width$}  {}", trial.trial, shorten(&trial.description));
        text.push_str(description.trim_end());
        text.push('\n');
    }
    text
}

/// Shortens the text beside a trial. The full text is in `run.json`, and in the output of `--json`.
fn shorten(description: &str) -> String {
    let line = description.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST_DESCRIPTION) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_many_lines_is_shortened() {
        assert_eq!(shorten("short\nand more"), "short");
        assert_eq!(shorten(&"ä".repeat(500)).chars().count(), LONGEST_DESCRIPTION + 1);
    }

    #[test]
    fn a_search_stands_above_its_trials_with_what_it_has_found() {
        let search = |standing: Option<&str>, description: &str| live::SearchStatus {
            search: "a/b/c".into(),
            standing: standing.map(Into::into),
            description: description.into(),
            ..live::SearchStatus::default()
        };
        let searches =
            vec![search(None, ""), search(None, "rounds, 3 trials ended"), search(Some("pass"), "confirmed 9")];
        let text = lines(&live::Status { searches, ..live::Status::default() });
        let expected = "search    a/b/c\nsearch    a/b/c: rounds, 3 trials ended\npass      a/b/c: confirmed 9\n";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn mistakes_are_printed_first() {
        let status = live::Status {
            version: "0.1.0".into(),
            not_ready: vec!["plan.yaml: why: empty".into()],
            description: "fix the values".into(),
            ..live::Status::default()
        };
        assert_eq!(
            lines(&status),
            "operator  0.1.0 not ready\n          plan.yaml: why: empty\nstate     fix the values\n"
        );
    }
}
