//! How connections end: each once, with a reason, and with nothing left out of the books.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::net::{Shutdown, shutdown};

use super::{
    Shard,
    connection::{Connection, Phase},
};
use crate::{
    metrics::{CloseReason, DropReason, RejectReason},
    protocol::{
        FRAME_BYTES, GOING_AWAY, Opcode, Refusal, SLOW_CONSUMER, TOO_BIG, http::Status, put_close, put_control,
    },
    session::Session,
};

/// Time for a client to read what was said last, and to end the stream.
const LINGER: Duration = Duration::from_secs(1);
/// Sessions have this long to get what they are owed when the gateway stops.
const STOP_WITHIN: Duration = Duration::from_millis(3500);
/// Then clients have this long to read it.
const LINGER_AT_STOP: Duration = Duration::from_millis(400);

impl Shard {
    /// Closes a WebSocket for a reason of ours.
    pub(super) fn refuse(&mut self, connection: &mut Connection, refusal: Refusal, now: Instant) {
        self.put(connection, now, |out| put_close(out, refusal.code, refusal.reason));
        let reason = match refusal {
            TOO_BIG => CloseReason::TooBig,
            SLOW_CONSUMER => CloseReason::SlowConsumer,
            GOING_AWAY => CloseReason::Shutdown,
            _ => CloseReason::Protocol,
        };
        self.count_end(connection, reason);
        self.linger(connection, now);
    }

    /// Answers a client's close frame.
    pub(super) fn close_back(&mut self, connection: &mut Connection, code: Option<u16>, now: Instant) {
        self.put(connection, now, |out| match code {
            Some(code) => put_close(out, code, ""),
            None => put_control(out, Opcode::Close, &[]),
        });
        self.count_end(connection, CloseReason::Client);
        self.linger(connection, now);
    }

    /// The other side ended the stream, or the socket failed.
    pub(super) fn ended(&mut self, connection: &mut Connection, reason: CloseReason) {
        self.count_end(connection, reason);
        connection.phase = Phase::Gone;
    }

    /// Nothing more is said: the client gets the end of the stream behind it, and a little time.
    pub(super) fn linger(&mut self, connection: &mut Connection, now: Instant) {
        if matches!(connection.phase, Phase::Gone) {
            return;
        }
        connection.pending = Vec::new();
        connection.phase = Phase::Ending { until: now + LINGER, is_shut: false };
        self.shut_when_sent(connection);
        self.visit_later(connection, now);
    }

    pub(super) fn shut_when_sent(&self, connection: &mut Connection) {
        if let Phase::Ending { is_shut, .. } = &mut connection.phase
            && connection.unsent.is_empty()
            && !*is_shut
        {
            *is_shut = true;
            // It fails only if the other side is gone, and then reading says so.
            let _ = shutdown(&connection.socket, Shutdown::Write);
        }
    }

    /// Books a WebSocket's end, once: afterwards it is none.
    fn count_end(&mut self, connection: &mut Connection, reason: CloseReason) {
        if !matches!(connection.phase, Phase::Open | Phase::Started(_)) {
            return;
        }
        let ending = Phase::Ending { until: connection.visit_at, is_shut: false };
        if let Phase::Started(session) = std::mem::replace(&mut connection.phase, ending) {
            if session.is_in_flight() {
                self.abandoned.push(connection.key);
            }
            self.count_held(session);
        }
        self.counters.closed[reason as usize] += 1;
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// What a session held is dropped, and nobody waits for what is in flight.
    fn count_held(&mut self, session: Session) {
        let counters = &mut self.counters;
        let in_flight = session.requests_in_flight();
        counters.abandoned += in_flight;
        counters.in_flight -= in_flight;
        let frames_in_flight = session.frames_in_flight();
        let waiting = session.into_waiting();
        let frames = waiting.frames() as u64;
        counters.dropped[DropReason::Closed as usize] += frames + frames_in_flight;
        counters.queued -= frames + frames_in_flight;
        counters.buffered_bytes -= frames * FRAME_BYTES as u64;
        self.pool.give(waiting);
    }

    /// Begins to stop as soon as the gateway does.
    pub(super) fn stop_if_told(&mut self) {
        let now = Instant::now();
        match self.stop_by {
            None if self.shared.is_stopping() => {
                self.stop_by = Some(now + STOP_WITHIN);
                self.listener = None;
                for key in self.connections.keys() {
                    self.wind_up_one(key, now);
                }
            }
            Some(stop_by) if now >= stop_by => {
                for key in self.connections.keys() {
                    self.close_one(key, now);
                }
            }
            _ => {}
        }
    }

    /// Whether the gateway stops and nobody is left, or has had enough time.
    pub(super) fn has_ended(&self) -> bool {
        let is_late = |stop_by: Instant| Instant::now() >= stop_by + LINGER_AT_STOP;
        self.stop_by.is_some_and(|stop_by| self.connections.is_empty() || is_late(stop_by))
    }

    fn wind_up_one(&mut self, key: u64, now: Instant) {
        let Some(mut connection) = self.connections.take(key) else { return };
        match connection.phase {
            Phase::Asking { .. } => {
                self.reject(&mut connection, RejectReason::Draining, Status::ServiceUnavailable, now);
            }
            Phase::Open => self.refuse(&mut connection, GOING_AWAY, now),
            // Reading its socket may take long: one after the other, like any visit.
            Phase::Started(_) => {
                connection.visit_at = now;
                self.due.push_back(key);
            }
            Phase::Ending { .. } | Phase::Gone => {}
        }
        self.put_back(connection);
    }

    fn close_one(&mut self, key: u64, now: Instant) {
        let Some(mut connection) = self.connections.take(key) else { return };
        if matches!(connection.phase, Phase::Started(_)) {
            self.refuse(&mut connection, GOING_AWAY, now);
        }
        self.put_back(connection);
    }

    /// A session's last steps: what it holds is sent once more, what is in flight is waited for, and then it is closed.
    pub(super) fn wind_up(&mut self, connection: &mut Connection, now: Instant) {
        if let Phase::Started(session) = &mut connection.phase
            && session.begin_last_flush()
        {
            self.flush(connection, now, None);
        }
        if let Phase::Started(session) = &connection.phase
            && session.is_finished()
        {
            self.refuse(connection, GOING_AWAY, now);
        }
    }
}
