//! A run by hand: the tests of the suite, one trial per tier. It has no objectives, which only plans have.
//!
//! `bench` carries out one trial, with this program as its workers; `search` finds the largest number of connections.

mod bench;
mod search;

use anyhow::Context;
use loadgen_core::progress::Progress;

use self::{
    bench::Bench,
    search::{ConnectionBound, Search},
};
use crate::{
    cli::{Cli, Output},
    outcome::{EndedBy, probed},
    preflight::{self, Machine, Need},
    print::Printer,
    suite::{Step, Test, probe},
};

/// Runs the tests and prints their results; returns whether all succeeded.
///
/// # Errors
/// When a flag or the machine doesn't allow the run, the service refuses the first connection, its metrics can't be
/// read, or a worker can't be started.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    let tests = match &cli.test {
        Some(name) => vec![Test::find(name)?],
        None => Test::suite(),
    };
    let machine = Machine::read(&cli.address(), &cli.source_address)?;
    let plan = Plan { cli, most: most(cli, &machine) };
    for check in machine.checks(&plan.need(&tests, &machine)) {
        eprintln!("{check}");
    }
    if let Some(publisher) = cli.publisher_address() {
        preflight::check_publisher(&publisher)?;
    }
    let connected = preflight::check_connectivity(&cli.address(), &cli.access());
    match cli.publisher_address() {
        Some(_) => connected.context("no instance that hands on what the other publishes; its port is --port2")?,
        None => connected?,
    }
    let mut bench = Bench::new(cli, &machine)?;
    let mut printer = Printer::new(cli.output, cli.stats_urls().is_some());
    let mut clean = true;
    for test in tests {
        clean &= match test {
            Test::ConnectionLimit => search(&plan, &mut bench, &mut printer),
            _ => climb(test, &plan, &mut bench, &mut printer),
        };
    }
    printer.finish();
    Ok(clean)
}

/// The command line, and the most connections that this machine can offer.
struct Plan<'a> {
    cli: &'a Cli,
    most: ConnectionBound,
}

impl Plan<'_> {
    /// What the largest tier needs.
    fn need(&self, tests: &[Test], machine: &Machine) -> Need {
        // The requested number, even if less can be offered: the check then reports it before the run.
        let limit = tests.contains(&Test::ConnectionLimit).then_some(self.cli.max_connections);
        let tiers = tests.iter().flat_map(|test| test.tiers(self.cli, u64::from(self.most.connections)));
        let connections = tiers.chain(limit).max().unwrap_or(0);
        Need { connections, workers: machine.workers(self.cli.workers, connections) }
    }
}

/// The most connections that this machine can offer, up to `--max-connections`.
fn most(cli: &Cli, machine: &Machine) -> ConnectionBound {
    let maximum = (u64::from(cli.max_connections), EndedBy::Maximum, "all that --max-connections asks for held".into());
    let descriptors = machine.most_by_descriptors(cli.workers);
    let by_descriptors = format!(
        "the descriptors of our own workers reach for {descriptors}: raise `ulimit -n`, or give more --workers"
    );
    let ports = machine.sources.most_connections();
    let by_ports =
        format!("our own ports reach for {ports}: give more --source-address, or widen net.ipv4.ip_local_port_range");
    let bounds = [maximum, (descriptors, EndedBy::Generator, by_descriptors), (ports, EndedBy::Generator, by_ports)];
    let (connections, ended_by, why) =
        bounds.into_iter().min_by_key(|bound| bound.0).expect("three bounds are not none");
    ConnectionBound { connections: u32::try_from(connections).unwrap_or(u32::MAX), ended_by, why }
}

/// Carries out the trials of a test; returns whether all succeeded.
fn climb(test: Test, plan: &Plan<'_>, bench: &mut Bench<'_>, printer: &mut Printer) -> bool {
    let most = u64::from(plan.most.connections);
    let tiers = test.tiers(plan.cli, most);
    if plan.cli.tiers.is_none() && tiers.len() < test.published_tiers().len() {
        eprintln!("note: {} stops at {} connections here", test.name(), tiers.last().unwrap_or(&0));
    }
    let mut clean = true;
    for step in test.steps(plan.cli, most) {
        let (outcome, _) = with_progress(plan.cli, &step, || bench.run_step(&step));
        clean &= outcome.is_clean();
        printer.show(outcome);
    }
    clean
}

/// Searches for the most connections that hold; returns whether all of its probes are clean.
fn search(plan: &Plan<'_>, bench: &mut Bench<'_>, printer: &mut Printer) -> bool {
    let mut search = Search::new(plan.most.clone());
    let mut clean = true;
    while let Some((phase, connections)) = search.next() {
        let step = probe(plan.cli, connections);
        let (mut outcome, trial) = with_progress(plan.cli, &step, || bench.run_step(&step));
        let probe = probed(phase, &outcome, trial.as_ref());
        search.take(connections, &probe);
        outcome.probe = Some(probe);
        outcome.limit = search.next().is_none().then(|| search.limit());
        clean &= outcome.is_clean();
        printer.show(outcome);
        if search.next().is_some() {
            bench.wait_until_idle();
        }
    }
    clean
}

fn with_progress<T>(cli: &Cli, step: &Step, work: impl FnOnce() -> T) -> T {
    let description = || format!("{} {}", step.test.name(), step.tier);
    let _progress = (cli.output != Output::Json).then(|| Progress::start(description()));
    work()
}

/// The command line that repeats one trial, without the secret.
fn command(step: &Step) -> String {
    let mut description = vec!["wse-bench".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--secret" | "--tiers" | "--test" => {
                arguments.next();
            }
            other if ["--secret=", "--tiers=", "--test="].iter().any(|flag| other.starts_with(flag)) => {}
            _ => description.push(argument),
        }
    }
    description.extend(["--test".into(), step.test.name().into()]);
    if step.test != Test::ConnectionLimit {
        description.extend(["--tiers".into(), step.tier.to_string()]);
    }
    description.join(" ")
}
