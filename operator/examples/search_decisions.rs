//! The capacity search as a program, for the test that compares it with MLRsearch (`analysis/tests/test_search.py`).
//!
//! Reads one line of settings from standard input. After each decision that it writes to standard output, it reads one
//! line with the loss ratios of the trial that it asked for.

use std::io::{self, BufRead, Write};

use operator::search::{Fault, Goal, Next, Outcome, Settings, Start, Trial, next};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct WireSettings {
    from: u32,
    to: u32,
    high: bool,
    goals: Vec<WireGoal>,
}

#[derive(Deserialize)]
struct WireGoal {
    loss_ratio: f64,
    exceed_ratio: f64,
    relative_width: f64,
    initial_trial_duration: f64,
    final_trial_duration: f64,
    duration_sum: f64,
    preceding_targets: u32,
    expansion_coefficient: usize,
}

impl From<WireGoal> for Goal {
    fn from(wire: WireGoal) -> Self {
        Self {
            loss_ratio: wire.loss_ratio,
            exceed_ratio: wire.exceed_ratio,
            width: wire.relative_width,
            initial_trial_seconds: wire.initial_trial_duration,
            final_trial_seconds: wire.final_trial_duration,
            duration_sum_seconds: wire.duration_sum,
            preceding_targets: wire.preceding_targets,
            expansion: wire.expansion_coefficient,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut lines = io::stdin().lock().lines();
    let mut line = || lines.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
    let wire: WireSettings = serde_json::from_str(&line()?)?;
    let goals = wire.goals.into_iter().map(Goal::from).collect();
    let start = if wire.high { Start::High } else { Start::Low };
    let settings = Settings { from: wire.from, to: wire.to, goals, start, sparing: false };
    let grid = settings.grid();
    let loads: Vec<u32> = (0..=grid.last()).map(|place| grid.load(place)).collect();
    print_line(&json!({ "grid": loads }))?;
    let mut trials = Vec::new();
    loop {
        match next(&settings, &trials)? {
            Next::Measure { load, seconds } => {
                print_line(&json!({ "load": load, "seconds": seconds }))?;
                let losses: Option<Vec<f64>> = serde_json::from_str(&line()?)?;
                let outcome = losses.map_or(Outcome::Invalid(Fault::Generator), Outcome::Measured);
                trials.push(Trial { load, seconds, outcome });
            }
            Next::SearchResult(found) => {
                let goals: Vec<_> = found
                    .goals
                    .iter()
                    .map(|goal| json!([goal.lower, goal.upper, goal.conditional_throughput]))
                    .collect();
                return Ok(print_line(&json!({ "goals": goals, "generator_limit": found.generator_limit }))?);
            }
        }
    }
}

fn print_line(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}
