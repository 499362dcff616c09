//! `ladder pilot`: how long each service of a plan takes until its steady state, and the warm-up that follows from it.

use std::time::Duration;

use clap::Args;

use super::{
    chosen_plan::ChosenPlan,
    core_check::CoreCheck,
    described::add_described,
    run::{RequestedRun, Shared, begin_and_execute},
};
use crate::{
    pilot,
    plan::read,
    registry::{Registry, Service},
};

/// The examples below the help.
pub(super) const EXAMPLES: &str = "Examples:
  ladder pilot quick                                          each service and ladder of the plan, at its largest tier
  ladder pilot quick --service wse-server --service wse-reference
  ladder pilot quick --only throughput/batch/100              one ladder, at this tier
  ladder run --resume RUN_ID                                  after a stop";

/// Arguments of `ladder pilot`.
#[derive(Debug, Args)]
pub(super) struct Pilot {
    /// The plan: a name in plans/, a path, or a service, which then uses the default plan of its protocol.
    plan: String,
    /// Length of the first trial of each service and ladder, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = pilot::WINDOW.as_secs() as u32,
        value_parser = clap::value_parser!(u32).range(20..=3600))]
    seconds: u32,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    shared: Shared,
}

/// Makes the pilots, prints what they show, and returns the exit code.
pub(super) fn pilot(arguments: &mut Pilot) -> anyhow::Result<u8> {
    arguments.shared.json = arguments.json;
    let shared = &arguments.shared;
    let mut registry = Registry::load(&shared.registry)?;
    let of_service = |service: &Service| registry.protocol_of(service).plan.clone();
    let ChosenPlan { plan_argument, path, services } =
        ChosenPlan::of(&arguments.plan, &shared.services, &registry, of_service)?;
    let wire = read::read(&path)?;
    add_described(&wire, &shared.i_may_load_this_host, &mut registry)?;
    for ladder in wire.ladders.iter().filter(|ladder| ladder.tiers.is_empty()) {
        eprintln!("{}: {}/{} has no tiers, so no pilot", path.display(), ladder.workload, ladder.variant);
    }
    let requested = RequestedRun {
        wire,
        path,
        services,
        reproduce_command: format!("ladder pilot {plan_argument}"),
        searches: false,
        outside: None,
        comparison: None,
        pilot_window: Some(Duration::from_secs(arguments.seconds.into())),
    };
    begin_and_execute(shared, &registry, CoreCheck::Never, requested)
}
