//! Visits, flush ticks, and the handling of responses from the inference.

use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::{
    Shard,
    connection::{Connection, Phase},
};
use crate::{
    inference::FinishedRequest,
    metrics::{DropReason, RejectReason, TickOutcome},
    protocol::{
        FRAME_BYTES,
        http::Status,
        messages::{EchoedSettings, put_error, put_partial},
        put_text,
    },
    session::{Tick, milliseconds},
};

/// Longest delay of a wheel entry; slightly less than the wheel's range.
const MAX_DELAY: Duration = Duration::from_secs(2);

impl Shard {
    /// Handles an event of epoll.
    pub(super) fn handle_readiness(&mut self, key: u64, flags: EventFlags, now: Instant) {
        let Some(mut connection) = self.connections.take(key) else { return };
        if flags.contains(EventFlags::OUT) {
            self.write_unsent(&mut connection, now);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read(&mut connection, now);
        }
        self.put_back(connection);
    }

    /// Handles a connection that is due. Entries older than `visit_at` are ignored.
    pub(super) fn visit(&mut self, key: u64, now: Instant) {
        let Some(mut connection) = self.connections.take(key) else { return };
        if connection.visit_at <= now {
            match connection.phase {
                Phase::Handshake { until } if until <= now => {
                    self.reject(&mut connection, RejectReason::Timeout, Status::RequestTimeout, now);
                }
                Phase::Ending { until, .. } if until <= now => connection.phase = Phase::Removed,
                Phase::Started(_) => self.visit_session(&mut connection, now),
                Phase::Open => self.close_if_stalled(&mut connection, now),
                _ => {}
            }
            if connection.visit_at <= now {
                self.schedule_visit(&mut connection, now);
            }
        }
        self.put_back(connection);
    }

    fn visit_session(&mut self, connection: &mut Connection, now: Instant) {
        self.counters.visits += 1;
        self.read(connection, now);
        if self.drain_deadline.is_some() {
            return self.continue_drain(connection, now);
        }
        if let Phase::Started(session) = &mut connection.phase
            && let Some(lateness) = session.schedule.take_due(now)
        {
            self.flush(connection, now, Some(lateness));
        }
        if let Phase::Started(_) = connection.phase {
            self.close_if_stalled(connection, now);
        }
    }

    /// Reports an overflow and sends the waiting audio. `lateness` is that of the tick; the last flush has none and is
    /// not counted as a tick.
    pub(super) fn flush(&mut self, connection: &mut Connection, now: Instant, lateness: Option<Duration>) {
        let Phase::Started(session) = &mut connection.phase else { return };
        let since_due = lateness.unwrap_or_default();
        let overflow = session.take_overflow(now, since_due);
        let outcome = match session.tick(now, since_due) {
            Tick::Skipped => TickOutcome::Skipped,
            Tick::Empty => TickOutcome::Empty,
            Tick::Flushed(request) => {
                let counters = &mut self.counters;
                counters.requests += 1;
                counters.in_flight += 1;
                let requests_in_flight = session.requests_in_flight();
                counters.max_in_flight_per_connection = counters.max_in_flight_per_connection.max(requests_in_flight);
                self.requests.push(request);
                TickOutcome::Flushed
            }
        };
        if let Some(lateness) = lateness {
            self.counters.tick(outcome, lateness);
        }
        if let Some((span, failure, context)) = overflow {
            self.counters.sent += 1;
            self.send(connection, now, |out| put_text(out, |out| put_error(out, span, &failure, &context)));
        }
    }

    /// Handles a request that has returned: counts it, and sends the partial or the error if the client is still
    /// connected.
    pub(super) fn handle_response(&mut self, response: FinishedRequest) {
        let FinishedRequest { request, outcome } = response;
        let span = request.batch.span();
        self.counters.buffered_bytes -= span.frames * FRAME_BYTES as u64;
        let Some(mut connection) = self.connections.take(request.ticket.connection) else {
            return self.pool.put(request.batch);
        };
        let now = Instant::now();
        if let Phase::Started(session) = &mut connection.phase {
            self.counters.in_flight -= 1;
            self.counters.queued -= span.frames;
            self.counters.sent += 1;
            match outcome {
                Ok(recognition) => {
                    self.counters.answered += 1;
                    self.counters.delivered += span.frames;
                    session.request_returned(request.ticket);
                    let config = &self.shared.config;
                    let echo =
                        EchoedSettings { cpu_passes: config.cpu_passes.get(), model_delay_ms: config.model_delay_ms };
                    let lateness = milliseconds(request.lateness);
                    self.send(&mut connection, now, |out| {
                        put_text(out, |out| put_partial(out, span, &recognition, echo, lateness));
                    });
                }
                Err(failure) => {
                    let reason = DropReason::from(failure.kind) as usize;
                    self.counters.failed[reason] += 1;
                    self.counters.dropped[reason] += span.frames;
                    let context = request.context(now, session.waiting_frames());
                    session.request_returned(request.ticket);
                    self.send(&mut connection, now, |out| {
                        put_text(out, |out| put_error(out, span, &failure, &context));
                    });
                }
            }
            if self.drain_deadline.is_some() {
                self.read(&mut connection, now);
                self.continue_drain(&mut connection, now);
            }
        }
        self.pool.put(request.batch);
        self.put_back(connection);
    }

    /// Schedules the next visit that the connection's phase requires.
    pub(super) fn schedule_visit(&mut self, connection: &mut Connection, now: Instant) {
        let latest = now + MAX_DELAY;
        let due = match &connection.phase {
            Phase::Handshake { until } | Phase::Ending { until, .. } => *until,
            Phase::Started(session) => session.schedule.next_visit(now),
            Phase::Open => latest,
            Phase::Removed => return,
        };
        // The wheel may take the entry earlier, and an entry before `visit_at` would be ignored as an older one.
        connection.visit_at = self.wheel.insert(connection.key, due.min(latest));
    }

    /// Puts a connection back after it was handled, or removes it if it is `Removed`.
    pub(super) fn put_back(&mut self, mut connection: Box<Connection>) {
        if let Phase::Removed = connection.phase {
            return self.connections.free(connection.key);
        }
        self.update_interest(&mut connection);
        self.connections.put_back(connection);
    }
}
