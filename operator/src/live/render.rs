//! The lines of the live part, for a terminal of any width. Pure.

use std::time::{Duration, Instant};

use bench_format::buckets::least_ns;
use driver::live::{LivePhase, LiveTrial};

use super::figures::{LiveFigures, latency_name};
use crate::print::count;

/// Most columns of the small histogram, and of the bar.
const COLUMNS: usize = 20;
/// The eighths of a column.
const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Between two parts of a line.
const GAP: &str = "   ";

/// What is known of the whole climb.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Id of the run.
    pub run: String,
    /// Number of the current trial, from 1; 0 before the first.
    pub trial: usize,
    /// Number of trials of the run; absent where a search or a comparison adds them as it goes.
    pub trials: Option<usize>,
    /// When the last trial has ended, by estimate; absent where the number of trials isn't known.
    pub ends: Option<Instant>,
    /// What is done at the moment where no trial runs.
    pub step: &'static str,
}

/// The lines, each of at most `width` columns; parts that don't fit are left out, the last ones first.
pub fn lines(course: &Course, trial: Option<&LiveTrial>, width: usize, now: Instant) -> Vec<String> {
    let mut lines = vec![fitted(&head(course, now), width)];
    match trial {
        Some(trial) => {
            let figures = LiveFigures::of(trial);
            lines.push(fitted(&place(trial, now), width));
            let LiveFigures { due_per_second, sent_per_second, answered_per_second, opened_per_second, .. } = figures;
            let per_second = [due_per_second, sent_per_second, answered_per_second, opened_per_second];
            lines.push(fitted(&rates(per_second, figures.errors, figures.open, trial.connections), width));
            lines.extend(latencies(trial, &figures).map(|parts| fitted(&parts, width)));
            lines.extend(cpu(figures.service_cpu, figures.workers_cpu).map(|parts| fitted(&parts, width)));
        }
        None => lines.push(fitted(&[format!("  {}", course.step)], width)),
    }
    lines
}

fn head(course: &Course, now: Instant) -> Vec<String> {
    let of = course.trials.map(|trials| format!(" of {trials}")).unwrap_or_default();
    let mut parts = vec![match course.trial {
        0 => course.run.clone(),
        trial => format!("trial {trial}{of}"),
    }];
    parts.extend(course.ends.map(|ends| format!("about {} left", length(ends.saturating_duration_since(now)))));
    parts
}

/// The trial and where it is.
fn place(trial: &LiveTrial, now: Instant) -> Vec<String> {
    let phase = match trial.phase {
        LivePhase::Opening => "opening connections",
        LivePhase::WarmUp => "warm-up",
        LivePhase::Window => "window",
        LivePhase::Drain => "drain",
    };
    let elapsed = now.saturating_duration_since(trial.since);
    let mut parts = vec![format!("  {}", trial.trial)];
    match trial.until.map(|until| until.saturating_duration_since(trial.since)) {
        Some(whole) if !whole.is_zero() => {
            let elapsed = elapsed.min(whole);
            parts.push(format!("{phase} {:.0} of {:.0} s", elapsed.as_secs_f64(), whole.as_secs_f64()));
            parts.push(bar(elapsed.as_secs_f64() / whole.as_secs_f64()));
        }
        _ => parts.push(format!("{phase} {:.0} s", elapsed.as_secs_f64())),
    }
    parts
}

/// What is due, sent, answered and opened per second, the errors, and how many of the `connections` are open; `open` is absent
/// before the first report.
pub fn rates(per_second: [Option<f64>; 4], errors: u64, open: Option<u64>, connections: u32) -> Vec<String> {
    let Some(open) = open else { return vec!["  the workers report nothing yet".into()] };
    let rate =
        |(rate, what): (Option<f64>, &str)| Some(format!("{what} {}/s", count(rate.filter(|rate| *rate > 0.0)?)));
    let rates = per_second.into_iter().zip(["due", "sent", "answered", "opened"]).filter_map(rate);
    let counts = [format!("errors {errors}"), format!("{open} of {connections} open")];
    let mut parts: Vec<String> = rates.chain(counts).collect();
    parts[0].insert_str(0, "  ");
    parts
}

/// Percentiles and the histogram; `None` without latencies.
fn latencies(trial: &LiveTrial, figures: &LiveFigures) -> Option<Vec<String>> {
    let label = latency_name(trial);
    let ms = |percentile| figures.percentile_ns(percentile).map(milliseconds);
    let mut parts = vec![format!("  {label} p50 ~{} ms", ms(50.0)?), format!("p99 ~{} ms", ms(99.0)?)];
    parts.extend(histogram(&figures.latencies));
    Some(parts)
}

/// The shares of their CPUs that the service and the workers use; `None` if neither is known.
pub fn cpu(service: Option<f64>, workers: Option<f64>) -> Option<Vec<String>> {
    let share = |share: Option<f64>, side: &str| share.map(|share| format!("{side} {:.0} %", share * 100.0));
    let sides = [share(service, "service"), share(workers, "workers")];
    let mut parts: Vec<String> = sides.into_iter().flatten().collect();
    parts.first_mut()?.insert_str(0, "  CPU: ");
    Some(parts)
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * COLUMNS as f64) as usize;
    "█".repeat(full) + &"░".repeat(COLUMNS - full)
}

/// The counts from the first to the last bucket that isn't empty, with the values at both sides.
fn histogram(counts: &[u64]) -> Option<String> {
    let first = counts.iter().position(|count| *count > 0)?;
    let last = counts.iter().rposition(|count| *count > 0)?;
    let per_column = (last - first + 1).div_ceil(COLUMNS);
    let sum = |buckets: &[u64]| buckets.iter().map(|count| *count as f64).sum::<f64>();
    let columns: Vec<f64> = counts[first..=last].chunks(per_column).map(sum).collect();
    let most = columns.iter().copied().fold(1.0, f64::max);
    let drawn: String = columns.iter().map(|count| column(count / most)).collect();
    Some(format!("{} {drawn} {} ms", milliseconds(least_ns(first)), milliseconds(least_ns(last + 1))))
}

/// A column of this share of the highest; one that isn't empty has at least an eighth.
fn column(share: f64) -> char {
    if share == 0.0 {
        return ' ';
    }
    EIGHTHS[((share * EIGHTHS.len() as f64).ceil() as usize).clamp(1, EIGHTHS.len()) - 1]
}

/// As many parts as fit into a line of `width` columns, the first ones; of a first part that is longer, its beginning.
pub fn fitted(parts: &[String], width: usize) -> String {
    let mut line = String::new();
    for (at, part) in parts.iter().enumerate() {
        let gap = if at == 0 { "" } else { GAP };
        if line.chars().count() + gap.len() + part.chars().count() > width {
            break;
        }
        line += gap;
        line += part;
    }
    match parts.first() {
        Some(first) if line.is_empty() => first.chars().take(width).collect(),
        _ => line,
    }
}

/// A number of milliseconds with the two digits that a bucket can have.
pub fn milliseconds(ns: u64) -> String {
    match ns as f64 / 1e6 {
        ms if ms >= 10.0 => format!("{ms:.0}"),
        ms if ms >= 1.0 => format!("{ms:.1}"),
        ms if ms >= 0.1 => format!("{ms:.2}"),
        ms => format!("{ms:.3}"),
    }
}

/// A length of time as a person says it.
fn length(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds @ 90..5400 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use bench_format::plan::Load;

    use super::{super::figures::fixture, *};

    fn course(now: Instant) -> Course {
        let ends = Some(now + Duration::from_secs(250));
        Course { run: "quick-1".into(), trial: 3, trials: Some(12), ends, step: "starting the service" }
    }

    #[test]
    fn a_wide_terminal_shows_everything() {
        let now = Instant::now();
        let expected = [
            "trial 3 of 12   about 4 min left",
            "  honest/request-reply/standard/50-p1-r1   window 4 of 10 s   ████████░░░░░░░░░░░░",
            "  due 1000/s   sent 1000/s   answered 1000/s   errors 2   100 of 100 open",
            "  response p50 ~0.031 ms   p99 ~1.0 ms   0.029 █         ▁ 1.0 ms",
            "  CPU: service 75 %   workers 50 %",
        ];
        assert_eq!(lines(&course(now), Some(&fixture::trial(now)), 100, now), expected);
    }

    #[test]
    fn a_narrow_terminal_shows_what_fits_and_no_line_is_wider() {
        let now = Instant::now();
        let expected = [
            "trial 3 of 12",
            "  honest/request-reply/standar",
            "  due 1000/s   sent 1000/s",
            "  response p50 ~0.031 ms",
            "  CPU: service 75 %",
        ];
        assert_eq!(lines(&course(now), Some(&fixture::trial(now)), 30, now), expected);
        for width in 0..120 {
            let lines = lines(&course(now), Some(&fixture::trial(now)), width, now);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
        }
    }

    #[test]
    fn a_closed_loop_has_no_due_rate_and_workers_that_report_nothing_show_less() {
        let now = Instant::now();
        let mut trial = fixture::trial(now);
        trial.load = Load::Closed { messages_per_connection: None, in_flight: 1 };
        assert!(lines(&course(now), Some(&trial), 100, now)[2].starts_with("  sent 1000/s   answered"));
        trial.workers.clear();
        trial.service.clear();
        (trial.phase, trial.until) = (LivePhase::Opening, None);
        let expected = [
            "trial 3 of 12   about 4 min left",
            "  honest/request-reply/standard/50-p1-r1   opening connections 4 s",
            "  the workers report nothing yet",
        ];
        assert_eq!(lines(&course(now), Some(&trial), 100, now), expected);
    }

    #[test]
    fn between_trials_the_step_is_shown() {
        let now = Instant::now();
        let between = lines(&Course { trials: None, ends: None, ..course(now) }, None, 80, now);
        assert_eq!(between, ["trial 3", "  starting the service"]);
    }

    #[test]
    fn every_column_that_is_not_empty_is_drawn() {
        assert_eq!([0.0, 0.001, 0.5, 1.0].map(column), [' ', '▁', '▄', '█']);
    }
}
