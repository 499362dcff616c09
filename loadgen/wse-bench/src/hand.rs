//! A run by hand: tests, tiers, tables. One trial per tier, no objectives; for those there are plans and the operator.

use std::{collections::HashSet, time::Duration};

use bench_format::{
    plan::{Load, Message},
    result::WorkerResult,
    trial::{Assignment, TrialId},
};
use loadgen_core::{
    Error,
    clock::{monotonic_ns, unix_ns},
    progress::Progress,
    trial::{Gate, StartAt},
};

use crate::{
    cli::{Cli, Output},
    crew::Crew,
    outcome::{Asked, Outcome, ServiceView},
    preflight,
    print::Printer,
    stats::{Stats, Timed, since},
    workloads::Workload,
};

/// From "all are ready" to the start: enough to tell every worker.
const START_IN_NS: u64 = 50_000_000;
/// A closed loop with a given amount of work ends when it is done; this is only its limit, in seconds.
const LONGEST_WORK_SECONDS: f64 = 300.0;

/// Runs the tests; says whether all did what they say.
///
/// # Errors
/// When the service lets nobody in, or a worker can't be started.
pub fn run(cli: &Cli) -> anyhow::Result<bool> {
    let tests = match &cli.test {
        Some(name) => vec![Workload::find(name)?],
        None => Workload::ALL.to_vec(),
    };
    let open_files = preflight::raise_open_files();
    let most = preflight::most_connections(open_files, cli.workers);
    let largest = tests.iter().flat_map(|test| tiers(cli, *test, most)).max().unwrap_or(0);
    for remark in preflight::remarks(largest, cli.workers, open_files) {
        eprintln!("note: {remark}");
    }
    preflight::check_connectivity(&cli.address(), &cli.secret)?;
    let stats = cli.stats_url.as_deref().map(Stats::new).transpose()?;
    let mut bench =
        Bench { cli, crew: if cli.workers > 1 { Some(Crew::start(cli.workers, &cli.secret)?) } else { None }, stats };
    let mut printer = Printer::new(cli.output, bench.stats.is_some());
    let mut clean = true;
    for test in tests {
        let tiers = tiers(cli, test, most);
        if cli.tiers.is_none() && tiers.len() < test.default_tiers().len() {
            eprintln!("note: {} stops at {} connections on this machine", test.name(), tiers.last().unwrap_or(&0));
        }
        for tier in tiers {
            let progress = (cli.output != Output::Json).then(|| Progress::start(format!("{} {tier}", test.name())));
            let outcome = bench.tier(test, tier);
            drop(progress);
            clean &= outcome.is_clean();
            printer.show(test, outcome);
        }
    }
    printer.finish();
    Ok(clean)
}

/// The tiers asked for; else those of the suite, as far as the limits allow.
fn tiers(cli: &Cli, test: Workload, most: u64) -> Vec<u32> {
    let fits = |tier: &u32| *tier <= cli.max_connections && u64::from(*tier) <= most;
    cli.tiers.clone().unwrap_or_else(|| test.default_tiers().into_iter().filter(fits).collect())
}

struct Bench<'a> {
    cli: &'a Cli,
    crew: Option<Crew>,
    stats: Option<Stats>,
}

impl Bench<'_> {
    fn tier(&mut self, workload: Workload, tier: u32) -> Outcome {
        let asked = Asked {
            test: workload.name(),
            tier,
            load: load(self.cli, workload),
            message: message(self.cli, workload),
            workers: self.cli.workers,
        };
        let command = command(workload, tier);
        let measured = self.measure(workload, &asked);
        match measured {
            Ok((results, service)) => Outcome::new(asked, workload, &results, service, command),
            Err(error) => Outcome::failed(asked, format!("{error:#}"), command),
        }
    }

    fn measure(
        &mut self,
        workload: Workload,
        asked: &Asked,
    ) -> anyhow::Result<(Vec<WorkerResult>, Option<ServiceView>)> {
        let before = match &self.stats {
            Some(stats) => Some(Before { others: others(stats)?, stats: at_rest(stats, self.cli.drain)? }),
            None => None,
        };
        let assignments = assignments(self.cli, asked);
        let edges = fixed_window(&asked.load, workload).then_some((assignments[0].warmup_ns, assignments[0].window_ns));
        let mut probe = Probe { stats: self.stats.as_ref(), edges, readings: None };
        let results = match &mut self.crew {
            Some(crew) => crew.run(&assignments, |_| probe.start())?,
            None => vec![workload.run(&assignments[0], &self.cli.secret, &mut probe)?],
        };
        let service = match (&self.stats, before) {
            (Some(stats), Some(before)) => Some(service_view(stats, &before, probe, &results, self.cli.drain)?),
            _ => None,
        };
        Ok((results, service))
    }
}

/// Reads the service at the window's edges, and opens the gate.
struct Probe<'a> {
    stats: Option<&'a Stats>,
    /// Warm-up and window, in nanoseconds, where they are known beforehand.
    edges: Option<(u64, u64)>,
    readings: Option<std::thread::JoinHandle<anyhow::Result<[Timed; 2]>>>,
}

impl Probe<'_> {
    /// Everyone is ready: returns when load starts, unix nanoseconds.
    fn start(&mut self) -> u64 {
        if let (Some(stats), Some((warmup_ns, window_ns))) = (self.stats, self.edges) {
            let window_start = monotonic_ns() + START_IN_NS + warmup_ns;
            self.readings = Some(stats.read_at([window_start, window_start + window_ns]));
        }
        unix_ns() + START_IN_NS
    }
}

impl Gate for Probe<'_> {
    fn ready(&mut self, _open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        match problem {
            Some(reason) => Err(Error::Abandoned { reason }),
            None => Ok(StartAt { unix_ns: self.start(), clock_offset_ns: 0, clock_uncertainty_ns: 0 }),
        }
    }
}

/// What the service said before the trial.
struct Before {
    stats: Timed,
    /// Connections that are not this trial's.
    others: HashSet<String>,
}

/// A reading that nothing sent earlier can change any more.
fn at_rest(stats: &Stats, drain_seconds: f64) -> anyhow::Result<Timed> {
    let now = stats.read()?;
    stats.settled(&now.stats, 0, Duration::from_secs_f64(drain_seconds))
}

fn others(stats: &Stats) -> anyhow::Result<HashSet<String>> {
    let books = stats.connections()?.unwrap_or_default();
    Ok(books.connections.into_iter().map(|book| book.id).collect())
}

fn service_view(
    stats: &Stats,
    before: &Before,
    probe: Probe<'_>,
    results: &[WorkerResult],
    drain_seconds: f64,
) -> anyhow::Result<ServiceView> {
    let books = || results.iter().flat_map(|result| &result.books);
    let expected = books().map(|book| book.sent + book.unnumbered).sum();
    let after = stats.settled(&before.stats.stats, expected, Duration::from_secs_f64(drain_seconds))?;
    let window = match probe.readings.map(std::thread::JoinHandle::join) {
        Some(Ok(readings)) => {
            let [from, to] = readings?;
            let seconds = (to.at_ns - from.at_ns) as f64 / 1e9;
            Some((since(&from.stats.messages, &to.stats.messages), seconds))
        }
        _ => None,
    };
    let application = after.stats.application.map(|after| {
        let before = before.stats.stats.application.unwrap_or_default();
        bench_format::service::ApplicationStats {
            delivered: after.delivered - before.delivered,
            sequence_sum: after.sequence_sum.wrapping_sub(before.sequence_sum),
            unnumbered: after.unnumbered - before.unnumbered,
        }
    });
    let mut connections = stats.connections()?;
    if let Some(books) = &mut connections {
        books.connections.retain(|book| !before.others.contains(&book.id));
    }
    Ok(ServiceView {
        whole: since(&before.stats.stats.messages, &after.stats.messages),
        application,
        window,
        connections,
    })
}

fn load(cli: &Cli, workload: Workload) -> Load {
    match cli.rate {
        Some(rate_per_second) => Load::Open { rate_per_second, arrivals: cli.arrivals.into() },
        None => Load::Closed {
            messages_per_connection: (workload == Workload::PingLatency).then_some(cli.pings),
            in_flight: cli.batch_size,
        },
    }
}

fn message(cli: &Cli, workload: Workload) -> Message {
    match workload {
        Workload::Throughput => {
            Message { format: cli.format.name().into(), size_bytes: cli.size, coalesce: cli.coalesce }
        }
        Workload::ConnectionStorm | Workload::PingLatency => Message::default(),
    }
}

/// Whether the window's end is known before it begins. Storms and counted pings end when they are done.
fn fixed_window(load: &Load, workload: Workload) -> bool {
    let counted = matches!(load, Load::Closed { messages_per_connection: Some(_), .. });
    workload != Workload::ConnectionStorm && !counted
}

fn assignments(cli: &Cli, asked: &Asked) -> Vec<Assignment> {
    let nanoseconds = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos() as u64;
    let workload = Workload::find(asked.test).expect("the name is a workload's own");
    let fixed = fixed_window(&asked.load, workload);
    let window = if fixed { cli.duration } else { cli.duration.max(LONGEST_WORK_SECONDS) };
    let border = |worker: u32| (u64::from(asked.tier) * u64::from(worker) / u64::from(cli.workers)) as u32;
    let share = match asked.load.clone() {
        Load::Open { rate_per_second, arrivals } => {
            Load::Open { rate_per_second: rate_per_second / f64::from(cli.workers), arrivals }
        }
        closed => closed,
    };
    (0..cli.workers)
        .map(|worker| Assignment {
            run: "by-hand".into(),
            trial: TrialId {
                service: cli.address(),
                workload: asked.test.into(),
                variant: "by-hand".into(),
                tier: asked.tier,
                process: 1,
                repeat: 1,
            },
            attempt: 1,
            worker,
            workers: cli.workers,
            address: cli.address(),
            connections: border(worker + 1) - border(worker),
            first_connection: border(worker),
            seed: cli.seed,
            load: share.clone(),
            message: asked.message.clone(),
            // Counted pings are all measured.
            warmup_ns: if fixed { nanoseconds(cli.warmup) } else { 0 },
            window_ns: nanoseconds(window),
            drain_ns: nanoseconds(cli.drain),
            late_after_ns: None,
        })
        .collect()
}

/// The command line of this tier alone, without a secret that may stand in ours.
fn command(workload: Workload, tier: u32) -> String {
    let mut words = vec!["wse-bench".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--secret" | "--tiers" | "--test" => {
                arguments.next();
            }
            other if ["--secret=", "--tiers=", "--test="].iter().any(|flag| other.starts_with(flag)) => {}
            _ => words.push(argument),
        }
    }
    words.extend(["--test".into(), workload.name().into(), "--tiers".into(), tier.to_string()]);
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn cli(line: &str) -> Cli {
        Cli::try_parse_from(line.split_whitespace()).unwrap()
    }

    fn assigned(line: &str, workload: Workload, tier: u32) -> Vec<Assignment> {
        let cli = cli(line);
        let asked = Asked {
            test: workload.name(),
            tier,
            load: load(&cli, workload),
            message: message(&cli, workload),
            workers: cli.workers,
        };
        assignments(&cli, &asked)
    }

    #[test]
    fn workers_share_connections_and_rate_without_overlap() {
        let assignments = assigned("wse-bench --workers 3 --rate 300", Workload::Throughput, 10);
        let ranges: Vec<_> = assignments.iter().map(|a| (a.first_connection, a.connections)).collect();
        assert_eq!(ranges, [(0, 3), (3, 3), (6, 4)]);
        assert!(assignments.iter().all(|a| matches!(a.load, Load::Open { rate_per_second: 100.0, .. })));
    }

    #[test]
    fn counted_work_has_no_warm_up_and_time_to_finish() {
        let assignment = &assigned("wse-bench --duration 1", Workload::PingLatency, 5)[0];
        assert_eq!((assignment.warmup_ns, assignment.window_ns), (0, 300_000_000_000));
    }

    #[test]
    fn a_flood_lasts_as_long_as_it_is_told() {
        let assignment = &assigned("wse-bench --duration 1.5 --warmup 0.25", Workload::Throughput, 5)[0];
        assert_eq!((assignment.warmup_ns, assignment.window_ns), (250_000_000, 1_500_000_000));
    }

    #[test]
    fn the_suites_tiers_stop_at_the_limits_but_those_asked_for_do_not() {
        let suite = cli("wse-bench --max-connections 5000");
        assert_eq!(tiers(&suite, Workload::Throughput, 1100), [100, 500, 1000]);
        assert_eq!(tiers(&suite, Workload::Throughput, 20_000), [100, 500, 1000, 2000, 5000]);
        assert_eq!(tiers(&cli("wse-bench --tiers 9000"), Workload::Throughput, 1100), [9000]);
    }
}
