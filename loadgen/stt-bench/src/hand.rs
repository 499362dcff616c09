//! A run by hand: one load, one summary.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use bench_format::{
    plan::{Load, Message},
    result::WorkerResult,
    trial::{Assignment, TrialId},
};
use loadgen_core::{
    clock::unix_ns,
    crew::{self, Crew},
    preflight,
    progress::Progress,
    trial::{AtOnce, Gate},
};
use serde::{Deserialize, Serialize};

use crate::{
    cli::{Cli, address},
    error_samples::ErrorSamples,
    metrics_port::Metrics,
    samples::Writer,
    summary::{Aside, Asked, Circumstances, Summary},
    trial::{Settings, WORKLOAD, Worker},
};

/// From "all are ready" to the start: enough to tell every worker.
const START_IN_NS: u64 = 50_000_000;

/// Runs the load and prints its summary; says whether it was clean.
///
/// # Errors
/// When there is nothing to show: nobody lets us in, or a worker can't be started.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    let (Some(url), Some(sessions)) = (&cli.url, cli.sessions) else {
        anyhow::bail!("--url and --sessions are missing")
    };
    let open_files = preflight::raise_open_files();
    for remark in preflight::remarks(sessions, cli.workers, open_files) {
        eprintln!("note: {remark}");
    }
    let address = address(url).map_err(anyhow::Error::msg)?;
    let assignments = assignments(cli, &address, sessions);
    let seconds = cli.ramp_up_secs + cli.session_start_spread_ms / 1e3 + cli.warmup_secs + cli.measure_secs;
    let progress = Progress::start(format!("{sessions} sessions for {seconds} s"));
    let mut gateway = cli.metrics.as_deref().map(Metrics::before).transpose()?;
    let trials = match cli.workers {
        1 => vec![carry_out(cli.settings(), &assignments[0], cli.samples_out.as_deref(), &mut AtOnce)?],
        workers => Crew::start(workers, |worker| equip(cli, worker))?.run(&assignments, |_| unix_ns() + START_IN_NS)?,
    };
    drop(progress);
    let mut aside = Aside::default();
    let mut results = Vec::new();
    for trial in trials {
        trial.errors.0.into_iter().for_each(|sample| aside.errors.add(sample));
        aside.problems.extend(trial.problems);
        results.push(trial.result);
    }
    if let Some(gateway) = &mut gateway {
        match gateway.since() {
            Ok(stats) => aside.service = Some(stats),
            Err(error) => aside.problems.push(format!("{error:#}")),
        }
    }
    let circumstances = Circumstances::new(&results, cli.workers, cli.seed, command());
    let summary = Summary::new(asked(cli, url, sessions), circumstances, &results, aside)?;
    println!("{}", serde_json::to_string_pretty(&summary).context("failed to write the summary")?);
    for problem in summary.problems() {
        eprintln!("{problem}");
    }
    Ok(summary.is_clean())
}

/// Works for the parent process of a run with several workers.
///
/// # Errors
/// When the parent doesn't make sense.
pub fn serve(cli: &Cli) -> anyhow::Result<()> {
    preflight::raise_open_files();
    crew::serve(|assignment, gate| {
        let rows = cli.samples_out.as_ref().map(|path| rows_of(path, assignment.worker));
        carry_out(cli.settings(), assignment, rows.as_deref(), gate)
    })?;
    Ok(())
}

/// What a worker of several is started with: its assignment comes over the pipe, the rest are flags.
fn equip(cli: &Cli, worker: &mut Command) {
    for (flag, value) in [
        ("--connect-timeout-ms", cli.connect_timeout_ms),
        ("--send-timeout-ms", cli.send_timeout_ms),
        ("--close-grace-ms", cli.close_grace_ms),
        ("--cpu-passes", u64::from(cli.cpu_passes)),
    ] {
        worker.args([flag, &value.to_string()]);
    }
    if let Some(path) = &cli.samples_out {
        worker.arg("--samples-out").arg(path);
    }
    if cli.no_conformance {
        worker.arg("--no-conformance");
    }
}

/// What came of one worker's trial.
#[derive(Serialize, Deserialize)]
struct Carried {
    result: WorkerResult,
    errors: ErrorSamples,
    /// What went wrong around it.
    problems: Vec<String>,
}

/// Carries out one assignment, with rows to a file where one is wanted.
fn carry_out(
    settings: Settings,
    assignment: &Assignment,
    rows: Option<&Path>,
    gate: &mut dyn Gate,
) -> anyhow::Result<Carried> {
    let mut worker = Worker::new(settings);
    let writer = rows.map(open_rows).transpose()?;
    let done = worker.run(assignment, gate, || writer.as_ref().map(Writer::feed))?;
    let mut problems = Vec::new();
    if let (Some(writer), Some(path)) = (writer, rows) {
        let written = writer.finish();
        if let Some(error) = written.error {
            problems.push(format!("failed to write {}: {error}; {} rows are there", path.display(), written.rows));
        }
        if written.overflow > 0 {
            problems.push(format!("{} rows are missing from {}", written.overflow, path.display()));
        }
    }
    Ok(Carried { result: done.result, errors: done.errors, problems })
}

fn open_rows(path: &Path) -> anyhow::Result<Writer<File>> {
    let failed = || format!("failed to create {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let file = File::create(path).with_context(failed)?;
    Writer::start(file, path.extension().is_some_and(|ending| ending == "zst")).with_context(failed)
}

fn asked(cli: &Cli, url: &str, sessions: u32) -> Asked {
    Asked {
        url: url.to_owned(),
        service_name: cli.service_name.clone(),
        samples_file: cli.samples_out.as_ref().map(|path| path.display().to_string()),
        sessions,
        repeat: cli.repeat,
        warmup_secs: cli.warmup_secs,
        measure_secs: cli.measure_secs,
        ramp_up_secs: cli.ramp_up_secs,
        session_start_spread_ms: cli.session_start_spread_ms,
    }
}

/// One for each worker.
fn assignments(cli: &Cli, address: &str, sessions: u32) -> Vec<Assignment> {
    let nanoseconds = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos() as u64;
    let border = |worker: u32| (u64::from(sessions) * u64::from(worker) / u64::from(cli.workers)) as u32;
    let load = Load::Sessions {
        ramp_seconds: cli.ramp_up_secs,
        spread_ms: cli.session_start_spread_ms,
        in_flight: (cli.connect_in_flight / cli.workers).max(1),
    };
    (0..cli.workers)
        .map(|worker| Assignment {
            run: "by-hand".into(),
            trial: TrialId {
                service: cli.service_name.clone().unwrap_or_else(|| address.to_owned()),
                workload: WORKLOAD.into(),
                variant: "by-hand".into(),
                tier: sessions,
                process: 1,
                repeat: cli.repeat,
            },
            attempt: 1,
            worker,
            workers: cli.workers,
            address: address.to_owned(),
            connections: border(worker + 1) - border(worker),
            first_connection: border(worker),
            seed: cli.seed,
            load: load.clone(),
            message: Message { format: "pcm".into(), size_bytes: 640, coalesce: 1 },
            warmup_ns: nanoseconds(load.ramp_seconds() + cli.warmup_secs),
            window_ns: nanoseconds(cli.measure_secs),
            drain_ns: nanoseconds(cli.session_grace_secs),
            late_after_ns: None,
            keep_connections: false,
            settings: Default::default(),
            samples: false,
            // `--no-conformance` is the worker's own to obey.
            protocol_check: true,
        })
        .collect()
}

/// The command line, without a token that may stand in it.
fn command() -> String {
    let mut words = Vec::new();
    let mut arguments = std::env::args();
    while let Some(argument) = arguments.next() {
        if argument == "--coordinator-token" {
            arguments.next();
        } else if !argument.starts_with("--coordinator-token=") {
            words.push(argument);
        }
    }
    words.join(" ")
}

/// Where one of several workers writes its rows: its index stands before the ending.
fn rows_of(path: &Path, worker: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, ending) = name.split_once('.').map_or((&*name, ""), |(stem, ending)| (stem, ending));
    path.with_file_name(OsString::from(format!("{stem}-{worker}.{ending}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn workers_share_the_sessions_without_overlap() {
        let line =
            "stt-loadgen --url ws://a:1 --sessions 10 --workers 3 --ramp-up-secs 30 --session-start-spread-ms 1000";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let assignments = assignments(&cli, "a:1", 10);
        let ranges: Vec<_> = assignments.iter().map(|a| (a.first_connection, a.connections)).collect();
        assert_eq!(ranges, [(0, 3), (3, 3), (6, 4)]);
        assert!(assignments.iter().all(|a| a.warmup_ns == 46_000_000_000), "ramp, spread and warm-up");
    }

    #[test]
    fn each_worker_has_a_file_of_its_own() {
        assert_eq!(rows_of(Path::new("/r/a.csv.zst"), 2), Path::new("/r/a-2.csv.zst"));
    }
}
