//! Output for the terminal: a line per trial during the climb, a table at the end.

use bench_format::{
    histogram::milliseconds,
    plan::Load,
    result::{
        BUSY_SHARE, BoundBy, BoundMeasure, BoundSide, Equation, FIXED_WORK_REMARK, Reason, ReasonKind, SAMPLES_LOST,
        STEAL_SHARE, Shown, TrialResult, Validity, Witness,
    },
    run::{Run, TrialState},
    timeline::Overhead,
};

use judge::why;

use crate::store;
use std::path::Path;

pub mod budgets;
pub mod compare;
pub mod search;
mod turnover;

/// Limit of the length of a failure reason in a table cell, in characters.
const LONGEST_CELL: usize = 90;

/// One line for a trial.
pub fn line(result: &TrialResult) -> String {
    format!("{}: {}", result.trial, description(result))
}

/// The standing of a trial, the party that bound it, and its key figure.
pub fn description(result: &TrialResult) -> String {
    let mut description = standing(result);
    if let Some(bound_by) = result.bound_by {
        description += &format!(", bound by {}", name(bound_by));
        let why = why(bound_by, result.bound_checks.as_deref().unwrap_or_default());
        if !why.is_empty() {
            description += &format!(" ({why})");
        }
    }
    let busy = busy(result).map(|busy| format!(" (machine busy: {busy})")).unwrap_or_default();
    joined([description, figure(result)]) + &busy + &reported(result)
}

/// What the service's own counters say otherwise, where that leaves the trial valid; empty if they agree.
fn reported(result: &TrialResult) -> String {
    let remarks = result.books.equations.iter().filter(|equation| equation.is_remark).filter_map(Equation::difference);
    let missing = result.service.after.iter().flat_map(|after| &after.missing);
    let missing = missing.map(|(name, text)| format!("no {name}: its page has no {text}"));
    let all: Vec<String> = remarks.chain(missing).collect();
    if all.is_empty() { all.concat() } else { format!(" (the service's counters: {})", all.join("; ")) }
}

/// The key figure of a trial, and what was missed.
fn figure(result: &TrialResult) -> String {
    joined([key_figure(result), missed(result)])
}

fn joined(parts: [String; 2]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Messages that were not answered, or not correctly, publications that did not arrive, and connections that ended early;
/// empty without any.
fn missed(result: &TrialResult) -> String {
    let counts = &result.messages;
    let is_witnessed = matches!(result.witness, Witness::Reply | Witness::Receiver);
    let of = |count: u64, what: &str| (is_witnessed && count > 0).then(|| format!("{count} of {} {what}", counts.due));
    let messages = [of(counts.lost, "lost"), of(counts.wrong, "wrong"), of(counts.unsent, "unsent")];
    let connections = match &result.turnover {
        Some(turnover) => turnover::missed(turnover, &result.connections),
        None => turnover::ended_early(&result.connections).into_iter().collect(),
    };
    messages.into_iter().flatten().chain(connections).collect::<Vec<_>>().join(", ")
}

/// What others took of the trial's CPUs, if that is worth a remark; the trial is valid all the same.
fn busy(result: &TrialResult) -> Option<String> {
    let is_reason = |reason: &Reason| reason.kind == ReasonKind::MachineBusy;
    if matches!(&result.validity, Validity::Invalid { reasons } if reasons.iter().any(is_reason)) {
        return None;
    }
    let machine = result.machine.as_ref()?;
    let unusual = machine.fixed_work.as_ref().and_then(|work| work.unusual(FIXED_WORK_REMARK));
    let parts = [machine.others(BUSY_SHARE), machine.stolen(STEAL_SHARE), unusual];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// `passed`, `failed`, `valid` (without objectives), or `invalid` with its reasons. A trial that has too few replies for
/// its budget of errors has passed the rest.
pub fn standing(result: &TrialResult) -> String {
    match (&result.validity, &result.verdict) {
        (Validity::Invalid { reasons }, _) => {
            let description: Vec<&str> = reasons.iter().map(|reason| reason.detail.as_str()).collect();
            format!("invalid: {}", description.join("; "))
        }
        (Validity::Valid, Some(verdict)) if verdict.passed => {
            let budgets = verdict.objectives.iter().filter_map(|judged| judged.budget.as_ref());
            let open = budgets.filter(|budget| budget.shown == Shown::NotShown).count();
            if open == 0 { "passed".into() } else { "passed, errors not shown".into() }
        }
        (Validity::Valid, Some(_)) => "failed".into(),
        (Validity::Valid, None) => "valid".into(),
    }
}

/// The main figure of a workload, with the load model where it is a closed loop.
pub fn key_figure(result: &TrialResult) -> String {
    let figures = &result.figures;
    // If the generator bound the trial, the figure is only a lower bound of what the service can carry.
    let at_least = match result.bound_by {
        Some(BoundBy::Generator | BoundBy::Both) => ">= ",
        _ => "",
    };
    let latency = |name: &str, label: &str| {
        let percentiles = result.percentiles.get(name)?;
        let printed = |ns: u64| format!("{} ms", milliseconds(ns));
        let ms = |p: &str| percentiles.get(p).copied().flatten().map_or("n/a".into(), printed);
        let any = percentiles.values().any(Option::is_some);
        any.then(|| format!("{label} p50 {} p99 {}", ms("p50"), ms("p99")))
    };
    let closed = if matches!(result.load, Load::Closed { .. }) { " (closed loop)" } else { "" };
    let rate = |value: f64, what: &str| format!("{at_least}{} {what}/s", count(value));
    if matches!(result.load, Load::Reconnect { .. }) {
        return turnover::reconnected(figures, !at_least.is_empty());
    }
    if matches!(result.load, Load::Churn { .. }) {
        let parts = [latency("response_ns", "response"), latency("handshake_ns", "handshake")];
        return parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    }
    if let Some(accepted) = figures.accepted_per_second {
        let latency =
            latency("handshake_ns", "handshake").map(|description| format!(", {description}")).unwrap_or_default();
        return format!("{}{latency}", rate(accepted, "connections"));
    }
    if matches!(result.load, Load::Sessions { .. }) {
        return sessions(result);
    }
    if let Some(description) = latency("response_ns", "response").or_else(|| latency("service_ns", "service")) {
        return format!("{description}{closed}");
    }
    match (figures.delivered_per_second, figures.received_per_second) {
        (Some(delivered), _) if delivered > 0.0 => rate(delivered, "delivered"),
        (_, Some(received)) => rate(received, "received"),
        _ => String::new(),
    }
}

/// The figures of sessions: the age of the newest and the oldest audio of each reply, and the failures.
fn sessions(result: &TrialResult) -> String {
    let age = |name: &str, label: &str| {
        let percentiles = result.percentiles.get(name);
        let at = |percentile: &str| percentiles.and_then(|all| all.get(percentile).copied().flatten());
        let ms = |percentile: &str| at(percentile).map_or("n/a".into(), milliseconds);
        format!("{label} p50 {} p95 {} ms", ms("p50"), ms("p95"))
    };
    let failures = &result.failures.window;
    let errors = match failures.values().sum::<u64>() {
        0 => "no errors".to_owned(),
        all => {
            let kinds: Vec<String> = failures.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            format!("{all} errors ({})", kinds.join(", "))
        }
    };
    let lost = result.failures.outside.get(SAMPLES_LOST);
    let lost = lost.map(|rows| format!(", {rows} rows missing from the samples")).unwrap_or_default();
    format!("{}, {}, {errors}{lost}", age("newest_ns", "newest"), age("oldest_ns", "oldest"))
}

/// All trials of a run as a table.
pub fn table(bundle: &Path, run: &Run) -> String {
    let head = ["trial", "standing", "bound by", "figure", "service CPU"].map(String::from);
    let rows = run.trials.iter().map(|entry| {
        let trial = entry.trial.to_string();
        let bare = |standing: String| [trial.clone(), standing, String::new(), String::new(), String::new()];
        match &entry.state {
            TrialState::Finished { .. } => match store::read_result(bundle, &entry.trial) {
                Ok(result) => row(trial, &result),
                Err(error) => bare(format!("unreadable: {error}")),
            },
            TrialState::Crashed { cause, reason } => bare(shorten(&format!("failed: {}: {reason}", cause.as_str()))),
            TrialState::Failed { reason } => bare(shorten(&format!("not measured: {reason}"))),
            TrialState::Pending | TrialState::Started { .. } => bare("not climbed yet".into()),
        }
    });
    align(std::iter::once(head).chain(rows).collect())
}

/// The longest time between trials, by kind of transition.
pub fn overhead(overhead: &Overhead) -> String {
    let Overhead { before_first, within_process, within_tier, between_tiers } = *overhead;
    let known = [
        ("before the first trial", before_first),
        ("between trials of a process", within_process),
        ("between processes of a tier", within_tier),
        ("between tiers", between_tiers),
    ];
    let description =
        known.into_iter().filter_map(|(place, longest)| Some(format!("{place} {:.1} s", longest?.as_secs_f64())));
    let description: Vec<String> = description.collect();
    if description.is_empty() {
        "no trial was climbed".into()
    } else {
        format!("overhead at most: {}", description.join(", "))
    }
}

fn row(trial: String, result: &TrialResult) -> [String; 5] {
    let standing = match &result.validity {
        Validity::Valid if busy(result).is_some() => format!("{}, machine busy", standing(result)),
        Validity::Valid => standing(result),
        Validity::Invalid { reasons } => {
            let kinds: Vec<String> = reasons.iter().map(|reason| reason.kind.to_string()).collect();
            format!("invalid: {}", kinds.join(", "))
        }
    };
    let bound_by = result.bound_by.map(|bound_by| bound_cell(bound_by, result)).unwrap_or_default();
    let share = result.figures.service_cpu_share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default();
    [trial, standing, bound_by, figure(result), share]
}

/// The party that bound a trial, with what was used up where that isn't the CPU of the whole side. The line of the trial
/// says it in full.
fn bound_cell(bound_by: BoundBy, result: &TrialResult) -> String {
    let checks = result.bound_checks.as_deref().unwrap_or_default();
    let side = match bound_by {
        BoundBy::Service => BoundSide::Service,
        BoundBy::Generator => BoundSide::Generator,
        BoundBy::Inference => BoundSide::Inference,
        BoundBy::Both | BoundBy::Neither | BoundBy::Machine => return name(bound_by),
    };
    let used_up =
        checks.iter().filter(|check| check.side == side && check.reached() && check.measure != BoundMeasure::Waiting);
    let first = used_up.map(|check| check.measure).min();
    match first.filter(|measure| *measure != BoundMeasure::Cpu) {
        Some(measure) => format!("{} ({})", name(bound_by), serialized_name(&measure)),
        None => name(bound_by),
    }
}

fn align<const COLUMNS: usize>(rows: Vec<[String; COLUMNS]>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// The name that the bundle uses for a value.
fn serialized_name<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn name(bound_by: BoundBy) -> String {
    serialized_name(&bound_by)
}

/// Shortens a text for a table cell. The full text was printed when it occurred and is in `run.json`.
fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST_CELL) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// A number with three significant digits: `980`, `12.3 k`, `4.56 M`.
pub fn count(value: f64) -> String {
    let (scaled, unit) = match value {
        value if value >= 1e6 => (value / 1e6, " M"),
        value if value >= 1e4 => (value / 1e3, " k"),
        value => (value, ""),
    };
    match scaled {
        scaled if scaled >= 100.0 || unit.is_empty() => format!("{scaled:.0}{unit}"),
        scaled if scaled >= 10.0 => format!("{scaled:.1}{unit}"),
        scaled => format!("{scaled:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench_format::result::{BoundCheck, CpuGroup, FixedWork, FixedWorkTime, ForeignProcess, MachineUse};
    use bench_format::websocket::Counter;
    use judge::fixture::{flood, with_counters};

    #[test]
    fn a_line_has_standing_bound_and_figure() {
        let mut result = flood().judge().unwrap().result;
        let looked_at = "CPU of the service 50 %, CPU of the generator 25 %";
        let neither = format!("valid, bound by neither ({looked_at}), 900 delivered/s");
        assert_eq!(line(&result), format!("ours/throughput/standard/20-p1-r1: {neither}"));
        (result.bound_by, result.bound_checks) = (Some(BoundBy::Generator), None);
        assert!(line(&result).ends_with("bound by generator, >= 900 delivered/s"), "an older bundle");
    }

    #[test]
    fn a_line_says_why_connections_ended_early() {
        let mut result = flood().judge().unwrap().result;
        result.connections.closed_early.insert("deflate_too_long".into(), 4);
        assert!(line(&result).ends_with(", 4 connections ended early (4 deflate_too_long)"), "{}", line(&result));
    }

    #[test]
    fn what_the_services_counters_say_otherwise_is_a_remark() {
        let mut files = with_counters(flood(), Witness::Reply, &[Counter::Received, Counter::Delivered]);
        files.uploads[0].messages.delivered = 2500;
        let after = files.service.readings.after.as_mut().unwrap();
        after.stats.messages.received -= 3;
        after.missing.insert("delivered".into(), "handled_total".into());
        let line = line(&files.judge().unwrap().result);
        assert!(line.contains(": valid, "), "{line}");
        let remark = "(the service's counters: received (service) = sent + unnumbered (workers): 2507 against 2510 (sent \
                      2500, unnumbered 10); no delivered: its page has no handled_total)";
        assert!(line.ends_with(remark), "{line}");
    }

    #[test]
    fn a_busy_machine_is_remarked_with_the_process_that_took_most() {
        let mut result = flood().judge().unwrap().result;
        let group = CpuGroup { cpus: vec![0], busy_ns: 100_000_000, ..CpuGroup::default() };
        let process = ForeignProcess { pid: Some(71), name: "rustc".into(), cpu_ns: 90_000_000 };
        let mut used =
            MachineUse { seconds: 2.0, groups: vec![group], busiest: vec![process], ..MachineUse::default() };
        result.machine = Some(used.clone());
        let remark = " (machine busy: others used 5.0 % of CPU 0, rustc (process 71) most)";
        assert!(line(&result).ends_with(&format!("900 delivered/s{remark}")), "{}", line(&result));
        assert_eq!(row(String::new(), &result)[1], "valid, machine busy");
        used.seconds = 5.0;
        let time = FixedWorkTime { cpu: 1, before_ns: 1030, after_ns: 1000, median_ns: Some(1000) };
        let slower = FixedWork { rounds: 9, cpus: vec![time] };
        result.machine = Some(MachineUse { fixed_work: Some(slower), ..used.clone() });
        let remark = " (machine busy: fixed work took 3.0 % longer than usual on CPU 1)";
        assert!(line(&result).ends_with(remark), "{}", line(&result));
        result.machine = Some(used);
        assert_eq!(row(String::new(), &result)[1], "valid");
    }

    #[test]
    fn the_table_says_what_was_used_up_where_it_is_not_the_cpu_of_the_side() {
        let mut result = flood().judge().unwrap().result;
        let check = |measure, share| BoundCheck { side: BoundSide::Service, measure, share, limit: 0.5, thread: None };
        let mut cell = |checks: &[BoundCheck]| {
            result.bound_checks = Some(checks.to_vec());
            bound_cell(BoundBy::Service, &result)
        };
        let (quota, waiting) = (check(BoundMeasure::Quota, 0.6), check(BoundMeasure::Waiting, 0.6));
        assert_eq!(cell(&[check(BoundMeasure::Cpu, 0.4), quota.clone(), waiting]), "service (quota)");
        assert_eq!(cell(&[check(BoundMeasure::Cpu, 0.6), quota]), "service");
    }

    #[test]
    fn sessions_show_the_age_of_their_audio_and_their_failures() {
        let mut result = flood().judge().unwrap().result;
        result.load = Load::Sessions { ramp_seconds: 1.0, spread_ms: 0.0, in_flight: 1 };
        let percentiles = |p50, p95| [("p50".to_owned(), Some(p50)), ("p95".to_owned(), p95)].into();
        result
            .percentiles
            .insert(bench_format::Name::from_static("newest_ns"), percentiles(98_100_000, Some(152_000_000)));
        result.percentiles.insert(bench_format::Name::from_static("oldest_ns"), percentiles(1_080_000_000, None));
        let description = "newest p50 98.1 p95 152 ms, oldest p50 1080 p95 n/a ms, ";
        assert_eq!(key_figure(&result), format!("{description}no errors"));
        result.failures.window = [("inference_request/timeout".into(), 3), ("session/reset".into(), 1)].into();
        let failed = format!("{description}4 errors (inference_request/timeout 3, session/reset 1)");
        assert_eq!(key_figure(&result), failed);
        result.failures.outside = [(SAMPLES_LOST.into(), 256)].into();
        assert_eq!(key_figure(&result), format!("{failed}, 256 rows missing from the samples"));
    }

    #[test]
    fn counts_have_three_significant_digits() {
        let counts = [7.0, 980.0, 9999.0, 12_345.0, 123_456.0, 4_561_000.0].map(count);
        assert_eq!(counts, ["7", "980", "9999", "12.3 k", "123 k", "4.56 M"]);
    }

    #[test]
    fn a_long_reason_is_cut_to_a_cell() {
        assert_eq!(shorten("short\nand more"), "short");
        let cut = shorten(&"ä".repeat(200));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (91, true));
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let row = |a: &str, b: &str| [a.into(), b.into(), String::new(), String::new(), String::new()];
        assert_eq!(align(vec![row("a", "x"), row("long", "y")]), "a     x\nlong  y\n");
    }
}
