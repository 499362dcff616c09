//! The counters of the links between the instances of a service.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /stats/links`: the links that carry publications between the instances of a service, summed over the instances.
/// Exact while nothing is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LinksStats {
    /// Connections between the instances; absent if there are none.
    #[serde(default)]
    pub cluster: Option<LinkStats>,
    /// Redis; absent if it carries no publications.
    #[serde(default)]
    pub redis: Option<LinkStats>,
}

impl LinksStats {
    /// The links that exist, by name.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, &LinkStats)> {
        let links = [("cluster", &self.cluster), ("redis", &self.redis)];
        links.into_iter().filter_map(|(name, link)| Some((name, link.as_ref()?)))
    }

    /// What was counted since `earlier`. Values that aren't counters keep their current value.
    pub fn since(&self, earlier: &Self) -> Self {
        let of = |now: &Option<LinkStats>, earlier: &Option<LinkStats>| {
            now.as_ref().map(|now| now.since(earlier.as_ref().unwrap_or(&LinkStats::default())))
        };
        Self { cluster: of(&self.cluster, &earlier.cluster), redis: of(&self.redis, &earlier.redis) }
    }

    /// The sum of the links of two instances.
    pub fn merge(&self, other: &Self) -> Self {
        let of = |own: &Option<LinkStats>, other: &Option<LinkStats>| match (own, other) {
            (Some(own), Some(other)) => Some(own.merge(other)),
            (one, None) | (None, one) => one.clone(),
        };
        Self { cluster: of(&self.cluster, &other.cluster), redis: of(&self.redis, &other.redis) }
    }

    /// Whether no publication is on its way: every one that was sent has arrived or is known to be lost.
    pub fn at_rest(&self) -> bool {
        self.by_name().all(|(_, link)| link.queued == 0 && link.sent <= link.received + link.lost)
    }
}

/// Counters of one kind of link. `published = sent + sum(dropped) + queued` at the publishing instance,
/// `sent = received + lost` over all instances, and `received = delivered` at the receiving instance. Other fields that
/// a service reports for the link are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkStats {
    /// Publications handed to the link, counted once per destination instance, or once if there is no destination.
    pub published: u64,
    /// Publications, among those handed over, that were written to the link.
    pub sent: u64,
    /// Publications, among those handed over, that were not written, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Publications, among those handed over, that wait to be written now.
    #[serde(default)]
    pub queued: u64,
    /// Publications read from the link.
    pub received: u64,
    /// Publications, among those received, that were handed to the receiving instance's own subscribers.
    pub delivered: u64,
    /// Publications that never arrived, counted from the gaps in the sender's sequence numbers.
    pub lost: u64,
    /// Number of times that a connection of the link was re-established.
    #[serde(default)]
    pub reconnects: u64,
    /// Connections of the link that are up now.
    #[serde(default, alias = "peers")]
    pub connected: u64,
}

impl LinkStats {
    /// Subtracts earlier counters. A counter that shrank gives 0; the restart is detected elsewhere.
    fn since(&self, earlier: &Self) -> Self {
        let dropped = |(reason, count): (&String, &u64)| {
            (reason.clone(), count.saturating_sub(earlier.dropped.get(reason).copied().unwrap_or(0)))
        };
        Self {
            published: self.published.saturating_sub(earlier.published),
            sent: self.sent.saturating_sub(earlier.sent),
            dropped: self.dropped.iter().map(dropped).filter(|(_, count)| *count > 0).collect(),
            queued: self.queued,
            received: self.received.saturating_sub(earlier.received),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            lost: self.lost.saturating_sub(earlier.lost),
            reconnects: self.reconnects.saturating_sub(earlier.reconnects),
            connected: self.connected,
        }
    }

    fn merge(&self, other: &Self) -> Self {
        let mut dropped = self.dropped.clone();
        for (reason, count) in &other.dropped {
            *dropped.entry(reason.clone()).or_default() += count;
        }
        Self {
            published: self.published + other.published,
            sent: self.sent + other.sent,
            dropped,
            queued: self.queued + other.queued,
            received: self.received + other.received,
            delivered: self.delivered + other.delivered,
            lost: self.lost + other.lost,
            reconnects: self.reconnects + other.reconnects,
            connected: self.connected + other.connected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(published: u64, overflow: u64, received: u64) -> LinkStats {
        let dropped = [("overflow".to_owned(), overflow)].into_iter().filter(|(_, count)| *count > 0).collect();
        LinkStats { published, sent: published - overflow, dropped, received, ..LinkStats::default() }
    }

    fn redis(link: LinkStats) -> LinksStats {
        LinksStats { redis: Some(link), cluster: None }
    }

    #[test]
    fn instances_are_added_up_link_by_link() {
        let both = redis(link(10, 3, 0)).merge(&redis(link(0, 0, 7)));
        assert_eq!(both, redis(link(10, 3, 7)));
        assert_eq!(both.merge(&LinksStats::default()), both);
        assert_eq!(both.by_name().map(|(name, _)| name).collect::<Vec<_>>(), ["redis"]);
    }

    #[test]
    fn counts_before_the_window_are_excluded() {
        let (before, after) = (redis(link(10, 3, 7)), redis(link(25, 4, 20)));
        assert_eq!(after.since(&before), redis(link(15, 1, 13)));
        assert_eq!(after.since(&LinksStats::default()), after);
        assert_eq!(after.since(&after).redis.unwrap().dropped, BTreeMap::new());
    }

    #[test]
    fn links_are_idle_when_everything_sent_has_arrived_or_is_lost() {
        assert!(!redis(link(10, 3, 6)).at_rest());
        assert!(redis(link(10, 3, 7)).at_rest());
        assert!(redis(LinkStats { lost: 1, ..link(10, 3, 6) }).at_rest());
        assert!(!redis(LinkStats { queued: 1, ..link(10, 3, 7) }).at_rest());
        assert!(LinksStats::default().at_rest());
    }
}
