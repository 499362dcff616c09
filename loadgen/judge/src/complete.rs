//! Completes a trial's message counts with counts that only the service has. Pure.

use bench_format::{
    result::{MessageCounts, Witness},
    websocket::Counter,
};

use crate::{case::Case, published};

/// Completes the workers' counts with counts that only the service has.
///
/// A worker whose witness is the application doesn't know what arrived: the application counts the arrivals, the
/// service counts its drops, and the remaining messages are lost.
///
/// If the service doesn't count arrivals, neither arrivals nor losses are claimed.
///
/// A worker that receives publications knows how many are missing; the service's drops explain some or all of them.
pub(crate) fn complete(case: &Case<'_>) -> MessageCounts {
    let (merged, delta) = (&case.merged, &case.delta);
    let mut messages = merged.messages.clone();
    match case.witness() {
        Witness::Reply => {}
        Witness::Application | Witness::None if !case.counts(Counter::Delivered) => {}
        Witness::Receiver => {
            published::complete(&mut messages, &merged.receivers().collect::<Vec<_>>(), &case.reported);
        }
        Witness::Application | Witness::None => {
            messages.delivered = delta.application.map_or(0, |application| application.delivered);
            messages.dropped.clone_from(&delta.dropped);
            messages.lost = messages.sent.saturating_sub(messages.delivered + delta.dropped_total());
        }
    }
    messages
}
