//! The presence part of the server's API.

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
    /// A topic is refused.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// Presence is off, or the user's data is refused.
    #[error(transparent)]
    Presence(#[from] PresenceError),
}

impl Hub {
    /// How many topics have users, and how many users they have together.
    pub(super) fn presence_size(&self) -> (usize, usize) {
        self.presence.as_ref().map_or((0, 0), Presence::size)
    }
}

impl Server {
    fn presence(&self) -> Result<&Presence, PresenceError> {
        self.shared.presence.as_ref().ok_or(PresenceError::Disabled)
    }

    /// Subscribes a connection as [`Server::subscribe`] does, and adds its user, with `data` (JSON), to the presence of
    /// the permitted topics. The user is that of the connection's token; without tokens it is the connection's id. When
    /// a user's first connection joins a topic, the topic's subscribers and the application are notified.
    ///
    /// # Errors
    /// [`JoinError::Presence`] if presence is off or `data` is invalid or too long; [`JoinError::Topic`] as
    /// [`Server::subscribe`]. Nothing has changed then.
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
        presence.join(
            key,
            user.as_deref().unwrap_or(connection),
            &permitted,
            &data,
            self.shared.presence_notifier(key),
        );
        if self.shared.registry.key(connection).is_none() {
            // The connection was closed meanwhile, perhaps before it joined.
            presence.leave(key, None, self.shared.presence_notifier(key));
        }
        Ok(permitted)
    }

    /// Replaces the data of a connection's user in all topics that the connection has joined, and notifies their
    /// subscribers. Returns whether the connection is known.
    ///
    /// # Errors
    /// Returns a [`PresenceError`] if presence is off, or if `data` is invalid or too long.
    pub fn update_presence(&self, connection: &str, data: &str) -> Result<bool, PresenceError> {
        let presence = self.presence()?;
        let data = presence.check(data)?;
        let Some(key) = self.shared.registry.key(connection) else { return Ok(false) };
        presence.update(key, &data, self.shared.presence_notifier(key));
        Ok(true)
    }

    /// The users of a topic by id; empty if presence is off.
    pub fn members(&self, topic: &str) -> BTreeMap<String, Member> {
        self.shared.presence.as_ref().map(|presence| presence.members(topic)).unwrap_or_default()
    }

    /// How many users a topic has, and how many connections they have there; zeros if presence is off.
    pub fn presence_stats(&self, topic: &str) -> (usize, usize) {
        self.shared.presence.as_ref().map_or((0, 0), |presence| presence.stats(topic))
    }
}
