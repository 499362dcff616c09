//! Writes the JSON Schemas of all formats that travel or stay on disk: `schemas <folder>`.

use std::{error::Error, fs, path::PathBuf};

use bench_format::{contract, plan, result, run, service, timeline, trial, trial_file};
use schemars::{JsonSchema, schema_for};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: schemas <folder>")?);
    fs::create_dir_all(&folder)?;
    let write = |name: &str, schema: schemars::Schema| -> Result<(), Box<dyn Error>> {
        let text = serde_json::to_string_pretty(&schema)? + "\n";
        Ok(fs::write(folder.join(format!("{name}.schema.json")), text)?)
    };
    write("plan", of::<plan::WirePlan>())?;
    write("run", of::<run::Run>())?;
    write("assignment", of::<trial::Assignment>())?;
    write("trial-file", of::<trial_file::TrialFile>())?;
    write("worker-result", of::<result::WorkerResult>())?;
    write("trial-result", of::<result::TrialResult>())?;
    write("service-file", of::<result::ServiceFile>())?;
    write("contract-file", of::<contract::ContractFile>())?;
    write("timeline-entry", of::<timeline::TimelineEntry>())?;
    write("service-stats", of::<service::ServiceStats>())?;
    write("service-publisher", of::<service::PublisherStats>())?;
    write("service-links", of::<service::LinksStats>())?;
    write("service-processes", of::<service::ProcessesStats>())?;
    write("service-connections", of::<service::ConnectionBooks>())
}

fn of<T: JsonSchema>() -> schemars::Schema {
    schema_for!(T)
}
