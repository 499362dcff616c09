//! Who is there, as the owner of a server sees it.

use std::collections::BTreeMap;

use super::Server;
use crate::{
    hub::Hub,
    presence::{Member, Presence, PresenceError},
    topics::TopicError,
};

/// Why a connection's user can't join topics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The topics.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// What is said about the user.
    #[error(transparent)]
    Presence(#[from] PresenceError),
}

impl Hub {
    /// Topics with users, and users.
    pub(super) fn presence_size(&self) -> (usize, usize) {
        self.presence.as_ref().map_or((0, 0), Presence::size)
    }
}

impl Server {
    fn presence(&self) -> Result<&Presence, PresenceError> {
        self.shared.presence.as_ref().ok_or(PresenceError::Off)
    }

    /// Subscribes a connection like [`Server::subscribe`], and says that its user is in the topics that it got, and `data`
    /// (JSON) about it. The user is that of the connection's token, or where there are no tokens the connection itself.
    /// Subscribers of a topic are told of a user's first connection in it, and the application too.
    ///
    /// # Errors
    /// Presence is off, `data` is no JSON or too long, or as [`Server::subscribe`]. Then nothing has changed.
    pub fn subscribe_and_join(
        &self,
        connection: &str,
        topics: &[&str],
        queue_group: Option<&str>,
        data: &str,
    ) -> Result<Vec<String>, JoinError> {
        let presence = self.presence()?;
        let data = presence.check(data)?;
        let permitted = self.subscribe(connection, topics, queue_group)?;
        let Some(key) = self.shared.registry.key(connection) else { return Ok(permitted) };
        let user = self.shared.registry.user(key);
        presence.join(key, user.as_deref().unwrap_or(connection), &permitted, &data, self.shared.herald(key));
        if self.shared.registry.key(connection).is_none() {
            // It left meanwhile, perhaps before it was here.
            presence.leave(key, None, self.shared.herald(key));
        }
        Ok(permitted)
    }

    /// Says something else about a connection's user, in all topics where the connection is. Subscribers are told. Returns
    /// whether the connection is known.
    ///
    /// # Errors
    /// Presence is off, or `data` is no JSON or too long.
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
