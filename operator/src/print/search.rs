//! The result of a search as text: `confirmed ↔ borderline ↔ first solid fail`, the gate and the edge.

use bench_format::{
    plan::{Figure, Objective},
    run::{Edge, Search, SearchFound},
};

use super::serialized_name;

/// One line for a search.
pub fn line(search: &Search) -> String {
    let Search { service, workload, variant, found } = search;
    let description = found.as_ref().map_or("not finished".into(), description);
    format!("{service}/{workload}/{variant}: {description}")
}

/// The bracket, followed by the facts that explain it.
pub fn description(found: &SearchFound) -> String {
    let mut description = vec![bracket(found)];
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
    description.extend(found.bound_by.as_ref().map(|bound_by| format!("bound by {}", serialized_name(bound_by))));
    description.extend(found.generator_limit.map(|load| format!("the generator could not offer {load}")));
    description.extend(found.given_up_at.map(|load| format!("given up: no valid trial at {load}")));
    description.extend(found.conditional_throughput.map(|load| format!("conditional throughput {load:.1}")));
    description.join(", ")
}

/// `confirmed 100 ↔ borderline 102, 104 ↔ first solid fail 106`, or `confirmed >= 200`.
pub fn bracket(found: &SearchFound) -> String {
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
            confirmed: Some(200),
            borderline: vec![204],
            first_solid_fail: Some(208),
            at_least: false,
            gates: vec![gate(newest, 350.0), gate(Figure::ErrorShare, 0.00001)],
            edge: Some(Edge::Latency),
            bound_by: Some(BoundBy::Service),
            generator_limit: None,
            given_up_at: None,
        }
    }

    #[test]
    fn a_bracket_has_three_parts_a_gate_and_an_edge() {
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
