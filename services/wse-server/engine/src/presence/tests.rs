use proptest::prelude::*;

use super::*;

fn key(number: usize) -> ConnectionKey {
    ConnectionKey::new(0, number as u32, number)
}

fn presence() -> Presence {
    Presence::new(PresenceConfig::default())
}

fn join(presence: &Presence, number: usize, user: &str, topics: &[&str], data: &str) -> Vec<(ChangeKind, String)> {
    let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    let data = presence.check(data).unwrap();
    changes(|notify| presence.join(key(number), user, &topics, &data, notify))
}

fn leave(presence: &Presence, number: usize, topics: Option<&[&str]>) -> Vec<(ChangeKind, String)> {
    changes(|notify| presence.leave(key(number), topics, notify))
}

fn changes(change: impl FnOnce(&mut dyn FnMut(PresenceChange))) -> Vec<(ChangeKind, String)> {
    let mut changes = Vec::new();
    change(&mut |change| {
        assert_eq!(change.local_kind, change.remote_kind, "no other instance has users in this test");
        changes.push((change.local_kind.unwrap(), change.topic.to_string()));
    });
    changes.sort_by(|one, other| one.1.cmp(&other.1));
    changes
}

#[test]
fn a_user_joins_with_its_first_connection_and_leaves_with_its_last() {
    let presence = presence();
    assert_eq!(
        join(&presence, 1, "u", &["a", "b"], "{}"),
        [(ChangeKind::Join, "a".into()), (ChangeKind::Join, "b".into())]
    );
    assert_eq!(join(&presence, 2, "u", &["a"], "{}"), []);
    assert_eq!((presence.stats("a"), presence.stats("b"), presence.size()), ((1, 2), (1, 1), (2, 2)));
    assert_eq!(leave(&presence, 1, None), [(ChangeKind::Leave, "b".into())]);
    assert_eq!(leave(&presence, 2, Some(&["a", "x"])), [(ChangeKind::Leave, "a".into())]);
    assert_eq!(leave(&presence, 2, None), []);
    assert_eq!((presence.size(), presence.state().connections.len()), ((0, 0), 0));
}

#[test]
fn the_last_data_wins_and_is_reported_only_if_it_changed() {
    let presence = presence();
    join(&presence, 1, "u", &["a", "b"], r#"{"s": 1}"#);
    assert_eq!(join(&presence, 2, "u", &["a"], r#"{"s":2}"#), [(ChangeKind::Update, "a".into())]);
    let new = presence.check(r#"{"s":2}"#).unwrap();
    assert_eq!(changes(|notify| presence.update(key(1), &new, notify)), [(ChangeKind::Update, "b".into())]);
    assert_eq!(changes(|notify| presence.update(key(9), &new, notify)), []);
    let members = presence.members("a");
    assert_eq!((members["u"].data.get(), members["u"].connections), (r#"{"s":2}"#, 2));
}

#[test]
fn data_and_members_are_bounded() {
    let presence = Presence::new(PresenceConfig { max_data_size: 10, max_members: 1 });
    assert_eq!(presence.check(r#"{ "s" : 1 }"#).as_deref(), Ok(r#"{"s":1}"#));
    assert_eq!(presence.check(r#"{"s":12345}"#), Err(PresenceError::TooLong { bytes: 11, maximum: 10 }));
    assert!(matches!(presence.check("{"), Err(PresenceError::InvalidJson { .. })));
    assert!(matches!(presence.check(&" ".repeat(100)), Err(PresenceError::TooLong { .. })));
    assert_eq!(join(&presence, 1, "u", &["a"], "1").len(), 1);
    assert_eq!(join(&presence, 2, "v", &["a", "b"], "1"), [(ChangeKind::Join, "b".into())]);
    assert_eq!(leave(&presence, 2, None), [(ChangeKind::Leave, "b".into())]);
    assert_eq!(presence.size(), (1, 1));
}

proptest! {
    #[test]
    fn users_are_present_in_the_topics_of_their_connections(steps in proptest::collection::vec((0..6_usize, 0..3_usize, 0..3_u8), 0..80)) {
        let presence = presence();
        let names = ["a", "b", "c"];
        let mut plain = std::collections::BTreeSet::new();
        for (number, topic, step) in steps {
            // Two connections per user.
            let (user, topic) = (format!("u{}", number / 2), names[topic]);
            let before = plain.iter().any(|(other, at)| other / 2 == number / 2 && *at == topic);
            let events = match step {
                0 => {
                    plain.remove(&(number, topic));
                    leave(&presence, number, Some(&[topic]))
                }
                _ => {
                    plain.insert((number, topic));
                    join(&presence, number, &user, &[topic], "{}")
                }
            };
            let after = plain.iter().any(|(other, at)| other / 2 == number / 2 && *at == topic);
            let expected = match (before, after) {
                (false, true) => vec![(ChangeKind::Join, topic.to_owned())],
                (true, false) => vec![(ChangeKind::Leave, topic.to_owned())],
                _ => vec![],
            };
            prop_assert_eq!(events, expected);
            for name in names {
                let record = plain.iter().filter(|(_, at)| *at == name).count();
                prop_assert_eq!(presence.stats(name).1, record);
            }
        }
    }
}
