//! Checks the values of a plan and reports every mistake at once, each with its place and how to fix it. Pure.

pub mod alone;
#[cfg(test)]
pub(crate) mod fixture;
mod ladder;
mod search;
mod websocket;

use std::{collections::BTreeSet, path::Path};

use bench_format::{
    Name, SCHEMA,
    plan::{CpuShape, Thresholds, WireLadder, WirePlan},
};

use super::Mistake;
use crate::{registry::Registry, spelling::closest};

/// The properties of the machine that the validity of a plan depends on.
#[derive(Clone, Debug)]
pub struct MachineLimits {
    /// Number of CPUs on which this process may run.
    pub cpus: usize,
    /// Why a fraction of a CPU can't be given; absent when it can.
    pub no_fractions: Option<String>,
}

/// All mistakes in a plan's values; empty for a valid plan. `path` appears in the mistakes.
pub fn mistakes(plan: &WirePlan, path: &Path, registry: &Registry, machine_limits: &MachineLimits) -> Vec<Mistake> {
    let mut check = Check { path, registry, machine_limits, found: Vec::new() };
    check.head(plan);
    check.times(plan);
    check.cpu("cpu.service.cpus", plan.cpu.service);
    check.cpu("cpu.worker.cpus", plan.cpu.worker);
    check.cpu("cpu.inference.cpus", plan.cpu.inference);
    check.thresholds(&plan.validity);
    check.services(plan);
    check.websocket(plan);
    check.ladders(plan);
    check.trials(plan);
    check.found
}

/// Most trials of a plan: a million are weeks of load.
const MAX_TRIALS: u64 = 1_000_000;

struct Check<'a> {
    path: &'a Path,
    registry: &'a Registry,
    machine_limits: &'a MachineLimits,
    found: Vec<Mistake>,
}

impl Check<'_> {
    fn wrong(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.found.push(Mistake { file: self.path.into(), place: place.into(), message: message.into() });
    }

    fn unless(&mut self, holds: bool, place: impl Into<String>, message: impl Into<String>) {
        if !holds {
            self.wrong(place, message);
        }
    }

    fn head(&mut self, plan: &WirePlan) {
        if let Err(newer) = bench_format::check_schema(plan.schema) {
            self.wrong("schema", newer.to_string());
        }
        self.unless(plan.schema > 0, "schema", format!("0 is not a schema; write {SCHEMA}"));
        self.folder_name("name", &plan.name);
        self.unless(!plan.why.trim().is_empty(), "why", "empty; give a sentence on why this plan exists");
        self.unless(plan.workers > 0, "workers", "0 workers load nothing; give at least 1");
        let message = "0 connections for each worker need no worker; give at least 1, or leave it out";
        self.unless(plan.connections_per_worker != Some(0), "connections_per_worker", message);
        self.repeats("repeats", plan.repeats);
    }

    fn repeats(&mut self, place: impl Into<String>, repeats: u32) {
        self.unless(repeats > 0, place, "0 trials measure nothing; give at least 1");
    }

    /// All trials of a plan are listed in memory before the first one.
    fn trials(&mut self, plan: &WirePlan) {
        let of_ladder = |ladder: &WireLadder| {
            let services = if ladder.services.is_empty() { &plan.services } else { &ladder.services };
            let repeats = u64::from(ladder.repeats.unwrap_or(plan.repeats));
            (services.len() as u64).saturating_mul(ladder.tiers.len() as u64).saturating_mul(repeats)
        };
        let trials = plan.ladders.iter().map(of_ladder).fold(0_u64, u64::saturating_add);
        let message = format!("{trials} trials; give at most {MAX_TRIALS}: fewer repeats, tiers or services");
        self.unless(trials <= MAX_TRIALS, "ladders", message);
    }

    fn times(&mut self, plan: &WirePlan) {
        self.seconds("warmup_seconds", plan.warmup_seconds, 0.0);
        self.seconds("window_seconds", plan.window_seconds, f64::MIN_POSITIVE);
        self.seconds("drain_seconds", plan.drain_seconds, 0.0);
    }

    fn seconds(&mut self, place: impl Into<String>, value: f64, least: f64) {
        let range = if least > 0.0 { "more than 0" } else { "0 or more" };
        let message = format!("{value} is not a length of time; give {range} and at most 86400 seconds");
        self.unless((least..=86_400.0).contains(&value), place, message);
    }

    fn folder_name(&mut self, place: impl Into<String>, name: &str) {
        if let Err(error) = Name::new(name) {
            self.wrong(place, error.to_string());
        }
    }

    fn cpu(&mut self, place: &str, shape: CpuShape) {
        let cpus = shape.cpus;
        if !(cpus > 0.0 && cpus.is_finite()) {
            return self.wrong(place, format!("{cpus} CPUs can't run anything; give more than 0"));
        }
        if cpus.ceil() as usize > self.machine_limits.cpus {
            let have = self.machine_limits.cpus;
            self.wrong(place, format!("{cpus} CPUs, but ladder may run on {have}; give at most {have}"));
        }
        if let (true, Some(reason)) = (cpus.fract() != 0.0, &self.machine_limits.no_fractions) {
            self.wrong(
                place,
                format!("{cpus} is a fraction of a CPU, which needs a cgroup: {reason}; give a whole number"),
            );
        }
    }

    fn thresholds(&mut self, thresholds: &Thresholds) {
        let Thresholds {
            start_skew_ms,
            delay_p99_ms,
            worker_cpu_share,
            throttled_share,
            send_share,
            bound_share,
            busy_share,
            steal_share,
            work_share,
        } = *thresholds;
        for (field, value) in [("start_skew_ms", start_skew_ms), ("delay_p99_ms", delay_p99_ms)] {
            let message = format!("{value} is not a length of time; give more than 0");
            self.unless(value > 0.0 && value.is_finite(), format!("validity.{field}"), message);
        }
        let shares = [
            ("worker_cpu_share", worker_cpu_share),
            ("throttled_share", throttled_share),
            ("send_share", send_share),
            ("bound_share", bound_share),
            ("busy_share", busy_share.unwrap_or(0.0)),
            ("steal_share", steal_share.unwrap_or(0.0)),
            ("work_share", work_share.unwrap_or(0.0)),
        ];
        for (field, value) in shares {
            let message = format!("{value} is not a share; give a number from 0 to 1");
            self.unless((0.0..=1.0).contains(&value), format!("validity.{field}"), message);
        }
    }

    fn services(&mut self, plan: &WirePlan) {
        self.unless(!plan.services.is_empty(), "services", "empty; name at least one service of the registry");
        let mut seen = BTreeSet::new();
        for (index, name) in plan.services.iter().enumerate() {
            let place = format!("services[{index}]");
            if !self.registry.services.contains_key(name.as_str()) {
                let known: Vec<&str> = self.registry.services.keys().map(Name::as_str).collect();
                self.wrong(&place, unknown("service", name, &known));
            }
            self.unless(seen.insert(name), place, format!("\"{name}\" is listed twice; name each service once"));
        }
    }
}

fn unknown(what: &str, wrong: &str, known: &[&str]) -> String {
    match closest(wrong, known.iter().copied()) {
        Some(right) => format!("no {what} \"{wrong}\"; did you mean \"{right}\"?"),
        None => format!("no {what} \"{wrong}\"; known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{fixture::*, *};

    #[test]
    fn a_minimal_plan_has_no_mistakes() {
        assert_eq!(found(|_| ()), Vec::<String>::new());
    }

    #[test]
    fn a_mistyped_service_is_named_with_the_one_that_was_meant() {
        let message = one(|plan| plan.services = vec!["our".into()]);
        assert_eq!(message, "p.yaml: services[0]: no service \"our\"; did you mean \"ours\"?");
    }

    #[test]
    fn a_fraction_is_refused_where_no_cgroup_can_be_written() {
        let mut plan = minimal();
        plan.cpu.worker.cpus = 0.05;
        let machine_limits = MachineLimits { cpus: 2, no_fractions: Some("/sys/fs/cgroup is read-only".into()) };
        let found = mistakes(&plan, Path::new("p.yaml"), &registry(), &machine_limits);
        assert_eq!(
            found[0].to_string(),
            "p.yaml: cpu.worker.cpus: 0.05 is a fraction of a CPU, which needs a cgroup: /sys/fs/cgroup is read-only; \
             give a whole number"
        );
    }

    #[test]
    fn more_cpus_than_the_machine_has_are_refused() {
        assert!(one(|plan| plan.cpu.service.cpus = 3.0).contains("3 CPUs, but ladder may run on 2"));
    }

    #[test]
    fn no_trials_are_refused_in_the_plan_and_in_a_ladder() {
        assert!(one(|plan| plan.repeats = 0).contains("p.yaml: repeats: 0 trials measure nothing"));
        assert!(one(|plan| plan.ladders[0].repeats = Some(0)).contains("ladders[0].repeats: 0 trials measure nothing"));
        assert!(one(|plan| plan.repeats = u32::MAX).contains("ladders: 4294967295 trials; give at most 1000000"));
    }

    #[test]
    fn a_newer_schema_is_refused_with_the_reason() {
        assert!(one(|plan| plan.schema = bench_format::SCHEMA + 1).contains("use a newer ws-ladder"));
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let found = found(|plan| {
            plan.why = String::new();
            plan.services = vec!["x".into()];
            plan.window_seconds = 0.0;
            plan.ladders[0].tiers = vec![];
        });
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
