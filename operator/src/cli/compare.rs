//! `ladder compare`: two finished bundles side by side, or two sides that are measured in pairs until it is decided.

use std::path::PathBuf;

use anyhow::bail;
use bench_format::{
    Name,
    comparison::{ComparedFigure, Comparison, ComparisonProgress},
    plan::{ServiceProcess, WirePlan},
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{
    analysis::{self, Finished},
    chosen_plan::ChosenPlan,
    compared::{print_comparison, reproduce_command},
    core_check::CoreCheck,
    described::add_described,
    run::{RequestedRun, Shared, begin_and_execute},
    sides,
};
use crate::{
    assert,
    compare::{course::attempts_at_most, figures, rule::PAIRS_AT_MOST},
    plan::read,
    registry::{Registry, Service},
    store,
};

mod tier;

/// The examples below the help.
pub(super) const EXAMPLES: &str = "Examples:
  ladder compare results/RUN results/OTHER                    two finished bundles
  ladder compare results/RUN --service rust-axum --service go-nethttp
  ladder compare --plan quick --only throughput/batch/100 wse-server wse-reference
  ladder compare --plan gateway --only sessions/standard/100 rust-axum@../other rust-axum
  ladder compare --plan gateway --only sessions/standard/100 rust-axum@HEAD~1 rust-axum@HEAD
  ladder compare --plan quick --only ping-latency/open/100 --figure p99-of-response wse-server wse-reference
  ladder run --resume RUN_ID                                  after a stop";

/// Arguments of `ladder compare`.
#[derive(Debug, Args)]
pub(super) struct Compare {
    /// A and B. Bundles that are finished (or one bundle with both); with --plan, services: SERVICE, the same of another
    /// checkout (SERVICE@FOLDER, built there), or of a commit (SERVICE@COMMIT, built by ladder in target/compare).
    #[arg(required = true, num_args = 1..=2, value_name = "SIDE")]
    sides: Vec<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    finished: Finished,
    #[command(flatten)]
    measured: Measured,
}

/// Options for sides that are measured.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options with --plan")]
struct Measured {
    /// Measure the sides in pairs, with the load, message and window of this plan: a name in plans/, or a path.
    #[arg(long, conflicts_with_all = ["services", "checkout", "analysis_command"])]
    plan: Option<String>,
    /// The tier at which both are measured; needed where the plan has several.
    #[arg(long, value_name = "WORKLOAD[/VARIANT[/TIER]]", requires = "plan")]
    only: Option<String>,
    /// The largest number of pairs.
    #[arg(long, value_name = "PAIRS", default_value_t = PAIRS_AT_MOST, requires = "plan",
        value_parser = clap::value_parser!(u32).range(5..=10_000))]
    pairs_at_most: u32,
    /// A figure that has to be decided, instead of those of the load; several share the 5 % of false alarms.
    #[arg(long = "figure", value_name = "FIGURE", requires = "plan", value_parser = figure_parser())]
    figures: Vec<ComparedFigure>,
    /// Folder in which the bundle is written.
    #[arg(long, default_value = "results", requires = "plan")]
    results: PathBuf,
    /// The registry of services; commands run in the parent of its folder.
    #[arg(long, default_value = "services/services.toml")]
    registry: PathBuf,
    /// The run's id, instead of `compare-<plan>-<time>`.
    #[arg(long, value_name = "ID", requires = "plan")]
    run_id: Option<Name>,
    /// Skip the check of each side's contract (its core) before its first trial and after its last.
    #[arg(long, requires = "plan")]
    no_conformance: bool,
    /// Skip the two seconds before the first trial in which ladder looks at what else uses the CPUs.
    #[arg(long, requires = "plan")]
    no_rest: bool,
    /// Print one line for each pair and nothing while it is measured, also in a terminal. So do `NO_COLOR` and `TERM=dumb`.
    #[arg(long, requires = "plan")]
    quiet: bool,
    /// Don't make a report.
    #[arg(long, requires = "plan")]
    no_report: bool,
    /// The command that makes the report; the bundle is appended as its last argument.
    #[arg(long, default_value = ".venv/bin/python -m ws_ladder_analysis", value_name = "COMMAND", requires = "plan")]
    report_command: String,
}

fn figure_parser() -> impl TypedValueParser<Value = ComparedFigure> {
    let named = |name: String| ComparedFigure::ALL.into_iter().find(|figure| figure.name() == name);
    PossibleValuesParser::new(ComparedFigure::ALL.map(ComparedFigure::name))
        .map(move |name| named(name).expect("the parser takes names of figures only"))
}

/// Compares and returns the exit code.
pub(super) fn compare(arguments: &Compare) -> anyhow::Result<u8> {
    match &arguments.measured.plan {
        Some(plan) => measure(arguments, plan),
        None => finished(arguments),
    }
}

/// Compares what was measured before.
fn finished(arguments: &Compare) -> anyhow::Result<u8> {
    let not_bundles: Vec<&PathBuf> = arguments.sides.iter().filter(|side| !side.is_dir()).collect();
    for side in not_bundles {
        let text = side.display().to_string();
        let service = text.split_once('@').map_or(&*text, |(service, _)| service);
        let known = Registry::load(&arguments.measured.registry).is_ok_and(|all| all.services.contains_key(service));
        if known {
            bail!("{text} is a service and no bundle; to measure it, name what is climbed: --plan PLAN");
        }
    }
    if let [bundle] = &arguments.sides[..]
        && let Ok(run) = store::read_run(bundle)
        && let (Some(comparison), []) = (&run.comparison, &arguments.finished.services[..])
    {
        print_comparison(bundle, &run.id, comparison, arguments.json)?;
        return Ok(assert::of_run(&run).exit_code());
    }
    analysis::compare(&arguments.finished, &arguments.sides, arguments.json)
}

/// Measures the sides in pairs until it is decided.
fn measure(arguments: &Compare, plan: &str) -> anyhow::Result<u8> {
    let options = &arguments.measured;
    let [a, b] = &arguments.sides[..] else {
        bail!(
            "--plan measures two sides, and only A is given; name B, too (the same service again compares it with itself)"
        );
    };
    let mut registry = Registry::load(&options.registry)?;
    let of_service = |service: &Service| registry.protocol_of(service).plan.clone();
    let chosen = ChosenPlan::of(plan, &[], &registry, of_service)?;
    let mut wire = read::read(&chosen.path)?;
    add_described(&wire, &[], &mut registry)?;
    let tier = tier::choose(&wire, &chosen.path, options.only.as_deref())?;
    for figure in &options.figures {
        if let Some(reason) = figures::refusal(*figure, &wire.ladders[tier.ladder].load) {
            bail!("--figure {}: {reason}", figure.name());
        }
    }
    let (a, b) = sides::resolve(a, b, &registry)?;
    let comparison = Comparison {
        workload: Name::new(&wire.ladders[tier.ladder].workload)?,
        variant: Name::new(&wire.ladders[tier.ladder].variant)?,
        tier: tier.load,
        pairs_at_most: options.pairs_at_most,
        asked: distinct(&options.figures),
        progress: ComparisonProgress::default(),
        a: a.compared.clone(),
        b: b.compared.clone(),
    };
    registry.services.extend([a, b].map(|side| (side.compared.service, side.service)));
    adapt(&mut wire, &comparison, tier.ladder);
    let requested = RequestedRun {
        wire,
        path: chosen.path,
        services: vec![],
        reproduce_command: reproduce_command(&chosen.plan_argument, &comparison),
        searches: false,
        outside: None,
        comparison: Some(comparison),
        pilot_window: None,
    };
    let check = if options.no_conformance { CoreCheck::Skipped } else { CoreCheck::BeforeAndAfter };
    begin_and_execute(&shared(arguments), &registry, check, requested)
}

fn shared(arguments: &Compare) -> Shared {
    let Measured { results, registry, run_id, no_rest, quiet, no_report, report_command, .. } = &arguments.measured;
    Shared {
        results: results.clone(),
        registry: registry.clone(),
        services: vec![],
        only: vec![],
        run_id: run_id.clone(),
        no_rest: *no_rest,
        quiet: *quiet,
        no_report: *no_report,
        report_command: report_command.clone(),
        json: arguments.json,
        i_may_load_this_host: vec![],
    }
}

fn distinct(figures: &[ComparedFigure]) -> Vec<ComparedFigure> {
    let mut distinct = figures.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

/// Reduces the plan to the tier that is compared, with the two sides as its services. Its trials are then all that the
/// comparison may measure.
fn adapt(wire: &mut WirePlan, comparison: &Comparison, ladder: usize) {
    let mut own = wire.ladders.swap_remove(ladder);
    own.services = vec![];
    own.tiers = vec![comparison.tier];
    own.repeats = Some(attempts_at_most(comparison.pairs_at_most));
    own.search = None;
    wire.ladders = vec![own];
    wire.services = [&comparison.a, &comparison.b].map(|side| side.service.to_string()).into();
    wire.service_process = ServiceProcess::Repeat;
}
