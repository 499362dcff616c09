//! Results as tables for people, and as JSON for programs. A figure with too few samples is printed as `n/a`, and a
//! lower bound with `>=`.
//!
//! `table` has the columns of each test, `matrix` the summary of the size matrix, `number` formats numbers.

mod matrix;
mod number;
mod table;

use std::fmt::Write as _;

use bench_format::{plan::Load, result::Witness};

use self::table::{Column, Row, columns};
use crate::{cli::Output, outcome::TierResult, suite::Test, workloads::Workload};

/// Smallest width of a column, in characters.
const NARROWEST: usize = 8;
/// Number of connections for which memory is projected.
const PROJECTED: f64 = 1e6;

/// Prints outcomes as they arrive; JSON only at the end.
pub struct Printer {
    output: Output,
    with_service: bool,
    outcomes: Vec<TierResult>,
}

impl Printer {
    /// `with_service` adds the columns of the service's own counters.
    pub fn new(output: Output, with_service: bool) -> Self {
        Self { output, with_service, outcomes: Vec::new() }
    }

    /// Prints one outcome, or keeps it for the list if the output is JSON.
    pub fn show(&mut self, outcome: TierResult) {
        if self.output != Output::Json {
            if self.test_before() != Some(outcome.request.test) {
                print!("{}{}", self.ending(), self.heading(&outcome));
            }
            print!("{}", self.row(&outcome));
        }
        self.outcomes.push(outcome);
    }

    /// Prints the end: the list of results as JSON, or the last test's ending and the problems of all rows.
    pub fn finish(self) {
        if self.output == Output::Json {
            let json = serde_json::to_string_pretty(&self.outcomes).expect("results are plain data");
            println!("{json}");
            return;
        }
        print!("{}", self.ending());
        let unclean: Vec<_> = self.outcomes.iter().filter(|outcome| !outcome.is_clean()).collect();
        if !unclean.is_empty() {
            println!("\nNot clean:\n");
        }
        for outcome in unclean {
            for problem in &outcome.problems {
                println!("- {} {}: {problem}", outcome.request.test.name(), outcome.request.tier);
            }
        }
        println!();
    }

    fn test_before(&self) -> Option<Test> {
        self.outcomes.last().map(|outcome| outcome.request.test)
    }

    fn columns(&self, outcome: &TierResult) -> Vec<Column> {
        columns(outcome.request.test, outcome.request.load.is_open(), self.with_service)
    }

    fn heading(&self, outcome: &TierResult) -> String {
        let columns = self.columns(outcome);
        let titles: Vec<_> = columns.iter().map(|(title, _)| *title).collect();
        let sentence = sentence(outcome, self.with_service);
        if self.output == Output::Markdown {
            let test = outcome.request.test.name();
            let lines = "---:|".repeat(titles.len());
            return format!("\n## {test}\n\n{sentence}\n\n| {} |\n|{lines}\n", titles.join(" | "));
        }
        let lines: Vec<_> = titles.iter().map(|title| "-".repeat(width(title))).collect();
        let padded: Vec<_> = titles.iter().map(|title| format!("{title:>width$}", width = width(title))).collect();
        format!("\n{sentence}\n\n{}\n{}\n", padded.join("  "), lines.join("  "))
    }

    fn row(&self, outcome: &TierResult) -> String {
        let columns = self.columns(outcome);
        let cells: Vec<_> = match &outcome.measured {
            Some(measured) => {
                let row = Row { outcome, measured, earlier: &self.outcomes };
                columns.iter().map(|(_, cell)| cell(&row)).collect()
            }
            None => vec![number::count(u64::from(outcome.request.tier)), failed(outcome)],
        };
        let mark = if outcome.is_clean() { "" } else { " !" };
        if self.output == Output::Markdown {
            let filled: Vec<_> = (0..columns.len()).map(|at| cells.get(at).map_or("", String::as_str)).collect();
            return format!("| {}{mark} |\n", filled.join(" | "));
        }
        let padded: Vec<_> = cells
            .iter()
            .zip(&columns)
            .map(|(cell, (title, _))| format!("{cell:>width$}", width = width(title)))
            .collect();
        format!("{}{mark}\n", padded.join("  "))
    }

    /// The text below the table of the last test.
    fn ending(&self) -> String {
        match self.test_before() {
            Some(Test::SizeMatrix) => matrix::matrices(&self.outcomes),
            Some(Test::SustainedHold) => self.outcomes.last().map(memory).unwrap_or_default(),
            Some(Test::ConnectionLimit) => {
                let limit = self.outcomes.last().and_then(|outcome| outcome.limit.as_ref());
                limit.map(|limit| format!("\nMost that held: {}\n", limit.description())).unwrap_or_default()
            }
            _ => String::new(),
        }
    }
}

/// The cell of a tier without numbers. A probe shows its reason here: the search goes on, and a probe that doesn't hold
/// isn't listed as a problem.
fn failed(outcome: &TierResult) -> String {
    match (&outcome.probe, outcome.problems.first()) {
        (Some(_), Some(why)) => format!("failed: {why}"),
        _ => "failed".into(),
    }
}

/// Memory of the last tier's connections, and projected for a million; empty when it wasn't measured.
fn memory(outcome: &TierResult) -> String {
    let Some(measured) = &outcome.measured else { return String::new() };
    let (Some(service), Some(kernel)) =
        (measured.figures.service_bytes_per_connection, measured.kernel_bytes_per_connection)
    else {
        return String::new();
    };
    let [service, kernel] = [service, kernel].map(|bytes| bytes.max(0.0));
    let [kib, gib] = [1024.0, f64::from(1 << 30)];
    format!(
        "\nMemory for each of {} connections: {:.1} KiB of the service's process, {:.1} KiB of the kernel for both ends.\n\
         Projected, not measured, 1,000,000 like these: {:.1} GiB and {:.1} GiB.\n",
        number::count(u64::from(outcome.request.tier)),
        service / kib,
        kernel / kib,
        service * PROJECTED / gib,
        kernel * PROJECTED / gib,
    )
}

fn width(title: &str) -> usize {
    title.chars().count().max(NARROWEST)
}

/// The sentence above a table: the load model, the messages, the witness, and the sockets' options.
fn sentence(outcome: &TierResult, with_service: bool) -> String {
    let request = &outcome.request;
    let load = match (&request.load, request.test) {
        (_, Test::ConnectionLimit) => "connections are opened and held, and each is pinged once".into(),
        (Load::Open { rate_per_second, .. }, Test::SustainedHold) => {
            format!("open loop, each connection pinged every {} s", f64::from(request.tier) / rate_per_second)
        }
        (Load::Open { rate_per_second, .. }, test) if test.workload().receives() => {
            format!("the service publishes {rate_per_second} per second to every connection, each due at its time")
        }
        (Load::Closed { .. }, test) if test.workload().receives() => flood(outcome),
        (Load::Open { rate_per_second, arrivals }, _) => {
            format!("open loop, {rate_per_second} per second ({})", format!("{arrivals:?}").to_lowercase())
        }
        (Load::Closed { .. }, _) => "closed loop".into(),
        (Load::Sessions { .. } | Load::Churn { .. } | Load::Reconnect { .. }, _) => {
            unreachable!("these tests have no such load")
        }
    };
    let mut text = format!("{}: {load}", request.test.name());
    let message = &request.message;
    match request.test {
        Test::Throughput => {
            let _ = write!(text, ", {} of {} bytes", message.format, message.size_bytes);
        }
        Test::SizeMatrix => {
            let _ = write!(text, ", {} in six sizes", message.format);
        }
        Test::FormatComparison => {
            let _ = write!(text, ", {} bytes before encoding", message.size_bytes);
        }
        _ => {}
    }
    if request.workload == Workload::Throughput {
        let _ = write!(text, ", {} per write", message.coalesce);
    }
    let _ = write!(text, ", witness {}", witness(request.workload.witness(), with_service));
    if let Some(evidence) = outcome.measured.as_ref().and_then(|measured| measured.workers.first()) {
        let _ = write!(text, ", TCP_NODELAY, {}", evidence.congestion_control);
    }
    text
}

/// How a service publishes without a schedule.
fn flood(outcome: &TierResult) -> String {
    let publisher = outcome.measured.as_ref().and_then(|measured| measured.publisher.as_ref());
    let held_back = match publisher.map(|publisher| publisher.backpressure.as_str()) {
        Some("none") => ", and nothing holds it back: its backlog grows",
        Some("offer") => ", up to its configured number of deliveries: nothing else holds it back",
        Some(_) => ", held back by its backlog",
        None => "",
    };
    format!(
        "the service publishes as fast as it can to every connection{held_back}; age is how old its backlog is, no latency"
    )
}

fn witness(witness: Witness, with_service: bool) -> &'static str {
    match (witness, with_service) {
        (Witness::Application, true) => "the application",
        (Witness::Reply, _) => "the reply",
        (Witness::Receiver, _) => "each receiver",
        _ => "none (give --stats-url): written is not received",
    }
}

#[cfg(test)]
mod tests {
    use bench_format::service::PublisherStats;

    use super::*;
    use crate::outcome::{
        Phase, Probe,
        fixture::{outcome, request, throughput, unwitnessed, with_memory},
    };

    fn printer(output: Output) -> Printer {
        Printer::new(output, true)
    }

    #[test]
    fn every_row_has_as_many_cells_as_its_table_has_columns() {
        for test in Test::ALL {
            let outcome = outcome(request(test, 10), |_| ());
            let printer = printer(Output::Markdown);
            let bars = |text: &str| text.matches('|').count();
            let heading = printer.heading(&outcome);
            let titles = heading.lines().find(|line| line.starts_with("| ")).unwrap();
            assert_eq!(bars(&printer.row(&outcome)), bars(titles), "{}", test.name());
        }
    }

    #[test]
    fn a_failure_is_a_row_too() {
        let outcome = TierResult::failed(request(Test::Throughput, 10), "no luck".into(), String::new());
        let row = printer(Output::Text).row(&outcome);
        assert!(row.contains("10") && row.contains("failed") && row.trim_end().ends_with('!'), "{row}");
        let probe = Probe { phase: Phase::Raise, held: false, side: None, why: None };
        let probed = TierResult { probe: Some(probe), ..outcome };
        assert!(printer(Output::Text).row(&probed).contains("failed: no luck"));
    }

    #[test]
    fn held_connections_report_memory_each_and_for_a_million() {
        let printed =
            |change: fn(&mut judge::fixture::Files)| memory(&outcome(request(Test::SustainedHold, 10), change));
        assert_eq!(
            printed(|files| with_memory(files, 10 << 10, 80 << 10)),
            "\nMemory for each of 10 connections: 1.0 KiB of the service's process, 8.0 KiB of the kernel for both ends.\n\
             Projected, not measured, 1,000,000 like these: 1.0 GiB and 7.6 GiB.\n"
        );
        assert_eq!(printed(|_| ()), "", "a service on another machine");
    }

    #[test]
    fn the_backpressure_of_a_flood_is_printed() {
        let mut outcome = throughput();
        for (backpressure, description) in [
            ("engine", "held back by its backlog"),
            ("offer", "up to its configured number of deliveries"),
            ("none", "nothing holds it back"),
        ] {
            let publisher = PublisherStats { backpressure: backpressure.into(), ..Default::default() };
            outcome.measured.as_mut().unwrap().publisher = Some(publisher);
            assert!(flood(&outcome).contains(description), "{}", flood(&outcome));
        }
    }

    #[test]
    fn the_sentence_names_the_witness() {
        assert!(sentence(&throughput(), true).contains("witness the application"));
        assert!(sentence(&unwitnessed(), false).contains("written is not received"));
    }
}
