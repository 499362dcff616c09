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

use super::{Change, Move, Presence, State};

/// The most bytes that the users of all other instances may take together.
const BUDGET: usize = 128 << 20;
/// What a user in a topic costs in addition to its names and its data, in bytes; an estimate.
const PLACE_BYTES: usize = 256;
/// The most bytes that a user's id may have.
const LONGEST_USER: usize = 8 << 10;

/// A topic, and a user in it.
type Place = (Arc<str>, Arc<str>);

/// The users that one other instance has announced.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// For each user in a topic: the value of `naming` at its last announcement, and its cost in bytes.
    places: HashMap<Place, (u64, usize)>,
    /// How often the instance has begun to announce all its users.
    naming: u64,
}

/// A user's data as instances exchange it, in JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) data: Box<RawValue>,
    /// When the data was set, in milliseconds since the Unix epoch.
    pub(crate) updated_at: u64,
}

/// Users by topic and id.
pub(crate) type Full = BTreeMap<String, BTreeMap<String, Told>>;

impl Presence {
    /// Adds a user that `origin` announced, with data that was set at `updated_at` (milliseconds since the Unix epoch).
    /// An announcement that fails a check or exceeds a limit is ignored.
    pub(crate) fn remote_join(
        &self,
        origin: &Arc<str>,
        (topic, user): (&str, &str),
        data: &str,
        updated_at: u64,
        tell: impl FnMut(Change),
    ) {
        let Ok(data) = self.check(data) else { return };
        if user.len() > LONGEST_USER || crate::topics::check(topic).is_err() {
            return;
        }
        let most = self.config.max_members;
        let mut state = self.state();
        state.remote_join(origin, (topic, user), &data, updated_at, most).into_iter().for_each(tell);
    }

    /// Removes a user of `origin` from a topic.
    pub(crate) fn remote_leave(&self, origin: &str, (topic, user): (&str, &str), tell: impl FnMut(Change)) {
        let mut state = self.state();
        state.remote_leave(origin, &(topic.into(), user.into())).into_iter().for_each(tell);
    }

    /// `origin` is about to announce all its users again.
    pub(crate) fn begin_naming(&self, origin: &str) {
        if let Some(origin) = self.state().origins.get_mut(origin) {
            origin.naming += 1;
        }
    }

    /// `origin` has announced all its users: those that it didn't announce since [`Presence::begin_naming`] have left.
    pub(crate) fn end_naming(&self, origin: &str, tell: impl FnMut(Change)) {
        let mut state = self.state();
        let Some(named) = state.origins.get(origin) else { return };
        let unnamed = |(_, (naming, _)): &(&Place, &(u64, usize))| *naming != named.naming;
        let gone: Vec<Place> = named.places.iter().filter(unnamed).map(|(place, _)| place.clone()).collect();
        gone.iter().filter_map(|place| state.remote_leave(origin, place)).for_each(tell);
    }

    /// `origin` is gone, and all its users leave.
    pub(crate) fn remote_gone(&self, origin: &str, tell: impl FnMut(Change)) {
        let mut state = self.state();
        let Some(named) = state.origins.get(origin) else { return };
        let gone: Vec<Place> = named.places.keys().cloned().collect();
        gone.iter().filter_map(|place| state.remote_leave(origin, place)).for_each(tell);
        state.origins.remove(origin);
    }

    /// Calls `tell` with all users that have connections on this instance, while the lock keeps everyone from joining
    /// or leaving.
    pub(crate) fn with_own(&self, tell: impl FnOnce(Full)) {
        let state = self.state();
        let mut full = Full::new();
        for (topic, users) in &state.topics {
            for (id, user) in users.iter().filter(|(_, user)| !user.connections.is_empty()) {
                let data = RawValue::from_string(user.data.to_string()).expect("it was checked to be JSON");
                let told = Told { data, updated_at: user.updated_millis };
                full.entry(topic.to_string()).or_default().insert(id.to_string(), told);
            }
        }
        tell(full);
    }
}

impl State {
    fn remote_join(
        &mut self,
        origin: &Arc<str>,
        (topic, id): (&str, &str),
        data: &Arc<str>,
        updated_at: u64,
        most: usize,
    ) -> Option<Change> {
        let place: Place = (topic.into(), id.into());
        let cost = topic.len() + id.len() + data.len() + PLACE_BYTES;
        let named = self.origins.entry(Arc::clone(origin)).or_default();
        let before = named.places.get(&place).map_or(0, |(_, cost)| *cost);
        if self.remote_bytes - before + cost > BUDGET {
            return None;
        }
        let users = self.topics.entry(Arc::clone(&place.0)).or_default();
        if most > 0 && users.len() >= most && !users.contains_key(id) {
            return None;
        }
        named.places.insert(place.clone(), (named.naming, cost));
        self.remote_bytes = self.remote_bytes - before + cost;
        let (topic, id) = place;
        let mut is_new = false;
        let user = users.entry(Arc::clone(&id)).or_insert_with(|| {
            is_new = true;
            super::User::new(Arc::clone(data), updated_at)
        });
        user.origins.insert(Arc::clone(origin));
        let is_later = (updated_at, &**data) > (user.updated_millis, &*user.data);
        let is_other = is_later && user.data != *data;
        if is_later {
            (user.data, user.updated_millis) = (Arc::clone(data), updated_at);
        }
        let here = match (is_new, is_other) {
            (true, _) => Move::Join,
            (false, true) => Move::Update,
            (false, false) => return None,
        };
        Some(Change { here: Some(here), elsewhere: None, topic, user: id, data: Arc::clone(data), updated_at })
    }

    fn remote_leave(&mut self, origin: &str, place: &Place) -> Option<Change> {
        let named = self.origins.get_mut(origin)?;
        let (_, cost) = named.places.remove(place)?;
        self.remote_bytes -= cost;
        if named.places.is_empty() {
            self.origins.remove(origin);
        }
        let users = self.topics.get_mut(&place.0)?;
        let user = users.get_mut(&place.1)?;
        user.origins.remove(origin);
        if user.is_here() {
            return None;
        }
        let gone = users.remove(&place.1)?;
        if users.is_empty() {
            self.topics.remove(&place.0);
        }
        let (topic, user) = place.clone();
        let updated_at = gone.updated_millis;
        Some(Change { here: Some(Move::Leave), elsewhere: None, topic, user, data: gone.data, updated_at })
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

    type Moves = Vec<(Option<Move>, Option<Move>, String)>;

    fn told(work: impl FnOnce(&mut dyn FnMut(Change))) -> Moves {
        let mut told = Vec::new();
        work(&mut |change| told.push((change.here, change.elsewhere, change.data.to_string())));
        told
    }

    fn remote(presence: &Presence, origin: &str, data: &str, at: u64) -> Moves {
        told(|tell| presence.remote_join(&origin.into(), ("a", "u"), data, at, tell))
    }

    fn local(presence: &Presence, data: &str) -> Moves {
        let data = presence.check(data).unwrap();
        told(|tell| presence.join(key(1), "u", &["a".to_owned()], &data, tell))
    }

    const JOIN: Option<Move> = Some(Move::Join);
    const UPDATE: Option<Move> = Some(Move::Update);
    const LEAVE: Option<Move> = Some(Move::Leave);

    #[test]
    fn a_user_of_two_instances_and_of_ours_joins_once_and_leaves_when_the_last_has_none() {
        let presence = presence();
        assert_eq!(remote(&presence, "o", "1", 1), [(JOIN, None, "1".into())]);
        assert_eq!(remote(&presence, "p", "1", 1), []);
        assert_eq!(local(&presence, "1"), [(None, JOIN, "1".into())]);
        assert_eq!((presence.stats("a"), presence.members("a")["u"].connections), ((1, 3), 3));
        assert_eq!(told(|tell| presence.remote_gone("o", tell)), []);
        assert_eq!(told(|tell| presence.leave(key(1), None, tell)), [(None, LEAVE, "1".into())]);
        assert_eq!(told(|tell| presence.remote_leave("p", ("a", "u"), tell)), [(LEAVE, None, "1".into())]);
        assert_eq!(presence.size(), (0, 0));
        let state = presence.state();
        assert_eq!((state.remote_bytes, state.origins.len()), (0, 0));
    }

    #[test]
    fn what_was_said_last_counts_and_of_two_at_once_the_same_one_everywhere() {
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
    fn who_isn_t_named_again_has_left() {
        let presence = presence();
        for user in ["u", "v"] {
            presence.remote_join(&"o".into(), ("a", user), "1", 1, |_| {});
        }
        presence.begin_naming("o");
        remote(&presence, "o", "1", 1);
        let mut left = Vec::new();
        presence.end_naming("o", |change| left.push(change.user.to_string()));
        assert_eq!((left, presence.stats("a").0), (vec!["v".to_owned()], 1));
    }

    #[test]
    fn what_others_say_is_checked_and_bounded() {
        let presence = Presence::new(PresenceConfig { max_data_size: 10, max_members: 1 });
        assert_eq!(remote(&presence, "o", "{", 1), []);
        assert_eq!(remote(&presence, "o", "\"0123456789\"", 1), []);
        let topic = "x".repeat(600);
        presence.remote_join(&"o".into(), (&topic, "u"), "1", 1, |_| panic!("it was kept"));
        assert_eq!(remote(&presence, "o", "1", 1).len(), 1);
        presence.remote_join(&"o".into(), ("a", "v"), "1", 1, |_| panic!("it was kept"));
        presence.state().remote_bytes = BUDGET;
        presence.remote_join(&"o".into(), ("b", "v"), "1", 1, |_| panic!("it was kept"));
        assert_eq!(presence.size(), (1, 1));
    }

    #[test]
    fn only_those_that_are_here_are_told_to_others() {
        let presence = presence();
        remote(&presence, "o", "1", 1);
        let text = |presence: &Presence| {
            let mut text = String::new();
            presence.with_own(|full| text = serde_json::to_string(&full).unwrap());
            text
        };
        assert_eq!(text(&presence), "{}");
        local(&presence, "2");
        let told: Full = serde_json::from_str(&text(&presence)).unwrap();
        assert_eq!(told["a"]["u"].data.get(), "2");
    }
}
