//! Logs of what other instances published, for clients that reconnect to this one: by topic and epoch, stamped as on
//! the instance that published it.
//!
//! A log is continued only while nothing is missing: after a gap in the offsets it starts again, and it is forgotten
//! when something may be missing. So a client never gets a report that it received everything when it did not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;

use super::{LOG_BYTES, Log, Recovery};
use crate::lock::lock;

/// A log, and the instance that published what is in it.
#[derive(Debug)]
pub(super) struct ForeignLog {
    pub(super) origin: Arc<str>,
    pub(super) log: Arc<Mutex<Log>>,
}

/// Logs by topic and epoch.
pub(super) type Foreign = HashMap<Arc<str>, HashMap<u32, ForeignLog>>;

/// Logs that can't be looked up any more but that other threads may still work on. [`Recovery::end`] marks them as
/// dropped.
#[must_use]
pub(crate) struct RemovedLogs(Vec<Arc<Mutex<Log>>>);

impl Log {
    /// Adds a message that another instance stamped. After a gap the log starts again with it.
    pub(crate) fn follow(&mut self, offset: i64, frame: Bytes, maximum: usize) {
        let offset = offset.max(0) as u64;
        if self.next() != offset {
            (self.first, self.bytes) = (offset, LOG_BYTES);
            self.frames.clear();
        }
        self.push(frame, maximum);
    }
}

impl Recovery {
    /// Runs `work` with the log of what `origin` published to a topic in this epoch. A new log is made if there is
    /// none.
    pub(crate) fn store(
        &self,
        origin: &Arc<str>,
        topic: &str,
        epoch: u32,
        now_millis: u64,
        mut work: impl FnMut(&mut Log),
    ) {
        while self.work(&self.foreign_log(origin, topic, epoch), now_millis, &mut work).is_none() {}
        self.enforce_budget(topic);
    }

    /// Runs `work` with such a log; `None` if there is none.
    pub(crate) fn with_foreign<T>(
        &self,
        topic: &str,
        epoch: u32,
        now_millis: u64,
        work: impl FnOnce(&mut Log) -> T,
    ) -> Option<T> {
        let log = lock(&self.foreign).get(topic)?.get(&epoch).map(|stored| Arc::clone(&stored.log))?;
        self.work(&log, now_millis, work)
    }

    fn foreign_log(&self, origin: &Arc<str>, topic: &str, epoch: u32) -> Arc<Mutex<Log>> {
        let mut foreign = lock(&self.foreign);
        if let Some(stored) = foreign.get(topic).and_then(|logs| logs.get(&epoch)) {
            return Arc::clone(&stored.log);
        }
        let log = Arc::new(Mutex::new(Log::new(epoch)));
        self.charge(0, LOG_BYTES);
        let stored = ForeignLog { origin: Arc::clone(origin), log: Arc::clone(&log) };
        match foreign.get_mut(topic) {
            Some(logs) => drop(logs.insert(epoch, stored)),
            None => drop(foreign.insert(topic.into(), HashMap::from([(epoch, stored)]))),
        }
        log
    }

    /// How long to stay subscribed to a topic that no client of this instance needs any more, so that clients that
    /// reconnect don't miss what is published meanwhile. `None` if no log of other instances has this topic.
    pub(crate) fn lingers(&self, topic: &str) -> Option<Duration> {
        lock(&self.foreign).contains_key(topic).then_some(self.config.ttl)
    }

    /// Drops all logs of `origin`. Waits for threads that work on them.
    pub(crate) fn forget_origin(&self, origin: &str) {
        self.end(self.take_foreign(|_, _, stored| *stored.origin == *origin));
    }

    /// Forgets the logs of other instances for a topic, without waiting for threads that work on them: pass the return
    /// value to [`Recovery::end`] for the rest.
    pub(crate) fn take_topic(&self, topic: &str) -> RemovedLogs {
        self.take_foreign(|other, _, _| other == topic)
    }

    pub(super) fn discard_foreign(&self, topic: &str, epoch: u32) {
        self.end(self.take_foreign(|other, theirs, _| other == topic && theirs == epoch));
    }

    pub(super) fn take_foreign(&self, is_discarded: impl Fn(&str, u32, &ForeignLog) -> bool) -> RemovedLogs {
        let mut discarded = Vec::new();
        lock(&self.foreign).retain(|topic, logs| {
            discarded.extend(
                logs.extract_if(|epoch, stored| is_discarded(topic, *epoch, stored)).map(|(_, stored)| stored.log),
            );
            !logs.is_empty()
        });
        RemovedLogs(discarded)
    }

    /// Marks logs as dropped, and waits for threads that work on them.
    pub(crate) fn end(&self, logs: RemovedLogs) {
        for log in logs.0 {
            let mut log = lock(&log);
            log.is_discarded = true;
            self.charge(log.bytes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Position, RecoveryConfig};
    use super::*;

    fn recovery() -> Recovery {
        Recovery::new(RecoveryConfig { buffer_size: 16, ..RecoveryConfig::default() })
    }

    fn store(recovery: &Recovery, origin: &str, epoch: u32, offset: i64) {
        let frame = Bytes::from(offset.to_string());
        recovery.store(&origin.into(), "a", epoch, 0, |log| log.follow(offset, frame.clone(), 16));
    }

    fn after(recovery: &Recovery, epoch: u32, offset: i64) -> Option<usize> {
        recovery
            .with_foreign("a", epoch, 0, |log| log.after(Position { epoch, offset }, 100).map(|missed| missed.len()))?
    }

    #[test]
    fn foreign_publications_are_replayed_from_the_first_received_one() {
        let recovery = recovery();
        (5..8).for_each(|offset| store(&recovery, "o", 7, offset));
        assert_eq!(
            (after(&recovery, 7, 4), after(&recovery, 7, 6), after(&recovery, 7, 7)),
            (Some(3), Some(1), Some(0))
        );
        assert_eq!((after(&recovery, 7, 3), after(&recovery, 7, 8), after(&recovery, 8, 6)), (None, None, None));
        assert!(recovery.lingers("a").is_some() && recovery.lingers("b").is_none());
    }

    #[test]
    fn a_gap_or_a_smaller_offset_starts_a_new_log() {
        let recovery = recovery();
        store(&recovery, "o", 7, 5);
        store(&recovery, "o", 7, 7);
        assert_eq!((after(&recovery, 7, 5), after(&recovery, 7, 6)), (None, Some(1)));
        store(&recovery, "o", 7, 7);
        assert_eq!(after(&recovery, 7, 6), Some(1));
        store(&recovery, "o", 7, i64::MIN);
        assert_eq!(after(&recovery, 7, -1), Some(1));
    }

    #[test]
    fn removing_an_origin_or_a_topic_releases_its_bytes() {
        let recovery = recovery();
        store(&recovery, "o", 7, 5);
        store(&recovery, "p", 8, 5);
        recovery.forget_origin("o");
        assert_eq!((after(&recovery, 7, 4), after(&recovery, 8, 4)), (None, Some(1)));
        recovery.end(recovery.take_topic("a"));
        assert_eq!((after(&recovery, 8, 4), recovery.size()), (None, (0, 0)));
    }

    #[test]
    fn foreign_logs_have_the_same_budget_and_time_to_live() {
        let recovery =
            Recovery::new(RecoveryConfig { buffer_size: 16, memory_budget: 10_000, ..RecoveryConfig::default() });
        for epoch in 0..100 {
            recovery
                .store(&"o".into(), "a", epoch, u64::from(epoch), |log| log.follow(0, Bytes::from_static(b"x"), 16));
            assert!(recovery.size().1 <= 10_000);
        }
        assert!(recovery.size().0 > 10 && after(&recovery, 0, -1).is_none());
        recovery.forget_old(1_000_000);
        assert_eq!(recovery.size(), (0, 0));
    }
}
