//! Who is there, as the owner of a server sees it.

use std::collections::BTreeMap;

use super::{Server, Shared};
use crate::{
    inbound::Kind,
    key::ConnectionKey,
    outbound::{Command, Mailbox},
    presence::{Event, Member, Move, Presence, PresenceError},
};

impl Shared {
    /// What tells a topic's subscribers, and the application, of a change that `connection` made.
    pub(super) fn herald(&self, connection: ConnectionKey) -> impl FnMut(Event) + '_ {
        move |event| {
            // Without waiting: presence is locked, and it may be a shard that tells.
            self.hand_out(&event.topic, &event.message(), Mailbox::put_now);
            let kind = match event.kind {
                Move::Join => Kind::PresenceJoin,
                Move::Leave => Kind::PresenceLeave,
                Move::Update => return,
            };
            self.mailboxes[connection.shard()].put_now(Command::Presence(kind, event.detail()));
        }
    }

    /// Topics with users, and users.
    pub(super) fn presence_size(&self) -> (usize, usize) {
        self.presence.as_ref().map_or((0, 0), Presence::size)
    }
}

impl Server {
    fn presence(&self) -> Result<&Presence, PresenceError> {
        self.shared.presence.as_ref().ok_or(PresenceError::Off)
    }

    /// Whether `data` (JSON) may be said about a user.
    ///
    /// # Errors
    /// Presence is off, or `data` is no JSON or too long.
    pub fn check_presence(&self, data: &str) -> Result<(), PresenceError> {
        self.presence()?.check(data).map(|_| ())
    }

    /// Says that a connection's user is in these topics, and `data` (JSON) about it. The user is that of the connection's
    /// token, or where there are no tokens the connection itself. Subscribers of a topic are told of a user's first
    /// connection in it, and the application too. Returns whether the connection is known.
    ///
    /// # Errors
    /// As [`Server::check_presence`].
    pub fn join(&self, connection: &str, topics: &[String], data: &str) -> Result<bool, PresenceError> {
        let presence = self.presence()?;
        let data = presence.check(data)?;
        let Some(key) = self.shared.registry.key(connection) else { return Ok(false) };
        // So that its shard knows that there is something to end with it.
        self.shared.topics.enlist(key, self.shared.teller(key));
        let user = self.shared.registry.user(key);
        presence.join(key, user.as_deref().unwrap_or(connection), topics, &data, self.shared.herald(key));
        if self.shared.registry.key(connection).is_none() {
            // It left meanwhile, perhaps before it was here.
            presence.leave(key, None, self.shared.herald(key));
        }
        Ok(true)
    }

    /// Says something else about a connection's user, in all topics where the connection is. Subscribers are told. Returns
    /// whether the connection is known.
    ///
    /// # Errors
    /// As [`Server::check_presence`].
    pub fn update_presence(&self, connection: &str, data: &str) -> Result<bool, PresenceError> {
        let presence = self.presence()?;
        let data = presence.check(data)?;
        let Some(key) = self.shared.registry.key(connection) else { return Ok(false) };
        presence.update(key, &data, self.shared.herald(key));
        Ok(true)
    }

    /// The users of a topic, by id; none where presence is off.
    pub fn members(&self, topic: &str) -> BTreeMap<String, Member> {
        self.shared.presence.as_ref().map(|presence| presence.members(topic)).unwrap_or_default()
    }

    /// How many users a topic has, and how many connections these have there.
    pub fn presence_stats(&self, topic: &str) -> (usize, usize) {
        self.shared.presence.as_ref().map_or((0, 0), |presence| presence.stats(topic))
    }
}
