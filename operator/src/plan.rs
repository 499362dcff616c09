//! A checked plan: the input of every later step.
//!
//! A [`WirePlan`] mirrors the file. [`read`] parses the text into one, and [`check`] validates it once: the result is a
//! [`Plan`] or a list of all mistakes. Later steps only see the checked plan. No file other than the plan file is read
//! here.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use bench_format::{
    Name,
    plan::{CpuShape, CpuShapes, Load, Message, Objective, SearchOver, Thresholds, WireLadder, WirePlan, WireSearch},
    run::{Search, TrialEntry},
    trial::TrialId,
};

use crate::{plan::check::MachineLimits, registry::Registry};

pub mod chart_values;
pub mod check;
mod notes;
mod order;
pub mod read;
pub mod scale;

/// A mistake that keeps a plan from being climbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Path of the plan file.
    pub file: PathBuf,
    /// Place in the file: a field (`ladders[1].tiers`) or `line 3, column 5`; empty for the file as a whole.
    pub place: String,
    /// What is wrong with which value, and how to fix it.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, message } = self;
        let file = file.display();
        if place.is_empty() { write!(f, "{file}: {message}") } else { write!(f, "{file}: {place}: {message}") }
    }
}

/// All mistakes in a plan; at least one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Mistakes(pub Vec<Mistake>);

/// A plan whose fields are validated and resolved.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The plan file's content; `run.json` keeps it.
    pub wire: WirePlan,
    /// Longest wait after the window for messages that are in flight.
    pub drain: Duration,
    /// CPUs of each role.
    pub cpu: CpuShapes,
    /// CPUs of the inference service behind the gateways; absent when no service of the plan has one.
    pub inference: Option<CpuShape>,
    /// Thresholds beyond which a trial is invalid.
    pub validity: Thresholds,
    /// The ladders in climbing order.
    pub ladders: Vec<Ladder>,
}

/// One ladder, with the defaults of the plan applied.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// Name of the workload.
    pub workload: Name,
    /// Distinguishes this ladder from other ladders of the same workload.
    pub variant: Name,
    /// Load levels, in rising order.
    pub tiers: Vec<u32>,
    /// The load that is offered, summed over all workers.
    pub load: Load,
    /// Format and size of the messages.
    pub message: Message,
    /// Environment variables of the service; they override those in the registry.
    pub service_env: BTreeMap<String, String>,
    /// Number of processes of the service.
    pub replicas: u32,
    /// Environment variables of the inference service; they override those in the registry.
    pub inference_env: BTreeMap<String, String>,
    /// Names of the services that climb this ladder, in order.
    pub services: Vec<Name>,
    /// Number of trials for each tier.
    pub repeats: u32,
    /// Time before the window: the ramp until the full load is offered, and the plan's warm-up after it.
    pub warmup: Duration,
    /// Longer warm-up times of services that need more than the plan gives, by service name.
    pub longer_warmups: BTreeMap<Name, Duration>,
    /// Length of the measured window.
    pub window: Duration,
    /// Whether workers keep raw samples.
    pub samples: bool,
    /// What a trial must reach to pass.
    pub objectives: Vec<Objective>,
    /// The search that the ladder runs in `ladder search`; absent when it has none.
    pub search: Option<WireSearch>,
    /// Number of connections; set only when a trial's load is a rate.
    pub connections: Option<u32>,
}

impl Plan {
    /// Reads and checks a plan file.
    ///
    /// # Errors
    /// All mistakes that the parser can separate, or all mistakes in the values.
    pub fn load(path: &Path, registry: &Registry, machine_limits: &MachineLimits) -> Result<Self, Mistakes> {
        Self::check(read::read(path)?, path, registry, machine_limits)
    }

    /// Checks a plan that is already parsed; `path` appears in messages.
    ///
    /// # Errors
    /// All mistakes in the values.
    pub fn check(
        wire: WirePlan,
        path: &Path,
        registry: &Registry,
        machine_limits: &MachineLimits,
    ) -> Result<Self, Mistakes> {
        let mistakes = check::mistakes(&wire, path, registry, machine_limits);
        if mistakes.is_empty() { Ok(Self::resolve(wire, registry)) } else { Err(Mistakes(mistakes)) }
    }

    fn resolve(wire: WirePlan, registry: &Registry) -> Self {
        let mut services = wire.services.iter().filter_map(|name| registry.services.get(name.as_str()));
        let has_inference = services.any(|service| registry.inference_of(service).is_some());
        let ladders = wire.ladders.iter().map(|ladder| Ladder::resolve(ladder, &wire, registry)).collect();
        Self {
            drain: Duration::from_secs_f64(wire.drain_seconds),
            cpu: wire.cpu.clone(),
            inference: has_inference.then_some(wire.cpu.inference),
            validity: wire.validity.clone(),
            ladders,
            wire,
        }
    }

    /// Number of workers that load this many connections of a ladder.
    pub fn workers_for(&self, ladder: &Ladder, connections: u32) -> u32 {
        self.wire.workers_for(connections, ladder.replicas)
    }

    /// Number of workers of a trial of this plan.
    pub fn workers_of(&self, trial: &TrialId) -> u32 {
        self.ladder_of(trial)
            .map_or(self.wire.workers, |ladder| self.workers_for(ladder, ladder.connections_at(trial.tier)))
    }

    /// Number of workers of the tier that has the most.
    pub fn most_workers(&self) -> u32 {
        let tiers = self.ladders.iter().flat_map(|ladder| ladder.tiers.iter().map(move |tier| (ladder, *tier)));
        let of_tiers = tiers.map(|(ladder, tier)| self.workers_for(ladder, tier));
        of_tiers.max().unwrap_or_default().max(self.wire.workers)
    }

    /// All searches that `only` selects, in order: the services of a ladder one after another.
    pub fn searches(&self, only: &TrialFilter) -> Vec<Search> {
        let mut searches = Vec::new();
        for ladder in self.ladders.iter().filter(|ladder| ladder.search.is_some()) {
            let Ladder { workload, variant, .. } = ladder;
            let of = |service: &Name| Search {
                service: service.clone(),
                workload: workload.clone(),
                variant: variant.clone(),
                found: None,
            };
            if only.selects_ladder(workload, variant) {
                searches.extend(ladder.services.iter().map(of));
            }
        }
        searches
    }

    /// Sum of warm-up and window over all trials, in seconds: the shortest time that a climb takes.
    pub fn seconds(&self) -> f64 {
        let of = |trial: &TrialId| {
            let ladder = self.ladder_of(trial);
            ladder.map_or(0.0, |ladder| (ladder.warmup_of(&trial.service) + ladder.window).as_secs_f64())
        };
        // `Iterator::sum` of an empty iterator is -0.0.
        self.trials().iter().map(of).fold(0.0, |sum, seconds| sum + seconds)
    }

    /// Sum of warm-up and window over the most rounds that the plan's searches may make, in seconds; without the short
    /// trials before them and the tests after them.
    pub fn seconds_of_rounds(&self) -> f64 {
        let of = |(ladder, search): (&Ladder, &WireSearch)| {
            let trial = |service: &Name| ladder.warmup_of(service).as_secs_f64() + search.rounds.window_seconds;
            f64::from(search.rounds.at_most) * ladder.services.iter().map(trial).sum::<f64>()
        };
        let searched = self.ladders.iter().filter_map(|ladder| Some((ladder, ladder.search.as_ref()?)));
        searched.map(of).fold(0.0, |sum, seconds| sum + seconds)
    }

    /// The ladder that a trial belongs to; `None` for a trial of another plan.
    pub fn ladder_of(&self, trial: &TrialId) -> Option<&Ladder> {
        self.ladder(&trial.workload, &trial.variant)
    }

    /// The ladder with this workload and variant; `None` if the plan has none.
    pub fn ladder(&self, workload: &Name, variant: &Name) -> Option<&Ladder> {
        self.ladders.iter().find(|ladder| (&ladder.workload, &ladder.variant) == (workload, variant))
    }
}

/// A name of the plan file, after the check.
fn name(text: &str) -> Name {
    Name::new(text).expect("the check has refused other names")
}

impl Ladder {
    fn resolve(wire: &WireLadder, plan: &WirePlan, registry: &Registry) -> Self {
        let climbs = |name: &&String| wire.services.is_empty() || wire.services.contains(name);
        let known = |name: &String| Some(registry.services.get_key_value(name.as_str())?.0.clone());
        let services: Vec<Name> = plan.services.iter().filter(climbs).filter_map(known).collect();
        let ramp = Duration::from_secs_f64(wire.load.ramp_seconds());
        let warmup = ramp + Duration::from_secs_f64(wire.warmup_seconds.unwrap_or(plan.warmup_seconds));
        let needs = |name: &Name| Some((name.clone(), ramp + registry.services.get(name)?.warmup()));
        // A load that ends by itself has no warm-up: what it did before the window would be missing in it. A connection storm
        // is one as well, and says so by its own warm-up of 0.
        let ends_by_itself = wire.load.ends_by_itself() || wire.warmup_seconds == Some(0.0);
        let longer = services.iter().filter(|_| !ends_by_itself).filter_map(needs);
        let longer_warmups = longer.filter(|(_, needed)| *needed > warmup).collect();
        Self {
            workload: name(&wire.workload),
            variant: name(&wire.variant),
            tiers: wire.tiers.clone(),
            load: wire.load.clone(),
            message: wire.message.clone(),
            service_env: wire.service_env.clone(),
            replicas: wire.replicas,
            inference_env: wire.inference_env.clone(),
            services,
            repeats: wire.repeats.unwrap_or(plan.repeats),
            warmup,
            longer_warmups,
            window: Duration::from_secs_f64(wire.window_seconds.unwrap_or(plan.window_seconds)),
            samples: wire.samples,
            objectives: wire.objectives.clone(),
            search: wire.search.clone(),
            connections: None,
        }
    }
}

impl Ladder {
    /// A ladder of the plan in a bundle, for a reader without a registry: it has no `services`, and no longer warm-ups
    /// than the plan's.
    ///
    /// # Errors
    /// All mistakes in its names, times and search; `path` appears in them.
    pub fn of_bundle(wire: &WireLadder, plan: &WirePlan, path: &Path) -> Result<Self, Mistakes> {
        let mistakes = check::alone::mistakes(wire, plan, path);
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        Ok(Self::resolve(wire, plan, &check::alone::empty_registry()))
    }

    /// Time before the window for a service: the ladder's warm-up, or a longer one that this service needs.
    pub fn warmup_of(&self, service: &str) -> Duration {
        self.longer_warmups.get(service).copied().unwrap_or(self.warmup)
    }

    /// Number of connections at a load level: the level itself, unless it is a rate.
    pub fn connections_at(&self, tier: u32) -> u32 {
        self.connections.unwrap_or(tier)
    }

    /// The ladder as a trial climbs it. A search's trial has its own window, and its load may be a rate. A pilot has its
    /// own window, too, and no warm-up.
    pub fn for_trial(&self, entry: &TrialEntry) -> Self {
        let mut ladder = self.clone();
        if let Some(pilot) = &entry.pilot {
            ladder.window = Duration::from_secs_f64(pilot.window_seconds);
            ladder.warmup = Duration::from_secs_f64(self.load.ramp_seconds());
            ladder.longer_warmups.clear();
        }
        if let (Some(purpose), Some(search)) = (&entry.search, &self.search) {
            ladder.window = Duration::from_secs_f64(purpose.window_seconds);
            if let (SearchOver::RatePerSecond, Load::Open { arrivals, .. }) = (search.over, &self.load) {
                ladder.connections = search.connections;
                ladder.load = Load::Open { rate_per_second: entry.trial.tier.into(), arrivals: *arrivals };
            }
        }
        ladder
    }
}

/// Replaces the plan's services. A ladder that names its services keeps those that are among the new ones, and is
/// removed when none is left.
pub fn replace_services(wire: &mut WirePlan, services: &[String]) {
    wire.services = services.to_vec();
    wire.ladders.retain_mut(|ladder| {
        let for_all = ladder.services.is_empty();
        ladder.services.retain(|name| services.contains(name));
        for_all || !ladder.services.is_empty()
    });
}

/// Selects trials by `workload[/variant[/tier]]`; empty selects all.
#[derive(Clone, Debug, Default)]
pub struct TrialFilter(pub Vec<String>);

impl TrialFilter {
    /// Whether the selection contains a trial.
    pub fn selects(&self, trial: &TrialId) -> bool {
        self.selects_path(&format!("{}/{}/{}", trial.workload, trial.variant, trial.tier))
    }

    /// Whether the selection contains a whole ladder.
    pub fn selects_ladder(&self, workload: &str, variant: &str) -> bool {
        self.selects_path(&format!("{workload}/{variant}"))
    }

    /// Whether the selection contains what has this full name.
    pub(crate) fn selects_path(&self, full: &str) -> bool {
        let selects = |pattern: &String| full == *pattern || full.starts_with(&format!("{pattern}/"));
        self.0.is_empty() || self.0.iter().any(selects)
    }
}

#[cfg(test)]
mod tests;
