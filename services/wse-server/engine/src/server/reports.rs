//! What the server tells of itself: counters, metrics, and the books of its connections.

use std::{
    sync::{PoisonError, atomic::Ordering, mpsc},
    time::Instant,
};

use service_contract::{ConnectionBooks, ServiceStats};

use super::{BOOKS_TIMEOUT, SHOWN_TOPICS, SURVEY_TIMEOUT, Server, Shared};
use crate::{
    outbound::Command,
    quality::{Grades, Quality},
    stats::{self, Book, DropReason, Fanout, HealthSnapshot, SendDropReason, Totals},
};

impl Shared {
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::of(&self.inbound.readings());
        totals.counters.malformed += self.malformed_when_touched.load(Ordering::Relaxed);
        let lost = &mut totals.counters.send_dropped;
        lost[SendDropReason::Duplicate as usize] += self.recipients.duplicates();
        lost[SendDropReason::RateLimited as usize] += self.recipients.limited();
        lost[SendDropReason::Unencrypted as usize] += self.recipients.unsealed();
        totals
    }

    pub(crate) fn uptime_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// `/stats`.
    pub(crate) fn stats(&self) -> ServiceStats {
        self.stats_and_totals().0
    }

    pub(super) fn stats_and_totals(&self) -> (ServiceStats, Totals) {
        let totals = self.totals();
        let mut stats = totals.service_stats(&self.config.service_name, self.uptime_seconds());
        stats.application = self.application().and_then(|source| source.totals());
        (stats, totals)
    }

    /// `/metrics`.
    pub(crate) fn prometheus_text(&self) -> String {
        let (stats, totals) = self.stats_and_totals();
        let (topics, busiest) = self.topics.busiest(SHOWN_TOPICS);
        let (recovery, presence) = (self.recovery_size(), self.presence_size());
        let (backlog, links) = (self.publications.bytes(), self.link_stats());
        let fanout = Fanout { backlog, topics, busiest, recovery, presence, links };
        stats::prometheus(&stats, &totals, &fanout)
    }

    /// How many connections are how good. Those of a shard that doesn't answer in time are left out.
    pub(super) fn grades(&self) -> Grades {
        let (reply, replies) = mpsc::sync_channel(self.mailboxes.len());
        let asked = self.mailboxes.iter().filter(|mailbox| mailbox.put_now(Command::Survey(reply.clone()))).count();
        drop(reply);
        let (mut grades, deadline) = (Grades::default(), Instant::now() + SURVEY_TIMEOUT);
        for _ in 0..asked {
            match replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(told) => grades.add(told),
                Err(_) => break,
            }
        }
        grades
    }

    /// `/stats/connections`: each shard is asked; closed connections are told once.
    pub(crate) fn connection_books(&self) -> ConnectionBooks {
        let mut books = std::mem::take(&mut *self.last_books.lock().unwrap_or_else(PoisonError::into_inner));
        let (reply, replies) = mpsc::sync_channel(self.mailboxes.len());
        let asked = self.mailboxes.iter().filter(|mailbox| mailbox.put(Command::Books(reply.clone()))).count();
        drop(reply);
        for _ in 0..asked {
            match replies.recv_timeout(BOOKS_TIMEOUT) {
                Ok(told) => books.extend(told),
                Err(_) => break,
            }
        }
        let mut counted = self.application().map(|source| source.connections()).unwrap_or_default();
        let with_application = |book: &Book| {
            let mut told = book.told();
            told.application = counted.remove(&told.id);
            told
        };
        ConnectionBooks { connections: books.iter().map(with_application).collect() }
    }
}

impl Server {
    /// How good a connection is; nothing if it is unknown.
    pub fn connection_quality(&self, connection: &str) -> Option<Quality> {
        let key = self.shared.registry.key(connection)?;
        let (reply, replied) = mpsc::sync_channel(1);
        self.shared.mailboxes[key.shard()].put_now(Command::Quality(key, reply));
        replied.recv_timeout(BOOKS_TIMEOUT).ok().flatten()
    }

    /// How the server is, in the names of the reference, and more.
    pub fn health_snapshot(&self) -> HealthSnapshot {
        let (stats, totals) = self.shared.stats_and_totals();
        let (recovery, presence) = (self.shared.recovery_size(), self.shared.presence_size());
        HealthSnapshot {
            connections: stats.connections.open,
            inbound_queue_depth: totals.depth as u64,
            inbound_dropped: totals.counters.dropped[DropReason::InboundOverflow as usize],
            uptime_secs: stats.uptime_seconds,
            cluster: self.shared.cluster_health(),
            redis: self.shared.redis_health(),
            connection_quality: self.shared.grades(),
            recovery_enabled: self.shared.recovery.is_some(),
            recovery_topic_count: recovery.0,
            recovery_total_bytes: recovery.1,
            presence_enabled: self.shared.presence.is_some(),
            presence_topics: presence.0,
            presence_total_users: presence.1,
        }
    }
}
