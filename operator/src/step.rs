//! Decides the next step of a climb from its observed state. Pure, and the only place that decides the order of steps.

use bench_format::{
    Name,
    run::{SearchStep, TrialEntry, TrialState},
    trial::TrialId,
};

/// Identifies a service process. A trial with another key needs a fresh process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessKey {
    /// Service, workload, variant, tier and process number of the trial's id. The repeat is 0, and so is the tier where
    /// connections are kept.
    pub trial: TrialId,
}

impl ProcessKey {
    /// The process that a trial runs against. All repeats of one process number share it, and so do all trials in which
    /// a search looks for bounds.
    pub fn of(entry: &TrialEntry) -> Self {
        Self { trial: TrialId { repeat: 0, tier: tier_of(entry), ..entry.trial.clone() } }
    }
}

/// Whether connections stay open for the next trial. A search that looks for bounds moves from load to load and only
/// opens or closes the difference.
pub fn keeps_connections(entry: &TrialEntry) -> bool {
    entry.search.is_some_and(|purpose| purpose.step == SearchStep::Bounds)
}

/// The tier; 0 for trials that keep connections, which makes all their loads compare equal.
fn tier_of(entry: &TrialEntry) -> u32 {
    if keeps_connections(entry) { 0 } else { entry.trial.tier }
}

/// Identifies a set of workers. It serves all trials of a tier, for any service. Where connections are kept, it serves
/// one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierKey {
    /// Name of the worker program.
    pub program: String,
    /// Workload and variant of the trials.
    pub ladder: (Name, Name),
    /// The trial's load; 0 where connections are kept.
    pub tier: u32,
    /// The service to which connections are kept; absent where none are kept.
    pub service: Option<Name>,
}

impl TierKey {
    /// The workers that a trial needs.
    pub fn of(entry: &TrialEntry, program: &str) -> Self {
        let ladder = (entry.trial.workload.clone(), entry.trial.variant.clone());
        let service = keeps_connections(entry).then(|| entry.trial.service.clone());
        Self { program: program.into(), ladder, tier: tier_of(entry), service }
    }
}

/// Whether a process that was started still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It runs, and no failure occurred with it.
    Alive,
    /// It ended by itself, or a failure makes it unusable.
    Dead,
}

/// The next trial to climb.
#[derive(Clone, Debug)]
pub struct NextTrial {
    /// Its state in the store.
    pub state: TrialState,
    /// Whether this climb has begun it.
    pub begun: bool,
    /// The service process that it needs.
    pub process: ProcessKey,
    /// The workers that it needs.
    pub tier: TierKey,
}

/// Everything that the decision depends on.
#[derive(Clone, Debug)]
pub struct StepInput {
    /// The first trial that hasn't ended; absent when all have.
    pub next_trial: Option<NextTrial>,
    /// The service that was started, if any.
    pub service: Option<(ProcessKey, Health)>,
    /// The workers that were started, if any.
    pub workers: Option<(TierKey, Health)>,
    /// Whether a signal asked the climb to stop.
    pub stopping: bool,
}

/// The next step of a climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Stop the workers that run.
    StopWorkers,
    /// Stop the service that runs.
    StopService,
    /// Record in the store that the trial has started.
    Begin {
        /// Number of this attempt, from 1.
        attempt: u32,
    },
    /// Start the service that the trial needs.
    StartService,
    /// Start the workers that the trial needs.
    StartWorkers,
    /// Run the trial and judge it.
    Measure,
    /// End the climb: every trial has ended, or a signal stopped it.
    Finish,
}

/// Returns the next step. Workers stop before the service, so that no worker loses its service during a trial.
pub fn next(input: &StepInput) -> Step {
    let next_trial = input.next_trial.as_ref().filter(|_| !input.stopping);
    let Some(next_trial) = next_trial else {
        return match (&input.workers, &input.service) {
            (Some(_), _) => Step::StopWorkers,
            (None, Some(_)) => Step::StopService,
            (None, None) => Step::Finish,
        };
    };
    match (&input.workers, &input.service) {
        (Some((tier, health)), _) if *tier != next_trial.tier || *health == Health::Dead => Step::StopWorkers,
        (_, Some((process, health))) if *process != next_trial.process || *health == Health::Dead => Step::StopService,
        _ if !next_trial.begun => Step::Begin { attempt: attempt_after(&next_trial.state) },
        (_, None) => Step::StartService,
        (None, _) => Step::StartWorkers,
        _ => Step::Measure,
    }
}

/// Whether a trial still has to be climbed: it hasn't started, or was interrupted.
pub fn is_open(state: &TrialState) -> bool {
    matches!(state, TrialState::Pending | TrialState::Started { .. })
}

fn attempt_after(state: &TrialState) -> u32 {
    match state {
        TrialState::Started { attempt } => attempt + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use bench_format::run::SearchTrial;

    use super::*;

    fn trial(service: &'static str, process: u32) -> TrialEntry {
        TrialEntry::pending(TrialId {
            service: Name::from_static(service),
            workload: Name::from_static("throughput"),
            variant: Name::from_static("batch"),
            tier: 100,
            process,
            repeat: 1,
        })
    }

    fn searching(service: &'static str, tier: u32, step: SearchStep) -> TrialEntry {
        let trial = TrialId { tier, ..trial(service, 1).trial };
        let purpose = SearchTrial { step, window_seconds: 1.0, service_ended: false };
        TrialEntry { search: Some(purpose), ..TrialEntry::pending(trial) }
    }

    /// A climb that wants process 1 of service "a"; the trial is begun and everything it needs runs.
    fn running() -> StepInput {
        let trial = trial("a", 1);
        let (process, tier) = (ProcessKey::of(&trial), TierKey::of(&trial, "wse-bench"));
        StepInput {
            next_trial: Some(NextTrial {
                state: TrialState::Started { attempt: 1 },
                begun: true,
                process: process.clone(),
                tier: tier.clone(),
            }),
            service: Some((process, Health::Alive)),
            workers: Some((tier, Health::Alive)),
            stopping: false,
        }
    }

    fn step(change: impl FnOnce(&mut StepInput)) -> Step {
        let mut input = running();
        change(&mut input);
        next(&input)
    }

    fn next_trial(input: &mut StepInput) -> &mut NextTrial {
        input.next_trial.as_mut().unwrap()
    }

    #[test]
    fn each_input_leads_to_its_step() {
        type Case = (&'static str, fn(&mut StepInput), Step);
        let cases: [Case; 14] = [
            ("everything runs", |_| (), Step::Measure),
            ("no workers", |input| input.workers = None, Step::StartWorkers),
            ("no service", |input| input.service = None, Step::StartService),
            (
                "nothing runs: the service first, because workers need its address",
                |input| (input.service, input.workers) = (None, None),
                Step::StartService,
            ),
            ("not begun", |input| next_trial(input).begun = false, Step::Begin { attempt: 2 }),
            (
                "never begun",
                |input| {
                    next_trial(input).begun = false;
                    next_trial(input).state = TrialState::Pending;
                },
                Step::Begin { attempt: 1 },
            ),
            (
                "a fresh process is due",
                |input| next_trial(input).process = ProcessKey::of(&trial("a", 2)),
                Step::StopService,
            ),
            (
                "the other service's turn",
                |input| next_trial(input).process = ProcessKey::of(&trial("b", 1)),
                Step::StopService,
            ),
            ("the service died", |input| input.service.as_mut().unwrap().1 = Health::Dead, Step::StopService),
            ("a worker died", |input| input.workers.as_mut().unwrap().1 = Health::Dead, Step::StopWorkers),
            ("the next tier: its own workers", |input| next_trial(input).tier.tier = 200, Step::StopWorkers),
            ("stopping", |input| input.stopping = true, Step::StopWorkers),
            ("stopping, workers stopped", |input| (input.stopping, input.workers) = (true, None), Step::StopService),
            (
                "nothing left",
                |input| (input.next_trial, input.service, input.workers) = (None, None, None),
                Step::Finish,
            ),
        ];
        for (name, change, expected) in cases {
            assert_eq!(step(change), expected, "{name}");
        }
    }

    #[test]
    fn workers_keep_running_when_the_next_service_of_the_tier_starts() {
        let step = step(|input| {
            input.service = None;
            next_trial(input).process = ProcessKey::of(&trial("b", 1));
        });
        assert_eq!(step, Step::StartService);
    }

    #[test]
    fn repeats_on_one_process_share_it() {
        let again = TrialEntry::pending(TrialId { repeat: 2, ..trial("a", 1).trial });
        assert_eq!(ProcessKey::of(&again), ProcessKey::of(&trial("a", 1)));
    }

    #[test]
    fn a_search_keeps_process_and_workers_from_load_to_load() {
        let keys = |entry: &TrialEntry| (ProcessKey::of(entry), TierKey::of(entry, "stt-loadgen"));
        let bounds = |service, load| keys(&searching(service, load, SearchStep::Bounds));
        let confirm = |load| keys(&searching("a", load, SearchStep::Confirm));
        assert_eq!(bounds("a", 10), bounds("a", 20));
        assert_ne!(bounds("a", 10).1, bounds("b", 10).1, "workers keep connections to one service");
        assert_ne!(bounds("a", 10), confirm(10));
        assert!(confirm(10).0 != confirm(20).0 && confirm(10).1 != confirm(20).1);
    }
}
