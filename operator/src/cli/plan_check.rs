//! `ladder plan check`: the mistakes of plans, what can't be shown with them, and what their largest tiers need.

use std::path::{Path, PathBuf};

use bench_format::environment::Environment;
use clap::Args;
use ws_bench::descriptors;

use super::machine;
use crate::{
    assert::Standing,
    plan::{
        Mistakes, Plan, TrialFilter, chart_values,
        check::MachineLimits,
        read,
        scale::{Limits, Memory, Ports, SOURCES},
    },
    registry::Registry,
    websocket,
};

/// Descriptors that a container may open where its runtime sets no lower limit: the kernel's `fs.nr_open`.
const OPEN_FILES_OF_A_POD: u64 = 1 << 20;
/// Nine tenths of the ports 32768 to 60999, the kernel's range in a new network namespace.
const PORTS_OF_A_POD: u32 = 25_407;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The plan files to check.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The registry of services.
    #[arg(long, default_value = "services/services.toml")]
    registry: PathBuf,
    /// The files are values of this chart: check the plans in them, for its pods in the place of this machine.
    #[arg(long, value_name = "FOLDER")]
    chart: Option<PathBuf>,
    /// Descriptors that each process may open; without it the hard limit of this machine, or 1048576 in a pod.
    #[arg(long, value_name = "NUMBER")]
    open_files: Option<u64>,
}

/// Prints what was found, and returns the exit code: that of an invalid run if there are mistakes, or if a tier doesn't
/// fit.
pub(super) fn check(arguments: &Check) -> anyhow::Result<u8> {
    let registry = Registry::load(&arguments.registry)?;
    let mut sound = true;
    for file in &arguments.files {
        sound &= match arguments.checked(file, &registry)? {
            Ok((plan, registry, limits)) => report(file, &plan, &registry, &limits),
            Err(Mistakes(mistakes)) => {
                mistakes.iter().for_each(|mistake| eprintln!("{mistake}"));
                false
            }
        };
    }
    Ok(if sound { 0 } else { Standing::Invalid.exit_code() })
}

impl Check {
    /// A file's plan with the registry that it is checked against and the limits of its processes, or its mistakes.
    fn checked(&self, file: &Path, registry: &Registry) -> anyhow::Result<Result<(Plan, Registry, Limits), Mistakes>> {
        let mut registry = registry.clone();
        let of_pods = |memory| Limits {
            open_files: self.open_files.unwrap_or(OPEN_FILES_OF_A_POD),
            ports: Ports::OfOneAddress(PORTS_OF_A_POD),
            memory,
        };
        let (read, machine_limits) = match &self.chart {
            Some(chart) => {
                let read = chart_values::read(chart, file).map(|(wire, memory)| (wire, of_pods(memory)));
                (read, MachineLimits { cpus: usize::MAX, no_fractions: None })
            }
            None => (read::read(file).map(|wire| (wire, self.limits_here())), machine::machine_limits()?),
        };
        Ok(read.and_then(|(wire, limits)| {
            if let Some(section) = &wire.websocket {
                websocket::add(section, &mut registry);
            }
            let plan = Plan::check(wire, file, &registry, &machine_limits)?;
            Ok((plan, registry, limits))
        }))
    }

    fn limits_here(&self) -> Limits {
        Limits {
            open_files: self.open_files.unwrap_or_else(descriptors::open_files_here),
            // The services that ladder starts are on loopback.
            ports: Ports::Plenty,
            memory: Memory::Machine(Environment::read().memory_bytes),
        }
    }
}

/// Prints a plan's notes and needs; returns whether its tiers fit.
fn report(file: &Path, plan: &Plan, registry: &Registry, limits: &Limits) -> bool {
    let file = file.display();
    let (trials, seconds) = (plan.trials(), plan.seconds());
    let searches = match plan.searches(&TrialFilter::default()).len() {
        0 => String::new(),
        count => {
            format!("; searches (ladder search): {count}, rounds at most {:.0} s under load", plan.seconds_of_rounds())
        }
    };
    plan.notes(limits.open_files).iter().for_each(|note| eprintln!("{file}: {note}"));
    println!("{file}: {} trials, at most {seconds:.0} s under load{searches}", trials.len());
    let needs = plan.needs(registry, limits);
    for tier in &needs {
        println!("  {tier}");
        tier.misfits.iter().for_each(|misfit| eprintln!("{file}: {}: {misfit}", tier.tier));
    }
    if !needs.is_empty() {
        println!("  ({SOURCES})");
    }
    needs.iter().all(|tier| tier.misfits.is_empty())
}
