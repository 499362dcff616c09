//! A comparison as text and as JSON: a line for each pair, and a table of figures at the end.

use bench_format::{
    comparison::{
        ComparedFigure, ComparedSide, Comparison, ComparisonEnd, ComparisonVerdict, FigureLook, RatioInterval,
        SideSource,
    },
    histogram::milliseconds,
};
use serde_json::{Value, json};

use super::{align, count};
use crate::compare::{
    course::{FinishedTrial, b_is_worse, beside},
    rule::ALPHA,
};

/// Number of characters of a commit that are printed.
const SHORT_COMMIT: usize = 12;
/// Stands for what isn't known or doesn't apply.
const NOTHING: &str = "-";

/// The newest pair: its number, and the ratio so far with the interval of each deciding figure.
pub fn progress(comparison: &Comparison) -> String {
    let progress = &comparison.progress;
    let (look, dropped) = (progress.looks.last(), progress.dropped.last());
    let newest = look.map_or(0, |look| look.pair);
    if let Some(dropped) = dropped.filter(|dropped| dropped.pair > newest) {
        let again = if progress.end.is_none() { ", so it is measured again" } else { "" };
        return format!("pair {} doesn't count{again}: {}: {}", dropped.pair, dropped.service, dropped.reason);
    }
    let figures = look.iter().flat_map(|look| &look.figures);
    let figures: Vec<String> = figures.map(|figure| format!("{} {}", figure.figure.name(), ratio(figure))).collect();
    format!("pair {} of at most {}: {}", progress.looks.len(), comparison.pairs_at_most, figures.join("; "))
}

fn ratio(look: &FigureLook) -> String {
    let shown = match look.interval {
        Some(RatioInterval { low, high }) => format!("A/B {} [{}, {}]", four(look.ratio), four(low), four(high)),
        None => format!("A/B {}", four(look.ratio)),
    };
    match look.verdict {
        ComparisonVerdict::Undecided => shown,
        verdict => format!("{shown} {}", verdict_text(verdict)),
    }
}

/// What a comparison shows, in one line.
pub fn description(comparison: &Comparison) -> String {
    match &comparison.progress.end {
        None => "not finished; resume the run".into(),
        Some(ComparisonEnd::NotComparable { reason }) => format!("can't be compared: {reason}"),
        Some(_) => {
            let figures = comparison.progress.looks.last().into_iter().flat_map(|look| &look.figures);
            let figures: Vec<String> = figures.map(|one| format!("{} {}", one.figure.name(), ratio(one))).collect();
            format!("compared with {}: {}", comparison.a.service, figures.join("; "))
        }
    }
}

/// The table of a comparison, with its sides above it. `finished` are its trials, for the figures that don't decide.
pub fn table(comparison: &Comparison, finished: &[FinishedTrial]) -> String {
    let Comparison { a, b, workload, variant, tier, progress, .. } = comparison;
    let mut text = format!("A: {}\nB: {}\n", side(a), side(b));
    text += &format!("{workload}/{variant}/{tier}; {}\n", pairs(comparison));
    if let Some(ComparisonEnd::NotComparable { reason }) = &progress.end {
        text += &format!("can't be compared: {reason}\n");
    }
    let Some(look) = progress.looks.last() else { return text };
    let head = ["figure", "A", "B", "A/B", "interval", "pairs", "verdict"].map(String::from);
    let mut rows: Vec<(ComparedFigure, [String; 7])> = look.figures.iter().map(|one| (one.figure, row(one))).collect();
    rows.extend(beside(comparison, finished).into_iter().map(|(figure, a, b, pairs)| {
        let cells = [figure.name().into(), value(figure, a), value(figure, b), four(a / b)];
        let [name, a, b, ratio] = cells;
        (figure, [name, a, b, ratio, NOTHING.into(), pairs.to_string(), "beside".into()])
    }));
    rows.sort_by_key(|(figure, _)| *figure);
    text.push('\n');
    text += &align(std::iter::once(head).chain(rows.into_iter().map(|(_, row)| row)).collect());
    text + &note(comparison)
}

fn pairs(comparison: &Comparison) -> String {
    let progress = &comparison.progress;
    let dropped = match progress.dropped.len() {
        0 => String::new(),
        dropped => format!(", {dropped} more that don't count"),
    };
    let end = match progress.end {
        Some(ComparisonEnd::Decided) => ", decided",
        Some(ComparisonEnd::PairsAtMost) => ", the most that were allowed",
        Some(ComparisonEnd::NotComparable { .. }) => "",
        None => ", not finished",
    };
    let count = match progress.looks.len() {
        1 => "1 pair".to_owned(),
        pairs => format!("{pairs} pairs"),
    };
    format!("{count} of fresh processes in turned order{dropped}{end}")
}

/// A side: its service, where it is from, and the commit.
fn side(side: &ComparedSide) -> String {
    let from = match &side.source {
        SideSource::Registry => String::new(),
        SideSource::Checkout { path } => format!(" of {path}"),
        SideSource::Commit { revision } => format!(" of {revision}"),
    };
    let (commit, changes) = side.commit.split_once('+').map_or((&*side.commit, ""), |(commit, _)| (commit, "+changes"));
    let commit = match commit.get(..SHORT_COMMIT) {
        Some(commit) => format!(", commit {commit}{changes}"),
        None => String::new(),
    };
    let name =
        if side.service == side.registered { String::new() } else { format!(" ({} in the bundle)", side.service) };
    format!("{}{from}{commit}{name}", side.registered)
}

fn row(look: &FigureLook) -> [String; 7] {
    let interval = look.interval.map(|RatioInterval { low, high }| format!("{} to {}", four(low), four(high)));
    let verdict = match look.verdict {
        ComparisonVerdict::Differs => {
            format!("differs: {} is better", if b_is_worse(look) { "A" } else { "B" })
        }
        ComparisonVerdict::NotShown => match look.pairs_needed {
            Some(pairs) => format!("no difference shown; 5 % would take {pairs} pairs"),
            None => "no difference shown; 5 % would take too many pairs".into(),
        },
        verdict => verdict_text(verdict).into(),
    };
    [
        look.figure.name().into(),
        value(look.figure, look.a),
        value(look.figure, look.b),
        four(look.ratio),
        interval.unwrap_or(NOTHING.into()),
        look.pairs.to_string(),
        verdict,
    ]
}

fn verdict_text(verdict: ComparisonVerdict) -> &'static str {
    match verdict {
        ComparisonVerdict::Differs => "differs",
        ComparisonVerdict::Same => "same within 5 %",
        ComparisonVerdict::NotShown => "no difference shown",
        ComparisonVerdict::Undecided => "undecided",
        ComparisonVerdict::GeneratorBound => "n/a: the generator limited the rate",
    }
}

/// What the intervals are, below the table.
fn note(comparison: &Comparison) -> String {
    let figures = comparison.progress.figures.len();
    let percent = |alpha: f64| {
        let text = format!("{:.2}", 100.0 * (1.0 - alpha));
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let level = match figures {
        0 | 1 => format!("{} %", percent(ALPHA)),
        several => format!("{} % each, so {} % together", percent(ALPHA / several as f64), percent(ALPHA)),
    };
    format!("\nIntervals are always-valid, at {level}. Figures without one decide nothing.\n")
}

fn value(figure: ComparedFigure, value: f64) -> String {
    match figure {
        rate if rate.is_rate() => format!("{}/s", count(value)),
        ComparedFigure::CpuPerMillion => format!("{} s", digits(value)),
        ComparedFigure::MemoryPerConnection => format!("{}B", count(value)),
        _ => format!("{} ms", milliseconds(value.round() as u64)),
    }
}

/// A ratio with the digits that matter beside an interval: differences below a per mille are of no interest.
fn four(ratio: f64) -> String {
    if (0.1..10.0).contains(&ratio) { format!("{ratio:.3}") } else { digits(ratio) }
}

/// A number with three significant digits.
fn digits(value: f64) -> String {
    let before = if value > 0.0 { value.log10().floor() as i32 } else { 0 };
    format!("{value:.*}", usize::try_from(2 - before).unwrap_or(0))
}

/// The comparison as JSON: the run, the bundle, the sides, every look and whether B is shown to be worse.
pub fn as_json(run: &str, bundle: &str, comparison: &Comparison) -> Value {
    json!({ "run": run, "bundle": bundle, "b_is_worse": is_worse(comparison), "comparison": comparison })
}

/// Whether a deciding figure shows that B is worse than A.
pub fn is_worse(comparison: &Comparison) -> bool {
    comparison.progress.looks.last().is_some_and(|look| look.figures.iter().any(b_is_worse))
}

#[cfg(test)]
mod tests {
    use bench_format::{
        Name,
        comparison::{ComparisonProgress, DroppedPair, Look},
    };

    use super::*;

    fn look(figure: ComparedFigure, (a, b): (f64, f64), verdict: ComparisonVerdict) -> FigureLook {
        let ratio = a / b;
        let interval = Some(RatioInterval { low: ratio * 0.98, high: ratio / 0.98 });
        FigureLook { figure, pairs: 7, a, b, ratio, interval, verdict, pairs_needed: None }
    }

    fn comparison() -> Comparison {
        let side = |service: &'static str, source, commit: &str| ComparedSide {
            service: Name::from_static(service),
            registered: Name::from_static("ours"),
            source,
            commit: commit.into(),
        };
        let figures = vec![
            look(ComparedFigure::DeliveredPerSecond, (12_345.0, 10_000.0), ComparisonVerdict::Differs),
            look(ComparedFigure::CpuPerMillion, (1.234, 1.25), ComparisonVerdict::Same),
        ];
        Comparison {
            a: side("ours-a", SideSource::Registry, "0123456789abcdef+changes"),
            b: side("ours-b", SideSource::Checkout { path: "/b".into() }, ""),
            workload: Name::from_static("throughput"),
            variant: Name::from_static("batch"),
            tier: 100,
            pairs_at_most: 60,
            asked: vec![],
            progress: ComparisonProgress {
                figures: figures.iter().map(|look| look.figure).collect(),
                looks: vec![Look { pair: 7, figures }],
                dropped: vec![],
                end: Some(ComparisonEnd::Decided),
            },
        }
    }

    #[test]
    fn a_table_names_the_sides_and_has_a_row_for_each_figure() {
        let text = table(&comparison(), &[]);
        let expected = "\
A: ours, commit 0123456789ab+changes (ours-a in the bundle)
B: ours of /b (ours-b in the bundle)
throughput/batch/100; 1 pair of fresh processes in turned order, decided

figure                A         B         A/B    interval        pairs  verdict
delivered-per-second  12.3 k/s  10.0 k/s  1.234  1.210 to 1.260  7      differs: A is better
cpu-per-million       1.23 s    1.25 s    0.987  0.967 to 1.007  7      same within 5 %

Intervals are always-valid, at 97.5 % each, so 95 % together. Figures without one decide nothing.
";
        assert_eq!(text, expected);
        assert!(is_worse(&comparison()));
    }

    #[test]
    fn a_line_for_a_pair_has_the_ratio_so_far_or_why_the_pair_does_not_count() {
        let mut comparison = comparison();
        let line = progress(&comparison);
        let expected = "pair 1 of at most 60: delivered-per-second A/B 1.234 [1.210, 1.260] differs; cpu-per-million A/B \
                        0.987 [0.967, 1.007] same within 5 %";
        assert_eq!(line, expected);
        let dropped = DroppedPair { pair: 8, service: Name::from_static("ours-b"), reason: "busy".into() };
        comparison.progress.dropped.push(dropped);
        comparison.progress.end = None;
        assert_eq!(progress(&comparison), "pair 8 doesn't count, so it is measured again: ours-b: busy");
    }

    #[test]
    fn what_is_not_shown_says_how_many_pairs_it_would_take() {
        let mut look = look(ComparedFigure::P99OfResponse, (1.5e6, 1.6e6), ComparisonVerdict::NotShown);
        assert!(row(&look)[6].ends_with("would take too many pairs"));
        look.pairs_needed = Some(54);
        let [name, a, b, .., verdict] = row(&look);
        let cells = [name, a, b, verdict].join(" | ");
        assert_eq!(cells, "p99-of-response | 1.50 ms | 1.60 ms | no difference shown; 5 % would take 54 pairs");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.01234, 1.234, 12.34, 1234.0].map(digits), ["0.0123", "1.23", "12.3", "1234"]);
    }
}
