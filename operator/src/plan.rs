//! A plan, checked: what every later step works from.
//!
//! A [`WirePlan`] mirrors the file. [`read`] turns text into one, [`check`] turns it once into a [`Plan`] or into all
//! that is wrong with it; only the checked one travels. No files other than the plan's are read here.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use bench_format::{
    plan::{
        CpuShape, CpuShapes, Load, Message, Objective, SearchOver, ServiceProcess, Thresholds, WireLadder, WirePlan,
        WireSearch,
    },
    run::{Search, TrialEntry},
    trial::TrialId,
};

use crate::{plan::check::Surroundings, registry::Registry};

pub mod check;
pub mod read;

/// Something in a plan that has to change before it can be climbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// Where in it: a field (`ladders[1].tiers`) or `line 3, column 5`; empty for the file as a whole.
    pub place: String,
    /// What is wrong with which value, and the way out.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, message } = self;
        let file = file.display();
        if place.is_empty() { write!(f, "{file}: {message}") } else { write!(f, "{file}: {place}: {message}") }
    }
}

/// All that is wrong with a plan; at least one mistake.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Mistakes(pub Vec<Mistake>);

/// A plan whose every field can be used as it is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// As it was read; this is what `run.json` keeps.
    pub wire: WirePlan,
    /// Workers of each tier.
    pub workers: u32,
    /// Longest wait for what is in flight after the window.
    pub drain: Duration,
    /// CPU given to each role.
    pub cpu: CpuShapes,
    /// CPU given to the inference behind the services; absent where no service has any.
    pub inference: Option<CpuShape>,
    /// When a trial is invalid.
    pub validity: Thresholds,
    /// In climbing order.
    pub ladders: Vec<Ladder>,
}

/// One ladder, with everything that it takes from the plan resolved.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// The workload.
    pub workload: String,
    /// What tells it from other ladders of the workload.
    pub variant: String,
    /// Rising.
    pub tiers: Vec<u32>,
    /// How load is offered, over all workers.
    pub load: Load,
    /// What the messages are.
    pub message: Message,
    /// On top of the registry's environment.
    pub service_env: BTreeMap<String, String>,
    /// Processes of the service.
    pub replicas: u32,
    /// On top of the registry's environment of the inference behind the service.
    pub inference_env: BTreeMap<String, String>,
    /// The services that climb it, in order.
    pub services: Vec<String>,
    /// Trials for each tier.
    pub repeats: u32,
    /// Load before the window: until all of it is offered, and the plan's warm-up after that.
    pub warmup: Duration,
    /// The same for services that need longer than the plan says, by name.
    pub longer_warmups: BTreeMap<String, Duration>,
    /// The measured window.
    pub window: Duration,
    /// Whether raw rows are kept.
    pub samples: bool,
    /// What a trial must reach.
    pub objectives: Vec<Objective>,
    /// What is searched for in place of the tiers.
    pub search: Option<WireSearch>,
    /// Connections, where a trial's load is a rate.
    pub connections: Option<u32>,
}

impl Plan {
    /// Reads and checks a plan file.
    ///
    /// # Errors
    /// With all mistakes that could be told apart.
    pub fn load(path: &Path, registry: &Registry, surroundings: &Surroundings) -> Result<Self, Mistakes> {
        Self::check(read::read(path)?, path, registry, surroundings)
    }

    /// Checks a plan that was read before; `path` is for messages.
    ///
    /// # Errors
    /// With all mistakes.
    pub fn check(
        wire: WirePlan,
        path: &Path,
        registry: &Registry,
        surroundings: &Surroundings,
    ) -> Result<Self, Mistakes> {
        let mistakes = check::mistakes(&wire, path, registry, surroundings);
        if mistakes.is_empty() { Ok(Self::resolve(wire, registry)) } else { Err(Mistakes(mistakes)) }
    }

    fn resolve(wire: WirePlan, registry: &Registry) -> Self {
        let mut services = wire.services.iter().filter_map(|name| registry.services.get(name));
        let has_inference = services.any(|service| registry.inference_of(service).is_some());
        let ladders = wire.ladders.iter().map(|ladder| Ladder::resolve(ladder, &wire, registry)).collect();
        Self {
            workers: wire.workers,
            drain: Duration::from_secs_f64(wire.drain_seconds),
            cpu: wire.cpu.clone(),
            inference: has_inference.then_some(wire.cpu.inference),
            validity: wire.validity.clone(),
            ladders,
            wire,
        }
    }

    /// All trials in climbing order.
    ///
    /// With a fresh process per repeat the services take turns inside each repeat (A B A B), so that what drifts over
    /// minutes touches all of them alike. With a process per tier a service's repeats stay together.
    pub fn trials(&self) -> Vec<TrialId> {
        let mut trials = Vec::new();
        for ladder in &self.ladders {
            for &tier in &ladder.tiers {
                let rounds = match self.wire.service_process {
                    ServiceProcess::Repeat => ladder.repeats,
                    ServiceProcess::Tier => 1,
                };
                for process in 1..=rounds {
                    for service in &ladder.services {
                        let repeats = ladder.repeats / rounds;
                        trials.extend((1..=repeats).map(|repeat| TrialId {
                            service: service.clone(),
                            workload: ladder.workload.clone(),
                            variant: ladder.variant.clone(),
                            tier,
                            process,
                            repeat,
                        }));
                    }
                }
            }
        }
        trials
    }

    /// All searches, in order: the services of a ladder one after another.
    pub fn searches(&self, only: &Only) -> Vec<Search> {
        let mut searches = Vec::new();
        for ladder in self.ladders.iter().filter(|ladder| ladder.search.is_some()) {
            let Ladder { workload, variant, .. } = ladder;
            let of = |service: &String| Search {
                service: service.clone(),
                workload: workload.clone(),
                variant: variant.clone(),
                found: None,
            };
            if only.takes_ladder(workload, variant) {
                searches.extend(ladder.services.iter().map(of));
            }
        }
        searches
    }

    /// Seconds of warm-up and window over all trials: the least that a climb takes.
    pub fn seconds(&self) -> f64 {
        let of = |trial: &TrialId| {
            let ladder = self.ladder_of(trial);
            ladder.map_or(0.0, |ladder| (ladder.warmup_of(&trial.service) + ladder.window).as_secs_f64())
        };
        // The sum of nothing is -0.
        self.trials().iter().map(of).fold(0.0, |sum, seconds| sum + seconds)
    }

    /// The ladder that a trial belongs to.
    pub fn ladder_of(&self, trial: &TrialId) -> Option<&Ladder> {
        self.ladders.iter().find(|ladder| ladder.workload == trial.workload && ladder.variant == trial.variant)
    }
}

impl Ladder {
    fn resolve(wire: &WireLadder, plan: &WirePlan, registry: &Registry) -> Self {
        let climbs = |name: &&String| wire.services.is_empty() || wire.services.contains(name);
        let services: Vec<String> = plan.services.iter().filter(climbs).cloned().collect();
        let ramp = Duration::from_secs_f64(wire.load.ramp_seconds());
        let warmup = ramp + Duration::from_secs_f64(wire.warmup_seconds.unwrap_or(plan.warmup_seconds));
        let needs = |name: &String| Some((name.clone(), ramp + registry.services.get(name)?.warmup()));
        // What is sent before the window of a load that ends by itself is missing in it.
        let longer = services.iter().filter(|_| !wire.load.ends_by_itself()).filter_map(needs);
        let longer_warmups = longer.filter(|(_, needed)| *needed > warmup).collect();
        Self {
            workload: wire.workload.clone(),
            variant: wire.variant.clone(),
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
    /// Load before the window of a service.
    pub fn warmup_of(&self, service: &str) -> Duration {
        self.longer_warmups.get(service).copied().unwrap_or(self.warmup)
    }

    /// The ladder as a trial climbs it: a search's has a window of its own, and its load may be a rate.
    pub fn for_trial(&self, entry: &TrialEntry) -> Self {
        let mut ladder = self.clone();
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

/// Climbs other services than the plan's. A ladder that is for certain services keeps those of them that are left.
pub fn replace_services(wire: &mut WirePlan, services: &[String]) {
    wire.services = services.to_vec();
    wire.ladders.retain_mut(|ladder| {
        let for_all = ladder.services.is_empty();
        ladder.services.retain(|name| services.contains(name));
        for_all || !ladder.services.is_empty()
    });
}

/// Which of a plan's trials to climb: `workload[/variant[/tier]]`; none means all.
#[derive(Clone, Debug, Default)]
pub struct Only(pub Vec<String>);

impl Only {
    /// Whether a trial is among them.
    pub fn takes(&self, trial: &TrialId) -> bool {
        self.takes_path(&format!("{}/{}/{}", trial.workload, trial.variant, trial.tier))
    }

    /// Whether a whole ladder is among them.
    pub fn takes_ladder(&self, workload: &str, variant: &str) -> bool {
        self.takes_path(&format!("{workload}/{variant}"))
    }

    fn takes_path(&self, full: &str) -> bool {
        let takes = |pattern: &String| full == *pattern || full.starts_with(&format!("{pattern}/"));
        self.0.is_empty() || self.0.iter().any(takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::check::fixture::{minimal, registry, surroundings};

    fn order(change: impl FnOnce(&mut WirePlan)) -> Vec<String> {
        let mut wire = minimal();
        change(&mut wire);
        let plan = Plan::check(wire, Path::new("plan.yaml"), &registry(), &surroundings()).unwrap();
        plan.trials().iter().map(TrialId::to_string).collect()
    }

    #[test]
    fn services_take_turns_when_each_repeat_has_a_fresh_process() {
        let order = order(|plan| {
            plan.services = vec!["ours".into(), "theirs".into()];
            plan.repeats = 2;
            plan.service_process = ServiceProcess::Repeat;
            plan.ladders[0].tiers = vec![10];
        });
        assert_eq!(
            order,
            [
                "ours/throughput/standard/10-p1-r1",
                "theirs/throughput/standard/10-p1-r1",
                "ours/throughput/standard/10-p2-r1",
                "theirs/throughput/standard/10-p2-r1",
            ]
        );
    }

    #[test]
    fn repeats_stay_on_one_process_when_the_process_lasts_a_tier() {
        let order = order(|plan| {
            plan.repeats = 2;
            plan.ladders[0].tiers = vec![10, 20];
        });
        let tiers = ["10-p1-r1", "10-p1-r2", "20-p1-r1", "20-p1-r2"];
        assert_eq!(order, tiers.map(|tier| format!("ours/throughput/standard/{tier}")));
    }

    #[test]
    fn a_ladder_may_have_repeats_of_its_own() {
        let order = order(|plan| {
            plan.repeats = 2;
            plan.ladders[0].tiers = vec![10];
            plan.ladders[0].repeats = Some(3);
            let plain = WireLadder { variant: "plain".into(), repeats: None, ..plan.ladders[0].clone() };
            plan.ladders.push(plain);
        });
        let [own, plans] = ["standard", "plain"].map(|variant| format!("ours/throughput/{variant}/10-p1-r"));
        let own = (1..=3).map(|repeat| format!("{own}{repeat}"));
        assert_eq!(order, own.chain((1..=2).map(|repeat| format!("{plans}{repeat}"))).collect::<Vec<_>>());
    }

    #[test]
    fn a_service_that_needs_longer_is_warmed_up_for_as_long_as_it_needs() {
        let warmups = |seconds: Option<f64>, change: fn(&mut WirePlan)| {
            let mut registry = registry();
            registry.services.get_mut("theirs").unwrap().warmup_seconds = seconds;
            let mut wire = minimal();
            wire.services = vec!["ours".into(), "theirs".into()];
            wire.warmup_seconds = 2.0;
            change(&mut wire);
            let plan = Plan::check(wire, Path::new("plan.yaml"), &registry, &surroundings()).unwrap();
            let of = |service| plan.ladders[0].warmup_of(service).as_secs_f64();
            (of("ours"), of("theirs"), plan.seconds())
        };
        assert_eq!(warmups(None, |_| ()), (2.0, 2.0, 6.0));
        assert_eq!(warmups(Some(10.0), |_| ()), (2.0, 10.0, 14.0));
        assert_eq!(warmups(Some(1.0), |_| ()), (2.0, 2.0, 6.0));
        let counted = |wire: &mut WirePlan| {
            wire.warmup_seconds = 0.0;
            wire.ladders[0].load = Load::Closed { messages_per_connection: Some(10), in_flight: 1 };
        };
        assert_eq!(warmups(Some(10.0), counted), (0.0, 0.0, 2.0));
    }

    #[test]
    fn a_ladder_for_certain_services_keeps_those_that_are_left() {
        let mut wire = minimal();
        wire.ladders.push(wire.ladders[0].clone());
        wire.ladders[1].services = vec!["ours".into()];
        replace_services(&mut wire, &["theirs".into()]);
        assert_eq!((wire.services, wire.ladders.len()), (vec!["theirs".to_owned()], 1));
    }

    #[test]
    fn only_takes_whole_words_of_a_path() {
        let trial = TrialId {
            service: "ours".into(),
            workload: "throughput".into(),
            variant: "batch".into(),
            tier: 100,
            process: 1,
            repeat: 1,
        };
        let takes = |only: &str| Only(vec![only.into()]).takes(&trial);
        assert!(takes("throughput") && takes("throughput/batch") && takes("throughput/batch/100"));
        assert!(!takes("through") && !takes("throughput/bat") && !takes("throughput/batch/10"));
    }
}
