//! The server's reports: counters, metrics, and the books of its connections.

use std::{
    collections::HashMap,
    sync::{PoisonError, atomic::Ordering, mpsc},
    time::Instant,
};

use service_contract::{ConnectionBooks, ServiceStats};

use super::{BOOKS_TIMEOUT, Instance, LISTED_TOPICS, SURVEY_TIMEOUT, Server};
use crate::{
    http::Pages,
    links::LinkStats,
    outbound::{Command, Mailbox},
    quality::{Grades, Quality},
    stats::{self, Book, Cursor, CursorError, DropReason, Fanout, HealthSnapshot, SendDropReason, Totals},
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

    fn broken(&self) -> Option<String> {
        self.hub.failures.shard().map(str::to_owned)
    }

    fn port_lost(&self, reason: &str) {
        tracing::error!(reason, "the metrics port has ended: restart the server to have it again");
        self.hub.failures.lose_metrics(reason);
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

    /// Asks each shard. A connection that closes meanwhile is in this reading and again in the next one, which begins at
    /// this one's cursor: no book is missed.
    fn connections(&self, since: Option<Cursor>) -> ConnectionBooks {
        let cursor = self.hub.cursor();
        // A cursor of another server, such as this one before a restart, says nothing about this one.
        let since = since.filter(|since| since.started_millis == cursor.started_millis).map_or(0, |since| since.next);
        let (reply, replies) = mpsc::sync_channel(self.hub.mailboxes.len());
        let ask = |mailbox: &&Mailbox| mailbox.put(Command::Books(since, reply.clone()));
        let requests = self.hub.mailboxes.iter().filter(ask).count();
        drop(reply);
        let mut books = Vec::new();
        for _ in 0..requests {
            match replies.recv_timeout(BOOKS_TIMEOUT) {
                Ok(reported) => books.extend(reported),
                Err(_) => break,
            }
        }
        // Looked at last: a shard that ended instead of replying has left its books here before. One that ended after its
        // reply is in both; what it left is newer.
        let left = self.hub.last_books.lock().unwrap_or_else(PoisonError::into_inner);
        let left: HashMap<_, _> = left.iter().flat_map(|left| left.since(since)).map(|book| (book.id, book)).collect();
        if !left.is_empty() {
            books.retain(|book| !left.contains_key(&book.id));
            books.extend(left.into_values());
        }
        let mut counted = self.application().map(|source| source.connections()).unwrap_or_default();
        let with_application = |book: &Book| {
            let mut reported = book.snapshot();
            reported.application = counted.remove(&reported.id);
            reported
        };
        ConnectionBooks { connections: books.iter().map(with_application).collect(), cursor: Some(cursor.to_string()) }
    }

    fn links(&self) -> LinkStats {
        LinkStats { cluster: self.cluster.get().map(|mesh| mesh.stats()), redis: self.redis_stats() }
    }
}

impl Server {
    /// The books of each connection: of the open ones, and of the newest 65 536 closed ones of each shard. Reading
    /// changes nothing.
    pub fn connection_books(&self) -> ConnectionBooks {
        self.instance.connections(None)
    }

    /// The books of the open connections, and of those that have closed since the reading that returned this cursor. A
    /// connection that closed during that reading may be in both.
    ///
    /// # Errors
    /// Returns a [`CursorError`] if the text is not a cursor.
    pub fn connection_books_since(&self, cursor: &str) -> Result<ConnectionBooks, CursorError> {
        Ok(self.instance.connections(Some(cursor.parse()?)))
    }

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
