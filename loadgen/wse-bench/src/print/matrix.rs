//! The size matrix as the published benchmarks show it: a row for each size, a column for each number of connections.
//! Pure.

use std::fmt::Write as _;

use super::{
    number::{UNKNOWN, rate},
    table::{bytes_per_message, is_lower_bound, messages_per_second},
};
use crate::{
    outcome::{Measured, TierResult},
    suite::Test,
};

/// Two matrices: messages per second, and gigabytes per second.
pub(super) fn matrices(outcomes: &[TierResult]) -> String {
    let cells: Vec<_> = outcomes.iter().filter(|outcome| outcome.request.test == Test::SizeMatrix).collect();
    let bandwidth = |outcome: &TierResult, measured: &Measured| {
        let bytes = messages_per_second(measured).zip(bytes_per_message(outcome)).map(|(rate, bytes)| rate * bytes);
        bytes.map_or(UNKNOWN.into(), |bytes| format!("{:.3}", bytes / 1e9))
    };
    let messages = matrix("messages/s", &cells, |_, measured| rate(messages_per_second(measured)));
    messages + &matrix("GB/s", &cells, bandwidth)
}

/// One matrix as Markdown, which is also readable in a terminal.
fn matrix(title: &str, cells: &[&TierResult], figure: impl Fn(&TierResult, &Measured) -> String) -> String {
    let tiers = distinct(cells.iter().map(|cell| cell.request.tier));
    let sizes = distinct(cells.iter().map(|cell| cell.request.message.size_bytes));
    let mut lines = vec![[format!("{title}, bytes")].into_iter().chain(tiers.iter().map(u32::to_string)).collect()];
    for size in sizes {
        let mut line = vec![size.to_string()];
        for tier in &tiers {
            let is_cell = |cell: &&&TierResult| (cell.request.message.size_bytes, cell.request.tier) == (size, *tier);
            let measured = cells.iter().find(is_cell).and_then(|cell| Some((cell, cell.measured.as_ref()?)));
            line.push(measured.map_or("failed".into(), |(cell, measured)| {
                let sign = if is_lower_bound(measured) { ">= " } else { "" };
                format!("{sign}{}", figure(cell, measured))
            }));
        }
        lines.push(line);
    }
    let mut text = String::from("\n");
    for (at, line) in lines.iter().enumerate() {
        let widths = (0..line.len()).map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0));
        let padded: Vec<_> = line.iter().zip(widths.clone()).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let _ = writeln!(text, "| {} |", padded.join(" | "));
        if at == 0 {
            let bars: Vec<_> = widths.map(|width| "-".repeat(width + 1) + ":").collect();
            let _ = writeln!(text, "|{}|", bars.join("|"));
        }
    }
    text
}

/// The distinct values, in the order of their first occurrence.
fn distinct(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use bench_format::result::BoundBy;

    use super::*;
    use crate::outcome::fixture::unwitnessed;

    fn cell(size_bytes: u32, tier: u32, written_per_second: f64, bound_by: BoundBy) -> TierResult {
        let mut outcome = unwitnessed();
        (outcome.request.test, outcome.request.tier, outcome.request.message.size_bytes) =
            (Test::SizeMatrix, tier, size_bytes);
        let measured = outcome.measured.as_mut().unwrap();
        measured.figures.written_per_second = Some(written_per_second);
        measured.bound_by = Some(bound_by);
        outcome
    }

    #[test]
    fn sizes_stand_below_each_other_and_connections_beside_each_other() {
        let outcomes = [
            cell(64, 100, 2e6, BoundBy::Service),
            cell(64, 500, 1e6, BoundBy::Generator),
            cell(256, 100, 5e5, BoundBy::Service),
        ];
        let text = matrices(&outcomes);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("| "))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(
            lines[..3],
            [
                vec!["messages/s, bytes", "100", "500"],
                vec!["64", "2.00M", ">= 1.00M"],
                vec!["256", "500,000", "failed"]
            ]
        );
        // A message of nominally 64 bytes has 54.
        assert_eq!(lines[4], ["64", "0.108", ">= 0.054"]);
    }
}
