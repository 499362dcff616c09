//! A run by hand: one trial, whose workers this process starts and coordinates, and one summary on standard output.

mod rows;

use std::time::Duration;

use anyhow::Context;
use bench_format::{
    Name,
    plan::{Load, Message, Thresholds},
    trial::TrialId,
    trial_file::BookKeeping,
};
use driver::{
    by_hand::{ByHand, Error, RUN},
    measure::{self, Measured},
    service_client::ServiceClient,
    trial_plan::{NothingOpen, TrialPlan},
    workers::WorkerProgram,
};
use loadgen_core::{preflight, progress::Progress};

use self::rows::Rows;
use crate::{
    cli::{Cli, address},
    counters::difference,
    summary::{Request, RunContext, Summary, Supplement, objectives},
    trial::{PROGRAM, WORKLOAD},
};

/// Longest time for connections to open and for workers to compute their expected answers. The time that each wave of
/// connection attempts may take is added to it.
const OPENING: Duration = Duration::from_secs(120);

/// Runs the load and prints its summary; returns whether the run was clean.
///
/// # Errors
/// When there is no result: the command line lacks the URL or the sessions, a file for rows can't be created, a worker
/// can't be started, or no session opens.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    let (Some(url), Some(sessions)) = (&cli.url, cli.sessions) else {
        anyhow::bail!("--url and --sessions are missing")
    };
    let open_files = preflight::raise_open_files();
    for remark in preflight::remarks(sessions, cli.workers, open_files) {
        eprintln!("note: {remark}");
    }
    let address = address(url).map_err(anyhow::Error::msg)?;
    let plan = trial_plan(cli, &address, sessions);
    let rows = cli.samples_out.as_deref().map(|path| Rows::create(path, cli.workers)).transpose()?;
    let seconds = cli.ramp_up_secs + cli.session_start_spread_ms / 1e3 + cli.warmup_secs + cli.measure_secs;
    let progress = Progress::start(format!("{sessions} sessions for {seconds} s"));
    let client = cli.metrics.as_deref().map_or_else(ServiceClient::none, ServiceClient::of_url);
    let mut measured = ByHand::new(client, worker_program(cli)?)?.trial(&plan).map_err(description)?;
    drop(progress);
    // Taken out before the trial is judged: missing rows are the generator's failure, not the gateway's.
    let supplement = supplement(&mut measured, cli, rows);
    let judged = measured.judge()?;
    let (request, run_context) = (request(cli, url, sessions), run_context(&measured, cli.seed));
    let summary = Summary::new(request, run_context, judged, &measured.trial.objectives, supplement);
    println!("{}", serde_json::to_string_pretty(&summary).context("failed to write the summary")?);
    for problem in summary.problems() {
        eprintln!("{problem}");
    }
    Ok(summary.is_clean())
}

/// A worker that could not get ready reports a complete reason, so that needs no context.
fn description(error: Error) -> anyhow::Error {
    match error {
        Error::Measure(measure::Error::NotReady(description)) => anyhow::Error::msg(description),
        other => other.into(),
    }
}

/// The program that each worker runs: its assignment comes from the coordinator, its settings are these flags.
fn worker_program(cli: &Cli) -> anyhow::Result<WorkerProgram> {
    let mut program = WorkerProgram::this().context("failed to find this program's own file")?;
    for (flag, value) in [
        ("--connect-timeout-ms", cli.connect_timeout_ms),
        ("--send-timeout-ms", cli.send_timeout_ms),
        ("--close-grace-ms", cli.close_grace_ms),
        ("--cpu-passes", u64::from(cli.cpu_passes)),
    ] {
        program.arguments.extend([flag.into(), value.to_string().into()]);
    }
    Ok(program)
}

/// What the summary shows beside the judged trial. Takes lost rows out of the workers' failures.
fn supplement(measured: &mut Measured, cli: &Cli, mut rows: Option<Rows>) -> Supplement {
    let readings = &measured.service.readings;
    let read = cli.metrics.as_ref().and_then(|_| readings.before.as_ref().zip(readings.after.as_ref()));
    let service = read.map(|(before, after)| difference(&before.stats, after.stats.clone()));
    let mut supplement = Supplement { service, ..Supplement::default() };
    for upload in &mut measured.uploads {
        upload.result.error_samples.drain(..).for_each(|sample| supplement.errors.add(sample));
        if let Some(rows) = &mut rows {
            supplement.problems.extend(rows.write(&mut upload.result, upload.samples.as_deref()));
        }
        supplement.conformance = supplement.conformance.or_else(|| upload.result.conformance.clone());
    }
    supplement
}

fn run_context(measured: &Measured, seed: u64) -> RunContext {
    let trial = &measured.trial;
    RunContext {
        program: PROGRAM,
        started_at_unix_ns: trial.started_at_unix_ns,
        workers: trial.workers,
        seed,
        environment: measured.uploads.first().map(|upload| upload.result.environment.clone()).unwrap_or_default(),
        command: trial.reproduce.clone(),
    }
}

fn request(cli: &Cli, url: &str, sessions: u32) -> Request {
    Request {
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

/// The plan of the run's only trial.
fn trial_plan(cli: &Cli, address: &str, sessions: u32) -> TrialPlan {
    let load = Load::Sessions {
        ramp_seconds: cli.ramp_up_secs,
        spread_ms: cli.session_start_spread_ms,
        in_flight: cli.connect_in_flight,
    };
    let waves = f64::from(sessions) / f64::from(cli.connect_in_flight);
    let connecting = Duration::from_millis(cli.connect_timeout_ms).mul_f64(waves.max(1.0));
    TrialPlan {
        run: RUN.into(),
        trial: TrialId {
            service: Name::from_static("service"),
            workload: Name::from_static(WORKLOAD),
            variant: Name::from_static(RUN),
            tier: sessions,
            process: 1,
            repeat: cli.repeat,
        },
        attempt: 1,
        address: address.to_owned(),
        // The gateway's counters are only shown in the summary, so no equation needs them.
        keeping: BookKeeping::None,
        counters: None,
        connections: sessions,
        workers: cli.workers,
        worker_cpus: f64::MAX,
        warmup: Duration::from_secs_f64(load.ramp_seconds() + cli.warmup_secs),
        window: Duration::from_secs_f64(cli.measure_secs),
        drain: Duration::from_secs_f64(cli.session_grace_secs),
        opening: OPENING.saturating_add(connecting),
        nothing_open: NothingOpen::Abort,
        read_when_open: false,
        close_grace: Duration::from_millis(cli.close_grace_ms),
        load,
        message: Message { format: "pcm".into(), size_bytes: 640, ..Default::default() },
        seed: cli.seed,
        objectives: objectives(),
        thresholds: Thresholds::default(),
        settings: Default::default(),
        websocket: None,
        keep_connections: false,
        samples: cli.samples_out.is_some(),
        protocol_check: !cli.no_conformance,
        reproduce: command(),
    }
}

/// The command line without the coordinator's token.
fn command() -> String {
    let mut description = Vec::new();
    let mut arguments = std::env::args();
    while let Some(argument) = arguments.next() {
        if argument == "--coordinator-token" {
            arguments.next();
        } else if !argument.starts_with("--coordinator-token=") {
            description.push(argument);
        }
    }
    description.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn ramp_and_spread_come_before_the_warm_up() {
        let line = "stt-loadgen --url ws://a:1 --sessions 10 --ramp-up-secs 30 --session-start-spread-ms 1000";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(trial_plan(&cli, "a:1", 10).warmup, Duration::from_secs(46), "ramp, spread and warm-up");
    }

    #[test]
    fn many_waves_of_attempts_get_the_time_that_each_may_take() {
        let line = "stt-loadgen --url ws://a:1 --sessions 1000 --connect-in-flight 10 --connect-timeout-ms 5000";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!(trial_plan(&cli, "a:1", 1000).opening, Duration::from_secs(120 + 500));
    }
}
