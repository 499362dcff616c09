//! Message recovery: the last publications of each topic, for clients that reconnect. They are kept as framed and
//! stamped messages, so that a replay only sends them again.
//!
//! A publication's stamp is its topic, the epoch of the topic's log and its offset in that epoch. Offsets count up by
//! one. An epoch ends when the log is dropped, and the next log has another epoch, so that a client can't mix up the
//! offsets of two logs. A log stays locked from the moment an offset is assigned until the message is queued: offsets
//! reach subscribers in order, and a client that subscribes and recovers misses nothing and gets nothing out of order.

mod foreign;

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use self::foreign::Foreign;
pub(crate) use self::foreign::RemovedLogs;
use crate::lock::lock;

/// What a message costs in addition to its bytes, in bytes.
const ENTRY_BYTES: usize = size_of::<Bytes>() + 32;
/// What a log costs in addition to its messages, in bytes.
const LOG_BYTES: usize = 256;
/// The fewest messages that a log keeps; smaller settings are raised to it.
const MIN_BUFFER: usize = 16;

/// How much history is kept for clients that reconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// Messages kept per topic; at least 16, and rounded up to a power of two.
    pub buffer_size: usize,
    /// How long the log of a topic is kept after it was used last.
    pub ttl: Duration,
    /// The most messages that one recovery replays; a client that missed more gets none of them.
    pub max_messages: usize,
    /// Bytes kept for all topics together; beyond it, the logs that were used least recently are dropped.
    pub memory_budget: usize,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self { buffer_size: 128, ttl: Duration::from_secs(300), max_messages: 500, memory_budget: 256 << 20 }
    }
}

/// A position in a topic's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The epoch of the topic's log.
    pub epoch: u32,
    /// The offset of the last message; -1 before the first.
    pub offset: i64,
}

/// The outcome of a recovery request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The topic's current position.
    pub position: Position,
    /// Whether everything that the client missed is being sent.
    pub recovered: bool,
    /// How many messages are being sent.
    pub count: usize,
}

/// The last publications of one topic.
#[derive(Debug)]
pub(crate) struct Log {
    epoch: u32,
    /// The offset of the oldest message that is kept.
    first: u64,
    /// The messages that are kept, framed and stamped, the oldest first.
    frames: VecDeque<Bytes>,
    /// Bytes that count against the memory budget.
    bytes: usize,
    /// When the log was used last, in milliseconds since the Unix epoch.
    used_millis: u64,
    /// The log was dropped while another thread waited for its lock; that thread must look the log up again.
    is_discarded: bool,
}

impl Log {
    fn new(epoch: u32) -> Self {
        Self { epoch, first: 0, frames: VecDeque::new(), bytes: LOG_BYTES, used_millis: 0, is_discarded: false }
    }

    fn next(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// `text`, a JSON object, with the stamp of the next message inserted behind its opening brace.
    pub(crate) fn stamp(&self, topic: &str, text: &str) -> String {
        let topic = serde_json::Value::from(topic);
        let rest = text.strip_prefix('{').unwrap_or_default();
        let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
        format!(r#"{{"tp":{topic},"e":"{:08x}","o":{}{comma}{rest}"#, self.epoch, self.next())
    }

    /// Adds the message that was stamped, and drops the oldest if the log has `maximum` messages.
    pub(crate) fn push(&mut self, frame: Bytes, maximum: usize) {
        if self.frames.len() >= maximum {
            self.first += 1;
            let oldest = self.frames.pop_front().expect("a log holds at least one message");
            self.bytes -= oldest.len() + ENTRY_BYTES;
        }
        self.bytes += frame.len() + ENTRY_BYTES;
        self.frames.push_back(frame);
    }

    pub(crate) fn position(&self) -> Position {
        Position { epoch: self.epoch, offset: self.next() as i64 - 1 }
    }

    /// The messages after `position`; `None` if it belongs to another epoch, if some of them were dropped, or if there
    /// are more than `maximum`.
    pub(crate) fn after(&self, position: Position, maximum: usize) -> Option<impl ExactSizeIterator<Item = &Bytes>> {
        let expected_offset = u64::try_from(position.offset.checked_add(1)?).ok()?;
        let skipped = usize::try_from(expected_offset.checked_sub(self.first)?).ok()?;
        let missed = self.frames.len().checked_sub(skipped)?;
        (position.epoch == self.epoch && missed <= maximum).then(|| self.frames.range(skipped..))
    }
}

/// The logs of all topics.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) config: RecoveryConfig,
    logs: Mutex<HashMap<Arc<str>, Arc<Mutex<Log>>>>,
    /// The logs of what other instances published.
    foreign: Mutex<Foreign>,
    bytes: AtomicUsize,
    /// How many epochs were given out.
    epochs: AtomicU64,
    random: RandomState,
}

impl Recovery {
    pub(crate) fn new(config: RecoveryConfig) -> Self {
        let buffer_size = config.buffer_size.max(MIN_BUFFER).next_power_of_two();
        Self {
            config: RecoveryConfig { buffer_size, ..config },
            logs: Mutex::default(),
            foreign: Mutex::default(),
            bytes: AtomicUsize::new(0),
            epochs: AtomicU64::new(0),
            random: RandomState::new(),
        }
    }

    /// Runs `work` with a topic's log, which is locked meanwhile. A topic without a log gets a new one.
    pub(crate) fn with<T>(&self, topic: &str, now_millis: u64, work: impl FnOnce(&mut Log) -> T) -> T {
        let mut work = Some(work);
        let mut run_once = |log: &mut Log| work.take().map(|work| work(log));
        loop {
            if let Some(result) = self.work(&self.log(topic), now_millis, &mut run_once) {
                self.enforce_budget(topic);
                return result.expect("it is done once");
            }
        }
    }

    /// Runs `work` with a log; `None` if the log was dropped.
    fn work<T>(&self, log: &Mutex<Log>, now_millis: u64, work: impl FnOnce(&mut Log) -> T) -> Option<T> {
        let mut log = lock(log);
        if log.is_discarded {
            return None;
        }
        let before = log.bytes;
        log.used_millis = now_millis;
        let result = work(&mut log);
        self.charge(before, log.bytes);
        Some(result)
    }

    /// Drops logs other than the topic's if the memory budget is exceeded.
    fn enforce_budget(&self, topic: &str) {
        if self.bytes.load(Ordering::Relaxed) > self.config.memory_budget {
            self.make_room(topic);
        }
    }

    fn log(&self, topic: &str) -> Arc<Mutex<Log>> {
        let mut logs = lock(&self.logs);
        if let Some(log) = logs.get(topic) {
            return Arc::clone(log);
        }
        // A randomly keyed hash of a counter: two logs have the same epoch with a chance of one in 2^32, also across
        // restarts.
        let epoch = self.random.hash_one(self.epochs.fetch_add(1, Ordering::Relaxed)) as u32;
        let log = Arc::new(Mutex::new(Log::new(epoch)));
        self.charge(0, LOG_BYTES);
        logs.insert(topic.into(), Arc::clone(&log));
        log
    }

    fn charge(&self, before: usize, after: usize) {
        self.bytes.fetch_add(after, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Drops the least recently used logs, except the log of `retained`, until a tenth of the budget is free.
    fn make_room(&self, retained: &str) {
        // A locked log is in use.
        let used = |log: &Arc<Mutex<Log>>| log.try_lock().ok().map(|log| log.used_millis);
        let own: Vec<_> = lock(&self.logs).iter().map(|(topic, log)| (used(log), Arc::clone(topic), None)).collect();
        let mut oldest = own;
        for (topic, logs) in &*lock(&self.foreign) {
            oldest.extend(logs.iter().map(|(epoch, retained)| (used(&retained.log), Arc::clone(topic), Some(*epoch))));
        }
        oldest.retain(|(used, topic, epoch)| used.is_some() && (epoch.is_some() || **topic != *retained));
        oldest.sort_unstable();
        for (_, topic, epoch) in oldest {
            if self.bytes.load(Ordering::Relaxed) <= self.config.memory_budget / 10 * 9 {
                break;
            }
            match epoch {
                None => self.discard_log(&mut lock(&self.logs), &topic),
                Some(epoch) => self.discard_foreign(&topic, epoch),
            }
        }
    }

    /// Drops the logs that weren't used for `ttl`.
    pub(crate) fn forget_old(&self, now_millis: u64) {
        let oldest = now_millis.saturating_sub(self.config.ttl.as_millis() as u64);
        let is_old = |log: &Arc<Mutex<Log>>| log.try_lock().is_ok_and(|log| log.used_millis < oldest);
        {
            let mut logs = lock(&self.logs);
            let old: Vec<_> = logs.iter().filter(|(_, log)| is_old(log)).map(|(topic, _)| Arc::clone(topic)).collect();
            for topic in old {
                self.discard_log(&mut logs, &topic);
            }
        }
        self.end(self.take_foreign(|_, _, retained| is_old(&retained.log)));
    }

    fn discard_log(&self, logs: &mut HashMap<Arc<str>, Arc<Mutex<Log>>>, topic: &str) {
        // Without waiting for a thread that works on it: that thread may wait for a subscriber.
        let discarded = logs.get(topic).and_then(|log| {
            let mut log = log.try_lock().ok()?;
            log.is_discarded = true;
            Some(log.bytes)
        });
        if let Some(bytes) = discarded {
            logs.remove(topic);
            self.charge(bytes, 0);
        }
    }

    /// How many logs there are (one per topic and instance that publishes to it), and how many bytes they take.
    pub(crate) fn size(&self) -> (usize, usize) {
        let foreign: usize = lock(&self.foreign).values().map(HashMap::len).sum();
        (lock(&self.logs).len() + foreign, self.bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recovery(buffer_size: usize, memory_budget: usize) -> Recovery {
        Recovery::new(RecoveryConfig { buffer_size, memory_budget, ..RecoveryConfig::default() })
    }

    fn publish(recovery: &Recovery, topic: &str, now_millis: u64, text: &str) {
        recovery.with(topic, now_millis, |log| {
            let frame = log.stamp(topic, text).into_bytes();
            log.push(frame.into(), recovery.config.buffer_size);
        });
    }

    fn after(recovery: &Recovery, topic: &str, offset: i64) -> Option<Vec<String>> {
        recovery.with(topic, 0, |log| {
            let position = Position { offset, ..log.position() };
            let text = |frame: &Bytes| String::from_utf8(frame.to_vec()).unwrap();
            log.after(position, recovery.config.max_messages).map(|frames| frames.map(text).collect())
        })
    }

    #[test]
    fn a_stamp_comes_first_and_leaves_the_rest_as_it_is() {
        let log = Log::new(0xab);
        assert_eq!(log.stamp("a\"b", r#"{"c":"U"}"#), r#"{"tp":"a\"b","e":"000000ab","o":0,"c":"U"}"#);
        assert_eq!(log.stamp("x", "{ }"), r#"{"tp":"x","e":"000000ab","o":0 }"#);
    }

    #[test]
    fn missed_messages_are_replayed_unless_evicted_too_many_or_of_another_epoch() {
        let recovery = recovery(16, 1 << 20);
        assert_eq!(recovery.with("a", 0, |log| log.position().offset), -1);
        assert_eq!(after(&recovery, "a", -1), Some(vec![]));
        (0..20).for_each(|n| publish(&recovery, "a", 0, &format!(r#"{{"n":{n}}}"#)));
        let replayed = after(&recovery, "a", 17).unwrap();
        assert!(replayed[0].ends_with(r#""o":18,"n":18}"#) && replayed[1].ends_with(r#""o":19,"n":19}"#));
        assert_eq!(after(&recovery, "a", 19), Some(vec![]));
        assert_eq!(after(&recovery, "a", 3).unwrap().len(), 16);
        for offset in [2, -1, 20, i64::MAX, i64::MIN] {
            assert_eq!(after(&recovery, "a", offset), None, "{offset}");
        }
        recovery.with("a", 0, |log| {
            let position = log.position();
            assert!(log.after(Position { epoch: !position.epoch, ..position }, 500).is_none());
            assert!(log.after(Position { offset: 10, ..position }, 8).is_none());
        });
    }

    #[test]
    fn a_topic_that_was_forgotten_begins_a_new_epoch() {
        let recovery = recovery(16, 1 << 20);
        publish(&recovery, "a", 0, "{}");
        let old = recovery.with("a", 1000, |log| log.position());
        recovery.forget_old(300_999);
        assert_eq!(recovery.with("a", 301_000, |log| log.position()), old);
        recovery.forget_old(700_000);
        assert_eq!(recovery.size(), (0, 0));
        let new = recovery.with("a", 700_000, |log| log.position());
        assert!(new.epoch != old.epoch && new.offset == -1);
    }

    #[test]
    fn topics_beyond_the_budget_are_evicted_oldest_first() {
        let recovery = recovery(16, 10_000);
        for n in 0..50 {
            publish(&recovery, &format!("topic {n}"), n, r#"{"x":"0123456789"}"#);
            assert!(recovery.size().1 <= 10_000, "{:?}", recovery.size());
        }
        let (topics, bytes) = recovery.size();
        assert!(topics > 10 && bytes > 5000, "{topics} {bytes}");
        let retained = |n: u64| lock(&recovery.logs).contains_key(format!("topic {n}").as_str());
        assert!(retained(49) && !retained(0) && !retained(10));
    }

    #[test]
    fn a_waiter_for_an_abandoned_log_gets_another() {
        let recovery = recovery(16, 1 << 20);
        let stale = recovery.log("a");
        recovery.forget_old(1_000_000);
        assert!(lock(&stale).is_discarded);
        publish(&recovery, "a", 1_000_000, "{}");
        assert_eq!(recovery.size().0, 1);
    }

    proptest! {
        #[test]
        fn the_counted_bytes_are_those_in_the_logs(steps in proptest::collection::vec((0..5_u8, 0..200_usize), 0..200)) {
            let recovery = recovery(16, 8_000);
            for (now, (topic, size)) in steps.into_iter().enumerate() {
                publish(&recovery, &format!("{topic}"), now as u64, &format!(r#"{{"x":"{}"}}"#, "x".repeat(size)));
                let held: usize = lock(&recovery.logs).values().map(|log| {
                    let log = lock(log);
                    log.frames.iter().map(|frame| frame.len() + ENTRY_BYTES).sum::<usize>() + LOG_BYTES
                }).sum();
                prop_assert_eq!(recovery.size().1, held);
            }
        }
    }
}
