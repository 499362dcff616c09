//! A comparison that was measured in pairs: its output, and the command that measures it again.

use std::path::Path;

use bench_format::comparison::Comparison;

use super::sides;
use crate::{compare::rule::PAIRS_AT_MOST, print, store};

/// Prints a measured comparison as a table, or as JSON.
pub(super) fn print_comparison(bundle: &Path, run: &str, comparison: &Comparison, json: bool) -> anyhow::Result<()> {
    if json {
        let value = print::compare::as_json(run, &bundle.display().to_string(), comparison);
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        let entries = store::read_run(bundle)?.trials;
        let finished: Result<Vec<_>, _> =
            entries.iter().map(|entry| crate::compare::trial::finished(bundle, entry)).collect();
        print!("{}", print::compare::table(comparison, &finished?));
    }
    Ok(())
}

/// The command that measures a comparison again.
pub(super) fn reproduce_command(plan: &str, comparison: &Comparison) -> String {
    let Comparison { a, b, workload, variant, tier, pairs_at_most, asked, .. } = comparison;
    let mut command = format!("ladder compare --plan {plan} --only {workload}/{variant}/{tier}");
    if *pairs_at_most != PAIRS_AT_MOST {
        command += &format!(" --pairs-at-most {pairs_at_most}");
    }
    asked.iter().for_each(|figure| command += &format!(" --figure {}", figure.name()));
    format!("{command} {} {}", sides::word(a), sides::word(b))
}
