//! Maps connection ids to keys and back: the application uses ids, the shards use keys.
//!
//! It is used when a connection opens, closes or is sent to by id, not when a message arrives.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use uuid::Uuid;

use crate::{key::ConnectionKey, lock::lock};

/// Number of locks per table: a power of two, large enough that senders rarely meet.
const STRIPES: usize = 64;

type Stripe<K, V> = Mutex<HashMap<K, V>>;

pub(crate) struct Registry {
    /// The keys of open connections.
    keys: Box<[Stripe<Uuid, ConnectionKey>]>,
    /// The ids of open connections, and of closed ones whose last entry the application still holds.
    ids: Box<[Stripe<ConnectionKey, Uuid>]>,
    /// The users of these connections, where presence needs them.
    users: Box<[Stripe<ConnectionKey, Arc<str>>]>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            keys: (0..STRIPES).map(|_| Mutex::default()).collect(),
            ids: (0..STRIPES).map(|_| Mutex::default()).collect(),
            users: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Registry {
    fn keys(&self, id: Uuid) -> MutexGuard<'_, HashMap<Uuid, ConnectionKey>> {
        // The last byte of a version 7 UUID is random, so connections spread evenly.
        lock(&self.keys[usize::from(id.as_bytes()[15]) % STRIPES])
    }

    fn ids(&self, key: ConnectionKey) -> MutexGuard<'_, HashMap<ConnectionKey, Uuid>> {
        lock(&self.ids[key.slot() % STRIPES])
    }

    pub(crate) fn open(&self, id: Uuid, key: ConnectionKey) {
        self.ids(key).insert(key, id);
        self.keys(id).insert(id, key);
    }

    /// The connection is closed: messages can't be sent to it, but its id stays known until [`Registry::forget`].
    pub(crate) fn close(&self, id: Uuid) {
        self.keys(id).remove(&id);
    }

    pub(crate) fn forget(&self, closed: impl Iterator<Item = ConnectionKey>) {
        for key in closed {
            self.ids(key).remove(&key);
            self.users(key).remove(&key);
        }
    }

    fn users(&self, key: ConnectionKey) -> MutexGuard<'_, HashMap<ConnectionKey, Arc<str>>> {
        lock(&self.users[key.slot() % STRIPES])
    }

    /// Records the user of a connection.
    pub(crate) fn set_user(&self, key: ConnectionKey, user: &str) {
        self.users(key).insert(key, user.into());
    }

    /// The user of a connection, if one was recorded.
    pub(crate) fn user(&self, key: ConnectionKey) -> Option<Arc<str>> {
        self.users(key).get(&key).cloned()
    }

    pub(crate) fn key(&self, id: &str) -> Option<ConnectionKey> {
        let id = Uuid::try_parse(id).ok()?;
        self.keys(id).get(&id).copied()
    }

    pub(crate) fn id(&self, key: ConnectionKey) -> Option<Uuid> {
        self.ids(key).get(&key).copied()
    }

    pub(crate) fn open_ids(&self) -> Vec<String> {
        self.keys.iter().flat_map(|stripe| lock(stripe).keys().map(Uuid::to_string).collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_connection_keeps_its_id_until_it_is_forgotten() {
        let registry = Registry::default();
        let (id, key) = (Uuid::from_u128(7), ConnectionKey::new(1, 2, 3));
        registry.open(id, key);
        assert_eq!(registry.key(&id.to_string()), Some(key));
        registry.close(id);
        assert_eq!((registry.key(&id.to_string()), registry.id(key)), (None, Some(id)));
        registry.set_user(key, "user");
        assert_eq!(registry.user(key).as_deref(), Some("user"));
        registry.forget([key].into_iter());
        assert_eq!((registry.id(key), registry.user(key)), (None, None));
    }

    #[test]
    fn an_id_that_is_not_a_uuid_is_unknown() {
        assert_eq!(Registry::default().key("unknown"), None);
    }
}
