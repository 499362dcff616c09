//! `ladder run`: from a plan's name to a bundle, a table and a report.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use bench_format::{
    SCHEMA,
    environment::Environment,
    run::{Run as RunFile, RunState, TrialEntry, TrialState},
    timeline::Overhead,
};
use clap::Args;

use super::machine;
use crate::{
    assert,
    backend::local::Local,
    climb::{Climb, End},
    clock,
    coordinator::Coordinator,
    evidence,
    plan::{self, Only, Plan},
    print,
    registry::Registry,
    report,
    roles::Roles,
    signals::Stop,
    store::{self, Store},
    watcher::Terminal,
};

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The plan: a name in plans/, or a path.
    #[arg(default_value = "quick")]
    plan: String,
    /// Where bundles are kept.
    #[arg(long, default_value = "results")]
    results: PathBuf,
    /// The registry of services; commands run in the parent of its folder.
    #[arg(long, default_value = "services/services.toml")]
    registry: PathBuf,
    /// Climb these services in place of the plan's.
    #[arg(long = "service", value_name = "NAME")]
    services: Vec<String>,
    /// Climb only these ladders or tiers of the plan.
    #[arg(long, value_name = "WORKLOAD[/VARIANT[/TIER]]")]
    only: Vec<String>,
    /// Go on with a run that was interrupted, by the plan that it began with.
    #[arg(long, value_name = "RUN_ID", conflicts_with_all = ["run_id", "services", "only"])]
    resume: Option<String>,
    /// The run's id, in place of `<plan>-<time>`.
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Don't make a report.
    #[arg(long)]
    no_report: bool,
    /// What makes the report; the bundle is added as its last argument.
    #[arg(long, default_value = ".venv/bin/python -m ws_ladder_analysis", value_name = "COMMAND")]
    report_command: String,
}

/// A run that is about to be climbed.
struct Prepared {
    plan: Plan,
    plan_argument: String,
    roles: Roles,
    store: Store,
    file: RunFile,
}

pub(super) fn run(arguments: &Run) -> anyhow::Result<u8> {
    let registry = Registry::load(&arguments.registry)?;
    let allowed = machine::allowed_cpus()?;
    machine::raise_open_files().context("failed to raise the limit of open files")?;
    let prepared = match &arguments.resume {
        Some(id) => resume(arguments, id, &registry, &allowed)?,
        None => begin(arguments, &registry, &allowed)?,
    };
    machine::stay_on(&prepared.roles.ladder).context("failed to move ladder to its CPU")?;
    let (bundle, file, end) = climb(prepared, &registry)?;
    print!("{}", print::table(&bundle, &file));
    println!("{}", print::overhead(&Overhead::of(&store::read_timeline(&bundle))));
    if let End::Stopped(signal) = end {
        eprintln!("stopped; go on with: ladder run --resume {}", file.id);
        return Ok(signal.exit_code());
    }
    if !arguments.no_report {
        match report::make(&arguments.report_command, &registry.root, &bundle) {
            Ok(path) => println!("\n{}", path.display()),
            // The measurement stands without it.
            Err(error) => eprintln!("ladder: failed to make the report: {error:#}"),
        }
    }
    Ok(assert::of_run(&file).exit_code())
}

fn climb(prepared: Prepared, registry: &Registry) -> anyhow::Result<(PathBuf, RunFile, End)> {
    let Prepared { plan, plan_argument, roles, store, file } = prepared;
    let asked_at_unix_ns = clock::unix_ns();
    // One thread: everything of ours stays on our CPU, and children are bound to a thread that lives as long as we do.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = Stop::listen().context("failed to listen for signals")?;
        let coordinator = Coordinator::start(&file.id).await.context("failed to start the coordinator")?;
        let backend = Local::new(registry.root.clone(), roles, plan.cpu.clone());
        let bundle = store.folder().to_path_buf();
        eprintln!("{}: {} trials, bundle {}", file.id, file.trials.len(), bundle.display());
        let mut climb = Climb {
            plan: &plan,
            registry,
            backend,
            coordinator: &coordinator,
            store,
            run: file,
            again: format!("ladder run {plan_argument}"),
            watcher: &Terminal,
            asked_at_unix_ns,
            unsaved: None,
        };
        let end = climb.climb(&mut stop).await?;
        Ok((bundle, climb.run, end))
    })
}

fn begin(arguments: &Run, registry: &Registry, allowed: &[usize]) -> anyhow::Result<Prepared> {
    let path = plan_path(&arguments.plan, &registry.root);
    let mut wire = plan::read::read(&path)?;
    if !arguments.services.is_empty() {
        plan::replace_services(&mut wire, &arguments.services);
    }
    let plan = Plan::check(wire, &path, registry, &machine::surroundings()?)?;
    let only = Only(arguments.only.clone());
    let trials: Vec<_> = plan.trials().into_iter().filter(|trial| only.takes(trial)).collect();
    if trials.is_empty() {
        let ladders: Vec<String> = plan.ladders.iter().map(|l| format!("{}/{}", l.workload, l.variant)).collect();
        bail!("--only leaves nothing of {}; it has {}", path.display(), ladders.join(", "));
    }
    let now = clock::unix_ns();
    let id = arguments.run_id.clone().unwrap_or_else(|| format!("{}-{}", plan.wire.name, clock::stamp(now)));
    check_id(&id)?;
    let roles = Roles::assign(allowed, &plan.cpu, plan.workers);
    let entry = |trial| TrialEntry { trial, state: TrialState::Pending };
    let file = RunFile {
        schema: SCHEMA,
        id,
        started_at: clock::rfc3339(now),
        finished_at: None,
        state: RunState::Running,
        plan: plan.wire.clone(),
        command: env::args().collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: evidence::commit(&registry.root),
        versions: [("ladder".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        machines: vec![Environment::read()],
        cpu_roles: roles.in_words(),
        trials: trials.into_iter().map(entry).collect(),
    };
    fs::create_dir_all(&arguments.results)
        .with_context(|| format!("failed to make {}", arguments.results.display()))?;
    let store = Store::create(&fs::canonicalize(&arguments.results)?, &file)?;
    Ok(Prepared { plan, plan_argument: arguments.plan.clone(), roles, store, file })
}

/// A resumed run keeps the plan that it began with, whatever became of the file.
fn resume(arguments: &Run, id: &str, registry: &Registry, allowed: &[usize]) -> anyhow::Result<Prepared> {
    check_id(id)?;
    let results = fs::canonicalize(&arguments.results)
        .with_context(|| format!("failed to find {}; give --results", arguments.results.display()))?;
    let (store, mut file) = Store::open(&results, id)?;
    let path = store.folder().join("run.json");
    let plan = Plan::check(file.plan.clone(), &path, registry, &machine::surroundings()?)?;
    let roles = Roles::assign(allowed, &plan.cpu, plan.workers);
    if file.cpu_roles != roles.in_words() {
        bail!("run {id} was measured on other CPUs ({:?}); start a new run", file.cpu_roles);
    }
    let plan_argument = file.plan.name.clone();
    file.state = RunState::Running;
    Ok(Prepared { plan, plan_argument, roles, store, file })
}

fn plan_path(plan: &str, root: &Path) -> PathBuf {
    let path = PathBuf::from(plan);
    let is_path = plan.contains('/') || plan.ends_with(".yaml") || path.is_file();
    if is_path { path } else { root.join("plans").join(format!("{plan}.yaml")) }
}

fn check_id(id: &str) -> anyhow::Result<()> {
    let good =
        !id.is_empty() && !id.starts_with('.') && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !good {
        bail!("\"{id}\" is no run id; use letters, digits, `-`, `_` and `.`");
    }
    Ok(())
}
