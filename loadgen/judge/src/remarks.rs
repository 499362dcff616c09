//! Remarks on a valid trial that didn't do everything that was requested. Pure.
//!
//! A plan states its requirements as objectives. A run by hand has none, so every failure is reported.

use std::collections::BTreeMap;

use bench_format::{
    plan::Load,
    result::{RECEIVER_BEHIND, TrialResult, Witness},
};

use crate::merge::Merged;

/// Lists everything that a trial with `requested` connections failed to do.
pub fn remarks(result: &TrialResult, merged: &Merged, requested: u32) -> Vec<String> {
    let connections = &result.connections;
    let mut remarks = Vec::new();
    if connections.open != u64::from(requested) {
        let failures = reasons(&connections.failed);
        remarks.push(format!("{} of {requested} connections opened{failures}", connections.open));
    }
    let early: u64 = connections.closed_early.values().sum();
    if early > 0 {
        remarks.push(format!("{early} connections ended early{}", reasons(&connections.closed_early)));
    }
    remarks.extend(messages(result));
    if let Some(behind) = result.failures.window.get(RECEIVER_BEHIND) {
        let description = "connections had not received all messages of the window by the end of the drain";
        remarks.push(format!("{behind} {description}"));
    }
    if let (Witness::Reply, Load::Closed { messages_per_connection: Some(each), .. }) = (result.witness, &result.load) {
        let (expected, answered) = (u64::from(*each) * u64::from(requested), merged.window.replies);
        if answered != expected {
            remarks.push(format!("{answered} of {expected} pings answered in the window"));
        }
    }
    remarks
}

/// Remarks on messages that failed. Losses of a publishing service are what such a trial measures, and without a
/// witness losses aren't known, so neither is reported.
fn messages(result: &TrialResult) -> Vec<String> {
    let (counts, receives) = (&result.messages, result.witness == Witness::Receiver);
    let is_known = matches!(result.witness, Witness::Application | Witness::Reply);
    let kinds = [
        (if is_known { counts.lost } else { 0 }, "sent, but lost"),
        (counts.wrong, if receives { "published without a number or a time" } else { "answered wrongly" }),
        (counts.unsent, "due, but never sent"),
        (counts.duplicates, if receives { "received twice" } else { "answered twice" }),
    ];
    kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, description)| format!("{count} messages {description}"))
        .collect()
}

fn reasons(reasons: &BTreeMap<String, u64>) -> String {
    let description: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    if description.is_empty() { String::new() } else { format!(" ({})", description.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Files, flood};

    fn of(change: impl FnOnce(&mut Files)) -> Vec<String> {
        let mut files = flood();
        change(&mut files);
        let judged = files.judge().unwrap();
        remarks(&judged.result, &judged.merged, 10)
    }

    #[test]
    fn a_complete_trial_has_no_remarks() {
        assert_eq!(of(|_| ()), Vec::<String>::new());
    }

    #[test]
    fn a_drop_that_is_counted_is_an_outcome_and_no_remark() {
        let dropped = of(|files| {
            let after = &mut files.service.readings.after.as_mut().unwrap().stats;
            after.messages.dropped.insert("inbound_overflow".into(), 10);
            after.messages.delivered -= 10;
            after.application.as_mut().unwrap().delivered -= 10;
        });
        assert_eq!(dropped, Vec::<String>::new());
    }

    #[test]
    fn a_message_that_no_party_accounts_for_is_lost() {
        let lost = of(|files| {
            files.service.readings.after.as_mut().unwrap().stats.application.as_mut().unwrap().delivered -= 1;
        });
        assert_eq!(lost, ["1 messages sent, but lost"]);
    }

    #[test]
    fn connections_that_failed_or_ended_are_printed_with_their_reasons() {
        let missing = of(|files| {
            let connections = &mut files.uploads[0].connections;
            (connections.open, connections.attempted) = (9, 10);
            connections.failed.insert("refused".into(), 1);
            connections.closed_early.insert("reset".into(), 2);
        });
        assert_eq!(missing, ["9 of 10 connections opened (1 refused)", "2 connections ended early (2 reset)"]);
    }

    #[test]
    fn unanswered_pings_of_a_count_are_reported() {
        let unanswered = of(|files| {
            files.trial.terms.witness = Witness::Reply;
            files.trial.load = Load::Closed { messages_per_connection: Some(250), in_flight: 1 };
            files.uploads[0].window.replies = 2499;
            files.uploads[0].messages.lost = 1;
        });
        assert_eq!(unanswered, ["1 messages sent, but lost", "2499 of 2500 pings answered in the window"]);
    }
}
