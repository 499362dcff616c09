//! Who came and who went, told to those whom it concerns.

use super::Hub;
use crate::{
    inbound::Kind,
    key::ConnectionKey,
    links::Publication,
    outbound::{Command, Mailbox},
    presence_change::{Change, Move},
};

impl Hub {
    /// What tells of a change that `connection` made: a topic's subscribers, the application and other instances.
    pub(crate) fn herald(&self, connection: ConnectionKey) -> impl FnMut(Change) + '_ {
        move |change| {
            self.links.tell_change(&change);
            self.tell_here(connection.shard(), &change);
        }
    }

    /// Tells a topic's subscribers here, and by way of a shard the application, of a change.
    pub(crate) fn tell_here(&self, shard: usize, change: &Change) {
        if let Some(event) = change.event() {
            // Without waiting: presence is locked, and it may be a shard that tells.
            let publication = Publication { text: event.message().into(), stamp: None };
            self.hand_out(&event.topic, &[publication], Mailbox::put_now);
            let kind = match event.kind {
                Move::Join => Kind::PresenceJoin,
                Move::Leave => Kind::PresenceLeave,
                Move::Update => return,
            };
            self.mailboxes[shard].put_now(Command::Presence(kind, event.detail()));
        }
    }

    /// A connection is gone, and with it its subscriptions and its user's presence.
    pub(crate) fn end_subscriptions(&self, connection: ConnectionKey) {
        self.topics.leave(connection);
        if let Some(presence) = &self.presence {
            presence.leave(connection, None, self.herald(connection));
        }
    }
}
