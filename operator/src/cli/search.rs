//! `ladder search`: finds the largest load that meets the objectives, for each service of a plan.

use anyhow::bail;
use bench_format::plan::WirePlan;
use clap::Args;

use super::{
    chosen_plan::ChosenPlan,
    core_check::CoreCheck,
    described::add_described,
    run::{RequestedRun, Shared, begin_and_execute},
};
use crate::{
    plan::read,
    registry::{Registry, Service},
};

#[derive(Debug, Args)]
pub(super) struct Search {
    /// The plan (a name in plans/, or a path), or a service, which then uses its protocol's plan: `<protocol>-search`.
    #[arg(value_name = "PLAN|SERVICE")]
    target: String,
    /// CPUs of the service, instead of the plan's; a fraction needs a writable cgroup.
    #[arg(long, value_name = "CPUS")]
    cpus: Option<f64>,
    /// The smallest load, instead of the plan's.
    #[arg(long, value_name = "LOAD")]
    from: Option<u32>,
    /// The largest load, instead of the plan's.
    #[arg(long, value_name = "LOAD")]
    to: Option<u32>,
    #[command(flatten)]
    shared: Shared,
}

pub(super) fn search(arguments: &Search) -> anyhow::Result<u8> {
    let mut registry = Registry::load(&arguments.shared.registry)?;
    let of_service = |service: &Service| Some(format!("{}-search", service.protocol));
    let ChosenPlan { plan_argument, path, services } =
        ChosenPlan::of(&arguments.target, &arguments.shared.services, &registry, of_service)?;
    let mut wire = read::read(&path)?;
    add_described(&wire, &arguments.shared.i_may_load_this_host, &mut registry)?;
    adapt(&mut wire, arguments);
    if wire.ladders.is_empty() {
        bail!("no ladder of {} has a search; plans/stt-search.yaml shows one", path.display());
    }
    let reproduce_command = reproduce_command(&plan_argument, arguments);
    begin_and_execute(
        &arguments.shared,
        &registry,
        CoreCheck::Never,
        RequestedRun {
            wire,
            path,
            services,
            reproduce_command,
            searches: true,
            outside: None,
            comparison: None,
            pilot_window: None,
        },
    )
}

/// Applies the command line's options to the plan, and removes its tiers and the ladders that have no search.
fn adapt(wire: &mut WirePlan, arguments: &Search) {
    if let Some(cpus) = arguments.cpus {
        wire.cpu.service.cpus = cpus;
    }
    wire.ladders.retain_mut(|ladder| {
        ladder.tiers.clear();
        let Some(search) = &mut ladder.search else { return false };
        search.from = arguments.from.unwrap_or(search.from);
        search.to = arguments.to.unwrap_or(search.to);
        true
    });
}

fn reproduce_command(plan: &str, arguments: &Search) -> String {
    let mut reproduce_command = format!("ladder search {plan}");
    let options = [
        ("cpus", arguments.cpus.map(|cpus| cpus.to_string())),
        ("from", arguments.from.map(|load| load.to_string())),
        ("to", arguments.to.map(|load| load.to_string())),
    ];
    for (name, value) in options {
        reproduce_command += &value.map(|value| format!(" --{name} {value}")).unwrap_or_default();
    }
    reproduce_command
}
