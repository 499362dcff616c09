//! Users on other instances, as these instances announce them.
//!
//! A user is in a topic as long as any instance has it there. The update with the latest time stamp wins on every
//! instance; of two with the same time stamp, the greater data. What other instances send is checked and bounded.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{ChangeKind, Presence, PresenceChange, State};

/// The most bytes that the users of all other instances may take together.
const BUDGET: usize = 128 << 20;
/// What a user in a topic costs in addition to its names and its data, in bytes; an estimate.
const ENTRY_BYTES: usize = 256;
/// The most bytes that a user's id may have.
const LONGEST_USER: usize = 8 << 10;

/// A topic, and a user in it.
type TopicUser = (Arc<str>, Arc<str>);

/// The users that one other instance has announced.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// For each user in a topic: the value of `list_round` at its last announcement, and its cost in bytes.
    entries: HashMap<TopicUser, (u64, usize)>,
    /// How often the instance has begun to announce all its users.
    list_round: u64,
}

/// A user's data as instances exchange it, in JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SharedData {
    pub(crate) data: Box<RawValue>,
    /// When the data was set, in milliseconds since the Unix epoch.
    pub(crate) updated_at: u64,
}

/// Users by topic and id.
pub(crate) type PresenceSnapshot = BTreeMap<String, BTreeMap<String, SharedData>>;

impl Presence {
    /// Adds a user that `origin` announced, with data that was set at `updated_at` (milliseconds since the Unix epoch).
    /// An announcement that fails a check or exceeds a limit is ignored.
    pub(crate) fn join_remote(
        &self,
        origin: &Arc<str>,
        (topic, user): (&str, &str),
        data: &str,
        updated_at: u64,
        notify: impl FnMut(PresenceChange),
    ) {
        let Ok(data) = self.check(data) else { return };
        if user.len() > LONGEST_USER || crate::topics::check(topic).is_err() {
            return;
        }
        let maximum = self.config.max_members;
        let mut state = self.state();
        state.join_remote(origin, (topic, user), &data, updated_at, maximum).into_iter().for_each(notify);
    }

    /// Removes a user of `origin` from a topic.
    pub(crate) fn leave_remote(&self, origin: &str, (topic, user): (&str, &str), notify: impl FnMut(PresenceChange)) {
        let mut state = self.state();
        state.leave_remote(origin, &(topic.into(), user.into())).into_iter().for_each(notify);
    }

    /// `origin` is about to announce all its users again.
    pub(crate) fn begin_user_list(&self, origin: &str) {
        if let Some(origin) = self.state().origins.get_mut(origin) {
            origin.list_round += 1;
        }
    }

    /// `origin` has announced all its users: those that it didn't announce since [`Presence::begin_user_list`] have left.
    pub(crate) fn end_user_list(&self, origin: &str, notify: impl FnMut(PresenceChange)) {
        let mut state = self.state();
        let Some(origin_record) = state.origins.get(origin) else { return };
        let unlisted = |(_, (list_round, _)): &(&TopicUser, &(u64, usize))| *list_round != origin_record.list_round;
        let departed: Vec<TopicUser> =
            origin_record.entries.iter().filter(unlisted).map(|(topic_user, _)| topic_user.clone()).collect();
        departed.iter().filter_map(|topic_user| state.leave_remote(origin, topic_user)).for_each(notify);
    }

    /// `origin` is gone, and all its users leave.
    pub(crate) fn remove_origin(&self, origin: &str, notify: impl FnMut(PresenceChange)) {
        let mut state = self.state();
        let Some(origin_record) = state.origins.get(origin) else { return };
        let departed: Vec<TopicUser> = origin_record.entries.keys().cloned().collect();
        departed.iter().filter_map(|topic_user| state.leave_remote(origin, topic_user)).for_each(notify);
        state.origins.remove(origin);
    }

    /// Calls `notify` with all users that have connections on this instance, while the lock keeps everyone from joining
    /// or leaving.
    pub(crate) fn with_local_users(&self, notify: impl FnOnce(PresenceSnapshot)) {
        let state = self.state();
        let mut snapshot = PresenceSnapshot::new();
        for (topic, users) in &state.topics {
            for (id, user) in users.iter().filter(|(_, user)| !user.connections.is_empty()) {
                let data = RawValue::from_string(user.data.to_string()).expect("it was checked to be JSON");
                let reported = SharedData { data, updated_at: user.updated_millis };
                snapshot.entry(topic.to_string()).or_default().insert(id.to_string(), reported);
            }
        }
        notify(snapshot);
    }
}

impl State {
    fn join_remote(
        &mut self,
        origin: &Arc<str>,
        (topic, id): (&str, &str),
        data: &Arc<str>,
        updated_at: u64,
        maximum: usize,
    ) -> Option<PresenceChange> {
        let topic_user: TopicUser = (topic.into(), id.into());
        let cost = topic.len() + id.len() + data.len() + ENTRY_BYTES;
        let origin_record = self.origins.entry(Arc::clone(origin)).or_default();
        let before = origin_record.entries.get(&topic_user).map_or(0, |(_, cost)| *cost);
        if self.remote_bytes - before + cost > BUDGET {
            return None;
        }
        let users = self.topics.entry(Arc::clone(&topic_user.0)).or_default();
        if maximum > 0 && users.len() >= maximum && !users.contains_key(id) {
            return None;
        }
        origin_record.entries.insert(topic_user.clone(), (origin_record.list_round, cost));
        self.remote_bytes = self.remote_bytes - before + cost;
        let (topic, id) = topic_user;
        let mut is_new = false;
        let user = users.entry(Arc::clone(&id)).or_insert_with(|| {
            is_new = true;
            super::User::new(Arc::clone(data), updated_at)
        });
        user.origins.insert(Arc::clone(origin));
        let is_later = (updated_at, &**data) > (user.updated_millis, &*user.data);
        let is_changed = is_later && user.data != *data;
        if is_later {
            (user.data, user.updated_millis) = (Arc::clone(data), updated_at);
        }
        let local_kind = match (is_new, is_changed) {
            (true, _) => ChangeKind::Join,
            (false, true) => ChangeKind::Update,
            (false, false) => return None,
        };
        Some(PresenceChange {
            local_kind: Some(local_kind),
            remote_kind: None,
            topic,
            user: id,
            data: Arc::clone(data),
            updated_at,
        })
    }

    fn leave_remote(&mut self, origin: &str, topic_user: &TopicUser) -> Option<PresenceChange> {
        let origin_record = self.origins.get_mut(origin)?;
        let (_, cost) = origin_record.entries.remove(topic_user)?;
        self.remote_bytes -= cost;
        if origin_record.entries.is_empty() {
            self.origins.remove(origin);
        }
        let users = self.topics.get_mut(&topic_user.0)?;
        let user = users.get_mut(&topic_user.1)?;
        user.origins.remove(origin);
        if user.is_present() {
            return None;
        }
        let departed = users.remove(&topic_user.1)?;
        if users.is_empty() {
            self.topics.remove(&topic_user.0);
        }
        let (topic, user) = topic_user.clone();
        let updated_at = departed.updated_millis;
        Some(PresenceChange {
            local_kind: Some(ChangeKind::Leave),
            remote_kind: None,
            topic,
            user,
            data: departed.data,
            updated_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::PresenceConfig, *};
    use crate::key::ConnectionKey;

    fn presence() -> Presence {
        Presence::new(PresenceConfig::default())
    }

    fn key(number: usize) -> ConnectionKey {
        ConnectionKey::new(0, number as u32, number)
    }

    type ReportedChanges = Vec<(Option<ChangeKind>, Option<ChangeKind>, String)>;

    fn reported(work: impl FnOnce(&mut dyn FnMut(PresenceChange))) -> ReportedChanges {
        let mut reported = Vec::new();
        work(&mut |change| reported.push((change.local_kind, change.remote_kind, change.data.to_string())));
        reported
    }

    fn remote(presence: &Presence, origin: &str, data: &str, at: u64) -> ReportedChanges {
        reported(|notify| presence.join_remote(&origin.into(), ("a", "u"), data, at, notify))
    }

    fn local(presence: &Presence, data: &str) -> ReportedChanges {
        let data = presence.check(data).unwrap();
        reported(|notify| presence.join(key(1), "u", &["a".to_owned()], &data, notify))
    }

    const JOIN: Option<ChangeKind> = Some(ChangeKind::Join);
    const UPDATE: Option<ChangeKind> = Some(ChangeKind::Update);
    const LEAVE: Option<ChangeKind> = Some(ChangeKind::Leave);

    #[test]
    fn a_user_on_several_instances_joins_once_and_leaves_with_the_last() {
        let presence = presence();
        assert_eq!(remote(&presence, "o", "1", 1), [(JOIN, None, "1".into())]);
        assert_eq!(remote(&presence, "p", "1", 1), []);
        assert_eq!(local(&presence, "1"), [(None, JOIN, "1".into())]);
        assert_eq!((presence.stats("a"), presence.members("a")["u"].connections), ((1, 3), 3));
        assert_eq!(reported(|notify| presence.remove_origin("o", notify)), []);
        assert_eq!(reported(|notify| presence.leave(key(1), None, notify)), [(None, LEAVE, "1".into())]);
        assert_eq!(reported(|notify| presence.leave_remote("p", ("a", "u"), notify)), [(LEAVE, None, "1".into())]);
        assert_eq!(presence.size(), (0, 0));
        let state = presence.state();
        assert_eq!((state.remote_bytes, state.origins.len()), (0, 0));
    }

    #[test]
    fn the_latest_update_wins_and_ties_are_resolved_alike_everywhere() {
        let presence = presence();
        remote(&presence, "o", "5", 10);
        assert_eq!(remote(&presence, "p", "4", 9), []);
        assert_eq!(remote(&presence, "p", "4", 10), []);
        assert_eq!(remote(&presence, "p", "6", 10), [(UPDATE, None, "6".into())]);
        assert_eq!(remote(&presence, "o", "5", 10), []);
        assert_eq!(presence.members("a")["u"].data.get(), "6");
        // A local update is later than every remote one, even if the other instance's clock is ahead.
        remote(&presence, "o", "7", u64::MAX - 1);
        assert_eq!(local(&presence, "8"), [(UPDATE, JOIN, "8".into())]);
    }

    #[test]
    fn a_user_who_is_not_listed_again_has_left() {
        let presence = presence();
        for user in ["u", "v"] {
            presence.join_remote(&"o".into(), ("a", user), "1", 1, |_| {});
        }
        presence.begin_user_list("o");
        remote(&presence, "o", "1", 1);
        let mut left = Vec::new();
        presence.end_user_list("o", |change| left.push(change.user.to_string()));
        assert_eq!((left, presence.stats("a").0), (vec!["v".to_owned()], 1));
    }

    #[test]
    fn peer_messages_are_checked_and_bounded() {
        let presence = Presence::new(PresenceConfig { max_data_size: 10, max_members: 1 });
        assert_eq!(remote(&presence, "o", "{", 1), []);
        assert_eq!(remote(&presence, "o", "\"0123456789\"", 1), []);
        let topic = "x".repeat(600);
        presence.join_remote(&"o".into(), (&topic, "u"), "1", 1, |_| panic!("it was stored"));
        assert_eq!(remote(&presence, "o", "1", 1).len(), 1);
        presence.join_remote(&"o".into(), ("a", "v"), "1", 1, |_| panic!("it was stored"));
        presence.state().remote_bytes = BUDGET;
        presence.join_remote(&"o".into(), ("b", "v"), "1", 1, |_| panic!("it was stored"));
        assert_eq!(presence.size(), (1, 1));
    }

    #[test]
    fn only_local_users_are_announced_to_others() {
        let presence = presence();
        remote(&presence, "o", "1", 1);
        let text = |presence: &Presence| {
            let mut text = String::new();
            presence.with_local_users(|snapshot| text = serde_json::to_string(&snapshot).unwrap());
            text
        };
        assert_eq!(text(&presence), "{}");
        local(&presence, "2");
        let reported: PresenceSnapshot = serde_json::from_str(&text(&presence)).unwrap();
        assert_eq!(reported["a"]["u"].data.get(), "2");
    }
}
