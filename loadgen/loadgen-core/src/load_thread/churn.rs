//! Messages at a rate while connections come and go.
//!
//! A schedule of its own says when connections come. With each that comes, the oldest one goes, so that as many are there
//! as the trial has, and each stays as long as the schedule takes to replace all of them. `members` keeps them in these
//! orders.

mod members;

use bench_format::plan::Arrivals;

use self::members::{Member, Members};
use super::{CHECK_INTERVAL_NS, LoadThread, patterns::DUE_PER_TURN};
use crate::{
    clock::monotonic_ns,
    connect::ATTEMPT_TIMEOUT,
    error::Error,
    phases::Phases,
    schedule::{ConstantRate, Schedule},
    session::{Session, Stage},
    workload::Workload,
};

/// Longest wait for the service's answer to a Close frame of a connection that goes under load, in nanoseconds.
pub const CLOSE_TIMEOUT_NS: u64 = 5_000_000_000;

/// A schedule with the next due time, in nanoseconds of the monotonic clock.
struct Due {
    schedule: Schedule,
    start_ns: u64,
    next_ns: u64,
}

impl Due {
    fn new(mut schedule: Schedule, start_ns: u64) -> Self {
        let next_ns = start_ns + schedule.next_due_ns();
        Self { schedule, start_ns, next_ns }
    }

    /// The next due time if it is not after `now_ns` and before `end_ns`; the schedule then goes on.
    fn take(&mut self, now_ns: u64, end_ns: u64) -> Option<u64> {
        let due_ns = self.next_ns;
        if due_ns > now_ns || due_ns >= end_ns {
            return None;
        }
        self.next_ns = self.start_ns + self.schedule.next_due_ns();
        Some(due_ns)
    }
}

impl<W: Workload> LoadThread<W> {
    /// Sends each message when it is due and lets connections come and go, until the window ends. Then waits until those
    /// that are coming and going have done so. Both rates count over all threads and workers.
    pub(super) fn churn(
        &mut self,
        rate_per_second: f64,
        arrivals: Arrivals,
        connections_per_second: f64,
    ) -> Result<(), Error> {
        let phases @ Phases { start_ns, window_end_ns, .. } = self.phases();
        let rate = rate_per_second / self.cx.coalesce as f64;
        let mut messages = Due::new(self.schedule(rate, arrivals), start_ns);
        let coming = ConstantRate::new(connections_per_second, self.plan.share);
        let mut coming = Due::new(Schedule::Constant(coming), start_ns);
        let mut members = Members::of(&self.sessions, self.next_numbers());
        if let Some(turnover) = &mut self.cx.turnover {
            // Those that were ready before the load are members already.
            turnover.ready.clear();
        }
        let mut next_look_ns = start_ns;
        loop {
            let now = monotonic_ns();
            self.record_window_edges(now);
            if now >= phases.drain_deadline_ns() {
                self.miss_what_is_due(&mut messages, &mut coming);
                break;
            }
            for _ in 0..DUE_PER_TURN {
                let Some(due_ns) = coming.take(now, window_end_ns) else { break };
                self.come(&mut members, due_ns);
                self.oldest_goes(&mut members, now);
            }
            self.send_due(&mut members, &mut messages, now);
            if now >= next_look_ns {
                self.look_at(&mut members, now);
                next_look_ns = now + CHECK_INTERVAL_NS;
            }
            if now >= window_end_ns && messages.next_ns.min(coming.next_ns) >= window_end_ns {
                break;
            }
            let wake_ns = messages.next_ns.min(coming.next_ns).min(next_look_ns);
            self.handle_events(if now < window_end_ns { wake_ns.min(window_end_ns) } else { wake_ns })?;
            self.note_changes(&mut members);
        }
        self.finish_coming_and_going(&mut members)
    }

    /// The numbers of connections that come: those of all threads and workers differ from each other, and from those of
    /// the connections that are there at the start.
    fn next_numbers(&self) -> std::iter::StepBy<std::ops::RangeFrom<u64>> {
        let share = self.plan.share;
        (u64::from(self.plan.connections_of_all) + share.index..).step_by(share.of as usize)
    }

    /// Attempts a connection that is due.
    fn come(&mut self, members: &mut Members, due_ns: u64) {
        let Some(slot) = members.free_slot(self.sessions.len(), self.plan.most_connections) else {
            members.skip();
            return self.count_not_made(u64::from(self.phases().in_window(due_ns)));
        };
        let member = Member { slot, index: members.next_number() };
        if slot as usize == self.sessions.len() {
            self.sessions.push(Session::new(slot, member.index));
            self.cx.protocol.push(W::Connection::default());
        } else {
            self.replace(slot, member.index);
        }
        self.count_attempt(due_ns);
        self.attempt_in(slot, due_ns);
        members.came(member);
    }

    /// Lets the oldest connection go. One that still isn't ready has failed: its life is over.
    fn oldest_goes(&mut self, members: &mut Members, now_ns: u64) {
        let Some(member) = members.oldest() else { return };
        let session = &mut self.sessions[member.slot as usize];
        if session.index != member.index {
            return;
        }
        if session.stage < Stage::Open {
            return session.give_up(&mut self.cx, "life_over");
        }
        session.is_leaving = true;
        let deadline_ns = now_ns + self.phases().drain_ns;
        if !self.try_close(members, member, now_ns, deadline_ns) {
            members.leaving.push_back((member, deadline_ns));
        }
    }

    /// Closes a connection that has to go once its messages are answered, or once the time for that is over. Returns
    /// whether there is nothing more to wait for.
    fn try_close(&mut self, members: &mut Members, member: Member, now_ns: u64, deadline_ns: u64) -> bool {
        let session = &mut self.sessions[member.slot as usize];
        if session.index != member.index || session.stage != Stage::Open {
            return true;
        }
        if now_ns < deadline_ns && !session.is_settled(&self.cx) {
            return false;
        }
        let unanswered = session.unanswered();
        let was_open = session.close(&mut self.cx);
        let in_window = self.phases().in_window(now_ns);
        if let Some(turnover) = self.cx.turnover.as_mut().filter(|_| was_open) {
            turnover.counts.closed += 1;
            if unanswered > 0 {
                turnover.counts.unanswered_messages += unanswered;
                turnover.fail(in_window, "close/unanswered".into(), unanswered);
            }
            members.closing.push_back((member, now_ns + CLOSE_TIMEOUT_NS));
        }
        true
    }

    /// Sends the messages that are due, on the connections in turn. Without a connection that is ready and stays, a
    /// message counts as unsent.
    fn send_due(&mut self, members: &mut Members, messages: &mut Due, now_ns: u64) {
        let window_end_ns = self.phases().window_end_ns;
        for _ in 0..DUE_PER_TURN {
            let Some(due_ns) = messages.take(now_ns, window_end_ns) else { return };
            match members.next_carrier(&self.sessions) {
                Some(slot) => {
                    let session = &mut self.sessions[slot as usize];
                    (0..self.cx.coalesce).for_each(|_| session.offer(&mut self.cx, due_ns));
                    self.cx.handled(due_ns, now_ns);
                    session.pump(&mut self.cx);
                }
                None => {
                    self.cx.count_unsent(self.cx.coalesce, due_ns);
                    self.cx.handled(due_ns, now_ns);
                }
            }
        }
    }

    /// Counts what was due and can no longer be done, because the generator is far behind its schedules.
    fn miss_what_is_due(&mut self, messages: &mut Due, coming: &mut Due) {
        let phases @ Phases { window_end_ns, .. } = self.phases();
        while let Some(due_ns) = messages.take(u64::MAX, window_end_ns) {
            self.cx.count_unsent(self.cx.coalesce, due_ns);
        }
        while let Some(due_ns) = coming.take(u64::MAX, window_end_ns) {
            self.count_not_made(u64::from(phases.in_window(due_ns)));
        }
    }

    /// Adds connections that became ready to those that carry messages, and frees the slots of those that ended.
    fn note_changes(&mut self, members: &mut Members) {
        let Some(turnover) = &mut self.cx.turnover else { return };
        if turnover.ready.is_empty() && turnover.ended.is_empty() {
            return;
        }
        let (ready, ended) = (std::mem::take(&mut turnover.ready), std::mem::take(&mut turnover.ended));
        for slot in ready {
            members.carry(Member { slot, index: self.sessions[slot as usize].index });
        }
        for slot in ended {
            self.replace(slot, u32::MAX);
            members.free(slot);
        }
    }

    /// Ends attempts that take too long, closes connections whose messages are answered, and ends those whose Close frame
    /// isn't.
    fn look_at(&mut self, members: &mut Members, now_ns: u64) {
        while let Some(&member) = members.attempts.front() {
            let session = &mut self.sessions[member.slot as usize];
            let is_attempted = session.index == member.index && session.stage < Stage::Open;
            if is_attempted && now_ns < session.started_ns + ATTEMPT_TIMEOUT.as_nanos() as u64 {
                break;
            }
            if is_attempted {
                session.time_out(&mut self.cx);
            }
            members.attempts.pop_front();
        }
        for _ in 0..members.leaving.len() {
            let Some((member, deadline_ns)) = members.leaving.pop_front() else { break };
            if !self.try_close(members, member, now_ns, deadline_ns) {
                members.leaving.push_back((member, deadline_ns));
            }
        }
        while let Some(&(member, deadline_ns)) = members.closing.front() {
            let session = &mut self.sessions[member.slot as usize];
            let is_closing = session.index == member.index;
            if is_closing && now_ns < deadline_ns {
                break;
            }
            if is_closing {
                session.give_up(&mut self.cx, "unclosed");
            }
            members.closing.pop_front();
        }
    }

    /// Waits until every attempt has ended and every connection that has to go is closing, at the latest until the drain
    /// ends.
    fn finish_coming_and_going(&mut self, members: &mut Members) -> Result<(), Error> {
        let deadline_ns = self.phases().drain_deadline_ns();
        loop {
            let now = monotonic_ns();
            self.note_changes(members);
            self.look_at(members, now);
            if now >= deadline_ns || (self.cx.connections.in_flight == 0 && members.leaving.is_empty()) {
                break;
            }
            self.handle_events((now + CHECK_INTERVAL_NS).min(deadline_ns))?;
        }
        for member in std::mem::take(&mut members.attempts) {
            let session = &mut self.sessions[member.slot as usize];
            if session.index == member.index && session.stage < Stage::Open {
                session.give_up(&mut self.cx, "drain_over");
            }
        }
        for (member, _) in std::mem::take(&mut members.leaving) {
            self.try_close(members, member, deadline_ns, deadline_ns);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Share;

    #[test]
    fn what_is_due_is_taken_once_and_not_beyond_the_end() {
        let schedule = Schedule::Constant(ConstantRate::new(10.0, Share { index: 0, of: 1 }));
        let mut due = Due::new(schedule, 1000);
        let second = 1000 + 100_000_000;
        assert_eq!([999, 1000, 1000].map(|now| due.take(now, u64::MAX)), [None, Some(1000), None]);
        assert_eq!([due.take(u64::MAX, second), due.take(u64::MAX, second + 1)], [None, Some(second)]);
    }
}
