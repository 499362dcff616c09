//! Checks a ladder of a plan: its tiers, load, messages and objectives. Pure.

use std::collections::BTreeSet;

use bench_format::plan::{Figure, Load, Objective, WireLadder, WirePlan};

use super::{Check, unknown};
use crate::registry::{LoadModel, Protocol, Registry, Service};

/// Upper limit of a service's processes. More than this exceeds the CPUs of any machine used here, so it is a mistake.
const MOST_REPLICAS: u32 = 256;

/// Upper limit of the workers of a tier: the coordinator takes as many connections.
const MOST_WORKERS: u32 = 1000;

/// Histograms that an objective may name, without their unit.
const HISTOGRAMS: [&str; 11] =
    ["response", "first", "gap", "service", "delay", "handshake", "age", "frame", "newest", "oldest", "flush_lateness"];
/// The histograms whose largest bound says when a message is late: of sessions, and of open loops with replies.
const LATE_BY: [&str; 2] = ["oldest", "response"];

impl Check<'_> {
    pub(super) fn ladders(&mut self, plan: &WirePlan) {
        self.unless(!plan.ladders.is_empty(), "ladders", "empty; a plan climbs at least one");
        let mut seen = BTreeSet::new();
        for (index, ladder) in plan.ladders.iter().enumerate() {
            let place = format!("ladders[{index}]");
            let unique = seen.insert((&ladder.workload, &ladder.variant));
            let same =
                format!("{}/{} is listed twice; give each a variant of its own", ladder.workload, ladder.variant);
            self.unless(unique, format!("{place}.variant"), same);
            self.ladder(&place, ladder, plan);
        }
    }

    fn ladder(&mut self, place: &str, ladder: &WireLadder, plan: &WirePlan) {
        self.folder_name(format!("{place}.workload"), &ladder.workload);
        self.folder_name(format!("{place}.variant"), &ladder.variant);
        self.tiers(&format!("{place}.tiers"), ladder, plan);
        self.load(&format!("{place}.load"), &ladder.load);
        self.spread(place, ladder, plan);
        self.message(place, ladder);
        if let Some(repeats) = ladder.repeats {
            self.repeats(format!("{place}.repeats"), repeats);
        }
        if let Some(seconds) = ladder.window_seconds {
            self.seconds(format!("{place}.window_seconds"), seconds, f64::MIN_POSITIVE);
        }
        if let Some(seconds) = ladder.warmup_seconds {
            self.seconds(format!("{place}.warmup_seconds"), seconds, 0.0);
        }
        let warmup = ladder.warmup_seconds.unwrap_or(plan.warmup_seconds);
        self.unless(
            !ladder.load.ends_by_itself() || warmup == 0.0,
            format!("{place}.warmup_seconds"),
            format!("{warmup} s in which counted messages would go unmeasured; give this ladder `warmup_seconds: 0`"),
        );
        for (index, name) in ladder.services.iter().enumerate() {
            let known: Vec<&str> = plan.services.iter().map(String::as_str).collect();
            let message = unknown("service of this plan", name, &known);
            self.unless(plan.services.contains(name), format!("{place}.services[{index}]"), message);
        }
        for protocol in self.protocols(ladder, plan) {
            self.check_protocol(place, ladder, protocol);
        }
        for (index, objective) in ladder.objectives.iter().enumerate() {
            let place = format!("{place}.objectives[{index}]");
            self.objective(&place, objective);
            let reconnects = matches!(ladder.load, Load::Reconnect { .. });
            self.unless(
                reconnects || !matches!(objective.figure, Figure::ReconnectedMs { .. }),
                format!("{place}.figure"),
                "only connections that are cut come back; give the ladder `load: { model: reconnect }`",
            );
            if objective.figure == Figure::LateShare {
                self.late_share(&place, ladder);
            }
        }
        self.replicas(&format!("{place}.replicas"), ladder, plan);
        self.search(place, ladder, plan);
    }

    /// Checks that the workers can be shared evenly, since each worker loads one replica, and that ladder starts the
    /// replicas.
    fn replicas(&mut self, place: &str, ladder: &WireLadder, plan: &WirePlan) {
        let (replicas, workers) = (ladder.replicas, plan.workers);
        if replicas == 1 {
            return;
        }
        if !(2..=MOST_REPLICAS).contains(&replicas) {
            return self.wrong(place, format!("{replicas} processes of a service; give 1 to {MOST_REPLICAS}"));
        }
        let shared =
            format!("{workers} workers can't load {replicas} replicas alike; give workers: {replicas}, or a multiple");
        let is_rounded_up = plan.connections_per_worker.is_some();
        self.unless(is_rounded_up || workers.is_multiple_of(replicas), place, shared);
        for (name, _) in climbing(self.registry, ladder, plan).filter(|(_, service)| service.described.is_some()) {
            let message = format!(
                "{name} is described by the plan, and ladder starts one process of it; start {replicas} yourself and name \
                 their addresses in more_urls"
            );
            self.wrong(place, message);
        }
    }

    /// The protocols of the services that climb this ladder, each once.
    fn protocols(&self, ladder: &WireLadder, plan: &WirePlan) -> Vec<(String, Protocol)> {
        let mut found: Vec<(String, Protocol)> = Vec::new();
        for (_, service) in climbing(self.registry, ladder, plan) {
            if !found.iter().any(|(name, _)| *name == service.protocol) {
                found.push((service.protocol.clone(), self.registry.protocol_of(service).clone()));
            }
        }
        found
    }

    fn check_protocol(&mut self, place: &str, ladder: &WireLadder, (name, protocol): (String, Protocol)) {
        let workloads: Vec<&str> = protocol.workloads.iter().map(String::as_str).collect();
        let known = workloads.contains(&ladder.workload.as_str());
        let message = unknown(&format!("workload of protocol {name}"), &ladder.workload, &workloads);
        self.unless(known, format!("{place}.workload"), message);
        let formats: Vec<&str> = protocol.formats.iter().map(String::as_str).collect();
        let known = formats.is_empty() || formats.contains(&ladder.message.format.as_str());
        let message = unknown(&format!("format of protocol {name}"), &ladder.message.format, &formats);
        self.unless(known, format!("{place}.message.format"), message);
        let model = LoadModel::of(&ladder.load);
        let loads: Vec<&str> = protocol.loads.iter().map(|load| load.as_str()).collect();
        let message = format!(
            "protocol {name} doesn't support this load model: \"{}\"; give one of: {}",
            model.as_str(),
            loads.join(", ")
        );
        self.unless(protocol.loads.contains(&model), format!("{place}.load.model"), message);
        let message = format!("protocol {name} has no inference behind its services; leave it out");
        let env = &ladder.inference_env;
        self.unless(env.is_empty() || protocol.inference.is_some(), format!("{place}.inference_env"), message);
        for (index, objective) in ladder.objectives.iter().enumerate() {
            let of_sessions = objective.figure == Figure::AnswersPerSessionSecond;
            let message = format!("only speech-to-text sessions have this figure; {name} has `late_share`");
            let place = format!("{place}.objectives[{index}].figure");
            self.unless(!of_sessions || protocol.inference.is_some(), place, message);
        }
    }

    fn tiers(&mut self, place: &str, ladder: &WireLadder, plan: &WirePlan) {
        let tiers = &ladder.tiers;
        let some = !tiers.is_empty() || ladder.search.is_some();
        self.unless(some, place, "empty; give at least one number of connections, or a search");
        self.unless(!tiers.contains(&0), place, "0 connections carry nothing; give at least 1");
        let rising = tiers.windows(2).all(|pair| pair[0] < pair[1]);
        self.unless(rising, place, format!("{tiers:?} doesn't rise; sort it and name each tier once"));
        let with_workers = tiers.iter().map(|&tier| (tier, plan.workers_for(tier, ladder.replicas)));
        if let Some((tier, workers)) = with_workers.clone().find(|(tier, workers)| (1..*workers).contains(tier)) {
            self.wrong(place, format!("{tier} connections can't be shared by {workers} workers; give each at least 1"));
        }
        if let Some((tier, workers)) = with_workers.clone().find(|(_, workers)| *workers > MOST_WORKERS) {
            let message =
                format!("{tier} connections take {workers} workers; give at most {MOST_WORKERS}, each with more");
            self.wrong(place, message);
        }
    }

    fn load(&mut self, place: &str, load: &Load) {
        match *load {
            Load::Open { rate_per_second, .. } => self.rate(place, "messages", "rate_per_second", rate_per_second),
            Load::Closed { messages_per_connection, in_flight } => {
                self.unless(
                    messages_per_connection != Some(0),
                    format!("{place}.messages_per_connection"),
                    "0 messages measure nothing; give at least 1, or leave it out to send until the window ends",
                );
                self.in_flight(place, in_flight);
            }
            Load::Churn { rate_per_second, connections_per_second, life_seconds, .. } => {
                self.rate(place, "messages", "rate_per_second", rate_per_second);
                self.churn(place, connections_per_second, life_seconds);
            }
            Load::Reconnect { spread_seconds, in_flight, .. } => {
                self.seconds(format!("{place}.spread_seconds"), spread_seconds, 0.0);
                self.in_flight(place, in_flight);
            }
            Load::Sessions { ramp_seconds, spread_ms, in_flight } => {
                self.seconds(format!("{place}.ramp_seconds"), ramp_seconds, 0.0);
                self.seconds(format!("{place}.spread_ms"), spread_ms / 1e3, 0.0);
                self.in_flight(place, in_flight);
            }
        }
    }

    /// Checks a rate per second of messages or connections.
    fn rate(&mut self, place: &str, what: &str, field: &str, rate: f64) {
        let message = format!("{rate} {what} per second is not a schedule; give more than 0");
        self.unless(rate > 0.0 && rate.is_finite(), format!("{place}.{field}"), message);
    }

    fn in_flight(&mut self, place: &str, attempts: u32) {
        self.unless(attempts > 0, format!("{place}.in_flight"), "0 attempts open nothing; give at least 1");
    }

    fn churn(&mut self, place: &str, connections_per_second: Option<f64>, life_seconds: Option<f64>) {
        if connections_per_second.is_some() == life_seconds.is_some() {
            let message = "give either connections_per_second or life_seconds: one says how many come, the other how long each stays";
            return self.wrong(place, message);
        }
        if let Some(rate) = connections_per_second {
            self.rate(place, "connections", "connections_per_second", rate);
        }
        if let Some(seconds) = life_seconds {
            self.seconds(format!("{place}.life_seconds"), seconds, f64::MIN_POSITIVE);
        }
    }

    /// Checks that the attempts after the cut are due inside the window.
    fn spread(&mut self, place: &str, ladder: &WireLadder, plan: &WirePlan) {
        let Load::Reconnect { spread_seconds, .. } = ladder.load else { return };
        let window = ladder.window_seconds.unwrap_or(plan.window_seconds);
        let message = format!("{spread_seconds} s don't leave room in a window of {window} s; give a longer window");
        self.unless(spread_seconds < window, format!("{place}.load.spread_seconds"), message);
    }

    fn message(&mut self, place: &str, ladder: &WireLadder) {
        let message = &ladder.message;
        self.unless(message.size_bytes > 0, format!("{place}.message.size_bytes"), "0 bytes is not a message");
        let shapes = format!("{place}.message.shapes");
        let mistake = format!("{} shapes; give 1 to 256, more than one only of format json", message.shapes);
        let varies = message.shapes == 1 || ((2..=256).contains(&message.shapes) && message.format == "json");
        self.unless(varies, shapes, mistake);
        let coalesce = format!("{place}.message.coalesce");
        self.unless(message.coalesce > 0, coalesce, "0 messages in a write is not a write; give at least 1");
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
            let message = format!("{percentile} is not a percentile; give more than 0 and at most 100");
            self.unless(in_range, format!("{place}.figure.percentile_ms.percentile"), message);
        }
        if let Figure::ReconnectedMs { percent } = objective.figure {
            let message = format!("{percent} is not a share in percent; give 0 (the first connection) to 100 (all)");
            self.unless((0.0..=100.0).contains(&percent), format!("{place}.figure.reconnected_ms.percent"), message);
        }
    }

    /// Rejects a share of late messages where none can be late: in a closed loop, or without an objective that says when
    /// a message is late.
    fn late_share(&mut self, place: &str, ladder: &WireLadder) {
        let message = "in a closed loop nothing is due, so nothing is late; give an open load";
        self.unless(ladder.load.is_open(), place, message);
        let bounds = |objective: &Objective| {
            matches!(&objective.figure, Figure::PercentileMs { histogram, .. } if LATE_BY.contains(&histogram.as_str()))
                && objective.at_most.is_some()
        };
        let message = format!(
            "no objective says when a message is late; give a percentile of `{}` an at_most",
            LATE_BY.join("` or `")
        );
        self.unless(ladder.objectives.iter().any(bounds), place, message);
    }
}

/// The services of the registry that climb a ladder, with their names, in the plan's order.
fn climbing<'a>(
    registry: &'a Registry,
    ladder: &'a WireLadder,
    plan: &'a WirePlan,
) -> impl Iterator<Item = (&'a String, &'a Service)> {
    let climbs = |name: &&String| ladder.services.is_empty() || ladder.services.contains(name);
    plan.services.iter().filter(climbs).filter_map(|name| Some((name, registry.services.get(name.as_str())?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::check::fixture::{found, one};

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
    fn a_load_that_the_protocol_does_not_know_is_a_mistake() {
        let load = Load::Sessions { ramp_seconds: 0.0, spread_ms: 0.0, in_flight: 1 };
        let message = one(|plan| plan.ladders[0].load = load);
        let description = "ladders[0].load.model: protocol wse doesn't support this load model: \"sessions\"; give one of: open, closed";
        assert!(message.ends_with(description), "{message}");
    }

    #[test]
    fn inference_settings_need_a_protocol_with_inference() {
        let message = one(|plan| plan.ladders[0].inference_env = [("A".into(), "1".into())].into());
        assert!(message.contains("ladders[0].inference_env: protocol wse has no inference"), "{message}");
    }

    #[test]
    fn replicas_need_workers_that_can_be_shared() {
        let of = |workers| {
            found(|plan| {
                plan.workers = workers;
                plan.ladders[0].replicas = 2;
            })
        };
        assert_eq!(of(4), Vec::<String>::new());
        let description = of(3);
        assert!(
            description[0].contains("ladders[0].replicas: 3 workers can't load 2 replicas alike; give workers: 2"),
            "{description:?}"
        );
        assert!(one(|plan| plan.ladders[0].replicas = 0).contains("0 processes of a service; give 1 to 256"));
    }

    #[test]
    fn workers_by_connections_need_no_multiple_of_the_replicas_but_a_bound() {
        let of = |tier, per_worker| {
            found(|plan| {
                plan.connections_per_worker = Some(per_worker);
                plan.ladders[0].tiers = vec![tier];
                plan.ladders[0].replicas = 2;
            })
        };
        assert_eq!(of(5, 2), Vec::<String>::new(), "three workers become four");
        assert!(of(1, 1)[0].contains("1 connections can't be shared by 2 workers"), "{:?}", of(1, 1));
        assert!(of(5000, 1)[0].contains("5000 connections take 5000 workers; give at most 1000"), "{:?}", of(5000, 1));
        assert!(of(4, 0)[0].contains("connections_per_worker: 0 connections for each worker"), "{:?}", of(4, 0));
    }

    #[test]
    fn tiers_must_rise_and_must_not_be_empty() {
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
            assert!(one(|plan| plan.ladders[0].load = load).contains("is not a schedule"));
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
    fn a_share_that_is_late_needs_a_schedule_and_a_time_after_which_a_message_is_late() {
        let late = Objective { figure: Figure::LateShare, at_most: Some(0.01), at_least: None };
        let mistakes = found(|plan| plan.ladders[0].objectives = vec![late]);
        assert!(mistakes[0].contains("in a closed loop nothing is due"), "{mistakes:?}");
        assert!(mistakes[1].contains("give a percentile of `oldest` or `response` an at_most"), "{mistakes:?}");
        let answers = Objective { figure: Figure::AnswersPerSessionSecond, at_most: None, at_least: Some(1.0) };
        let message = one(|plan| plan.ladders[0].objectives = vec![answers]);
        assert!(message.contains("only speech-to-text sessions have this figure"), "{message}");
    }

    #[test]
    fn two_ladders_of_one_name_are_a_mistake() {
        let message = one(|plan| plan.ladders.push(plan.ladders[0].clone()));
        assert!(message.contains("ladders[1].variant: throughput/standard is listed twice"));
    }
}
