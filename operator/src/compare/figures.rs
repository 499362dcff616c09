//! Which figures of a trial are compared, and which of them decide. Pure.

use std::collections::BTreeMap;

use bench_format::{
    comparison::ComparedFigure,
    plan::Load,
    result::{BoundBy, TrialResult, Witness},
};

use ComparedFigure::{
    AcceptedPerSecond, CpuPerMillion, DeliveredPerSecond, MemoryPerConnection, P50OfHandshake, P50OfNewest,
    P50OfResponse, P95OfNewest, P99OfHandshake, P99OfResponse, ReceivedPerSecond,
};

/// The figures of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessFigures {
    /// Every figure that the trial has and that a ratio can be computed from: all are above 0.
    pub values: BTreeMap<ComparedFigure, f64>,
    /// The generator limited the trial, so that its rates are only lower bounds.
    pub generator_bound: bool,
}

/// The figures of a trial's result.
pub fn of_result(result: &TrialResult) -> ProcessFigures {
    let usable = |figure: &ComparedFigure| {
        let value = value(*figure, result)?;
        // The schedule sets the rates of any other load, so there is nothing to compare.
        let scheduled = figure.is_rate() && result.load.is_open();
        (!scheduled && value.is_finite() && value > 0.0).then_some((*figure, value))
    };
    ProcessFigures {
        values: ComparedFigure::ALL.iter().filter_map(usable).collect(),
        generator_bound: result.bound_by == Some(BoundBy::Generator),
    }
}

fn value(figure: ComparedFigure, result: &TrialResult) -> Option<f64> {
    let figures = &result.figures;
    let percentile = |histogram: &str, at: &str| Some((*result.percentiles.get(histogram)?.get(at)?)? as f64);
    // Without a witness it is unknown what was delivered.
    let witnessed = result.witness != Witness::None || result.messages.due == 0;
    match figure {
        AcceptedPerSecond => figures.accepted_per_second,
        DeliveredPerSecond => figures.delivered_per_second.filter(|_| witnessed),
        ReceivedPerSecond => figures.received_per_second,
        P50OfResponse => percentile("response_ns", "p50"),
        P99OfResponse => percentile("response_ns", "p99"),
        P50OfNewest => percentile("newest_ns", "p50"),
        P95OfNewest => percentile("newest_ns", "p95"),
        P50OfHandshake => percentile("handshake_ns", "p50"),
        P99OfHandshake => percentile("handshake_ns", "p99"),
        CpuPerMillion => figures.service_cpu_seconds_per_million,
        MemoryPerConnection => figures.service_bytes_per_connection,
    }
}

/// The figures that decide a comparison where none were asked for: what the load measures, of which the first that both
/// sides of the first pair have, and what it costs.
pub fn deciding(load: &Load, a: &ProcessFigures, b: &ProcessFigures) -> Vec<ComparedFigure> {
    let of_load: &[ComparedFigure] = match load {
        Load::Closed { .. } => {
            &[AcceptedPerSecond, DeliveredPerSecond, ReceivedPerSecond, P99OfResponse, P50OfResponse]
        }
        Load::Open { .. } | Load::Churn { .. } => &[P99OfResponse, P50OfResponse, P99OfHandshake, P50OfHandshake],
        Load::Reconnect { .. } => &[P99OfHandshake, P50OfHandshake],
        Load::Sessions { .. } => &[P95OfNewest, P50OfNewest],
    };
    let both = |figure: &&ComparedFigure| a.values.contains_key(figure) && b.values.contains_key(figure);
    of_load.iter().find(both).into_iter().chain([&CpuPerMillion].into_iter().find(both)).copied().collect()
}

/// Why a figure can't decide a comparison under this load; `None` if it may.
pub fn refusal(figure: ComparedFigure, load: &Load) -> Option<&'static str> {
    let scheduled = figure.is_rate() && load.is_open();
    scheduled
        .then_some("the schedule of this load sets the rate, so both sides have the same; name a percentile or a cost")
}

#[cfg(test)]
mod tests {
    use bench_format::Name;
    use judge::fixture::{flood, open};

    use super::*;

    fn names(figures: &ProcessFigures) -> Vec<&'static str> {
        figures.values.keys().map(|figure| figure.name()).collect()
    }

    fn with(figures: &[ComparedFigure]) -> ProcessFigures {
        ProcessFigures { values: figures.iter().map(|figure| (*figure, 1.0)).collect(), generator_bound: false }
    }

    #[test]
    fn a_flood_has_its_rate_and_an_open_loop_has_none() {
        let mut result = flood().judge().unwrap().result;
        assert!(names(&of_result(&result)).contains(&"delivered-per-second"));
        result.figures.delivered_per_second = Some(0.0);
        assert!(!names(&of_result(&result)).contains(&"delivered-per-second"), "0 has no ratio");
        result.bound_by = Some(BoundBy::Generator);
        assert!(of_result(&result).generator_bound);
        let rates = names(&of_result(&open().judge().unwrap().result));
        assert!(rates.iter().all(|name| !name.ends_with("per-second")), "{rates:?}");
    }

    #[test]
    fn a_percentile_with_too_few_samples_is_no_figure() {
        let mut result = open().judge().unwrap().result;
        let percentiles = [("p50".to_owned(), Some(7)), ("p99".to_owned(), None)];
        result.percentiles.insert(Name::from_static("response_ns"), percentiles.into());
        let found = of_result(&result);
        assert_eq!(found.values.get(&P50OfResponse), Some(&7.0));
        assert_eq!(found.values.get(&P99OfResponse), None);
    }

    #[test]
    fn the_load_and_the_cost_decide_by_what_both_sides_have() {
        let (closed, open) = (flood().judge().unwrap().result.load, open().judge().unwrap().result.load);
        let all = with(&ComparedFigure::ALL);
        assert_eq!(deciding(&closed, &all, &all), [AcceptedPerSecond, CpuPerMillion]);
        let flood = with(&[DeliveredPerSecond, ReceivedPerSecond, CpuPerMillion]);
        let null = with(&[ReceivedPerSecond, CpuPerMillion]);
        assert_eq!(deciding(&closed, &flood, &flood), [DeliveredPerSecond, CpuPerMillion]);
        assert_eq!(deciding(&closed, &flood, &null), [ReceivedPerSecond, CpuPerMillion]);
        assert_eq!(deciding(&open, &all, &all), [P99OfResponse, CpuPerMillion]);
        assert_eq!(deciding(&open, &all, &with(&[P50OfResponse])), [P50OfResponse]);
        assert_eq!(deciding(&open, &all, &with(&[])), []);
    }

    #[test]
    fn a_rate_that_a_schedule_sets_is_refused() {
        let (closed, open) = (flood().judge().unwrap().result.load, open().judge().unwrap().result.load);
        assert_eq!(refusal(DeliveredPerSecond, &closed), None);
        assert_eq!(refusal(P99OfResponse, &open), None);
        assert!(refusal(DeliveredPerSecond, &open).is_some());
    }
}
