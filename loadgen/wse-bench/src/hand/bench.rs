//! One trial of a run by hand, from the reading before it to the one after its drain.

use std::{collections::HashSet, process::Command, thread, time::Duration};

use anyhow::anyhow;
use bench_format::{plan::Load, result::WorkerResult, service::ApplicationStats, trial::Assignment};
use loadgen_core::{clock::monotonic_ns, crew::Crew, memory::KernelMemory, neighbour::Neighbour};

use super::{
    assignments::{assignments, nanoseconds},
    command,
    gate::{ByHand, Noted, NothingOpen},
};
use crate::{
    cli::Cli,
    outcome::{Asked, Outcome, ProcessView, PublisherView, Seen, ServiceView},
    preflight::Machine,
    smoke::{self, Smoke},
    stats::{Stats, Timed, since},
    suite::{Step, Test, Window},
    workloads::Workload,
};

/// How long a service that can't be asked gets to forget the connections of a probe.
const REST: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Bench<'a> {
    cli: &'a Cli,
    machine: &'a Machine,
    /// Workers of the last trial that had several.
    crew: Option<(u32, Crew)>,
    stats: Option<Stats>,
    /// Least resident memory that the service was seen with before a trial, in bytes.
    rss_at_rest_bytes: Option<u64>,
    /// Connections that were open before the first trial.
    open_at_rest: Option<u64>,
}

/// The service as it was before a trial.
struct Before {
    stats: Option<(Timed, HashSet<String>)>,
    cpu_ns: Option<u64>,
    /// The machine's kernel's memory.
    kernel: Option<KernelMemory>,
    /// In nanoseconds of the monotonic clock.
    at_ns: u64,
}

impl<'a> Bench<'a> {
    pub(super) fn new(cli: &'a Cli, machine: &'a Machine) -> anyhow::Result<Self> {
        let stats = cli.stats_urls().as_ref().map(Stats::new).transpose()?;
        let open_at_rest = stats.as_ref().map(Stats::read).transpose()?.map(|now| now.stats.connections.open);
        Ok(Self { cli, machine, crew: None, stats, rss_at_rest_bytes: None, open_at_rest })
    }

    /// Carries a trial out; a failure is a row, too.
    pub(super) fn carry_out(&mut self, step: &Step) -> (Outcome, Seen) {
        let paced = self.paced(step);
        let step = match &paced {
            Ok(paced) => paced,
            Err(_) => step,
        };
        let asked = Asked {
            test: step.test,
            workload: step.workload,
            tier: step.tier,
            load: step.load.clone(),
            message: step.message.clone(),
            workers: self.machine.workers(self.cli.workers, step.tier),
            source_addresses: self.machine.sources.addresses_for(step.tier),
        };
        let command = command(step);
        match paced.as_ref().map_err(|words| anyhow!("{words}")).and_then(|step| self.measure(step, asked.workers)) {
            Ok((results, seen)) => (Outcome::new(asked, &results, &seen, command), seen),
            Err(error) => (Outcome::failed(asked, format!("{error:#}"), command), Seen::default()),
        }
    }

    /// Waits until the service has let go of the last trial's connections.
    pub(super) fn rest(&self) {
        let patience = Duration::from_secs_f64(self.cli.drain);
        match (&self.stats, self.open_at_rest) {
            // What can't be read shows in the next trial.
            (Some(stats), Some(open)) => drop(stats.at_rest(open, patience)),
            _ => thread::sleep(REST),
        }
    }

    /// The step at the pace of the service's own publisher, where it has one.
    fn paced(&self, step: &Step) -> Result<Step, String> {
        let Some(publisher) = self.stats.as_ref().filter(|_| step.workload.receives()) else {
            return Ok(step.clone());
        };
        let publisher = publisher.publisher().map_err(|error| format!("{error:#}"))?;
        let publisher = publisher.ok_or("the service publishes nothing by itself: start the one that does")?;
        if let Some(wanted) = step.workload.terms().publishes_by.filter(|wanted| *wanted != publisher.mode) {
            let (told, name) = (&publisher.mode, step.workload.name());
            return Err(format!("the service publishes by {told:?}, and {name} is about {wanted:?}"));
        }
        match (&step.load, publisher.rate_per_second) {
            (Load::Open { rate_per_second, .. }, Some(rate)) if *rate_per_second == rate => Ok(step.clone()),
            (Load::Open { rate_per_second, .. }, told) => {
                let told = told.map_or("as fast as it can".into(), |rate| format!("{rate} messages per second"));
                Err(format!("the service publishes {told}, and not the {rate_per_second} of --rate: leave it out"))
            }
            (_, Some(rate_per_second)) => {
                Ok(Step { load: Load::Open { rate_per_second, arrivals: Default::default() }, ..step.clone() })
            }
            (_, None) => Ok(step.clone()),
        }
    }

    fn measure(&mut self, step: &Step, workers: u32) -> anyhow::Result<(Vec<WorkerResult>, Seen)> {
        let rss_bytes = self.machine.neighbour.as_ref().and_then(Neighbour::rss_bytes);
        self.rss_at_rest_bytes = self.rss_at_rest_bytes.into_iter().chain(rss_bytes).min();
        let stats = self.stats.as_ref().map(|stats| self.at_rest(stats)).transpose()?;
        let check_before = self.check(step)?;
        let assignments = assignments(self.cli, step, workers);
        let cpu_ns = self.machine.neighbour.as_ref().and_then(Neighbour::cpu_ns);
        let before = Before { stats, cpu_ns, kernel: KernelMemory::read(), at_ns: monotonic_ns() };
        let (mut results, noted) = self.load(step, &assignments)?;
        if let (Some(before), Some(after), Some(first)) = (check_before, self.check(step)?, results.first_mut()) {
            smoke::enter(first, before, after);
        }
        let seen = self.seen(step, &before, noted, &results)?;
        Ok((results, seen))
    }

    fn at_rest(&self, stats: &Stats) -> anyhow::Result<(Timed, HashSet<String>)> {
        let now = stats.read()?;
        let settled = stats.settled(&now.stats, 0, Duration::from_secs_f64(self.cli.drain))?;
        let books = stats.connections()?.unwrap_or_default();
        Ok((settled, books.connections.into_iter().map(|book| book.id).collect()))
    }

    fn check(&self, step: &Step) -> anyhow::Result<Option<Smoke>> {
        let wanted = !self.cli.no_conformance && step.workload.allows_check();
        wanted.then(|| smoke::check(&self.cli.address(), &self.cli.secret)).transpose()
    }

    fn load(&mut self, step: &Step, assignments: &[Assignment]) -> anyhow::Result<(Vec<WorkerResult>, Noted)> {
        let edges = match step.window {
            Window::Fixed(window) => Some((nanoseconds(step.warmup), nanoseconds(window))),
            Window::UntilDone => None,
        };
        let nothing_open = if step.test == Test::ConnectionLimit { NothingOpen::GoOn } else { NothingOpen::Abandon };
        let Self { cli, machine, crew, stats, .. } = self;
        let mut gate = ByHand::new(stats.as_ref(), machine.neighbour.as_ref(), edges, nothing_open)
            .after_publishing(step.workload.receives());
        let results = match assignments {
            [alone] => vec![step.workload.run(alone, &cli.access(), &mut gate)?],
            several => {
                let crew = crew_of(crew, several.len() as u32, cli)?;
                crew.run_if(several, |_, problem| gate.decide(problem))?
            }
        };
        Ok((results, gate.noted()))
    }

    fn seen(&self, step: &Step, before: &Before, noted: Noted, results: &[WorkerResult]) -> anyhow::Result<Seen> {
        let duration_ns = results.iter().map(|result| result.window.duration_ns).max().unwrap_or(0);
        let window = noted.start_ns.map(|start| {
            let from = start + nanoseconds(step.warmup);
            (from, from + duration_ns)
        });
        let storm = step.workload == Workload::ConnectionStorm;
        let process = self.machine.neighbour.as_ref().map(|neighbour| ProcessView {
            room: neighbour.room(),
            cpu_ns: noted.watch.zip(window).and_then(|(watch, (from_ns, to_ns))| watch.finish().used(from_ns, to_ns)),
            opening_cpu_ns: noted.cpu_ns.zip(before.cpu_ns).map(|(ready, before)| ready - before),
            rss_at_rest_bytes: self.rss_at_rest_bytes,
            rss_bytes: noted.rss_bytes.filter(|_| !storm),
            kernel_grown_bytes: noted
                .kernel
                .zip(before.kernel)
                .map(|(open, rest)| open.total_bytes() as i64 - rest.total_bytes() as i64)
                .filter(|_| !storm),
        });
        let service = match (&self.stats, &before.stats) {
            (Some(stats), Some((earlier, others))) => {
                Some(view(stats, earlier, others, noted.readings, results, self.cli.drain)?)
            }
            _ => None,
        };
        let opening = noted.ready_ns.filter(|_| !storm).map(|ready| ready - before.at_ns);
        Ok(Seen { service, process, opening_seconds: opening.map(|ns| ns as f64 / 1e9) })
    }
}

/// Workers in this number: those of the last trial, if they were as many.
fn crew_of<'c>(crew: &'c mut Option<(u32, Crew)>, workers: u32, cli: &Cli) -> anyhow::Result<&'c mut Crew> {
    if crew.as_ref().is_none_or(|(number, _)| *number != workers) {
        let equip = |worker: &mut Command| {
            worker.env("WSE_BENCH_SECRET", &cli.secret);
            for address in &cli.source_address {
                worker.args(["--source-address", &address.to_string()]);
            }
        };
        // First the old ones end: both together may be more than this user may have.
        drop(crew.take());
        *crew = Some((workers, Crew::start(workers, equip)?));
    }
    let (_, crew) = crew.as_mut().expect("it was started above");
    Ok(crew)
}

/// What the service says of a trial once everything of it has reached its end.
fn view(
    stats: &Stats,
    earlier: &Timed,
    others: &HashSet<String>,
    readings: Option<thread::JoinHandle<anyhow::Result<[Timed; 2]>>>,
    results: &[WorkerResult],
    drain_seconds: f64,
) -> anyhow::Result<ServiceView> {
    let before = &earlier.stats;
    let books = results.iter().flat_map(|result| &result.books);
    let expected = books.map(|book| book.sent + book.unnumbered).sum();
    let after = stats.settled(before, expected, Duration::from_secs_f64(drain_seconds))?;
    let edges = match readings.map(thread::JoinHandle::join) {
        Some(Ok(readings)) => Some(readings?),
        _ => None,
    };
    let seconds = |[from, to]: &[Timed; 2]| (to.at_ns - from.at_ns) as f64 / 1e9;
    let window =
        edges.as_ref().map(|edges| (since(&edges[0].stats.messages, &edges[1].stats.messages), seconds(edges)));
    let publisher = after.publisher.clone().map(|after| {
        let published = edges.as_ref().and_then(|[from, to]| from.publisher.as_ref().zip(to.publisher.as_ref()));
        PublisherView {
            published: after.published - earlier.publisher.as_ref().map_or(0, |before| before.published),
            after,
            window: published
                .zip(edges.as_ref())
                .map(|((from, to), edges)| (to.published - from.published, seconds(edges))),
            last_of_window: published.and_then(|(_, to)| to.last_sequence),
        }
    });
    let application = after.stats.application.map(|after| {
        let before = before.application.unwrap_or_default();
        ApplicationStats {
            delivered: after.delivered - before.delivered,
            sequence_sum: after.sequence_sum.wrapping_sub(before.sequence_sum),
            unnumbered: after.unnumbered - before.unnumbered,
        }
    });
    let mut connections = stats.connections()?;
    if let Some(books) = &mut connections {
        books.connections.retain(|book| !others.contains(&book.id));
    }
    Ok(ServiceView {
        whole: since(&before.messages, &after.stats.messages),
        application,
        window,
        connections,
        publisher,
        links: after.links.map(|after| after.since(&earlier.links.clone().unwrap_or_default())),
    })
}
