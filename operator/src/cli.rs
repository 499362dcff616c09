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

use crate::assert::{self, Standing};

mod analysis;
mod chosen_plan;
mod cluster_program;
mod compare;
mod compared;
mod conformance;
mod core_check;
mod described;
mod first_look;
mod first_plan;
mod judge;
mod machine;
mod outside;
mod pilot;
mod piloted;
mod plan_check;
mod plan_new;
mod run;
mod search;
mod sides;
mod sign;
mod verify;

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
    /// Look at a running WebSocket service, write a plan for it, and climb it for half a minute.
    ///
    /// Finds out whether and how it upgrades, what it says by itself, which preset it answers within a second, and how it
    /// closes. Then writes a commented plan, climbs it, and prints the table and the path of the report.
    ///
    /// Exit code: as for `ladder run`; 2 if nothing that is known opens a connection.
    #[command(after_help = first_look::EXAMPLES)]
    Try(first_look::Try),
    /// Find out when the steady state of each service begins, and how long the warm-up of a plan has to be.
    ///
    /// Makes one trial of 60 s for each service and ladder of the plan, without warm-up, on a fresh process, at the tier
    /// that --only names or else the largest. Where the rate of each second (the p50, where the load is open) shows no
    /// steady state, it makes another trial of 120 s and then one of 240 s. Prints when the steady state begins, or the
    /// levels instead, and the warm-up that all trials of a ladder should have: 1.5 times the latest start, and no less
    /// than the plan's. Makes no report; `docs/METHODOLOGY.md` ("Warm-up") has the rule.
    ///
    /// Exit code 0: everything is steady and the plan's warm-up is long enough; 1: a longer warm-up is needed, or
    /// something is never steady; 2: something could not be measured; 130 or 143: stopped by a signal, can be resumed
    /// with `ladder run --resume`.
    #[command(after_help = pilot::EXAMPLES)]
    Pilot(pilot::Pilot),
    /// Make and inspect plans without climbing them.
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
    /// Check that a bundle is what its run left, and that its figures are what its measurements give.
    ///
    /// Compares every file with MANIFEST.sha256, which the run wrote at its end, and the list with its signature; judges
    /// every trial again from its workers' files and compares results, histograms and books; compares run.json with the
    /// folders, trials with the plan and its seed, and workers' programs with the versions of the run; decides searches
    /// again. Writes nothing. Tables and charts in report/ are not part of it: `just analyze-results` makes them again.
    ///
    /// Exit code 0: verified; 1: something differs, or the list of files is missing (the places are printed); 2: there is
    /// no bundle or no key to read.
    Verify(verify::Verify),
    /// Sign a bundle with your key, or make a key.
    ///
    /// Signs MANIFEST.sha256, which has the digest of each file, and writes MANIFEST.sha256.sig and MANIFEST.sha256.pub
    /// beside it. Refuses a bundle whose files differ from the list.
    ///
    /// Exit code 0: done; 2: nothing was signed (the reason is printed).
    #[command(after_help = "Example:
  ladder sign --new-key key.pem --public-key-out key.pub
  ladder sign results/RUN_ID --key key.pem
  ladder verify results/RUN_ID --public-key key.pub")]
    Sign(sign::Sign),
    /// Turn a bundle's verdicts into an exit code: 0 pass, 1 fail, 2 invalid.
    ///
    /// With --url or --release it asserts on a run in a cluster.
    Assert(Assert),
    /// Compare two sides: finished bundles, or services, checkouts and commits that are measured in pairs.
    ///
    /// With --plan, fresh processes of A and B take turns (A B, B A) in one run until the always-valid interval of each
    /// deciding figure says *differs* or *same within 5 %*, looking after every pair from the fifth on, or until the
    /// largest number of pairs. Deciding are what the load measures (a closed loop: its rate; an open loop: p99 of
    /// response; sessions: p95 of newest) and the CPU seconds per million messages, or the figures named. A pair with an
    /// invalid trial is measured again. Ratios are A / B.
    ///
    /// Exit code 0: no figure of B is shown to be worse than A's; 1: one is; 2: they can't be compared, with the reasons;
    /// 130 or 143: stopped by a signal, can be resumed with `ladder run --resume`.
    #[command(after_help = compare::EXAMPLES)]
    Compare(compare::Compare),
    /// Find changes of figures over the runs of a folder, and write a page of their trends.
    ///
    /// Exit code 0: no new change for the worse; 1: a change for the worse that the acknowledgement file doesn't name;
    /// 2: the input can't be used.
    History(analysis::History),
    /// Write a bundle in another tool's format.
    ///
    /// Exit code 0: written; 2: the bundle can't be used.
    Export(analysis::Export),
    /// Climb inside a cluster: the command of the chart's operator.
    #[command(disable_help_flag = true)]
    Serve(ForwardedArguments),
    /// Print the status of a run in a cluster.
    #[command(disable_help_flag = true)]
    Status(ForwardedArguments),
    /// Follow a run in a cluster to its end.
    #[command(disable_help_flag = true)]
    Watch(ForwardedArguments),
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
    /// Write a plan for your WebSocket service: asks what it has to say, each question with a default.
    ///
    /// Asks how the service is started or where it runs, how it is spoken to, what is measured, at which rate and with how
    /// many connections, and what a trial must reach. Checks each answer where it is given. Then writes a commented plan, as
    /// `ladder try` does, which looks at a running service instead of asking.
    ///
    /// Each answer is also a flag, and only the others are asked for. Without a terminal nothing is asked: a missing answer
    /// is an error that names its flag.
    ///
    /// Exit code 0: the plan is written; 2: it isn't, with the reason.
    #[command(after_help = plan_new::EXAMPLES)]
    New(plan_new::PlanNew),
    /// List every mistake in plan files, each with its place and how to fix it.
    ///
    /// Prints what the largest tier of each ladder needs, too: workers, descriptors, ports and memory. A tier that doesn't
    /// fit has exit code 2, as a mistake has.
    Check(plan_check::Check),
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
        Command::Try(arguments) => first_look::run(&arguments),
        Command::Pilot(mut arguments) => pilot::pilot(&mut arguments),
        Command::Plan(PlanCommand::New(arguments)) => plan_new::run(&arguments),
        Command::Plan(PlanCommand::Check(arguments)) => plan_check::check(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Judge(arguments) => Ok(judge::run(&arguments)),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Sign(arguments) => sign::run(&arguments),
        Command::Assert(arguments) => assert(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::History(arguments) => analysis::history(&arguments),
        Command::Export(arguments) => analysis::export(&arguments),
        Command::Serve(_) | Command::Status(_) | Command::Watch(_) | Command::Fetch(_) | Command::Evidence(_) => {
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

fn assert(arguments: &Assert) -> anyhow::Result<u8> {
    let asserted = assert::bundle(&arguments.bundle)?;
    print!("{}", assert::lines(&asserted));
    if let Some(path) = &arguments.junit {
        write(path, &assert::junit(assert::run_name(&arguments.bundle), &asserted))?;
    }
    Ok(assert::worst(&asserted).exit_code())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
