//! From an accepted socket to a session: the HTTP request, the upgrade and the start message.

use std::{
    os::fd::OwnedFd,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use rustix::event::epoll::EventFlags;

use super::{
    Shard,
    connection::{Connection, Phase},
};
use crate::{
    metrics::RejectReason,
    protocol::{
        Assembly,
        http::{self, Request, Status},
    },
    session::{Schedule, Session},
};

/// Time limit for receiving the HTTP request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl Shard {
    /// Registers a new socket and reads from it at once, since the request has often arrived already.
    pub(super) fn register(&mut self, socket: OwnedFd, now: Instant) {
        if self.drain_deadline.is_some() {
            return;
        }
        let mut registered = 0;
        self.connections.insert(|key| {
            registered = key;
            Connection {
                key,
                socket,
                phase: Phase::Handshake { until: now + HANDSHAKE_TIMEOUT },
                pending: Vec::new(),
                assembly: Assembly::default(),
                unsent: Vec::new(),
                progress_at: now,
                interest: EventFlags::empty(),
                visit_at: now,
            }
        });
        if let Some(mut connection) = self.connections.take(registered) {
            self.read(&mut connection, now);
            self.schedule_visit(&mut connection, now);
            self.put_back(connection);
        }
    }

    /// Responds to a request once it is complete. Returns its length in bytes, or 0.
    pub(super) fn handle_request(&mut self, connection: &mut Connection, bytes: &[u8], now: Instant) -> usize {
        match http::parse(bytes) {
            Ok(None) => 0,
            Ok(Some(Request::Health)) => {
                self.write_last(connection, &http::health(), now);
                bytes.len()
            }
            Ok(Some(Request::Upgrade { end, accept })) => {
                match self.admit() {
                    Ok(()) => self.upgrade(connection, &accept, now),
                    Err(reason) => self.reject(connection, reason, Status::ServiceUnavailable, now),
                }
                self.counters.bytes_received += (bytes.len() - end) as u64;
                end
            }
            Err(status) => {
                self.reject(connection, RejectReason::Handshake, status, now);
                bytes.len()
            }
        }
    }

    fn admit(&self) -> Result<(), RejectReason> {
        if self.drain_deadline.is_some() {
            return Err(RejectReason::Draining);
        }
        let limit = self.shared.config.connection_limit();
        let one_more = |open: usize| (open < limit).then_some(open + 1);
        let admitted = self.shared.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        admitted.map(|_| ()).map_err(|_| RejectReason::Full)
    }

    fn upgrade(&mut self, connection: &mut Connection, accept: &[u8; 28], now: Instant) {
        self.counters.accepted += 1;
        connection.phase = Phase::Open;
        let mut response = Vec::with_capacity(160);
        http::put_upgrade(&mut response, accept);
        self.write(connection, &response, now);
    }

    /// Refuses a request with an HTTP status and counts it as rejected.
    pub(super) fn reject(&mut self, connection: &mut Connection, reason: RejectReason, status: Status, now: Instant) {
        self.counters.rejected[reason as usize] += 1;
        self.write_last(connection, &status.response(), now);
    }

    fn write_last(&mut self, connection: &mut Connection, response: &[u8], now: Instant) {
        self.write(connection, response, now);
        self.linger(connection, now);
    }

    /// Starts the session of a connection that has sent the start message.
    pub(super) fn start(&mut self, connection: &mut Connection, now: Instant) {
        let config = &self.shared.config;
        let (interval, visits) = (config.flush_interval(), config.visit_interval());
        let offset = self.random_time(config.flush_phase_jitter());
        let schedule = Schedule::new(now + offset, interval, visits);
        connection.phase = Phase::Started(Session::new(connection.key, schedule));
        self.schedule_visit(connection, now);
    }
}
