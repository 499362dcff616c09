//! Presence: which users are in which topic, on this instance and (in `remote`) on the others.
//!
//! A user joins a topic with its first connection and leaves it with its last. Its data is one JSON value per topic,
//! and the latest update wins. Each method reports the changes to a callback while it holds the lock, so that changes
//! are announced in the order in which they are made. Nothing is sent from here.

mod remote;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
};

use serde::Serialize;
use serde_json::value::RawValue;

use self::remote::Origin;
pub(crate) use self::remote::PresenceSnapshot;
use crate::{
    clock,
    key::ConnectionKey,
    lock::lock,
    presence_change::{ChangeKind, PresenceChange},
};

/// The limits of presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceConfig {
    /// The most bytes of JSON that a user's data may have in one topic.
    pub max_data_size: usize,
    /// The most users that a topic may have; 0 switches the limit off. Further users are subscribed but not present.
    pub max_members: usize,
}

impl Default for PresenceConfig {
    fn default() -> Self {
        Self { max_data_size: 4096, max_members: 0 }
    }
}

/// Why a user's presence data is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresenceError {
    /// The server was started without presence.
    #[error("presence is off: start the server with presence_enabled")]
    Disabled,
    /// The data is not valid JSON.
    #[error("presence data must be JSON: {reason}")]
    InvalidJson {
        /// The message of the JSON parser.
        reason: String,
    },
    /// The data is longer than `max_data_size`; every subscriber of the topic would get it.
    #[error("presence data has {bytes} bytes of JSON, more than the {maximum} of presence_max_data_size")]
    TooLong {
        /// Length of the data in bytes.
        bytes: usize,
        /// The limit (`max_data_size`) in bytes.
        maximum: usize,
    },
}

/// One user of a topic, as the application and clients get it.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// The user's data in this topic.
    pub data: Box<RawValue>,
    /// How many connections the user has in this topic; another instance that has the user counts as one.
    pub connections: usize,
}

#[derive(Debug)]
struct User {
    data: Arc<str>,
    /// When the data was set, in milliseconds since the Unix epoch.
    updated_millis: u64,
    connections: HashSet<ConnectionKey>,
    /// Other instances on which the user is in this topic.
    origins: HashSet<Arc<str>>,
}

impl User {
    fn new(data: Arc<str>, updated_millis: u64) -> Self {
        Self { data, updated_millis, connections: HashSet::new(), origins: HashSet::new() }
    }

    /// Whether the user is in this topic on any instance.
    fn is_present(&self) -> bool {
        !self.connections.is_empty() || !self.origins.is_empty()
    }

    fn source_count(&self) -> usize {
        self.connections.len() + self.origins.len()
    }
}

#[derive(Debug, Default)]
struct State {
    topics: HashMap<Arc<str>, HashMap<Arc<str>, User>>,
    /// The user of each local connection, and the topics that the connection is in.
    connections: HashMap<ConnectionKey, (Arc<str>, HashSet<Arc<str>>)>,
    /// Other instances, with the users that they announced.
    origins: HashMap<Arc<str>, Origin>,
    /// Bytes that count against the budget for users of other instances.
    remote_bytes: usize,
}

/// The users of all topics, on this and on other instances. One lock guards them.
#[derive(Debug)]
pub(crate) struct Presence {
    config: PresenceConfig,
    state: Mutex<State>,
}

impl Presence {
    pub(crate) fn new(config: PresenceConfig) -> Self {
        Self { config, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Checks a user's data and removes white space between its JSON tokens.
    ///
    /// # Errors
    /// [`PresenceError::InvalidJson`] if the data can't be parsed; [`PresenceError::TooLong`] if it has more than
    /// `max_data_size` bytes without white space, or more than four times as many with it.
    pub(crate) fn check(&self, data: &str) -> Result<Arc<str>, PresenceError> {
        let invalid_json = |error: serde_json::Error| PresenceError::InvalidJson { reason: error.to_string() };
        if data.len() > 4 * self.config.max_data_size {
            return Err(PresenceError::TooLong { bytes: data.len(), maximum: self.config.max_data_size });
        }
        let value: serde_json::Value = serde_json::from_str(data).map_err(invalid_json)?;
        let short = value.to_string();
        match short.len() <= self.config.max_data_size {
            true => Ok(short.into()),
            false => Err(PresenceError::TooLong { bytes: short.len(), maximum: self.config.max_data_size }),
        }
    }

    /// Adds a connection of `user` to these topics. The data applies to all of the user's connections in a topic.
    /// `notify` gets each change while the lock is held, so no other change can come before it.
    pub(crate) fn join(
        &self,
        connection: ConnectionKey,
        user: &str,
        topics: &[String],
        data: &Arc<str>,
        notify: impl FnMut(PresenceChange),
    ) {
        let mut state = self.state();
        let user: Arc<str> = user.into();
        let maximum = self.config.max_members;
        topics.iter().filter_map(|topic| state.join(connection, &user, topic, data, maximum)).for_each(notify);
    }

    /// Removes a connection from these topics; `None` means from all.
    pub(crate) fn leave(&self, connection: ConnectionKey, topics: Option<&[&str]>, notify: impl FnMut(PresenceChange)) {
        let mut state = self.state();
        let Some((user, mine)) = state.connections.get(&connection) else { return };
        let user = Arc::clone(user);
        let topics_left: Vec<Arc<str>> = match topics {
            None => mine.iter().cloned().collect(),
            Some(topics) => topics.iter().filter_map(|topic| mine.get(*topic).cloned()).collect(),
        };
        topics_left.into_iter().filter_map(|topic| state.leave(connection, &user, topic)).for_each(notify);
    }

    /// Replaces the user's data in all topics that the connection is in.
    pub(crate) fn update(&self, connection: ConnectionKey, data: &Arc<str>, notify: impl FnMut(PresenceChange)) {
        let mut state = self.state();
        let Some((user, mine)) = state.connections.get(&connection) else { return };
        let (user, mine) = (Arc::clone(user), mine.clone());
        mine.into_iter().filter_map(|topic| state.set_data(&user, topic, data)).for_each(notify);
    }

    /// The users of a topic by id.
    pub(crate) fn members(&self, topic: &str) -> BTreeMap<String, Member> {
        let state = self.state();
        let users = state.topics.get(topic).into_iter().flatten();
        let member = |user: &User| Member {
            data: RawValue::from_string(user.data.to_string()).expect("it was checked to be JSON"),
            connections: user.source_count(),
        };
        users.map(|(id, user)| (id.to_string(), member(user))).collect()
    }

    /// How many users a topic has, and how many connections they have there (as in [`Member::connections`]).
    pub(crate) fn stats(&self, topic: &str) -> (usize, usize) {
        let state = self.state();
        let users = state.topics.get(topic).into_iter().flat_map(HashMap::values);
        users.fold((0, 0), |(users, connections), user| (users + 1, connections + user.source_count()))
    }

    /// How many topics have users, and how many users all topics have together; a user in two topics counts twice.
    pub(crate) fn size(&self) -> (usize, usize) {
        let state = self.state();
        (state.topics.len(), state.topics.values().map(HashMap::len).sum())
    }
}

impl State {
    fn join(
        &mut self,
        connection: ConnectionKey,
        user: &Arc<str>,
        topic: &str,
        data: &Arc<str>,
        maximum: usize,
    ) -> Option<PresenceChange> {
        let topic = self.topics.get_key_value(topic).map_or_else(|| topic.into(), |(topic, _)| Arc::clone(topic));
        let users = self.topics.entry(Arc::clone(&topic)).or_default();
        if maximum > 0 && users.len() >= maximum && !users.contains_key(user) {
            return None;
        }
        let (_, mine) = self.connections.entry(connection).or_insert_with(|| (Arc::clone(user), HashSet::new()));
        mine.insert(Arc::clone(&topic));
        let is_new = !users.contains_key(user);
        let record = users.entry(Arc::clone(user)).or_insert_with(|| User::new(Arc::clone(data), clock::now_millis()));
        let is_first = record.connections.is_empty();
        record.connections.insert(connection);
        if is_new {
            let (local_kind, updated_at) = (Some(ChangeKind::Join), record.updated_millis);
            let user = Arc::clone(user);
            return Some(PresenceChange {
                local_kind,
                remote_kind: local_kind,
                topic,
                user,
                data: Arc::clone(data),
                updated_at,
            });
        }
        match (self.set_data(user, Arc::clone(&topic), data), is_first) {
            (Some(change), true) => Some(PresenceChange { remote_kind: Some(ChangeKind::Join), ..change }),
            (Some(change), false) => Some(change),
            (None, true) => {
                let record = &self.topics[&topic][user];
                let (updated_at, data, user) = (record.updated_millis, Arc::clone(&record.data), Arc::clone(user));
                Some(PresenceChange {
                    local_kind: None,
                    remote_kind: Some(ChangeKind::Join),
                    topic,
                    user,
                    data,
                    updated_at,
                })
            }
            (None, false) => None,
        }
    }

    fn set_data(&mut self, user: &Arc<str>, topic: Arc<str>, data: &Arc<str>) -> Option<PresenceChange> {
        let record = self.topics.get_mut(&topic)?.get_mut(user)?;
        if record.data == *data {
            return None;
        }
        // Later than the previous update, even if another instance's clock is ahead.
        record.updated_millis = clock::now_millis().max(record.updated_millis.saturating_add(1));
        record.data = Arc::clone(data);
        let (local_kind, updated_at) = (Some(ChangeKind::Update), record.updated_millis);
        Some(PresenceChange {
            local_kind,
            remote_kind: local_kind,
            topic,
            user: Arc::clone(user),
            data: Arc::clone(data),
            updated_at,
        })
    }

    fn leave(&mut self, connection: ConnectionKey, user: &Arc<str>, topic: Arc<str>) -> Option<PresenceChange> {
        let (_, mine) = self.connections.get_mut(&connection)?;
        mine.remove(&topic);
        if mine.is_empty() {
            self.connections.remove(&connection);
        }
        let users = self.topics.get_mut(&topic)?;
        let record = users.get_mut(user)?;
        record.connections.remove(&connection);
        if !record.connections.is_empty() {
            return None;
        }
        let (local_kind, data) = ((!record.is_present()).then_some(ChangeKind::Leave), Arc::clone(&record.data));
        if local_kind.is_some() {
            users.remove(user);
        }
        if users.is_empty() {
            self.topics.remove(&topic);
        }
        let updated_at = clock::now_millis();
        Some(PresenceChange {
            local_kind,
            remote_kind: Some(ChangeKind::Leave),
            topic,
            user: Arc::clone(user),
            data,
            updated_at,
        })
    }
}

#[cfg(test)]
mod tests;
