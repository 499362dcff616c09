//! A trial's message counts, completed with what only the service knows. Pure.

use bench_format::{
    result::{MessageCounts, Witness},
    trial_file::BookKeeping,
};

use crate::{case::Case, published};

/// Completes the workers' counts with what only the service knows.
///
/// A worker whose witness is the application can't know what arrived: the application's count says it, the service's
/// drops explain the rest, and what neither explains is lost.
///
/// Of a service without counters nobody knows what arrived: nothing is claimed, neither an arrival nor a loss.
///
/// A receiver knows what is missing; the service's drops explain that, or nothing does.
pub(crate) fn complete(case: &Case<'_>) -> MessageCounts {
    let (merged, delta) = (&case.merged, &case.delta);
    let mut messages = merged.messages.clone();
    match case.witness() {
        Witness::Reply => {}
        Witness::Application | Witness::None if case.trial.keeping == BookKeeping::None => {}
        Witness::Receiver => {
            published::complete(&mut messages, &merged.receivers().collect::<Vec<_>>(), &case.told);
        }
        Witness::Application | Witness::None => {
            messages.delivered = delta.application.map_or(0, |application| application.delivered);
            messages.dropped.clone_from(&delta.dropped);
            messages.lost = messages.sent.saturating_sub(messages.delivered + delta.dropped_total());
        }
    }
    messages
}
