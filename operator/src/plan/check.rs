//! What can be wrong with the values of a plan: every mistake at once, each with its place and the way out. Pure.

use std::{collections::BTreeSet, path::Path};

use bench_format::{
    SCHEMA,
    plan::{CpuShape, Figure, Load, Objective, Thresholds, WireLadder, WirePlan},
};

use super::{Mistake, read::closest};
use crate::registry::{Protocol, Registry};

/// Histograms that an objective may name, without their unit.
const HISTOGRAMS: [&str; 4] = ["response", "service", "delay", "handshake"];

/// What the machine can do, as far as a plan depends on it.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// CPUs on which this process may run.
    pub cpus: usize,
    /// Why a fraction of a CPU can't be given; absent when it can.
    pub no_fractions: Option<String>,
}

/// Everything that is wrong with a plan's values.
pub fn mistakes(plan: &WirePlan, path: &Path, registry: &Registry, surroundings: &Surroundings) -> Vec<Mistake> {
    let mut check = Check { path, registry, surroundings, found: Vec::new() };
    check.head(plan);
    check.times(plan);
    check.cpu("cpu.service.cpus", plan.cpu.service);
    check.cpu("cpu.worker.cpus", plan.cpu.worker);
    check.thresholds(&plan.validity);
    check.services(plan);
    check.ladders(plan);
    check.found
}

struct Check<'a> {
    path: &'a Path,
    registry: &'a Registry,
    surroundings: &'a Surroundings,
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
        self.unless(plan.schema > 0, "schema", format!("0 is no schema; write {SCHEMA}"));
        self.folder_name("name", &plan.name);
        self.unless(!plan.why.trim().is_empty(), "why", "empty; say in a sentence why this plan exists");
        self.unless(plan.workers > 0, "workers", "0 workers load nothing; give at least 1");
        self.unless(plan.repeats > 0, "repeats", "0 trials measure nothing; give at least 1");
    }

    fn times(&mut self, plan: &WirePlan) {
        self.seconds("warmup_seconds", plan.warmup_seconds, 0.0);
        self.seconds("window_seconds", plan.window_seconds, f64::MIN_POSITIVE);
        self.seconds("drain_seconds", plan.drain_seconds, 0.0);
    }

    fn seconds(&mut self, place: impl Into<String>, value: f64, least: f64) {
        let range = if least > 0.0 { "more than 0" } else { "0 or more" };
        let message = format!("{value} is no length of time; give {range} and at most 86400 seconds");
        self.unless((least..=86_400.0).contains(&value), place, message);
    }

    fn folder_name(&mut self, place: impl Into<String>, name: &str) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let good = !name.is_empty() && name.chars().all(allowed) && !name.starts_with('.');
        self.unless(good, place, format!("\"{name}\" is no folder name; use letters, digits, `-`, `_` and `.`"));
    }

    fn cpu(&mut self, place: &str, shape: CpuShape) {
        let cpus = shape.cpus;
        if !(cpus > 0.0 && cpus.is_finite()) {
            return self.wrong(place, format!("{cpus} CPUs can't run anything; give more than 0"));
        }
        if cpus.ceil() as usize > self.surroundings.cpus {
            let have = self.surroundings.cpus;
            self.wrong(place, format!("{cpus} CPUs, but ladder may run on {have}; give at most {have}"));
        }
        if let (true, Some(reason)) = (cpus.fract() != 0.0, &self.surroundings.no_fractions) {
            self.wrong(
                place,
                format!("{cpus} is a fraction of a CPU, which needs a cgroup: {reason}; give a whole number"),
            );
        }
    }

    fn thresholds(&mut self, thresholds: &Thresholds) {
        let Thresholds { start_skew_ms, delay_p99_ms, worker_cpu_share, throttled_share, send_share, bound_share } =
            *thresholds;
        for (field, value) in [("start_skew_ms", start_skew_ms), ("delay_p99_ms", delay_p99_ms)] {
            let message = format!("{value} is no length of time; give more than 0");
            self.unless(value > 0.0 && value.is_finite(), format!("validity.{field}"), message);
        }
        let shares = [
            ("worker_cpu_share", worker_cpu_share),
            ("throttled_share", throttled_share),
            ("send_share", send_share),
            ("bound_share", bound_share),
        ];
        for (field, value) in shares {
            let message = format!("{value} is no share; give a number from 0 to 1");
            self.unless((0.0..=1.0).contains(&value), format!("validity.{field}"), message);
        }
    }

    fn services(&mut self, plan: &WirePlan) {
        self.unless(!plan.services.is_empty(), "services", "empty; name at least one service of the registry");
        let mut seen = BTreeSet::new();
        for (index, name) in plan.services.iter().enumerate() {
            let place = format!("services[{index}]");
            if !self.registry.services.contains_key(name) {
                let known: Vec<&str> = self.registry.services.keys().map(String::as_str).collect();
                self.wrong(&place, unknown("service", name, &known));
            }
            self.unless(seen.insert(name), place, format!("\"{name}\" is there twice; name each service once"));
        }
    }

    fn ladders(&mut self, plan: &WirePlan) {
        self.unless(!plan.ladders.is_empty(), "ladders", "empty; a plan climbs at least one");
        let mut seen = BTreeSet::new();
        for (index, ladder) in plan.ladders.iter().enumerate() {
            let place = format!("ladders[{index}]");
            let unique = seen.insert((&ladder.workload, &ladder.variant));
            let same = format!("{}/{} is there twice; give each a variant of its own", ladder.workload, ladder.variant);
            self.unless(unique, format!("{place}.variant"), same);
            self.ladder(&place, ladder, plan);
        }
    }

    fn ladder(&mut self, place: &str, ladder: &WireLadder, plan: &WirePlan) {
        self.folder_name(format!("{place}.variant"), &ladder.variant);
        self.tiers(&format!("{place}.tiers"), &ladder.tiers, plan.workers);
        self.load(&format!("{place}.load"), &ladder.load);
        self.message(place, ladder);
        if let Some(seconds) = ladder.window_seconds {
            self.seconds(format!("{place}.window_seconds"), seconds, f64::MIN_POSITIVE);
        }
        if let Some(seconds) = ladder.warmup_seconds {
            self.seconds(format!("{place}.warmup_seconds"), seconds, 0.0);
        }
        let warmup = ladder.warmup_seconds.unwrap_or(plan.warmup_seconds);
        let ends_by_itself = matches!(ladder.load, Load::Closed { messages_per_connection: Some(_), .. });
        self.unless(
            !ends_by_itself || warmup == 0.0,
            format!("{place}.warmup_seconds"),
            format!("{warmup} s in which counted messages would go unmeasured; give this ladder `warmup_seconds: 0`"),
        );
        for (index, name) in ladder.services.iter().enumerate() {
            let known: Vec<&str> = plan.services.iter().map(String::as_str).collect();
            let message = unknown("service of this plan", name, &known);
            self.unless(plan.services.contains(name), format!("{place}.services[{index}]"), message);
        }
        for protocol in self.protocols(ladder, plan) {
            self.known_to(place, ladder, protocol);
        }
        for (index, objective) in ladder.objectives.iter().enumerate() {
            self.objective(&format!("{place}.objectives[{index}]"), objective);
        }
    }

    /// The protocols of the services that climb this ladder, each once.
    fn protocols(&self, ladder: &WireLadder, plan: &WirePlan) -> Vec<(String, Protocol)> {
        let climbs = |name: &&String| ladder.services.is_empty() || ladder.services.contains(name);
        let mut found: Vec<(String, Protocol)> = Vec::new();
        for service in plan.services.iter().filter(climbs).filter_map(|name| self.registry.services.get(name)) {
            if !found.iter().any(|(name, _)| *name == service.protocol) {
                found.push((service.protocol.clone(), self.registry.protocol_of(service).clone()));
            }
        }
        found
    }

    fn known_to(&mut self, place: &str, ladder: &WireLadder, (name, protocol): (String, Protocol)) {
        let workloads: Vec<&str> = protocol.workloads.iter().map(String::as_str).collect();
        let known = workloads.contains(&ladder.workload.as_str());
        let message = unknown(&format!("workload of protocol {name}"), &ladder.workload, &workloads);
        self.unless(known, format!("{place}.workload"), message);
        let formats: Vec<&str> = protocol.formats.iter().map(String::as_str).collect();
        let known = formats.is_empty() || formats.contains(&ladder.message.format.as_str());
        let message = unknown(&format!("format of protocol {name}"), &ladder.message.format, &formats);
        self.unless(known, format!("{place}.message.format"), message);
    }

    fn tiers(&mut self, place: &str, tiers: &[u32], workers: u32) {
        self.unless(!tiers.is_empty(), place, "empty; give at least one number of connections");
        self.unless(!tiers.contains(&0), place, "0 connections carry nothing; give at least 1");
        let rising = tiers.windows(2).all(|pair| pair[0] < pair[1]);
        self.unless(rising, place, format!("{tiers:?} doesn't rise; sort it and name each tier once"));
        if let Some(tier) = tiers.iter().find(|tier| (1..workers).contains(tier)) {
            self.wrong(place, format!("{tier} connections can't be shared by {workers} workers; give each at least 1"));
        }
    }

    fn load(&mut self, place: &str, load: &Load) {
        match *load {
            Load::Open { rate_per_second, .. } => self.unless(
                rate_per_second > 0.0 && rate_per_second.is_finite(),
                format!("{place}.rate_per_second"),
                format!("{rate_per_second} messages per second is no schedule; give more than 0"),
            ),
            Load::Closed { messages_per_connection, in_flight } => {
                self.unless(
                    messages_per_connection != Some(0),
                    format!("{place}.messages_per_connection"),
                    "0 messages measure nothing; give at least 1, or leave it out to send until the window ends",
                );
                self.unless(in_flight > 0, format!("{place}.in_flight"), "0 attempts open nothing; give at least 1");
            }
        }
    }

    fn message(&mut self, place: &str, ladder: &WireLadder) {
        let message = &ladder.message;
        self.unless(message.size_bytes > 0, format!("{place}.message.size_bytes"), "0 bytes is no message");
        let coalesce = format!("{place}.message.coalesce");
        self.unless(message.coalesce > 0, coalesce, "0 messages in a write is no write; give at least 1");
    }

    fn objective(&mut self, place: &str, objective: &Objective) {
        let bounds = [objective.at_most, objective.at_least];
        self.unless(bounds.iter().any(Option::is_some), place, "no bound; give at_most, at_least or both");
        self.unless(bounds.iter().flatten().all(|bound| bound.is_finite()), place, "a bound must be a finite number");
        if let (Some(most), Some(least)) = (objective.at_most, objective.at_least) {
            self.unless(least <= most, place, format!("at_least {least} and at_most {most} can't both hold"));
        }
        if let Figure::PercentileMs { histogram, percentile } = &objective.figure {
            let known = HISTOGRAMS.contains(&histogram.as_str());
            let message = unknown("histogram", histogram, &HISTOGRAMS);
            self.unless(known, format!("{place}.figure.percentile_ms.histogram"), message);
            let in_range = *percentile > 0.0 && *percentile <= 100.0;
            let message = format!("{percentile} is no percentile; give more than 0 and at most 100");
            self.unless(in_range, format!("{place}.figure.percentile_ms.percentile"), message);
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
pub(crate) mod fixture {
    use bench_format::plan::WirePlan;

    use super::Surroundings;
    use crate::registry::{BookKeeping, Protocol, Registry, Service};

    pub(crate) fn registry() -> Registry {
        let protocol = Protocol {
            worker: "fake-worker".into(),
            workloads: vec!["throughput".into(), "ping-latency".into(), "connection-storm".into()],
            formats: vec!["json".into(), "msgpack".into()],
        };
        let service = Service {
            description: String::new(),
            protocol: "wse".into(),
            command: vec!["true".into()],
            version: vec![],
            env: Default::default(),
            books: BookKeeping::Connections,
        };
        Registry {
            root: "/".into(),
            protocols: [("wse".into(), protocol)].into(),
            services: [("ours".into(), service.clone()), ("theirs".into(), service)].into(),
        }
    }

    pub(crate) fn surroundings() -> Surroundings {
        Surroundings { cpus: 2, no_fractions: None }
    }

    pub(crate) fn minimal() -> WirePlan {
        let text = "schema: 1\nname: minimal\nwhy: a test\nseed: 1\nservices: [ours]\nwindow_seconds: 1\n\
                    ladders:\n- workload: throughput\n  tiers: [10]\n  load: {model: closed}\n";
        crate::plan::read::parse(text, std::path::Path::new("plan.yaml")).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::{fixture::*, *};

    fn found(change: impl FnOnce(&mut WirePlan)) -> Vec<String> {
        let mut plan = minimal();
        change(&mut plan);
        mistakes(&plan, Path::new("p.yaml"), &registry(), &surroundings()).iter().map(Mistake::to_string).collect()
    }

    fn one(change: impl FnOnce(&mut WirePlan)) -> String {
        let found = found(change);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

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
    fn an_unknown_workload_lists_the_known_ones() {
        let message = one(|plan| plan.ladders[0].workload = "stt".into());
        assert!(message.contains("ladders[0].workload: no workload of protocol wse \"stt\"; known: throughput"));
    }

    #[test]
    fn an_unknown_format_is_a_mistake() {
        let message = one(|plan| plan.ladders[0].message.format = "jsn".into());
        assert!(message.contains("no format of protocol wse \"jsn\"; did you mean \"json\"?"), "{message}");
    }

    #[test]
    fn tiers_must_rise_and_hold_something() {
        assert!(one(|plan| plan.ladders[0].tiers = vec![]).contains("ladders[0].tiers: empty"));
        assert!(one(|plan| plan.ladders[0].tiers = vec![5, 5]).contains("[5, 5] doesn't rise"));
        assert!(one(|plan| plan.ladders[0].tiers = vec![0]).contains("0 connections"));
        let shared = one(|plan| {
            plan.workers = 2;
            plan.ladders[0].tiers = vec![1];
        });
        assert!(shared.contains("1 connections can't be shared by 2 workers"));
    }

    #[test]
    fn a_rate_must_be_positive() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let load = Load::Open { rate_per_second: rate, arrivals: Default::default() };
            assert!(one(|plan| plan.ladders[0].load = load).contains("is no schedule"));
        }
    }

    #[test]
    fn a_counted_load_has_no_warm_up() {
        let counted = Load::Closed { messages_per_connection: Some(50), in_flight: 1 };
        let message = one(|plan| plan.ladders[0].load = counted.clone());
        assert!(message.contains("ladders[0].warmup_seconds: 0.5 s in which counted messages"), "{message}");
        let without = found(|plan| {
            plan.ladders[0].load = counted;
            plan.ladders[0].warmup_seconds = Some(0.0);
        });
        assert_eq!(without, Vec::<String>::new());
    }

    #[test]
    fn an_objective_needs_a_bound_and_a_known_figure() {
        let bare = Objective { figure: Figure::DeliveredPerSecond, at_most: None, at_least: None };
        assert!(one(|plan| plan.ladders[0].objectives = vec![bare]).contains("no bound; give at_most"));
        let figure = Figure::PercentileMs { histogram: "respones".into(), percentile: 99.0 };
        let typo = Objective { figure, at_most: Some(1.0), at_least: None };
        assert!(one(|plan| plan.ladders[0].objectives = vec![typo]).contains("did you mean \"response\"?"));
    }

    #[test]
    fn a_fraction_is_refused_where_no_cgroup_can_be_written() {
        let mut plan = minimal();
        plan.cpu.worker.cpus = 0.05;
        let surroundings = Surroundings { cpus: 2, no_fractions: Some("/sys/fs/cgroup is read-only".into()) };
        let found = mistakes(&plan, Path::new("p.yaml"), &registry(), &surroundings);
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
    fn a_newer_schema_is_refused_in_words() {
        assert!(one(|plan| plan.schema = 2).contains("use a newer ws-ladder"));
    }

    #[test]
    fn all_mistakes_come_at_once() {
        let found = found(|plan| {
            plan.why = String::new();
            plan.services = vec!["x".into()];
            plan.window_seconds = 0.0;
            plan.ladders[0].tiers = vec![];
        });
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn two_ladders_of_one_name_are_a_mistake() {
        let message = one(|plan| plan.ladders.push(plan.ladders[0].clone()));
        assert!(message.contains("ladders[1].variant: throughput/standard is there twice"));
    }
}
