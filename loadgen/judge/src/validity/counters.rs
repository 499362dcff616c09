//! The rules for counters that a described service keeps by itself: they only grow, and those that a figure rests on are
//! there. Pure.

use bench_format::{
    result::{Reading, Reason, ReasonKind, Witness},
    websocket::Counter,
};

use super::reason;
use crate::case::Case;

/// A counter that shrinks means that its process was replaced, even where neither its id nor its start time is known.
pub(super) fn counter_fell(case: &Case<'_>) -> Option<Reason> {
    case.trial.counters.as_ref()?;
    let readings = &case.service.readings;
    let order = [&readings.before, &readings.window_start, &readings.window_end, &readings.after];
    let present: Vec<&Reading> = order.into_iter().flatten().collect();
    let fell = present.windows(2).find_map(|pair| {
        let later = counters(pair[1]);
        counters(pair[0]).into_iter().zip(later).find_map(|((counter, was), (_, is))| {
            (is < was).then(|| format!("its counter {counter} fell from {was} to {is}"))
        })
    })?;
    Some(reason(ReasonKind::ServiceRestarted, fell))
}

/// The counters of a reading; the number of open connections may fall and is none of them.
fn counters(reading: &Reading) -> [(Counter, u64); 4] {
    let stats = &reading.stats;
    [
        (Counter::Received, stats.messages.received),
        (Counter::Delivered, stats.application.map_or(0, |application| application.delivered)),
        (Counter::Dropped, stats.messages.dropped.values().sum()),
        (Counter::ConnectionsAccepted, stats.connections.accepted),
    ]
}

/// A counter that the plan maps and the service doesn't have, if the counters are exact or it would be the witness.
pub(super) fn counters_missing(case: &Case<'_>) -> Option<Reason> {
    let counters = case.trial.counters.as_ref()?;
    let needed = |name: &String| {
        let would_witness = case.trial.terms.witness == Witness::Application && *name == Counter::Delivered.to_string();
        counters.exact || would_witness
    };
    let missing: Vec<String> =
        case.missing().filter(|(name, _)| needed(name)).map(|(name, text)| format!("{name} ({text})")).collect();
    let description = || format!("after the load the service's page of counters has no {}", missing.join(", "));
    (!missing.is_empty()).then(|| reason(ReasonKind::Conformance, description()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{Files, flood, with_counters},
        validity::fixture::reasons,
    };

    fn reasons_with(witness: Witness, change: impl FnOnce(&mut Files)) -> Vec<String> {
        reasons(with_counters(flood(), witness, &[Counter::Received, Counter::Delivered]), change)
    }

    #[test]
    fn a_counter_that_falls_is_a_restart() {
        let fell = reasons_with(Witness::Reply, |files| {
            files.service.readings.after.as_mut().unwrap().stats.messages.received = 7;
        });
        assert_eq!(fell.len(), 1, "{fell:?}");
        assert!(fell[0].starts_with("ServiceRestarted: its counter received fell from "), "{fell:?}");
        assert!(fell[0].ends_with(" to 7"), "{fell:?}");
    }

    #[test]
    fn fewer_open_connections_are_no_restart() {
        let fewer = |files: &mut Files| files.service.readings.after.as_mut().unwrap().stats.connections.open = 0;
        assert_eq!(reasons_with(Witness::Reply, fewer), Vec::<String>::new());
    }

    #[test]
    fn a_missing_counter_is_a_reason_where_a_figure_rests_on_it_or_the_counters_are_exact() {
        let missing = |name: &str, exact: bool| {
            let name = name.to_owned();
            move |files: &mut Files| {
                files.trial.counters.as_mut().unwrap().exact = exact;
                files.service.readings.after.as_mut().unwrap().missing.insert(name, "m_total".into());
            }
        };
        let description = "Conformance: after the load the service's page of counters has no";
        assert_eq!(reasons_with(Witness::Reply, missing("delivered", false)), Vec::<String>::new());
        assert_eq!(
            reasons_with(Witness::Application, missing("delivered", false)),
            [format!("{description} delivered (m_total)")]
        );
        assert_eq!(reasons_with(Witness::Application, missing("received", false)), Vec::<String>::new());
        assert_eq!(
            reasons_with(Witness::Reply, missing("received", true)),
            [format!("{description} received (m_total)")]
        );
    }
}
