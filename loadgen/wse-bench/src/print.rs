//! Results for people and for programs. A figure that the samples can't carry prints as `n/a`.

use std::fmt::Write as _;

use bench_format::{histogram, plan::Load};

use crate::{
    cli::Output,
    outcome::{Measured, Outcome},
    workloads::Workload,
};

/// Prints outcomes as they come.
pub struct Printer {
    output: Output,
    with_service: bool,
    outcomes: Vec<Outcome>,
    open_table: Option<Workload>,
}

impl Printer {
    /// For an output; `with_service` makes room for the service's own counters.
    pub fn new(output: Output, with_service: bool) -> Self {
        Self { output, with_service, outcomes: Vec::new(), open_table: None }
    }

    /// Shows one outcome.
    pub fn show(&mut self, workload: Workload, outcome: Outcome) {
        if self.output != Output::Json {
            if self.open_table != Some(workload) {
                print!("{}", self.heading(workload, &outcome));
                self.open_table = Some(workload);
            }
            print!("{}", self.row(workload, &outcome));
        }
        self.outcomes.push(outcome);
    }

    /// Prints what waits for the end: the list of results, or the problems of all rows.
    pub fn finish(self) {
        if self.output == Output::Json {
            let json = serde_json::to_string_pretty(&self.outcomes).expect("results are plain data");
            println!("{json}");
            return;
        }
        let unclean: Vec<_> = self.outcomes.iter().filter(|outcome| !outcome.is_clean()).collect();
        if !unclean.is_empty() {
            println!("\nNot clean:");
        }
        for outcome in unclean {
            for problem in &outcome.problems {
                println!("  {} {}: {problem}", outcome.asked.test, outcome.asked.tier);
            }
        }
        println!();
    }

    fn heading(&self, workload: Workload, outcome: &Outcome) -> String {
        let columns = columns(workload, &outcome.asked.load, self.with_service);
        let mut text = format!("\n{}\n\n", sentence(outcome, self.with_service));
        if self.output == Output::Markdown {
            text.insert_str(1, "## ");
            let _ = writeln!(text, "| {} |", columns.join(" | "));
            let _ = writeln!(text, "|{}", "---:|".repeat(columns.len()));
            return text;
        }
        let titles: Vec<_> = columns.iter().map(|title| format!("{title:>width$}", width = width(title))).collect();
        let _ = writeln!(text, "{}", titles.join("  "));
        let lines: Vec<_> = columns.iter().map(|title| "-".repeat(width(title))).collect();
        let _ = writeln!(text, "{}", lines.join("  "));
        text
    }

    fn row(&self, workload: Workload, outcome: &Outcome) -> String {
        let columns = columns(workload, &outcome.asked.load, self.with_service);
        let cells = match &outcome.measured {
            Some(measured) => cells(workload, outcome, measured, self.with_service),
            None => vec![count(u64::from(outcome.asked.tier)), "failed".into()],
        };
        let mark = if outcome.is_clean() { "" } else { " !" };
        if self.output == Output::Markdown {
            let filled: Vec<_> = (0..columns.len()).map(|at| cells.get(at).map_or("", String::as_str)).collect();
            return format!("| {}{mark} |\n", filled.join(" | "));
        }
        let padded: Vec<_> =
            cells.iter().zip(&columns).map(|(cell, title)| format!("{cell:>width$}", width = width(title))).collect();
        format!("{}{mark}\n", padded.join("  "))
    }
}

fn width(title: &str) -> usize {
    title.chars().count().max(10)
}

/// One line that says what the table's numbers are.
fn sentence(outcome: &Outcome, with_service: bool) -> String {
    let asked = &outcome.asked;
    let evidence = outcome.measured.as_ref().and_then(|measured| measured.workers.first());
    let load = match &asked.load {
        Load::Open { rate_per_second, arrivals } => {
            format!("open loop, {rate_per_second} per second ({})", format!("{arrivals:?}").to_lowercase())
        }
        Load::Closed { .. } => "closed loop".into(),
    };
    let mut text = format!("{}: {load}, {} worker(s)", asked.test, asked.workers);
    if asked.test == Workload::Throughput.name() {
        let message = &asked.message;
        let _ = write!(text, ", {} of {} bytes, {} per write", message.format, message.size_bytes, message.coalesce);
        let witness = if with_service { "the application" } else { "none (give --stats-url): written is not received" };
        let _ = write!(text, ", witness {witness}");
    }
    if let Some(evidence) = evidence {
        let _ = write!(text, ", TCP_NODELAY, {}", evidence.congestion_control);
    }
    text
}

fn columns(workload: Workload, load: &Load, with_service: bool) -> Vec<&'static str> {
    let mut columns = vec!["connections"];
    match workload {
        Workload::ConnectionStorm => columns.extend(["accepted/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "failed"]),
        Workload::PingLatency => {
            columns.extend([
                "pings",
                "pings/s",
                "p50 ms",
                "p95 ms",
                "p99 ms",
                "p99.9 ms",
                "p99.99 ms",
                "max ms",
                "lost",
            ]);
        }
        Workload::Throughput => {
            columns.extend(["written/s", "MB/s", "per write", "CPU ns/msg"]);
            if with_service {
                columns.extend(["received/s", "delivered/s", "delivered", "dropped"]);
            }
            columns.push("unsent");
        }
    }
    if matches!(load, Load::Open { .. }) && workload != Workload::ConnectionStorm {
        columns.extend(["delay p50", "delay p99"]);
    }
    columns
}

fn cells(workload: Workload, outcome: &Outcome, measured: &Measured, with_service: bool) -> Vec<String> {
    let Measured { figures, connections, messages, window, .. } = measured;
    let percentile = |histogram: &str, name: &str| {
        milliseconds(measured.percentiles.get(histogram).and_then(|all| all.get(name).copied().flatten()))
    };
    let mut cells = vec![count(u64::from(outcome.asked.tier))];
    match workload {
        Workload::ConnectionStorm => {
            cells.push(rate(figures.accepted_per_second));
            cells.extend(["p50", "p95", "p99", "p99.9"].map(|name| percentile("handshake_ns", name)));
            cells.push(count(connections.attempted - connections.open));
        }
        Workload::PingLatency => {
            cells.extend([count(window.replies), rate(figures.delivered_per_second)]);
            let names = ["p50", "p95", "p99", "p99.9", "p99.99", "max"];
            cells.extend(names.map(|name| percentile("response_ns", name)));
            cells.push(count(messages.lost + messages.wrong));
        }
        Workload::Throughput => {
            let bytes = messages.bytes_sent as f64 / messages.sent.max(1) as f64;
            cells.extend([
                rate(figures.written_per_second),
                number(figures.written_per_second.map(|rate| rate * bytes / 1e6), 1),
                number(figures.messages_per_write, 1),
                number(figures.worker_cpu_seconds_per_million.map(|seconds| seconds * 1e3), 0),
            ]);
            if with_service {
                cells.extend([
                    rate(figures.received_per_second),
                    rate(figures.delivered_per_second),
                    count(messages.delivered),
                    count(messages.dropped.values().sum()),
                ]);
            }
            cells.push(count(messages.unsent));
        }
    }
    if matches!(outcome.asked.load, Load::Open { .. }) && workload != Workload::ConnectionStorm {
        cells.extend(["p50", "p99"].map(|name| percentile("delay_ns", name)));
    }
    cells
}

fn milliseconds(ns: Option<u64>) -> String {
    ns.map_or("n/a".into(), histogram::milliseconds)
}

fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => "n/a".into(),
        Some(rate) if rate >= 1e6 => format!("{:.2}M", rate / 1e6),
        Some(rate) => count(rate.round() as u64),
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("n/a".into(), |value| format!("{value:.digits$}"))
}

/// With commas between the thousands.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(rate(Some(14_700_000.0)), "14.70M");
        assert_eq!(rate(Some(15_020.4)), "15,020");
        assert_eq!(milliseconds(Some(380_000)), "0.380");
        assert_eq!(milliseconds(Some(498_700_000)), "499");
    }

    #[test]
    fn what_is_not_known_prints_as_such() {
        assert_eq!((milliseconds(None), rate(None), number(None, 1)), ("n/a".into(), "n/a".into(), "n/a".into()));
    }

    #[test]
    fn every_row_has_as_many_cells_as_columns() {
        let load = Load::Open { rate_per_second: 10.0, arrivals: Default::default() };
        for workload in Workload::ALL {
            for with_service in [false, true] {
                let outcome = crate::outcome::tests_support::empty(workload, load.clone());
                let measured = outcome.measured.as_ref().unwrap();
                let cells = cells(workload, &outcome, measured, with_service);
                assert_eq!(cells.len(), columns(workload, &load, with_service).len(), "{}", workload.name());
            }
        }
    }
}
