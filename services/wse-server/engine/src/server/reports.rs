//! The server's reports: counters, metrics, and the books of its connections.

use std::{
    sync::{PoisonError, atomic::Ordering, mpsc},
    time::Instant,
};

use service_contract::{ConnectionBooks, ServiceStats};

use super::{BOOKS_TIMEOUT, Instance, LISTED_TOPICS, SURVEY_TIMEOUT, Server};
use crate::{
    http::Pages,
    links::LinkStats,
    outbound::Command,
    quality::{Grades, Quality},
    stats::{self, Book, DropReason, Fanout, HealthSnapshot, SendDropReason, Totals},
};

impl Instance {
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::of(&self.hub.inbound.readings());
        totals.counters.malformed += self.malformed_when_parsed.load(Ordering::Relaxed);
        let lost = &mut totals.counters.send_dropped;
        lost[SendDropReason::Duplicate as usize] += self.hub.recipients.duplicates();
        lost[SendDropReason::RateLimited as usize] += self.hub.recipients.limited();
        lost[SendDropReason::Unencrypted as usize] += self.hub.recipients.unencrypted();
        totals
    }

    pub(super) fn stats_and_totals(&self) -> (ServiceStats, Totals) {
        let totals = self.totals();
        let mut stats = totals.service_stats(&self.hub.config.service_name, self.hub.uptime_seconds());
        stats.application = self.application().and_then(|source| source.totals());
        (stats, totals)
    }

    /// How many connections have each grade, without the shards that don't reply in time.
    pub(super) fn grades(&self) -> Grades {
        let (reply, replies) = mpsc::sync_channel(self.hub.mailboxes.len());
        let requests =
            self.hub.mailboxes.iter().filter(|mailbox| mailbox.put_now(Command::Survey(reply.clone()))).count();
        drop(reply);
        let (mut grades, deadline) = (Grades::default(), Instant::now() + SURVEY_TIMEOUT);
        for _ in 0..requests {
            match replies.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(reported) => grades.add(reported),
                Err(_) => break,
            }
        }
        grades
    }
}

impl Pages for Instance {
    fn unready(&self) -> Option<String> {
        self.hub.unready()
    }

    fn metrics(&self) -> String {
        let (stats, totals) = self.stats_and_totals();
        let (topics, busiest) = self.hub.topics.busiest(LISTED_TOPICS);
        let (recovery, presence) = (self.hub.recovery_size(), self.hub.presence_size());
        let (backlog, links) = (self.hub.publications.bytes(), self.links());
        let fanout = Fanout { backlog, topics, busiest, recovery, presence, links };
        stats::prometheus(&stats, &totals, &fanout)
    }

    fn stats(&self) -> ServiceStats {
        self.stats_and_totals().0
    }

    /// Asks each shard. The books of a closed connection are returned once.
    fn connections(&self) -> ConnectionBooks {
        let mut books = std::mem::take(&mut *self.hub.last_books.lock().unwrap_or_else(PoisonError::into_inner));
        let (reply, replies) = mpsc::sync_channel(self.hub.mailboxes.len());
        let requests = self.hub.mailboxes.iter().filter(|mailbox| mailbox.put(Command::Books(reply.clone()))).count();
        drop(reply);
        for _ in 0..requests {
            match replies.recv_timeout(BOOKS_TIMEOUT) {
                Ok(reported) => books.extend(reported),
                Err(_) => break,
            }
        }
        let mut counted = self.application().map(|source| source.connections()).unwrap_or_default();
        let with_application = |book: &Book| {
            let mut reported = book.snapshot();
            reported.application = counted.remove(&reported.id);
            reported
        };
        ConnectionBooks { connections: books.iter().map(with_application).collect() }
    }

    fn links(&self) -> LinkStats {
        LinkStats { cluster: self.cluster.get().map(|mesh| mesh.stats()), redis: self.redis_stats() }
    }
}

impl Server {
    /// The quality of a connection; `None` if it is unknown, not open, or its shard doesn't reply in time.
    pub fn connection_quality(&self, connection: &str) -> Option<Quality> {
        let key = self.shared.registry.key(connection)?;
        let (reply, replied) = mpsc::sync_channel(1);
        self.shared.mailboxes[key.shard()].put_now(Command::Quality(key, reply));
        replied.recv_timeout(BOOKS_TIMEOUT).ok().flatten()
    }

    /// The server's health under the field names of the reference, with some additions.
    pub fn health_snapshot(&self) -> HealthSnapshot {
        let (stats, totals) = self.instance.stats_and_totals();
        let (recovery, presence) = (self.shared.recovery_size(), self.shared.presence_size());
        HealthSnapshot {
            connections: stats.connections.open,
            inbound_queue_depth: totals.depth as u64,
            inbound_dropped: totals.counters.dropped[DropReason::InboundOverflow as usize],
            uptime_secs: stats.uptime_seconds,
            cluster: self.instance.cluster_health(),
            redis: self.instance.redis_health(),
            connection_quality: self.instance.grades(),
            recovery_enabled: self.shared.recovery.is_some(),
            recovery_topic_count: recovery.0,
            recovery_total_bytes: recovery.1,
            presence_enabled: self.shared.presence.is_some(),
            presence_topics: presence.0,
            presence_total_users: presence.1,
        }
    }
}
