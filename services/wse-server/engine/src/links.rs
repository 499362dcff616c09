//! Other instances of the service: what carries publications to them, and learns what is wanted here.
//!
//! A publication is made once and stays what it is wherever it goes: its text, completed with its category, and its stamp if
//! this instance keeps a past. Whatever carries it numbers, compresses or retries by itself; it never makes a publisher wait.
//! What waits in it counts as backlog of publications, and that is what publishers wait for, if they do.

pub(crate) mod last;
pub(crate) mod pauses;
mod stats;

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

pub use self::stats::{ClusterStats, LinkStats, RedisStats};
use crate::{presence_change::Change, recovery::Position};

/// A message for a topic's subscribers, as they get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publication<'a> {
    /// With its category, and with its stamp in front if it has one.
    pub(crate) text: Cow<'a, str>,
    /// Its place in the log of the instance that it was published at.
    pub(crate) stamp: Option<Position>,
}

/// A way to other instances.
pub(crate) trait Carrier: Send + Sync {
    /// Takes publications for everybody elsewhere who wants them; those of one topic come in their order. Never waits.
    fn publish(&self, topic: &str, publications: &[Publication<'_>]);

    /// From now on somebody here wants what is published to `topic`, a name or a pattern; or nobody does any more. Called
    /// with the topics locked, so in order; perhaps again with what it was told before. Never waits.
    fn want(&self, topic: &str, wanted: bool);

    /// How many other instances want what is published to `topic`, as far as is known. May wait for an answer.
    fn audience(&self, topic: &str) -> usize;

    /// Tells other instances who came here and who went, if it carries that. Called with presence locked, so in order. Never
    /// waits.
    fn tell_change(&self, _change: &Change) {}
}

/// All ways to other instances.
#[derive(Default)]
pub(crate) struct Links {
    carriers: RwLock<Vec<Arc<dyn Carrier>>>,
    /// Whether there are any: all that a lonely instance looks at.
    are_there: AtomicBool,
}

impl fmt::Debug for Links {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Links").field("are_there", &self.are_there).finish_non_exhaustive()
    }
}

impl Links {
    /// From now on `carrier` gets what is published and wanted. What was wanted before it has to ask for.
    pub(crate) fn add(&self, carrier: Arc<dyn Carrier>) {
        self.carriers.write().unwrap_or_else(PoisonError::into_inner).push(carrier);
        self.are_there.store(true, Ordering::Release);
    }

    /// Whether publications go anywhere else at all.
    pub(crate) fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Acquire)
    }

    pub(crate) fn publish(&self, topic: &str, publications: &[Publication<'_>]) {
        self.each(|carrier| carrier.publish(topic, publications));
    }

    pub(crate) fn want(&self, topic: &str, wanted: bool) {
        self.each(|carrier| carrier.want(topic, wanted));
    }

    pub(crate) fn audience(&self, topic: &str) -> usize {
        if !self.are_there() {
            return 0;
        }
        // Without the lock: an answer may take its time.
        let carriers = self.carriers.read().unwrap_or_else(PoisonError::into_inner).clone();
        carriers.iter().map(|carrier| carrier.audience(topic)).sum()
    }

    pub(crate) fn tell_change(&self, change: &Change) {
        self.each(|carrier| carrier.tell_change(change));
    }

    fn each(&self, work: impl Fn(&dyn Carrier)) {
        if self.are_there() {
            self.carriers.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|carrier| work(&**carrier));
        }
    }
}
