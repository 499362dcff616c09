//! The command line, and what each subcommand does in order. A table of contents: the work is in the modules.

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
    plan::{Mistakes, Only, Plan},
    registry::Registry,
};

mod chosen;
mod conformance;
mod core_check;
mod elsewhere;
mod judge;
mod machine;
mod outside;
mod run;
mod search;

/// What the command line asked for.
#[derive(Debug, Parser)]
#[command(name = "ladder", version, about = "Climbs a plan, checks the books, keeps the results")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Climb a plan on this machine and keep a bundle.
    ///
    /// Exit code 0: all trials are valid and passed (or have no objectives); 1: one failed; 2: one is invalid or could
    /// not be measured, or a service breaks the contract of its protocol; 130 or 143: stopped by a signal, to be resumed.
    Run(run::Run),
    /// Search the largest load that meets the objectives, and keep a bundle.
    ///
    /// Exit code 0: a load is confirmed for every service; 1: for one nothing is; 2: a search ended without valid
    /// trials; 130 or 143: stopped by a signal, to be resumed with `ladder run --resume`.
    Search(search::Search),
    /// Look at plans without climbing them.
    #[command(subcommand)]
    Plan(PlanCommand),
    /// Check services against the contract of their protocol, case by case.
    ///
    /// Exit code 0: no case failed; 1: one did; 2: something could not be checked.
    Conformance(conformance::Conformance),
    /// Judge again what a trial, or each trial of a bundle, left, and write its result.
    ///
    /// Exit code 0: all of it is valid; 2: something is invalid; 1: something can't be judged, and why.
    Judge(judge::Judge),
    /// Turn a bundle's verdicts into an exit code: 0 pass, 1 fail, 2 invalid.
    ///
    /// With --url or --release it asserts on a run in a cluster.
    Assert(Assert),
    /// Climb inside a cluster: what the chart's operator runs.
    #[command(disable_help_flag = true)]
    Serve(Elsewhere),
    /// Say how a run in a cluster stands.
    #[command(disable_help_flag = true)]
    Status(Elsewhere),
    /// Fetch a bundle from a cluster.
    #[command(disable_help_flag = true)]
    Fetch(Elsewhere),
    /// Tell what a service beside it in a pod uses.
    #[command(disable_help_flag = true)]
    Evidence(Elsewhere),
}

/// Arguments that `ladder-kubernetes` reads.
#[derive(Debug, Args)]
struct Elsewhere {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Name every mistake in plan files, with its place and the way out.
    Check(Check),
}

#[derive(Debug, Args)]
struct Check {
    /// Plan files.
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

/// Runs the command line.
pub fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    if elsewhere::asserts_elsewhere(&words) {
        return exit(elsewhere::become_it().map(|never| match never {}));
    }
    let outcome = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Search(arguments) => search::search(&arguments),
        Command::Plan(PlanCommand::Check(arguments)) => check(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Judge(arguments) => Ok(judge::run(&arguments)),
        Command::Assert(arguments) => assert(&arguments),
        Command::Serve(_) | Command::Status(_) | Command::Fetch(_) | Command::Evidence(_) => {
            elsewhere::become_it().map(|never| match never {})
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
    let surroundings = machine::surroundings()?;
    let mut code = 0;
    for file in &arguments.files {
        match Plan::load(file, &registry, &surroundings) {
            Ok(plan) => {
                let (trials, seconds) = (plan.trials(), plan.seconds());
                let searches = match plan.searches(&Only::default()).len() {
                    0 => String::new(),
                    count => format!("; searches (ladder search): {count}"),
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
