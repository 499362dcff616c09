//! Distribution of presence changes to subscribers, the application and other instances.

use super::Hub;
use crate::{
    inbound::Kind,
    key::ConnectionKey,
    links::Publication,
    outbound::{Command, Mailbox},
    presence_change::{ChangeKind, PresenceChange},
};

impl Hub {
    /// Returns the function that reports changes made by `connection` to a topic's subscribers, the application and
    /// other instances.
    pub(crate) fn presence_notifier(&self, connection: ConnectionKey) -> impl FnMut(PresenceChange) + '_ {
        move |change| {
            self.links.notify_change(&change);
            self.notify_local(connection.shard(), &change);
        }
    }

    /// Reports a change to a topic's subscribers here and, through shard `shard`, to the application.
    pub(crate) fn notify_local(&self, shard: usize, change: &PresenceChange) {
        if let Some(event) = change.event() {
            // Never waits: presence is locked, and the caller may be a shard.
            let publication = Publication { text: event.message().into(), stamp: None };
            self.dispatch(&event.topic, &[publication], Mailbox::put_now);
            let kind = match event.kind {
                ChangeKind::Join => Kind::PresenceJoin,
                ChangeKind::Leave => Kind::PresenceLeave,
                ChangeKind::Update => return,
            };
            self.mailboxes[shard].put_now(Command::Presence(kind, event.detail()));
        }
    }

    /// Removes the subscriptions and the presence of a connection that is closed.
    pub(crate) fn end_subscriptions(&self, connection: ConnectionKey) {
        self.topics.leave(connection);
        if let Some(presence) = &self.presence {
            presence.leave(connection, None, self.presence_notifier(connection));
        }
    }
}
