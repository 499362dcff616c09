//! The result of a search as text: the capacity with its interval, the loads that were tested, the gate and the edge.

use bench_format::{
    plan::{Figure, Objective},
    run::{Capacity, CapacityEstimate, Crash, Edge, LoadTest, Search, SearchFound, SearchStep},
};

use super::serialized_name;
use crate::search::so_far::SoFar;

/// Number of searches in turn below which an interval holds within its run only.
const ENOUGH_IN_TURN: u32 = 6;

/// One line for a search.
pub fn line(search: &Search) -> String {
    let description = search.found.as_ref().map_or("not finished".into(), description);
    format!("{}: {description}", name(search))
}

/// The full name of a search: `service/workload/variant`.
pub fn name(search: &Search) -> String {
    let Search { service, workload, variant, .. } = search;
    format!("{service}/{workload}/{variant}")
}

/// What a search does, and the loads that passed and failed so far.
pub fn so_far(so_far: SoFar) -> String {
    let step = match so_far.step {
        SearchStep::Bounds => "short trials look for the start",
        SearchStep::Round => "rounds",
        SearchStep::Confirm => "a load is confirmed",
        SearchStep::Fail => "a load is shown to fail",
    };
    let trials = match so_far.trials {
        1 => "1 trial ended".to_owned(),
        trials => format!("{trials} trials ended"),
    };
    let passed = so_far.passed.map(|load| format!("passed up to {load}"));
    let failed = so_far.failed.map(|load| format!("failed from {load}"));
    [Some(step.into()), Some(trials), passed, failed].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The capacity, followed by the facts that explain it.
pub fn description(found: &SearchFound) -> String {
    let mut description = match &found.capacity {
        Some(capacity) => self::capacity(capacity, found.at_least),
        None => vec![bracket(found)],
    };
    if let Some(gate) = found.gates.first() {
        let more = match found.gates.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        description.push(format!("gate {}{more}", objective(gate)));
    }
    description.extend(found.edge.map(|edge| match edge {
        Edge::Latency => "a clean latency edge".to_owned(),
        Edge::Errors => "an error cliff".to_owned(),
    }));
    let crash = |crash: Crash| format!("ended at {} ({})", crash.load, crash.cause.as_str());
    description.extend(found.crash.map(crash));
    description.extend(found.bound_by.as_ref().map(|bound_by| format!("bound by {}", serialized_name(bound_by))));
    description.extend(found.generator_limit.map(|load| format!("the generator could not offer {load}")));
    description.extend(found.given_up_at.map(|load| format!("given up: no valid trial at {load}")));
    if found.capacity.is_none() && found.given_up_at.is_none() {
        let throughput = found.conditional_throughput;
        description.extend(throughput.map(|load| format!("conditional throughput {load:.1}")));
    }
    description.join(", ")
}

/// `P >= 0.5 at 203 [199, 207] (95 %), spread 1.2 %, 14 trials`, and the loads that were tested.
fn capacity(capacity: &Capacity, at_least: bool) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(CapacityEstimate { load, low, high, spread, trials }) = capacity.estimate {
        let within = if capacity.in_turn < ENOUGH_IN_TURN { " within this run" } else { "" };
        parts.push(format!(
            "P >= 0.5 at {} [{}, {}] (95 %){within}, spread {:.1} %, {trials} trials",
            load_text(load),
            load_text(low),
            load_text(high),
            spread * 100.0
        ));
    }
    let sign = if at_least { ">= " } else { "" };
    parts.push(match capacity.confirm {
        Some(test) if test.succeeded => format!("confirmed {sign}{} ({})", test.load, tally(test.passed, test)),
        Some(test) => format!("not confirmed at {} ({})", test.load, tally(test.passed, test)),
        None => "not confirmed".into(),
    });
    parts.extend(capacity.fail.map(|test| match test.succeeded {
        true => format!("first solid fail {} ({} failed)", test.load, tally(test.failed, test)),
        false => format!("no solid fail at {} ({} failed)", test.load, tally(test.failed, test)),
    }));
    parts
}

fn tally(agreeing: u32, test: LoadTest) -> String {
    format!("{agreeing} of {}", test.passed + test.failed)
}

/// A load that was not measured itself, to three digits at least.
fn load_text(load: f64) -> String {
    if load < 100.0 { format!("{load:.1}") } else { format!("{load:.0}") }
}

/// `confirmed 100 ↔ borderline 102, 104 ↔ first solid fail 106`, or `confirmed >= 200`: the result of a search of a
/// bundle up to schema 2.
fn bracket(found: &SearchFound) -> String {
    let borderline: Vec<String> = found.borderline.iter().map(u32::to_string).collect();
    let mut parts = vec![match (found.confirmed, found.at_least) {
        (Some(load), true) => format!("confirmed >= {load}"),
        (Some(load), false) => format!("confirmed {load}"),
        (None, _) => "nothing confirmed".into(),
    }];
    if !borderline.is_empty() {
        parts.push(format!("borderline {}", borderline.join(", ")));
    }
    parts.extend(found.first_solid_fail.map(|load| format!("first solid fail {load}")));
    parts.join(" ↔ ")
}

/// An objective as text: `newest p95 <= 350 ms`, `error_share <= 0.00001`.
pub fn objective(objective: &Objective) -> String {
    let (name, unit) = match &objective.figure {
        Figure::PercentileMs { histogram, percentile } => (format!("{histogram} p{percentile}"), " ms"),
        figure => (serialized_name(figure), ""),
    };
    let most = objective.at_most.map(|bound| format!("{name} <= {bound}{unit}"));
    let least = objective.at_least.map(|bound| format!("{name} >= {bound}{unit}"));
    most.into_iter().chain(least).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use bench_format::result::BoundBy;

    use super::*;

    fn found() -> SearchFound {
        let newest = Figure::PercentileMs { histogram: "newest".into(), percentile: 95.0 };
        let gate = |figure, at_most| Objective { figure, at_most: Some(at_most), at_least: None };
        SearchFound {
            goals: vec![],
            conditional_throughput: Some(198.25),
            capacity: None,
            confirmed: Some(200),
            borderline: vec![204],
            first_solid_fail: Some(208),
            at_least: false,
            gates: vec![gate(newest, 350.0), gate(Figure::ErrorShare, 0.00001)],
            edge: Some(Edge::Latency),
            crash: None,
            bound_by: Some(BoundBy::Service),
            generator_limit: None,
            given_up_at: None,
        }
    }

    /// A result with a capacity, searched beside five other services.
    fn with_capacity(in_turn: u32) -> SearchFound {
        let estimate = CapacityEstimate { load: 203.4, low: 199.2, high: 207.6, spread: 0.0123, trials: 14 };
        let test = |load, passed, failed, succeeded| Some(LoadTest { load, passed, failed, succeeded });
        let (confirm, fail) = (test(196, 8, 1, true), test(211, 0, 5, true));
        SearchFound {
            capacity: Some(Capacity { start: 200.0, estimate: Some(estimate), confirm, fail, in_turn }),
            confirmed: Some(196),
            borderline: vec![],
            first_solid_fail: Some(211),
            bound_by: None,
            ..found()
        }
    }

    #[test]
    fn a_capacity_has_its_interval_and_how_its_loads_were_tested() {
        assert_eq!(
            description(&with_capacity(6)),
            "P >= 0.5 at 203 [199, 208] (95 %), spread 1.2 %, 14 trials, confirmed 196 (8 of 9), \
             first solid fail 211 (5 of 5 failed), gate newest p95 <= 350 ms and 1 more, a clean latency edge"
        );
        assert!(description(&with_capacity(5)).contains("[199, 208] (95 %) within this run, spread"));
    }

    #[test]
    fn a_load_that_was_tested_without_success_is_not_confirmed() {
        let mut not = with_capacity(6);
        let capacity = not.capacity.as_mut().unwrap();
        capacity.confirm = Some(LoadTest { load: 190, passed: 3, failed: 2, succeeded: false });
        capacity.fail = None;
        assert!(description(&not).contains("14 trials, not confirmed at 190 (3 of 5), gate"), "{}", description(&not));
        let endless = Capacity {
            estimate: None,
            confirm: Some(LoadTest { load: 200, passed: 5, failed: 0, succeeded: true }),
            ..not.capacity.clone().unwrap()
        };
        let endless = SearchFound { capacity: Some(endless), at_least: true, gates: vec![], edge: None, ..not };
        assert_eq!(description(&endless), "confirmed >= 200 (5 of 5)");
    }

    #[test]
    fn a_search_that_goes_on_says_what_it_does_and_which_loads_passed_and_failed() {
        let begun = SoFar { step: SearchStep::Bounds, trials: 0, passed: None, failed: None };
        assert_eq!(so_far(begun), "short trials look for the start, 0 trials ended");
        let later = SoFar { step: SearchStep::Round, trials: 12, passed: Some(40), failed: Some(44) };
        assert_eq!(so_far(later), "rounds, 12 trials ended, passed up to 40, failed from 44");
    }

    #[test]
    fn a_bracket_of_schema_2_has_three_parts_a_gate_and_an_edge() {
        assert_eq!(
            description(&found()),
            "confirmed 200 ↔ borderline 204 ↔ first solid fail 208, gate newest p95 <= 350 ms and 1 more, \
             a clean latency edge, bound by service, conditional throughput 198.2"
        );
    }

    #[test]
    fn a_search_without_failure_has_a_lower_bound_only() {
        let endless = SearchFound {
            borderline: vec![],
            first_solid_fail: None,
            at_least: true,
            gates: vec![],
            edge: None,
            bound_by: Some(BoundBy::Generator),
            generator_limit: Some(210),
            conditional_throughput: None,
            ..found()
        };
        assert_eq!(description(&endless), "confirmed >= 200, bound by generator, the generator could not offer 210");
        let nothing = SearchFound { confirmed: None, at_least: false, given_up_at: Some(5), ..endless };
        assert!(
            description(&nothing).starts_with("nothing confirmed, ")
                && description(&nothing).contains("no valid trial at 5")
        );
    }
}
