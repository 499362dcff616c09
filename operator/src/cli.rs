//! The command line of `ladder`: parses the arguments and calls one function per subcommand. The work itself is in the
//! modules.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::{
    assert::{self, Standing},
    plan::{Mistakes, Plan, TrialFilter},
    registry::Registry,
};

mod chosen_plan;
mod cluster_program;
mod conformance;
mod core_check;
mod judge;
mod machine;
mod outside;
mod run;
mod search;

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(name = "ladder", version, about = "Climbs a plan, checks the books, stores the results")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Climb a plan on this machine and write a bundle.
    ///
    /// Exit code 0: every trial is valid and passed (or has no objectives); 1: a trial failed; 2: a trial is invalid or
    /// could not be measured, or a service breaks the contract of its protocol; 130 or 143: stopped by a signal, can be
    /// resumed.
    Run(run::Run),
    /// Search for the load up to which a trial meets the objectives with probability 0.5 or more, and write a bundle.
    ///
    /// Short trials find a start. Then services take turns: in each round every service makes one trial on a fresh
    /// process, until the 95 % interval of its load is narrow. New trials confirm a load: 5 of 5, or 8 of 9.
    ///
    /// Exit code 0: a load is confirmed for every service; 1: no load is confirmed for at least one service; 2: a
    /// search ended without valid trials; 130 or 143: stopped by a signal, can be resumed with `ladder run --resume`.
    Search(search::Search),
    /// Inspect plans without climbing them.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Check services against the contract of their protocol, case by case.
    ///
    /// Exit code 0: no case failed; 1: a case failed; 2: something could not be checked.
    Conformance(conformance::Conformance),
    /// Judge a stored trial, or each finished trial of a bundle, again and write its result.
    ///
    /// Exit code 0: everything is valid; 2: a trial is invalid; 1: a trial could not be judged (the reason is printed).
    Judge(judge::Judge),
    /// Turn a bundle's verdicts into an exit code: 0 pass, 1 fail, 2 invalid.
    ///
    /// With --url or --release it asserts on a run in a cluster.
    Assert(Assert),
    /// Climb inside a cluster: the command of the chart's operator.
    #[command(disable_help_flag = true)]
    Serve(ForwardedArguments),
    /// Print the status of a run in a cluster.
    #[command(disable_help_flag = true)]
    Status(ForwardedArguments),
    /// Fetch a bundle from a cluster.
    #[command(disable_help_flag = true)]
    Fetch(ForwardedArguments),
    /// Report the CPU and memory use of a service in the same pod.
    #[command(disable_help_flag = true)]
    Evidence(ForwardedArguments),
}

/// Arguments that are passed on to `ladder-kubernetes` unparsed.
#[derive(Debug, Args)]
struct ForwardedArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// List every mistake in plan files, each with its place and how to fix it.
    Check(Check),
}

#[derive(Debug, Args)]
struct Check {
    /// The plan files to check.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The registry of services.
    #[arg(long, default_value = "services/services.toml")]
    registry: PathBuf,
}

#[derive(Debug, Args)]
struct Assert {
    /// The bundle, a folder in results/.
    bundle: PathBuf,
    /// Also write JUnit XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Parses the process's arguments, runs the subcommand and returns its exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    if cluster_program::is_assert_in_cluster(&arguments) {
        return exit(cluster_program::exec_cluster_program().map(|never| match never {}));
    }
    let outcome = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Search(arguments) => search::search(&arguments),
        Command::Plan(PlanCommand::Check(arguments)) => check(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Judge(arguments) => Ok(judge::run(&arguments)),
        Command::Assert(arguments) => assert(&arguments),
        Command::Serve(_) | Command::Status(_) | Command::Fetch(_) | Command::Evidence(_) => {
            cluster_program::exec_cluster_program().map(|never| match never {})
        }
    };
    exit(outcome)
}

fn exit(outcome: anyhow::Result<u8>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ladder: {error:#}");
            ExitCode::from(Standing::Invalid.exit_code())
        }
    }
}

fn check(arguments: &Check) -> anyhow::Result<u8> {
    let registry = Registry::load(&arguments.registry)?;
    let machine_limits = machine::machine_limits()?;
    let mut code = 0;
    for file in &arguments.files {
        match Plan::load(file, &registry, &machine_limits) {
            Ok(plan) => {
                let (trials, seconds) = (plan.trials(), plan.seconds());
                let searches = match plan.searches(&TrialFilter::default()).len() {
                    0 => String::new(),
                    count => format!(
                        "; searches (ladder search): {count}, rounds at most {:.0} s under load",
                        plan.seconds_of_rounds()
                    ),
                };
                println!("{}: {} trials, at most {seconds:.0} s under load{searches}", file.display(), trials.len());
            }
            Err(Mistakes(mistakes)) => {
                mistakes.iter().for_each(|mistake| eprintln!("{mistake}"));
                code = Standing::Invalid.exit_code();
            }
        }
    }
    Ok(code)
}

fn assert(arguments: &Assert) -> anyhow::Result<u8> {
    let asserted = assert::bundle(&arguments.bundle)?;
    print!("{}", assert::lines(&asserted));
    if let Some(path) = &arguments.junit {
        let run = arguments.bundle.file_name().and_then(|name| name.to_str()).unwrap_or("run");
        write(path, &assert::junit(run, &asserted))?;
    }
    Ok(assert::worst(&asserted).exit_code())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
