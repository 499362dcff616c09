//! What a session counts where connections come and go under load. None of it is called for other loads.

use std::time::Duration;

use bench_format::plan::Cut;
use socket2::SockRef;

use super::{NORMAL, Session, Stage};
use crate::{
    clock::monotonic_ns, context::Context, frame::Opcode, pattern::Pattern, recorder::Metric, workload::Workload,
};

impl Session {
    /// Counts a connection that became ready.
    #[cold]
    pub(super) fn count_ready<W: Workload>(&self, cx: &mut Context<W>) {
        let Some(turnover) = &mut cx.turnover else { return };
        turnover.ready.push(self.slot);
        let Some(load) = cx.load.as_mut().filter(|load| load.phases.in_window(self.started_ns)) else { return };
        turnover.counts.ready += 1;
        let ready_ns = monotonic_ns();
        let handshake_ns = ready_ns.saturating_sub(self.started_ns);
        match cx.pattern {
            // A display shows the replies instead.
            Pattern::Churn { .. } => load.recorder.record_unshown(Metric::Handshake, handshake_ns, ready_ns),
            _ => load.recorder.record(Metric::Handshake, handshake_ns, ready_ns),
        }
        if let Some(cut_ns) = turnover.cut_ns {
            load.recorder.record(Metric::Reconnected, ready_ns.saturating_sub(cut_ns), ready_ns);
        }
    }

    /// Counts a connection that ends now.
    #[cold]
    pub(super) fn count_end<W: Workload>(&self, cx: &mut Context<W>, reason: &str) {
        let Some(turnover) = &mut cx.turnover else { return };
        let now_ns = monotonic_ns();
        // An attempt counts where it was due, and what ended a connection where it happened.
        let (kind, at_ns) = match self.stage {
            Stage::Idle | Stage::Ended => return,
            Stage::Connecting | Stage::Upgrading | Stage::AwaitingReady => ("handshake", self.started_ns),
            Stage::Open => ("connection", now_ns),
            Stage::Closing => {
                turnover.counts.unanswered_closes += u64::from(self.is_leaving);
                return turnover.ended.push(self.slot);
            }
            Stage::Closed => return turnover.ended.push(self.slot),
        };
        turnover.ended.push(self.slot);
        let in_window = cx.load.as_ref().is_some_and(|load| load.phases.in_window(at_ns));
        if in_window && kind == "handshake" {
            turnover.attempt_failed(reason);
        }
        turnover.fail(in_window, format!("{kind}/{reason}"), 1);
        if let Some(load) = cx.load.as_mut().filter(|_| in_window) {
            load.recorder.record_failure(now_ns);
        }
    }

    /// Ends a connection that is open, without waiting for the service. Returns whether it was open.
    pub(crate) fn cut<W: Workload>(&mut self, cx: &mut Context<W>, cut: Cut) -> bool {
        if self.stage != Stage::Open {
            return false;
        }
        match (cut, &self.socket) {
            // The kernel then resets the connection when its descriptor is closed.
            (Cut::Reset, Some(socket)) => drop(SockRef::from(socket).set_linger(Some(Duration::ZERO))),
            (Cut::Close, _) => self.send_control(cx, Opcode::Close, &NORMAL),
            (Cut::Reset, None) => {}
        }
        let was_open = self.stage == Stage::Open;
        if was_open {
            self.stage = Stage::Closed;
            self.end(cx, "cut");
        }
        was_open
    }

    /// Number of messages that were sent and not answered.
    pub(crate) fn unanswered(&self) -> u64 {
        self.outstanding.unanswered()
    }
}
