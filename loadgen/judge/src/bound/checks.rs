//! What is looked at to say what limited a load: CPU, quota, threads and waits of each side, and late inference. Pure.

use bench_format::{
    result::{BoundCheck, BoundMeasure, BoundSide, Figures, ProcessReading, Reading, ThreadReading, ThreadsUse},
    trial_file::TrialFile,
};

use crate::{
    case::Case,
    edges::{Edges, in_both},
    rates::{ratio, seconds},
};

/// Share of late results from which inference counts as the bound: a 95th percentile leaves out fewer.
const LATE_SHARE: f64 = 0.05;

/// One process of a side, between the edges of the window.
struct Process {
    side: BoundSide,
    /// Share of the periods of its CPU quota in which it was throttled; absent without a quota.
    quota: Option<f64>,
    threads: Option<ThreadsUse>,
    /// Time that `threads` covers, in seconds.
    seconds: f64,
}

/// Everything that could be looked at, by side and measure. Of several processes of a side, the largest share counts.
pub(super) fn checks(case: &Case<'_>, figures: &Figures) -> Vec<BoundCheck> {
    let limits = Limits::of(case.trial);
    let cpu_shares = [
        (BoundSide::Service, figures.service_cpu_share),
        (BoundSide::Generator, figures.worker_cpu_share),
        (BoundSide::Inference, figures.inference_cpu_share),
    ];
    let processes = processes(case);
    let mut checks = Vec::new();
    for (side, cpu_share) in cpu_shares {
        let check = |measure, share, limit| BoundCheck { side, measure, share: rounded(share), limit, thread: None };
        checks.extend(cpu_share.map(|share| check(BoundMeasure::Cpu, share, limits.used_up)));
        let of_side = || processes.iter().filter(|process| process.side == side);
        let quota = of_side().filter_map(|process| process.quota).reduce(f64::max);
        checks.extend(quota.map(|share| check(BoundMeasure::Quota, share, limits.held_back)));
        let busiest = of_side().filter_map(Process::busiest).max_by(|a, b| a.runnable.total_cmp(&b.runnable));
        if let Some(Busiest { name, runnable, waiting }) = busiest {
            let thread = Some(name);
            checks.push(BoundCheck { thread: thread.clone(), ..check(BoundMeasure::Thread, runnable, limits.used_up) });
            let of_thread = |share| BoundCheck { thread, ..check(BoundMeasure::Waiting, share, limits.held_back) };
            checks.extend(waiting.map(of_thread));
        }
        if side == BoundSide::Inference {
            checks.extend(late_share(case).map(|share| check(BoundMeasure::Late, share, LATE_SHARE)));
        }
    }
    checks
}

/// The shares from which something counts as used up.
struct Limits {
    used_up: f64,
    /// A side that is held back for longer than this can't use up anything else.
    held_back: f64,
}

impl Limits {
    fn of(trial: &TrialFile) -> Self {
        let used_up = trial.thresholds.bound_share;
        Self { used_up, held_back: rounded(1.0 - used_up) }
    }
}

/// Shares are kept to a millionth: a file shows no digits that say nothing.
fn rounded(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

/// The busiest thread of a process, in shares of the window.
struct Busiest {
    name: String,
    /// It ran or waited for a CPU.
    runnable: f64,
    waiting: Option<f64>,
}

impl Process {
    fn busiest(&self) -> Option<Busiest> {
        let threads = self.threads.as_ref()?;
        let share = |ns: u64| (self.seconds > 0.0).then(|| (seconds(ns) / self.seconds).min(1.0));
        Some(Busiest {
            name: threads.busiest.clone(),
            runnable: share(threads.busiest_cpu_ns + threads.busiest_wait_ns.unwrap_or(0))?,
            waiting: threads.busiest_wait_ns.and_then(share),
        })
    }
}

/// The processes of all sides: the workers by their own evidence, the others by the readings at the window's edges.
fn processes(case: &Case<'_>) -> Vec<Process> {
    let workers = case.uploads.iter().map(|upload| Process {
        side: BoundSide::Generator,
        quota: grown_share(Some(0), upload.evidence.throttled_periods, Some(0), upload.evidence.periods),
        threads: upload.evidence.threads.clone(),
        seconds: seconds(upload.window.duration_ns),
    });
    let mut all: Vec<Process> = workers.collect();
    if let Some(edges) = Edges::of(case) {
        all.push(service(&edges));
        let companions = in_both(&edges.start.companions, &edges.end.companions);
        // The service's own readings are sums, in which one pod at its quota may not show.
        let replicas = in_both(&edges.start.replicas, &edges.end.replicas);
        let beside = companions.chain(replicas);
        all.extend(beside.map(|(_, from, to)| other(BoundSide::Service, from, to, edges.seconds)));
        let inference = edges.start.inference.as_ref().zip(edges.end.inference.as_ref());
        all.extend(inference.map(|(from, to)| other(BoundSide::Inference, from, to, edges.seconds)));
    }
    all
}

fn service(edges: &Edges<'_>) -> Process {
    let (from, to): (&Reading, &Reading) = (edges.start, edges.end);
    Process {
        side: BoundSide::Service,
        quota: grown_share(from.throttled_periods, to.throttled_periods, from.periods, to.periods),
        threads: between(from.threads.as_deref(), to.threads.as_deref()),
        seconds: edges.seconds,
    }
}

fn other(side: BoundSide, from: &ProcessReading, to: &ProcessReading, seconds: f64) -> Process {
    Process {
        side,
        quota: grown_share(from.throttled_periods, to.throttled_periods, from.periods, to.periods),
        threads: between(from.threads.as_deref(), to.threads.as_deref()),
        seconds,
    }
}

fn between(from: Option<&[ThreadReading]>, to: Option<&[ThreadReading]>) -> Option<ThreadsUse> {
    ThreadsUse::between(from?, to?)
}

/// Share of the growth of a whole that is the growth of a part.
fn grown_share(part: Option<u64>, part_later: Option<u64>, all: Option<u64>, all_later: Option<u64>) -> Option<f64> {
    let all = all_later?.saturating_sub(all?);
    ratio(part_later?.saturating_sub(part?), all as f64)
}

/// Share of the results of the inference simulator that were computed after they were due.
fn late_share(case: &Case<'_>) -> Option<f64> {
    let edges = Edges::of(case)?;
    let (from, to) = (edges.start.inference.as_ref()?.counts?, edges.end.inference.as_ref()?.counts?);
    grown_share(Some(from.late), Some(to.late), Some(from.answered), Some(to.answered))
}
