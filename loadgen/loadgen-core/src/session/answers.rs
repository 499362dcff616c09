//! Scripted protocols: the steps after the upgrade, and answers that name their message in other ways than by its number,
//! or that come in parts.

use std::collections::BTreeMap;

use super::{Session, Stage};
use crate::{
    clock::monotonic_ns,
    context::Context,
    frame::Opcode,
    pattern::Pattern,
    receiver::Reading,
    recorder::Metric,
    replies::Matched,
    timers::Timer,
    workload::{Admission, AnswerPart, AnswerTo, Delivery, Received, Workload},
};

/// The time of the last part of each answer that is incomplete, by the number of its message, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Parts {
    last_part_ns: BTreeMap<u64, u64>,
}

impl Session {
    /// Begins the protocol on a connection that was just upgraded.
    pub(super) fn begin<W: Workload>(&mut self, cx: &mut Context<W>, now_ns: u64) {
        let admission = cx.workload.begin(&mut cx.protocol[self.slot as usize], self.index, &mut cx.outbox);
        self.on_admission(cx, admission, now_ns);
    }

    /// Sends what the protocol put into the outbox, and acts on what it says about the connection.
    pub(super) fn on_admission<W: Workload>(&mut self, cx: &mut Context<W>, admission: Admission, now_ns: u64) {
        self.send_outbox(cx);
        match admission {
            Admission::Waiting => {}
            Admission::Timed { timer, after } => {
                // From now and not from the read, which a thread may handle late.
                let due_ns = monotonic_ns() + after.as_nanos() as u64;
                let (slot, started_ns) = (self.slot, self.started_ns);
                cx.timers.start(Timer { due_ns, slot, started_ns, number: timer });
            }
            Admission::Refused(reason) => self.end(cx, &reason),
            Admission::Ready { connection_id } if self.stage == Stage::AwaitingReady => {
                self.on_ready(cx, connection_id, now_ns);
            }
            Admission::Ready { .. } => {}
        }
    }

    /// Continues an attempt whose timer has ended, unless it is over.
    pub(crate) fn on_elapsed<W: Workload>(&mut self, cx: &mut Context<W>, timer: Timer) {
        if self.stage == Stage::AwaitingReady && self.started_ns == timer.started_ns {
            let connection = &mut cx.protocol[self.slot as usize];
            let admission = cx.workload.elapsed(connection, timer.number, &mut cx.outbox);
            self.on_admission(cx, admission, monotonic_ns());
        }
    }

    fn send_outbox<W: Workload>(&mut self, cx: &mut Context<W>) {
        if cx.outbox.is_empty() {
            return;
        }
        let mut outbox = std::mem::take(&mut cx.outbox);
        for (opcode, payload) in outbox.take() {
            if self.stage < Stage::Closing {
                self.send_beside_load(cx, opcode, &payload);
            }
        }
        cx.outbox = outbox;
    }

    /// Handles a message of a scripted protocol on a ready connection.
    pub(super) fn on_scripted_message<W: Workload>(
        &mut self,
        cx: &mut Context<W>,
        opcode: Opcode,
        payload: &[u8],
        now_ns: u64,
    ) {
        let mut received = std::mem::take(&mut cx.received);
        let connection = &mut cx.protocol[self.slot as usize];
        cx.workload.receive(connection, opcode, payload, &mut cx.outbox, &mut received);
        self.send_outbox(cx);
        for one in received.drain(..) {
            if self.stage == Stage::Ended {
                break;
            }
            let is_reply = !matches!(one, Received::Violation(_) | Received::Published(_));
            if cx.workload.expects_replies() || !is_reply {
                self.on_received(cx, one, now_ns);
            }
        }
        cx.received = received;
    }

    /// Whether the connection receives publications: in a fan-out all do but the one that publishes.
    pub(super) fn receives<W: Workload>(&self, cx: &Context<W>) -> bool {
        let publishes = matches!(cx.pattern, Pattern::Fanout { .. }) && self.index == 0;
        cx.pattern.publishing().is_some() && !publishes
    }

    /// Counts a publication of a scripted protocol.
    pub(super) fn on_published<W: Workload>(&mut self, cx: &mut Context<W>, delivery: Delivery, now_ns: u64) {
        let (Some(receiver), Some(publishing)) = (&mut self.receiver, cx.pattern.publishing()) else { return };
        let load = cx.load.as_mut().map(|load| (load.phases, &mut load.recorder, load.publisher_offset_ns));
        let published = Reading { now_ns, publishing, load }.count(receiver, delivery);
        cx.tally.deliveries += u64::from(published);
    }

    /// Handles an answer, or a part of one.
    pub(super) fn on_answer<W: Workload>(&mut self, cx: &mut Context<W>, to: AnswerTo, part: AnswerPart, now_ns: u64) {
        let n = match to {
            AnswerTo::Sequence(sequence) => Some(sequence.wrapping_sub(cx.workload.first_sequence())),
            AnswerTo::Modulo { remainder, modulus } => self.outstanding.with_remainder(remainder, modulus),
            AnswerTo::Oldest => self.outstanding.oldest(),
        };
        let Some(n) = n else {
            // Nothing is unanswered, so it is one answer too many.
            cx.tally.duplicates += 1;
            return;
        };
        match part {
            AnswerPart::More => self.on_part(cx, n, now_ns),
            AnswerPart::Last => {
                if cx.workload.answers_in_parts() {
                    self.on_part(cx, n, now_ns);
                    self.forget_parts(n);
                }
                self.on_reply(cx, cx.workload.first_sequence() + n, now_ns);
            }
            AnswerPart::Error => {
                self.forget_parts(n);
                self.on_error(cx, n, now_ns);
            }
        }
    }

    /// Records the time to the first part of an answer, or since the part before.
    fn on_part<W: Workload>(&mut self, cx: &mut Context<W>, n: u64, now_ns: u64) {
        let Some(slot) = self.outstanding.unanswered_slot(n) else {
            cx.tally.duplicates += 1;
            return;
        };
        let before = self.extra().parts.last_part_ns.insert(n, now_ns);
        let Some(load) = &mut cx.load else { return };
        if load.phases.in_window(slot.due_ns) {
            let (metric, since_ns) = before.map_or((Metric::First, slot.due_ns), |before| (Metric::Gap, before));
            load.recorder.record(metric, now_ns.saturating_sub(since_ns), now_ns);
        }
    }

    fn forget_parts(&mut self, n: u64) {
        if let Some(extra) = &mut self.extra {
            extra.parts.last_part_ns.remove(&n);
        }
    }

    /// Settles a message to which the service answered with an error.
    fn on_error<W: Workload>(&mut self, cx: &mut Context<W>, n: u64, now_ns: u64) {
        match self.outstanding.reply(n) {
            Matched::Answer { .. } => {
                cx.tally.wrong += 1;
                self.send_next_ping(cx, now_ns);
            }
            Matched::Duplicate => cx.tally.duplicates += 1,
            Matched::Unknown => self.on_wrong(cx, now_ns),
        }
    }
}
