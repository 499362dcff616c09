//! The posterior of a capacity as a program, for the test that compares it with the one of the analysis
//! (`analysis/tests/test_capacity.py`).
//!
//! Reads lines of JSON from standard input, each with a start and trials, and writes an estimate for each.

use std::io::{self, BufRead};

use operator::search::posterior::Posterior;
use serde::Deserialize;

#[derive(Deserialize)]
struct Search {
    start: f64,
    /// Load of each trial, and whether it passed.
    trials: Vec<(u32, bool)>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in io::stdin().lock().lines() {
        let search: Search = serde_json::from_str(&line?)?;
        let mut posterior = Posterior::new(search.start);
        search.trials.iter().for_each(|(load, passed)| posterior.add(*load, *passed));
        println!("{}", serde_json::to_string(&posterior.estimate())?);
    }
    Ok(())
}
