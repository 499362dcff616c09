//! The search for the most connections: doubling until they don't hold, then halving the interval. Pure.

use crate::outcome::{EndedBy, Limit, Phase, Probe, Side};

/// Connections of the first probe.
const FIRST: u32 = 1000;
/// Width of the bracket in which a search ends: the failed number divided by this, but at most [`WIDEST`] connections.
const WIDTH_SHARE: u32 = 100;
const WIDEST: u32 = 1000;

/// State of a search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// The most connections that can be offered, and the reason.
    most: ConnectionBound,
    held: u32,
    /// The smallest number that did not hold, which side caused it, and the reason as text.
    failed: Option<(u32, Side, String)>,
}

/// The most connections that can be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionBound {
    /// The largest number of connections that the bounds allow.
    pub(super) connections: u32,
    /// Which bound allows no more.
    pub(super) ended_by: EndedBy,
    /// That bound as text, with what to change.
    pub(super) why: String,
}

impl Search {
    pub(super) fn new(most: ConnectionBound) -> Self {
        Self { most, held: 0, failed: None }
    }

    /// The next probe; `None` when the search is over.
    pub(super) fn next(&self) -> Option<(Phase, u32)> {
        match &self.failed {
            None if self.held == self.most.connections => None,
            None => Some((Phase::Raise, self.held.saturating_mul(2).max(FIRST).min(self.most.connections))),
            Some((failed, ..)) => {
                let width = (failed / WIDTH_SHARE).clamp(1, WIDEST);
                let middle = self.held + (failed - self.held) / 2;
                // Round numbers, where the bracket is wide enough.
                let step = (width / 2).max(1);
                (failed - self.held > width).then_some((Phase::Bisect, middle / step * step))
            }
        }
    }

    /// Enters the result of a probe.
    pub(super) fn take(&mut self, connections: u32, probe: &Probe) {
        if probe.held {
            self.held = connections;
            return;
        }
        let why = probe.why.clone().unwrap_or_default();
        self.failed = Some((connections, probe.side.unwrap_or(Side::Unclear), why));
    }

    /// The result of the search.
    pub(super) fn limit(&self) -> Limit {
        let Some((failed, side, why)) = &self.failed else {
            let ConnectionBound { ended_by, why, .. } = self.most.clone();
            return Limit { held: self.held, failed: None, ended_by, why };
        };
        let ended_by = match side {
            Side::Service => EndedBy::Service,
            Side::Generator => EndedBy::Generator,
            Side::Unclear => EndedBy::Unclear,
        };
        Limit { held: self.held, failed: Some(*failed), ended_by, why: format!("of {failed}: {why}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches up to `most` when `limit` connections hold; returns the probes and the result.
    fn search(most: u32, limit: u32, side: Side) -> (Vec<u32>, Limit) {
        let most = ConnectionBound {
            connections: most,
            ended_by: EndedBy::Maximum,
            why: "all that was asked for held".into(),
        };
        let mut search = Search::new(most);
        let mut probed = Vec::new();
        while let Some((phase, connections)) = search.next() {
            probed.push(connections);
            let held = connections <= limit;
            let (side, why) = if held { (None, None) } else { (Some(side), Some("w".to_owned())) };
            search.take(connections, &Probe { phase, held, side, why });
        }
        (probed, search.limit())
    }

    #[test]
    fn doubling_reaches_the_maximum_itself() {
        let (probed, limit) = search(60_000, 1_000_000, Side::Service);
        assert_eq!(probed, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000]);
        assert_eq!((limit.held, limit.failed, limit.ended_by), (60_000, None, EndedBy::Maximum));
    }

    #[test]
    fn the_bracket_around_the_services_limit_is_narrow() {
        for true_limit in [0, 1, 7, 999, 1000, 1001, 19_900, 499_000] {
            let (probed, limit) = search(500_000, true_limit, Side::Service);
            let failed = limit.failed.unwrap_or(500_000);
            assert!(limit.held <= true_limit && true_limit < failed, "{true_limit}: {limit:?}");
            assert!(failed - limit.held <= (failed / 100).clamp(1, 1000), "{true_limit}: {limit:?}");
            assert!(probed.len() < 20, "{true_limit}: {probed:?}");
            assert_eq!(limit.ended_by, EndedBy::Service);
        }
    }

    #[test]
    fn a_small_maximum_is_the_first_probe() {
        let (probed, limit) = search(8, 8, Side::Service);
        assert_eq!((probed, limit.held), (vec![8], 8));
        let (probed, limit) = search(8, 5, Side::Service);
        assert_eq!((probed, limit.held, limit.failed), (vec![8, 4, 6, 5], 5, Some(6)));
    }

    #[test]
    fn a_generator_that_gave_out_leaves_a_lower_bound() {
        let (_, limit) = search(60_000, 25_000, Side::Generator);
        assert_eq!(limit.ended_by, EndedBy::Generator);
        assert!(limit.description().starts_with(">= ") && limit.held <= 25_000, "{limit:?}");
    }
}
