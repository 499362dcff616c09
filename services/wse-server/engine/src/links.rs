//! Links to other instances of the service: what carries publications to them and is notified of subscriptions here.
//!
//! A publication is built once and not changed afterwards: its text, completed with its category, and its stamp if this
//! instance keeps publications for recovery. A carrier numbers, compresses or retries by itself and never makes a
//! publisher wait. What waits in a carrier counts as backlog of publications; publishers wait for that backlog, if they
//! are configured to wait.

pub(crate) mod backoff;
pub(crate) mod recent_items;
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
use crate::{presence_change::PresenceChange, recovery::Position};

/// A message for a topic's subscribers, as they receive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publication<'a> {
    /// The text with its category, and with its stamp in front if it has one.
    pub(crate) text: Cow<'a, str>,
    /// Its position in the log of the instance at which it was published.
    pub(crate) stamp: Option<Position>,
}

/// A transport to other instances.
pub(crate) trait Carrier: Send + Sync {
    /// Takes publications for all subscribers at other instances; those of one topic arrive in order. Never waits.
    fn publish(&self, topic: &str, publications: &[Publication<'_>]);

    /// Notifies that `topic`, a name or a pattern, has its first subscriber here, or has none left. Called with the
    /// topics locked, so in order. The same state may be reported twice. Never waits.
    fn set_interest(&self, topic: &str, is_interested: bool);

    /// The number of other instances with subscribers to `topic`, as far as is known. May wait for a reply.
    fn audience(&self, topic: &str) -> usize;

    /// Reports a presence change of this instance to the others, if the carrier transports presence. Called with
    /// presence locked, so in order. Never waits.
    fn notify_change(&self, _change: &PresenceChange) {}
}

/// All carriers of a server.
#[derive(Default)]
pub(crate) struct Links {
    carriers: RwLock<Vec<Arc<dyn Carrier>>>,
    /// Whether there is any carrier: the only check that an instance without one makes.
    has_carriers: AtomicBool,
}

impl fmt::Debug for Links {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Links").field("has_carriers", &self.has_carriers).finish_non_exhaustive()
    }
}

impl Links {
    /// Adds a carrier, which gets publications and subscriptions from now on. The caller must report the existing
    /// subscriptions to it.
    pub(crate) fn add(&self, carrier: Arc<dyn Carrier>) {
        self.carriers.write().unwrap_or_else(PoisonError::into_inner).push(carrier);
        self.has_carriers.store(true, Ordering::Release);
    }

    /// Whether there is any carrier.
    pub(crate) fn has_carriers(&self) -> bool {
        self.has_carriers.load(Ordering::Acquire)
    }

    pub(crate) fn publish(&self, topic: &str, publications: &[Publication<'_>]) {
        self.each(|carrier| carrier.publish(topic, publications));
    }

    pub(crate) fn set_interest(&self, topic: &str, is_interested: bool) {
        self.each(|carrier| carrier.set_interest(topic, is_interested));
    }

    pub(crate) fn audience(&self, topic: &str) -> usize {
        if !self.has_carriers() {
            return 0;
        }
        // Without the lock, because a reply may take time.
        let carriers = self.carriers.read().unwrap_or_else(PoisonError::into_inner).clone();
        carriers.iter().map(|carrier| carrier.audience(topic)).sum()
    }

    pub(crate) fn notify_change(&self, change: &PresenceChange) {
        self.each(|carrier| carrier.notify_change(change));
    }

    fn each(&self, work: impl Fn(&dyn Carrier)) {
        if self.has_carriers() {
            self.carriers.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|carrier| work(&**carrier));
        }
    }
}
