//! The equations of counters that a described service keeps by itself and that its plan maps. Pure.
//!
//! Each counter is compared with what the workers counted, as far as the service's page has it. A difference makes the
//! trial invalid where a figure rests on the counter, or where the plan says that the counters are exact; otherwise it is a
//! remark.

use bench_format::{
    result::{Equation, Witness},
    websocket::{Counter, ReportedCounters},
};

use super::{accepted_equation, drops, terms};
use crate::case::Case;

/// One equation for each counter that accounts for connections or messages.
pub(super) fn equations(case: &Case<'_>, counters: &ReportedCounters) -> Vec<Equation> {
    let delta = &case.delta;
    let (numbered, unnumbered) = (case.merged.numbered(), case.merged.unnumbered());
    let mut equations = Vec::new();
    if case.counts(Counter::ConnectionsAccepted) {
        equations.push(accepted_equation(&case.merged, delta));
    }
    if case.counts(Counter::Received) {
        let sent = terms([("sent", numbered), ("unnumbered", unnumbered)]);
        equations.push(Equation::new("received (service) = sent + unnumbered (workers)", delta.received, sent));
    }
    equations.iter_mut().for_each(|equation| equation.is_remark = !counters.exact);
    if let (true, Some(application)) = (case.counts(Counter::Delivered), delta.application) {
        let delivered = ("delivered (application)".to_owned(), application.delivered);
        let outcomes = [delivered].into_iter().chain(drops(delta));
        let equation = Equation::new("sent = delivered (application) + dropped", numbered, outcomes);
        // The throughput rests on it.
        let is_witness = case.witness() == Witness::Application;
        equations.push(Equation { is_remark: !counters.exact && !is_witness, ..equation });
    }
    equations
}

#[cfg(test)]
mod tests {
    use bench_format::{
        result::{ReasonKind, TrialResult, Validity},
        trial_file::BookKeeping,
    };

    use super::*;
    use crate::fixture::{Files, flood, with_counters};

    const MESSAGES: [Counter; 3] = [Counter::Received, Counter::Delivered, Counter::ConnectionsAccepted];

    fn judged(mut files: Files, change: impl FnOnce(&mut Files)) -> TrialResult {
        change(&mut files);
        files.judge().unwrap().result
    }

    /// A service that reports `fewer` messages less than it got, after the load.
    fn lying(files: &mut Files, fewer: u64) {
        let stats = &mut files.service.readings.after.as_mut().unwrap().stats;
        stats.messages.received -= fewer;
        stats.application.as_mut().unwrap().delivered -= fewer;
    }

    fn remarks(result: &TrialResult) -> Vec<String> {
        result.books.equations.iter().filter_map(Equation::difference).collect()
    }

    fn reason(result: &TrialResult) -> String {
        let Validity::Invalid { reasons } = &result.validity else { panic!("valid") };
        assert_eq!((reasons.len(), reasons[0].kind), (1, ReasonKind::Unaccounted), "{reasons:?}");
        reasons[0].detail.clone()
    }

    #[test]
    fn a_counter_of_deliveries_is_the_witness_of_messages_without_replies() {
        let result = judged(with_counters(flood(), Witness::Application, &MESSAGES), |_| ());
        assert_eq!(result.validity, Validity::Valid, "{:?}", result.books);
        assert_eq!((result.witness, result.figures.delivered_per_second), (Witness::Application, Some(900.0)));
        assert_eq!((result.messages.delivered, result.messages.lost), (2500, 0));
        let names: Vec<_> = result.books.equations.iter().map(|equation| equation.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "attempted = open + failed",
                "due = sent + unsent",
                "sent = sum over the workers' connections",
                "accepted (service) = open (workers)",
                "received (service) = sent + unnumbered (workers)",
                "sent = delivered (application) + dropped",
            ]
        );
    }

    #[test]
    fn a_witness_that_lies_by_a_few_messages_makes_the_trial_invalid() {
        let files = with_counters(flood(), Witness::Application, &[Counter::Delivered]);
        let result = judged(files, |files| lying(files, 3));
        assert_eq!(
            reason(&result),
            "sent = delivered (application) + dropped: 2500 against 2497 (delivered (application) 2497)"
        );
    }

    #[test]
    fn without_a_counter_of_deliveries_no_delivery_and_no_loss_is_claimed() {
        let files = with_counters(flood(), Witness::Application, &[Counter::Received]);
        let result = judged(files, |files| {
            let readings = &mut files.service.readings;
            let all = [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after];
            all.into_iter().for_each(|reading| reading.as_mut().unwrap().stats.application = None);
        });
        assert_eq!((result.witness, result.validity.clone()), (Witness::None, Validity::Valid));
        assert_eq!((result.messages.delivered, result.messages.lost), (0, 0));
        assert_eq!((result.figures.delivered_per_second, result.figures.received_per_second), (None, Some(900.0)));
    }

    #[test]
    fn beside_replies_a_difference_is_a_remark_unless_the_counters_are_exact() {
        let replies = |files: &mut Files| files.uploads[0].messages.delivered = 2500;
        let files = with_counters(flood(), Witness::Reply, &MESSAGES);
        let result = judged(files.clone(), |files| {
            replies(files);
            lying(files, 3);
        });
        assert_eq!(result.validity, Validity::Valid);
        assert_eq!(
            remarks(&result),
            [
                "received (service) = sent + unnumbered (workers): 2507 against 2510 (sent 2500, unnumbered 10)",
                "sent = delivered (application) + dropped: 2500 against 2497 (delivered (application) 2497)",
            ]
        );
        let exact = judged(files, |files| {
            replies(files);
            lying(files, 3);
            files.trial.counters.as_mut().unwrap().exact = true;
        });
        assert_eq!(reason(&exact), remarks(&result).join("; "));
    }

    #[test]
    fn messages_of_a_connection_that_publishes_count_as_sent() {
        let result = judged(with_counters(flood(), Witness::Receiver, &[Counter::Received]), |files| {
            (files.uploads[0].messages.sent, files.uploads[0].messages.due) = (0, 0);
        });
        assert_eq!(remarks(&result), Vec::<String>::new(), "{:?}", result.books);
    }

    #[test]
    fn a_counter_that_the_page_lacks_has_no_equation() {
        let files = with_counters(flood(), Witness::Application, &[Counter::Received, Counter::ConnectionsAccepted]);
        assert_eq!(files.trial.keeping, BookKeeping::Totals);
        let result = judged(files, |files| {
            let after = files.service.readings.after.as_mut().unwrap();
            after.missing.insert("received".into(), "m_total".into());
        });
        assert!(!result.books.equations.iter().any(|equation| equation.name.starts_with("received")));
        assert_eq!(result.books.equations.last().unwrap().name, "accepted (service) = open (workers)");
    }
}
