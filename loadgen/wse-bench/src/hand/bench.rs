//! One trial of a run by hand: its plan for the driver, and the row of its result.

use std::time::Duration;

use anyhow::Context;
use bench_format::{
    Name,
    plan::{Load, Thresholds},
    trial::TrialId,
    trial_file::BookKeeping,
};
use driver::{
    by_hand::{ByHand, Error, RUN},
    measure::{self, Measured},
    service_client::{self, ServiceClient},
    trial_plan::{NothingOpen, TrialPlan},
    workers::WorkerProgram,
};

use super::command;
use crate::{
    cli::{Cli, Urls},
    outcome::{Request, TierResult},
    preflight::Machine,
    suite::{Step, Test},
};

/// Longest time for connections to open, unless [`ATTEMPT_TIMEOUT`] for each wave of attempts is longer.
const OPENING: Duration = Duration::from_secs(120);
/// How long a wave of connection attempts may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);

/// Carries out trials, with the workers and the service's counters that they share.
pub(super) struct Bench<'a> {
    cli: &'a Cli,
    machine: &'a Machine,
    by_hand: ByHand,
    keeping: BookKeeping,
    /// Number of trials so far; each trial has its own number.
    trials: u32,
}

impl<'a> Bench<'a> {
    pub(super) fn new(cli: &'a Cli, machine: &'a Machine) -> anyhow::Result<Self> {
        let by_hand = ByHand::new(client(cli.stats_urls()), worker_program(cli)?)?;
        let mut by_hand = by_hand.with_service_process(machine.service.clone());
        let keeping = by_hand.check().map_err(description)?;
        Ok(Self { cli, machine, by_hand, keeping, trials: 0 })
    }

    /// Carries out a trial; a failure also gives a row.
    pub(super) fn run_step(&mut self, step: &Step) -> (TierResult, Option<Measured>) {
        let paced = self.paced(step);
        let step = paced.as_ref().unwrap_or(step);
        let request = Request {
            test: step.test,
            workload: step.workload,
            tier: step.tier,
            load: step.load.clone(),
            message: step.message.clone(),
            workers: self.machine.workers(self.cli.workers, step.tier),
            source_addresses: self.machine.sources.addresses_for(step.tier),
        };
        let command = command(step);
        match paced.as_ref().map_err(Clone::clone).and_then(|step| self.measure(step, request.workers, &command)) {
            Ok(trial) => (TierResult::new(request, &trial, command), Some(trial)),
            Err(description) => (TierResult::failed(request, description, command), None),
        }
    }

    /// Waits until the service has closed the last trial's connections, at most as long as `--drain`.
    pub(super) fn wait_until_idle(&mut self) {
        self.by_hand.wait_until_idle(Duration::from_secs_f64(self.cli.drain));
    }

    fn measure(&mut self, step: &Step, workers: u32, command: &str) -> Result<Measured, String> {
        self.trials += 1;
        let plan = self.plan(step, workers, command);
        self.by_hand.trial(&plan).map_err(|error| match error {
            Error::Measure(measure::Error::NotReady(description)) => description,
            other => format!("{:#}", anyhow::Error::from(other)),
        })
    }

    fn plan(&self, step: &Step, workers: u32, command: &str) -> TrialPlan {
        let Self { cli, keeping, trials, .. } = self;
        let drain = Duration::from_secs_f64(cli.drain);
        TrialPlan {
            run: RUN.into(),
            trial: TrialId {
                service: Name::from_static("service"),
                workload: Name::from_static(step.workload.name()),
                variant: Name::from_static(RUN),
                tier: step.tier,
                process: 1,
                repeat: *trials,
            },
            attempt: 1,
            address: cli.address(),
            keeping: *keeping,
            counters: None,
            connections: step.tier,
            workers,
            // A connection keeps at most one thread busy.
            worker_cpus: f64::from((step.tier / workers).max(1)),
            load: step.load.clone(),
            message: step.message.clone(),
            seed: cli.seed,
            warmup: step.warmup,
            window: step.window.longest(),
            drain,
            opening: OPENING.max(ATTEMPT_TIMEOUT * step.tier.div_ceil(cli.batch_size)),
            nothing_open: if step.test == Test::ConnectionLimit { NothingOpen::Continue } else { NothingOpen::Abort },
            read_when_open: true,
            close_grace: drain,
            objectives: Vec::new(),
            thresholds: Thresholds::default(),
            settings: Default::default(),
            websocket: None,
            keep_connections: false,
            samples: false,
            protocol_check: !cli.no_conformance,
            reproduce: command.to_owned(),
        }
    }

    /// The step at the rate of the service's own publisher, if it has one.
    fn paced(&mut self, step: &Step) -> Result<Step, String> {
        if !step.workload.receives() || self.keeping == BookKeeping::None {
            return Ok(step.clone());
        }
        let publisher = self.by_hand.publisher().map_err(|error| error.to_string())?;
        let publisher = publisher.ok_or("the service publishes nothing by itself: start the one that does")?;
        if let Some(wanted) = step.workload.terms().publishes_by.filter(|wanted| *wanted != publisher.mode) {
            let (mode, name) = (&publisher.mode, step.workload.name());
            return Err(format!("the service publishes by {mode:?}, but {name} measures {wanted:?}"));
        }
        match (&step.load, publisher.rate_per_second) {
            (Load::Open { rate_per_second, .. }, Some(rate)) if *rate_per_second == rate => Ok(step.clone()),
            (Load::Open { rate_per_second, .. }, mode) => {
                let mode = mode.map_or("as fast as it can".into(), |rate| format!("{rate} messages per second"));
                Err(format!("the service publishes {mode}, and not the {rate_per_second} of --rate: leave it out"))
            }
            (_, Some(rate_per_second)) => {
                Ok(Step { load: Load::Open { rate_per_second, arrivals: Default::default() }, ..step.clone() })
            }
            (_, None) => Ok(step.clone()),
        }
    }
}

/// The client of the service's metrics; without URLs it reads nothing.
fn client(urls: Option<Urls>) -> ServiceClient {
    let Some(Urls { service, publisher }) = urls else { return ServiceClient::none() };
    let client = ServiceClient::of_url(&service);
    match publisher {
        Some(publisher) => client.with_publisher(&publisher),
        None => client,
    }
}

/// The error with the flag that fixes it.
fn description(error: service_client::Error) -> anyhow::Error {
    match &error {
        service_client::Error::NoPublisher { .. } => anyhow::anyhow!("{error}; give its --metrics-port"),
        _ => error.into(),
    }
}

/// The program that each worker runs: its assignment comes from the coordinator.
fn worker_program(cli: &Cli) -> anyhow::Result<WorkerProgram> {
    let mut program = WorkerProgram::this().context("failed to find this program's own file")?;
    program.env.push(("WSE_BENCH_SECRET".into(), cli.secret.clone().into()));
    for address in &cli.source_address {
        program.arguments.extend(["--source-address".into(), address.to_string().into()]);
    }
    Ok(program)
}
