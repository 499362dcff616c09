//! `ladder run`: from a plan's name to a bundle, a table and a report.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use bench_format::{
    Name, SCHEMA,
    comparison::Comparison,
    environment::Environment,
    plan::WirePlan,
    run::{Outside, Run as RunFile, RunState, Search},
    timeline::Overhead,
    trial::TrialId,
};
use clap::Args;
use driver::{clock, coordinator::Coordinator};
use ws_bench::descriptors;

use super::{
    chosen_plan::ChosenPlan,
    compared,
    core_check::{self, CoreCheck},
    described::add_described,
    machine, outside, piloted,
};
use crate::{
    assert::{self, Standing},
    backend::{
        Backend,
        local::Local,
        outside::{OutsideService, description},
    },
    climb::{Climb, ClimbEnd, RetryBudget},
    compare::course::attempts_at_most,
    evidence,
    live::{self, LiveTerminal},
    pilot,
    plan::{self, Plan, TrialFilter},
    print,
    registry::{Registry, Service},
    report, rest,
    roles::Roles,
    secrets,
    signals::Stop,
    store::{self, Store},
    watcher::{Terminal, Watcher},
    websocket,
};

use resume::{Retry, resume};

mod resume;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The plan: a name in plans/, a path, or a service, which then climbs the default plan of its protocol.
    #[arg(default_value = "quick")]
    plan: String,
    /// Resume an interrupted run with the plan that it started with.
    ///
    /// The plan is taken from the bundle. Where it runs programs of its own (`websocket.services`, `connect.rows_command`),
    /// name its file, too: a bundle's commands are not run.
    #[arg(long, value_name = "RUN_ID", conflicts_with_all = ["run_id", "services", "only"])]
    resume: Option<Name>,
    /// Measure trials again that could not be measured; all others keep their results. With --resume.
    #[arg(long, value_name = "WHICH", requires = "resume")]
    retry: Option<Retry>,
    /// Skip the check of each service's contract (its core) before its first trial and after its last.
    #[arg(long)]
    no_conformance: bool,
    #[command(flatten)]
    outside: outside::Flags,
    #[command(flatten)]
    shared: Shared,
}

/// Options that `ladder run`, `ladder search` and `ladder pilot` share.
#[derive(Debug, Args)]
pub(super) struct Shared {
    /// Folder in which bundles are written.
    #[arg(long, default_value = "results")]
    pub(super) results: PathBuf,
    /// The registry of services; commands run in the parent of its folder.
    #[arg(long, default_value = "services/services.toml")]
    pub(super) registry: PathBuf,
    /// Climb these services instead of the plan's.
    #[arg(long = "service", value_name = "NAME")]
    pub(super) services: Vec<String>,
    /// Climb only these ladders or tiers of the plan.
    #[arg(long, value_name = "WORKLOAD[/VARIANT[/TIER]]")]
    pub(super) only: Vec<String>,
    /// The run's id, instead of `<plan>-<time>`.
    #[arg(long, value_name = "ID")]
    pub(super) run_id: Option<Name>,
    /// Load a service at this public address, which a plan's `websocket.services` name. Only hosts that are yours.
    #[arg(long, value_name = "HOST")]
    pub(super) i_may_load_this_host: Vec<String>,
    /// Skip the two seconds before the first trial in which ladder looks at what else uses the CPUs, and the fixed work
    /// that it times around each trial.
    #[arg(long)]
    pub(super) no_rest: bool,
    /// Print one line for each trial and nothing while it runs, also in a terminal. So do `NO_COLOR` and `TERM=dumb`.
    #[arg(long)]
    pub(super) quiet: bool,
    /// Don't make a report.
    #[arg(long)]
    pub(super) no_report: bool,
    /// The command of the analysis, which makes the report; the bundle is appended as its last argument.
    #[arg(long, default_value = ".venv/bin/python -m ws_ladder_analysis", value_name = "COMMAND")]
    pub(super) report_command: String,
    /// Print the outcome of a comparison as JSON.
    #[arg(skip)]
    pub(super) json: bool,
}

/// A plan that was read, with the choices of the command line.
pub(super) struct RequestedRun<'a> {
    /// The plan file's content, with the changes that the command line asks for.
    pub(super) wire: WirePlan,
    /// Path of the plan file, for messages.
    pub(super) path: PathBuf,
    /// Services that replace the plan's own; empty keeps the plan's services.
    pub(super) services: Vec<String>,
    /// The command that climbs the plan again, for the results.
    pub(super) reproduce_command: String,
    /// Whether the plan's searches are run instead of its tiers.
    pub(super) searches: bool,
    /// The addresses of a service that already runs; absent where ladder starts the services.
    pub(super) outside: Option<outside::ServiceAddresses<'a>>,
    /// The two sides that are measured in pairs instead of all trials of the plan.
    pub(super) comparison: Option<Comparison>,
    /// Length of the first pilot trials, which are made instead of the plan's trials; absent for a run without pilots.
    pub(super) pilot_window: Option<Duration>,
}

/// A run whose bundle exists and which can be climbed.
struct Prepared {
    plan: Plan,
    reproduce_command: String,
    roles: Roles,
    store: Store,
    file: RunFile,
}

pub(super) fn run(arguments: &Run) -> anyhow::Result<u8> {
    let mut registry = Registry::load(&arguments.shared.registry)?;
    let check = if arguments.no_conformance { CoreCheck::Skipped } else { CoreCheck::BeforeAndAfter };
    if let Some(id) = &arguments.resume {
        return resume(arguments, id, registry, check);
    }
    let of_service = |service: &Service| registry.protocol_of(service).plan.clone();
    let ChosenPlan { plan_argument, path, services } =
        ChosenPlan::of(&arguments.plan, &arguments.shared.services, &registry, of_service)?;
    let wire = plan::read::read(&path)?;
    add_described(&wire, &arguments.shared.i_may_load_this_host, &mut registry)?;
    let reproduce_command = format!("ladder run {plan_argument}");
    let outside = arguments.outside.addresses();
    let (searches, comparison, pilot_window) = (false, None, None);
    let requested =
        RequestedRun { wire, path, services, reproduce_command, searches, outside, comparison, pilot_window };
    begin_and_execute(&arguments.shared, &registry, check, requested)
}

/// Starts a run, climbs it to its end and returns the exit code.
pub(super) fn begin_and_execute(
    shared: &Shared,
    registry: &Registry,
    check: CoreCheck,
    requested: RequestedRun<'_>,
) -> anyhow::Result<u8> {
    execute(shared, registry, check, |allowed| begin(shared, requested, registry, allowed))
}

fn execute(
    shared: &Shared,
    registry: &Registry,
    check: CoreCheck,
    prepare: impl FnOnce(&[usize]) -> anyhow::Result<Prepared>,
) -> anyhow::Result<u8> {
    let allowed = machine::allowed_cpus()?;
    machine::raise_open_files().context("failed to raise the limit of open files")?;
    let mut prepared = prepare(&allowed)?;
    // The conformance program may use all CPUs, since no trial is running.
    core_check::before(check, registry, &prepared.store, &mut prepared.file)?;
    machine::set_affinity(&prepared.roles.ladder).context("failed to move ladder to its CPU")?;
    if !shared.no_rest {
        prepared.file.rest = rest::at_rest(&prepared.roles);
    }
    if let Some(line) = prepared.file.rest.as_ref().and_then(rest::line) {
        eprintln!("{}: {line}", prepared.file.id);
    }
    let (bundle, file, end) = climb(shared, prepared, registry)?;
    if end == ClimbEnd::Finished && pilot::has_pilots(&file) {
        return piloted::print(&shared.report_command, shared.json, &registry.root, &bundle);
    }
    let broken = match end {
        ClimbEnd::Finished => {
            machine::set_affinity(&allowed).context("failed to give ladder its CPUs back")?;
            core_check::after(registry, &bundle, &file)?
        }
        ClimbEnd::Stopped(_) => Vec::new(),
    };
    print_outcome(shared, &bundle, &file)?;
    if let ClimbEnd::Stopped(signal) = end {
        eprintln!("stopped; resume with: ladder run --resume {}", file.id);
        return Ok(signal.exit_code());
    }
    if !shared.no_report {
        match report::make(&shared.report_command, &registry.root, &bundle) {
            Ok(report) if shared.json => eprintln!("{}", report.path.display()),
            Ok(report) => println!("{}\n{}", report.printed, report.path.display()),
            // The measurement is valid without a report.
            Err(error) => eprintln!("ladder: failed to make the report: {error:#}"),
        }
    }
    if !broken.is_empty() {
        eprintln!("ladder: {}: the contract is broken after the trials; their figures don't count", broken.join(", "));
        return Ok(Standing::Invalid.exit_code());
    }
    Ok(assert::of_run(&file).exit_code())
}

/// Prints the comparison, or all trials and searches, and the time between trials.
fn print_outcome(shared: &Shared, bundle: &Path, file: &RunFile) -> anyhow::Result<()> {
    if let Some(comparison) = &file.comparison {
        return compared::print_comparison(bundle, &file.id, comparison, shared.json);
    }
    print!("{}", print::table(bundle, file));
    print::budgets::lines(bundle, file).iter().for_each(|line| println!("{line}"));
    file.searches.iter().for_each(|search| println!("{}", print::search::line(search)));
    println!("{}", print::overhead(&Overhead::of(&store::read_timeline(bundle))));
    Ok(())
}

fn climb(shared: &Shared, prepared: Prepared, registry: &Registry) -> anyhow::Result<(PathBuf, RunFile, ClimbEnd)> {
    let local = Local::new(registry.root.clone(), prepared.roles.clone(), prepared.plan.cpu.clone());
    let local = if shared.no_rest { local.without_fixed_work() } else { local };
    match prepared.file.outside.clone() {
        Some(outside) => climb_with(OutsideService::new(outside, local), shared, prepared, registry),
        None => climb_with(local, shared, prepared, registry),
    }
}

fn climb_with<B: Backend>(
    backend: B,
    shared: &Shared,
    prepared: Prepared,
    registry: &Registry,
) -> anyhow::Result<(PathBuf, RunFile, ClimbEnd)> {
    let Prepared { plan, reproduce_command, store, file, .. } = prepared;
    let requested_at_unix_ns = clock::unix_ns();
    // One thread: it stays on ladder's CPU. Children are bound to the thread that started them, so it must live as long
    // as this process.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = Stop::listen().context("failed to listen for signals")?;
        let coordinator = Coordinator::start(&file.id).await.context("failed to start the coordinator")?;
        let bundle = store.folder().to_path_buf();
        let count = match (&file.comparison, file.searches.len()) {
            (Some(comparison), _) => pairs(&plan, comparison),
            (None, 0) => format!("{} trials", file.trials.len()),
            (None, searches) => format!("{searches} searches"),
        };
        eprintln!("{}: {count}, bundle {}", file.id, bundle.display());
        let printed_rows = tokio::select! {
            biased;
            // The climb notices the signal, too, and begins no trial.
            () = stop.wait() => None,
            printed = websocket::printed_rows(&plan.wire, &registry.root) => printed?,
        };
        let live = live::is_wanted(shared.quiet).then(|| LiveTerminal::start(coordinator.show(), &plan, &file));
        let watcher: &dyn Watcher = live.as_ref().map_or(&Terminal, |live| live);
        let pilots = piloted::judge(&shared.report_command, &registry.root, &file);
        let mut climb = Climb {
            plan: &plan,
            registry,
            backend,
            coordinator: &coordinator,
            store,
            run: file,
            reproduce_command,
            watcher,
            requested_at_unix_ns,
            pilots,
            printed_rows,
            retry_budget: RetryBudget::default(),
            unsaved: None,
        };
        let end = climb.climb(&mut stop).await?;
        Ok((bundle, climb.run, end))
    })
}

/// How many pairs a comparison measures, and how long one takes.
fn pairs(plan: &Plan, comparison: &Comparison) -> String {
    let seconds = plan.seconds() / f64::from(attempts_at_most(comparison.pairs_at_most));
    format!("at most {} pairs of {seconds:.1} s under load", comparison.pairs_at_most)
}

fn begin(
    shared: &Shared,
    requested: RequestedRun<'_>,
    registry: &Registry,
    allowed: &[usize],
) -> anyhow::Result<Prepared> {
    let RequestedRun { mut wire, path, services, mut reproduce_command, searches, outside, comparison, pilot_window } =
        requested;
    if !services.is_empty() {
        plan::replace_services(&mut wire, &services);
    }
    if let Some(addresses) = outside {
        crate::outside::remove_unsupported(&mut wire, addresses.has_usage())?
            .iter()
            .for_each(|text| eprintln!("{}: {text}", path.display()));
    }
    let plan = Plan::check(wire, &path, registry, &machine::machine_limits()?)?;
    plan.notes(descriptors::open_files_here()).iter().for_each(|note| eprintln!("{}: {note}", path.display()));
    let (trials, searches) = match &comparison {
        // It adds its trials as it goes.
        Some(_) => (vec![], vec![]),
        None => selected(&plan, &TrialFilter(shared.only.clone()), searches, &path)?,
    };
    let now = clock::unix_ns();
    let prefix = match (&comparison, pilot_window) {
        (Some(_), _) => "compare-",
        (None, pilots) => pilots.map_or("", |_| "pilot-"),
    };
    let named = || Name::new(format!("{prefix}{}-{}", plan.wire.name, clock::stamp(now)));
    let id = shared.run_id.clone().map_or_else(named, Ok).context("the run needs another id; give --run-id")?;
    let outside = outside.map(|addresses| addresses.find(&plan, registry)).transpose()?;
    if let Some(outside) = &outside {
        reproduce_command += &outside::Flags::reproduce_command(outside);
    }
    let (roles, cpu_roles) = roles(&plan, allowed, outside.as_ref());
    let file = RunFile {
        schema: SCHEMA,
        id,
        started_at: clock::rfc3339(now),
        finished_at: None,
        state: RunState::Running,
        plan: plan.wire.clone(),
        command: secrets::masked_command(env::args()),
        version: env!("CARGO_PKG_VERSION").into(),
        commit: evidence::commit(&registry.root),
        versions: [("ladder".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
        lines: lines_of_code(&plan.wire.services, registry),
        machines: vec![Environment::read()],
        cpu_roles,
        usage: BTreeMap::new(),
        rest: None,
        outside,
        retries: vec![],
        trials: pilot::entries(trials, pilot_window),
        searches,
        comparison,
    };
    fs::create_dir_all(&shared.results).with_context(|| format!("failed to make {}", shared.results.display()))?;
    let store = Store::create(&fs::canonicalize(&shared.results)?, &file)?;
    Ok(Prepared { plan, reproduce_command, roles, store, file })
}

/// The trials of the plan's tiers that `only` selects, or its searches.
fn selected(
    plan: &Plan,
    only: &TrialFilter,
    searches: bool,
    path: &Path,
) -> anyhow::Result<(Vec<TrialId>, Vec<Search>)> {
    let trials = if searches { vec![] } else { plan.trials() };
    let trials: Vec<_> = trials.into_iter().filter(|trial| only.selects(trial)).collect();
    let searches: Vec<_> = if searches { plan.searches(only) } else { vec![] };
    if trials.is_empty() && searches.is_empty() {
        let ladders: Vec<String> = plan.ladders.iter().map(|l| format!("{}/{}", l.workload, l.variant)).collect();
        let hint = if plan.trials().is_empty() { "; it has no tiers: use ladder search" } else { "" };
        bail!("nothing of {} is left to climb; it has {}{hint}", path.display(), ladders.join(", "));
    }
    Ok((trials, searches))
}

/// Lines of code of each service whose sources are in this checkout, by service name.
fn lines_of_code(services: &[String], registry: &Registry) -> BTreeMap<String, u64> {
    let folder = |name: &str| registry.root.join("services").join(name);
    let found = services.iter().map(|name| (name.clone(), evidence::lines::of_folder(&folder(name))));
    found.filter(|(_, lines)| *lines > 0).collect()
}

/// The CPUs of each role, and their descriptions for `run.json`.
fn roles(plan: &Plan, allowed: &[usize], outside: Option<&Outside>) -> (Roles, BTreeMap<String, String>) {
    // The inference behind a service that already runs isn't started by ladder either.
    let inference = plan.inference.filter(|_| outside.is_none());
    let roles = Roles::assign(allowed, &plan.cpu, inference, plan.most_workers());
    let text = outside.map_or_else(|| roles.description(), |outside| description(&roles, outside));
    (roles, text)
}
