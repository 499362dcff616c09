//! The output of the program: one JSON object.

use bench_format::environment::Environment;
use serde::Serialize;

use crate::{
    cli::Cli,
    figure::Figure,
    load::{Cpus, Load},
};

/// Version of the report's format.
const SCHEMA: u32 = 1;

/// A load with its figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    schema: u32,
    #[serde(flatten)]
    load: Load,
    cpus: Cpus,
    figures: Vec<Figures>,
    environment: Environment,
    command: String,
}

/// One figure of all runs, in the order of the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figures {
    name: &'static str,
    unit: &'static str,
    values: Vec<Option<f64>>,
}

impl Report {
    /// Creates a report without figures.
    pub fn new(cli: &Cli, load: &Load) -> Self {
        let arguments: Vec<_> = std::env::args().skip(1).collect();
        Self {
            schema: SCHEMA,
            load: load.clone(),
            cpus: cli.cpus(),
            figures: Vec::new(),
            environment: Environment::read(),
            command: format!("floor {}", arguments.join(" ")),
        }
    }

    /// Adds the figures of a run. All runs of a load have the same figures.
    pub fn add(&mut self, run: Vec<Figure>) {
        for Figure { name, unit, value } in run {
            match self.figures.iter_mut().find(|figures| figures.name == name) {
                Some(figures) => figures.values.push(value),
                None => self.figures.push(Figures { name, unit, values: vec![value] }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::cli::Command;

    #[test]
    fn a_figure_has_a_value_of_each_run() {
        let cli = Cli::parse_from(["floor", "idle", "--connections", "10", "--server-cpu", "1"]);
        let Command::Load(load) = &cli.command else { unreachable!("it is a load") };
        let mut report = Report::new(&cli, load);
        for value in [Some(1.5), None] {
            report.add(vec![Figure { name: "server_memory", unit: "bytes/connection", value }]);
        }
        let json = serde_json::to_value(&report).unwrap();
        let figures = json!([{ "name": "server_memory", "unit": "bytes/connection", "values": [1.5, null] }]);
        assert_eq!(json["figures"], figures);
        assert_eq!((&json["name"], &json["settings"]["connections"]), (&json!("idle"), &json!(10)));
        assert_eq!(json["cpus"], json!({ "server": 1, "client": null }));
    }
}
