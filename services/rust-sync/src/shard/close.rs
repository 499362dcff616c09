//! How connections end: each exactly once and with a reason, so that the books stay complete.

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

/// Time for a client to read the last bytes and to close the connection.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit for the last batch of all sessions when the gateway stops.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(3500);
/// Time for clients to read the last bytes after that.
const LINGER_AFTER_DRAIN: Duration = Duration::from_millis(400);

impl Shard {
    /// Closes a WebSocket from the gateway's side, with a Close frame.
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

    /// Replies to a client's Close frame with the same code.
    pub(super) fn reply_to_close(&mut self, connection: &mut Connection, code: Option<u16>, now: Instant) {
        self.put(connection, now, |out| match code {
            Some(code) => put_close(out, code, ""),
            None => put_control(out, Opcode::Close, &[]),
        });
        self.count_end(connection, CloseReason::Client);
        self.linger(connection, now);
    }

    /// Handles the end of the stream or a failure of the socket.
    pub(super) fn end(&mut self, connection: &mut Connection, reason: CloseReason) {
        self.count_end(connection, reason);
        connection.phase = Phase::Removed;
    }

    /// Ends the sending side after the last bytes, and gives the client some time to close.
    pub(super) fn linger(&mut self, connection: &mut Connection, now: Instant) {
        if matches!(connection.phase, Phase::Removed) {
            return;
        }
        connection.pending = Vec::new();
        connection.phase = Phase::Ending { until: now + LINGER, is_shut_down: false };
        self.shut_down_when_sent(connection);
        self.schedule_visit(connection, now);
    }

    pub(super) fn shut_down_when_sent(&self, connection: &mut Connection) {
        if let Phase::Ending { is_shut_down, .. } = &mut connection.phase
            && connection.unsent.is_empty()
            && !*is_shut_down
        {
            *is_shut_down = true;
            // Fails only if the peer is disconnected, which reading detects as well.
            let _ = shutdown(&connection.socket, Shutdown::Write);
        }
    }

    /// Counts the end of a WebSocket. A second call has no effect.
    fn count_end(&mut self, connection: &mut Connection, reason: CloseReason) {
        if !matches!(connection.phase, Phase::Open | Phase::Started(_)) {
            return;
        }
        let ending = Phase::Ending { until: connection.visit_at, is_shut_down: false };
        if let Phase::Started(session) = std::mem::replace(&mut connection.phase, ending) {
            if session.is_in_flight() {
                self.abandoned.push(connection.key);
            }
            self.drop_held_audio(session);
        }
        self.counters.closed[reason as usize] += 1;
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts the audio that a session held as dropped, and its request in flight as abandoned.
    fn drop_held_audio(&mut self, session: Session) {
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
        self.pool.put(waiting);
    }

    /// Starts the thread's stop once the gateway is stopping.
    pub(super) fn stop_if_requested(&mut self) {
        let now = Instant::now();
        match self.drain_deadline {
            None if self.shared.is_stopping() => {
                self.drain_deadline = Some(now + DRAIN_TIMEOUT);
                self.listener = None;
                for key in self.connections.keys() {
                    self.begin_drain(key, now);
                }
            }
            Some(drain_deadline) if now >= drain_deadline => {
                for key in self.connections.keys() {
                    self.close_one(key, now);
                }
            }
            _ => {}
        }
    }

    /// Whether the gateway is stopping and no connection is left, or the time limit has passed.
    pub(super) fn is_finished(&self) -> bool {
        let is_late = |drain_deadline: Instant| Instant::now() >= drain_deadline + LINGER_AFTER_DRAIN;
        self.drain_deadline.is_some_and(|drain_deadline| self.connections.is_empty() || is_late(drain_deadline))
    }

    fn begin_drain(&mut self, key: u64, now: Instant) {
        let Some(mut connection) = self.connections.take(key) else { return };
        match connection.phase {
            Phase::Handshake { .. } => {
                self.reject(&mut connection, RejectReason::Draining, Status::ServiceUnavailable, now);
            }
            Phase::Open => self.refuse(&mut connection, GOING_AWAY, now),
            // Reading many sockets takes long, so these visits are spread over rounds like any others.
            Phase::Started(_) => {
                connection.visit_at = now;
                self.due.push_back(key);
            }
            Phase::Ending { .. } | Phase::Removed => {}
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

    /// Advances the drain of a session: waits for the request in flight, sends the remaining audio as a last request,
    /// waits for that, and closes.
    pub(super) fn continue_drain(&mut self, connection: &mut Connection, now: Instant) {
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
