//! `ladder run --resume`: continues a run from its bundle; with `--retry` it measures failed trials again.

use std::{env, fs, time::Duration};

use anyhow::{Context, bail};
use bench_format::{Name, run::RunState};
use clap::ValueEnum;

use super::{Prepared, Run, Shared, execute, roles};
use crate::{
    cli::{compared, core_check::CoreCheck, described::with_sides_and_described, machine, outside},
    pilot,
    plan::Plan,
    registry::Registry,
    resume, retry, secrets,
    store::Store,
};

/// The trials of a run that are measured again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Retry {
    /// Those of tiers that failed: they have no result.
    Failed,
}

/// Resumes a run, climbs it to its end and returns the exit code.
pub(super) fn resume(arguments: &Run, id: &Name, registry: Registry, check: CoreCheck) -> anyhow::Result<u8> {
    let registry = with_sides_and_described(
        registry,
        &arguments.plan,
        (&arguments.shared.results, &arguments.shared.i_may_load_this_host),
        id,
    )?;
    execute(&arguments.shared, &registry, check, |allowed| {
        let mut prepared = open_run(&arguments.shared, id, &registry, allowed)?;
        if arguments.retry == Some(Retry::Failed) {
            let count = retry::failed_trials(&mut prepared.file);
            eprintln!("{id}: {count} failed trials are measured again");
            if count > 0 {
                prepared.store.reopen(&prepared.file)?;
            }
        }
        Ok(prepared)
    })
}

/// Opens an interrupted run. It keeps the plan in its `run.json`, even if the plan file has changed since.
fn open_run(shared: &Shared, id: &Name, registry: &Registry, allowed: &[usize]) -> anyhow::Result<Prepared> {
    let results = fs::canonicalize(&shared.results)
        .with_context(|| format!("failed to find {}; give --results", shared.results.display()))?;
    let (store, mut file) = Store::open(&results, id)?;
    let path = store.folder().join("run.json");
    let of_file = || path.display().to_string();
    secrets::restore(&mut file.plan, |name| env::var(name).ok()).with_context(of_file)?;
    let plan = Plan::check(file.plan.clone(), &path, registry, &machine::machine_limits()?)?;
    resume::check(&file, &plan, registry).with_context(of_file)?;
    let (roles, cpu_roles) = roles(&plan, allowed, file.outside.as_ref());
    if file.cpu_roles != cpu_roles {
        bail!("run {id} was measured on other CPUs ({:?}); start a new run", file.cpu_roles);
    }
    let mut reproduce_command = match &file.comparison {
        Some(comparison) => compared::reproduce_command(&file.plan.name, comparison),
        None if pilot::has_pilots(&file) => format!("ladder pilot {}", file.plan.name),
        None if file.searches.is_empty() => format!("ladder run {}", file.plan.name),
        None => format!("ladder search {}", file.plan.name),
    };
    if let (Some(outside), Some(service)) = (&file.outside, file.plan.services.first()) {
        outside::check_service(outside, service, Duration::ZERO)?;
        reproduce_command += &outside::Flags::reproduce_command(outside);
    }
    file.state = RunState::Running;
    Ok(Prepared { plan, reproduce_command, roles, store, file })
}
