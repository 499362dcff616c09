//! The metrics of searches: the loads that passed and failed so far, and the capacity at the end.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::live::SearchStatus;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SearchLabel {
    search: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StandingLabels {
    search: String,
    standing: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BoundLabels {
    search: String,
    bound: String,
}

/// Adds the metrics of all searches.
pub(super) fn register(registry: &mut Registry, searches: &[SearchStatus]) {
    let (so_far, interval) = (Family::<BoundLabels, Gauge>::default(), Family::<BoundLabels, LoadGauge>::default());
    let capacity = Family::<SearchLabel, LoadGauge>::default();
    let confirmed = Family::<SearchLabel, Gauge>::default();
    let standings = Family::<StandingLabels, Gauge>::default();
    for search in searches {
        let name = || search.search.clone();
        for (bound, load) in [("passed", search.passed), ("failed", search.failed)] {
            if let Some(load) = load {
                so_far.get_or_create_owned(&BoundLabels { search: name(), bound: bound.into() }).set(load.into());
            }
        }
        if let Some(estimate) = search.capacity {
            capacity.get_or_create_owned(&SearchLabel { search: name() }).set(estimate.load);
            for (bound, load) in [("low", estimate.low), ("high", estimate.high)] {
                interval.get_or_create_owned(&BoundLabels { search: name(), bound: bound.into() }).set(load);
            }
        }
        if let Some(load) = search.confirmed {
            confirmed.get_or_create_owned(&SearchLabel { search: name() }).set(load.into());
        }
        if let Some(standing) = search.standing.clone() {
            standings.get_or_create_owned(&StandingLabels { search: name(), standing }).set(1);
        }
    }
    let help = "The largest load that passed (bound=\"passed\") and the smallest that failed so far in a search";
    registry.register("search_load", help, so_far);
    let help = "Load at which a trial on a fresh process passes with probability 0.5, of a search that has ended";
    registry.register("capacity", help, capacity);
    registry.register("capacity_interval", "The ends of the 95 % interval of a capacity", interval);
    registry.register("confirmed_load", "Load that a search has confirmed by trials of its own", confirmed);
    registry.register("search_standing", "Standing of a search that has ended; the value is 1", standings);
}

type LoadGauge = Gauge<f64, AtomicU64>;

#[cfg(test)]
mod tests {
    use bench_format::run::CapacityEstimate;

    use super::*;
    use crate::{
        live::Status,
        metrics::{Readings, text},
    };

    fn lines(search: SearchStatus) -> String {
        let search = SearchStatus { search: "a/b/c".into(), ..search };
        let status = Status { searches: vec![search], ..Status::default() };
        text(&Readings { status, ..Readings::default() })
    }

    #[test]
    fn a_search_that_goes_on_has_its_bracket_and_no_capacity() {
        let text = lines(SearchStatus { passed: Some(40), failed: Some(60), ..SearchStatus::default() });
        for line in [
            "ladder_search_load{search=\"a/b/c\",bound=\"passed\"} 40",
            "ladder_search_load{search=\"a/b/c\",bound=\"failed\"} 60",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("ladder_capacity{"), "{text}");
    }

    #[test]
    fn an_ended_search_has_its_capacity_with_its_interval() {
        let capacity = CapacityEstimate { load: 50.5, low: 49.0, high: 52.0, spread: 0.01, trials: 12 };
        let ended = SearchStatus {
            standing: Some("pass".into()),
            capacity: Some(capacity),
            confirmed: Some(48),
            ..SearchStatus::default()
        };
        let text = lines(ended);
        for line in [
            "ladder_capacity{search=\"a/b/c\"} 50.5",
            "ladder_capacity_interval{search=\"a/b/c\",bound=\"low\"} 49.0",
            "ladder_capacity_interval{search=\"a/b/c\",bound=\"high\"} 52.0",
            "ladder_confirmed_load{search=\"a/b/c\"} 48",
            "ladder_search_standing{search=\"a/b/c\",standing=\"pass\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
