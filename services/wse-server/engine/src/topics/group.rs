//! Queue groups: each message to a topic goes to one member of each of its groups.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{Pick, TopicId};
use crate::key::ConnectionKey;

/// The members of one queue group of one topic.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Arc<str>,
    members: Vec<ConnectionKey>,
    /// Counts the messages; the member at this number, modulo the number of members, is next.
    turn: AtomicUsize,
}

impl Group {
    pub(super) fn new(name: Arc<str>, first: ConnectionKey) -> Self {
        Self { name, members: vec![first], turn: AtomicUsize::new(0) }
    }

    pub(super) fn add(&mut self, member: ConnectionKey) {
        self.members.push(member);
    }

    pub(super) fn remove(&mut self, member: ConnectionKey) {
        self.members.retain(|other| *other != member);
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The next member in turn.
    pub(super) fn pick(&self, topic: TopicId) -> Option<Pick> {
        let tries = self.members.len();
        let position = self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(tries)?;
        Some(Pick { connection: self.members[position], topic, group: Arc::clone(&self.name), position, tries })
    }

    /// The member after `pick`, unless all were tried. It doesn't change whose turn it is: other messages have advanced
    /// the turn from there, and would meet the same members twice.
    pub(super) fn after(&self, pick: &Pick) -> Option<Pick> {
        let tries = pick.tries.saturating_sub(1).min(self.members.len());
        let position = (pick.position + 1).checked_rem(self.members.len())?;
        (tries > 0).then(|| Pick { connection: self.members[position], position, tries, ..pick.clone() })
    }
}
