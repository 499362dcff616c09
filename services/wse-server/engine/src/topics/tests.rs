use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const SHARDS: usize = 3;

fn key(number: usize) -> ConnectionKey {
    ConnectionKey::new((number % SHARDS) as u8, number as u32, number)
}

/// The lists of subscribers by topic, as shards keep them.
#[derive(Default)]
struct Lists(BTreeMap<TopicId, BTreeSet<ConnectionKey>>);

impl Lists {
    fn apply(&mut self, connection: ConnectionKey, change: Change) {
        match change {
            Change::Listen(id) => assert!(self.0.entry(id).or_default().insert(connection)),
            Change::Enlist => {}
            Change::Ignore(id) => assert!(self.0.entry(id).or_default().remove(&connection)),
        }
    }

    fn of(&self, audience: &Audience) -> BTreeSet<ConnectionKey> {
        audience.topics.iter().flat_map(|id| self.0.get(id).into_iter().flatten().copied()).collect()
    }
}

struct World {
    topics: Topics,
    lists: Lists,
}

impl World {
    fn new() -> Self {
        Self::with_limit(0)
    }

    fn with_limit(most: usize) -> Self {
        Self { topics: Topics::new(SHARDS, most, Arc::default()), lists: Lists::default() }
    }

    fn subscribe(&mut self, number: usize, topics: &[&str], group: Option<&str>) -> Result<Vec<String>, TopicError> {
        let connection = key(number);
        self.topics.subscribe(connection, topics, group, |change| self.lists.apply(connection, change))
    }

    fn unsubscribe(&mut self, number: usize, topics: Option<&[&str]>) -> usize {
        let connection = key(number);
        self.topics.unsubscribe(connection, topics, |change| self.lists.apply(connection, change))
    }

    fn listeners(&self, name: &str) -> Vec<usize> {
        let keys = self.lists.of(&self.topics.audience(name, 1));
        keys.iter().map(|key| key.slot()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

#[test]
fn a_message_is_for_whoever_has_its_topic_by_name_or_by_pattern_once() {
    let mut world = World::new();
    assert_eq!(world.topics.audience("a.b", 1), Audience::default());
    world.subscribe(1, &["a.b", "a.*"], None).unwrap();
    world.subscribe(2, &["a.?"], None).unwrap();
    world.subscribe(3, &["a.c"], None).unwrap();
    assert_eq!(world.listeners("a.b"), [1, 2]);
    assert_eq!(world.topics.audience("a.b", 1).shards, [1, 2]);
    assert_eq!(world.listeners("a.c"), [1, 2, 3]);
    assert_eq!(world.listeners("a.bb"), [1]);
    assert!(world.listeners("b").is_empty());
    // A new subscription to a pattern invalidates the cached match of a name.
    world.subscribe(4, &["*"], None).unwrap();
    assert_eq!(world.listeners("a.b"), [1, 2, 4]);
    assert_eq!(world.unsubscribe(1, None), 2);
    assert_eq!((world.topics.subscriber_count("a.b"), world.topics.subscriber_count("a.?")), (0, 1));
    world.topics.leave(key(2));
    assert_eq!(world.topics.subscriber_count("a.?"), 0);
}

#[test]
fn a_name_that_looks_like_a_pattern_is_no_publication_s_exact_topic() {
    let mut world = World::new();
    world.subscribe(1, &["a.*"], None).unwrap();
    // The text of a pattern matches the pattern itself, once.
    assert_eq!(world.topics.audience("a.*", 1).topics.len(), 1);
}

#[test]
fn a_group_hands_each_message_to_one_member_in_turn_and_tries_each_once() {
    let mut world = World::new();
    for member in 1..=3 {
        world.subscribe(member, &["jobs"], Some("workers")).unwrap();
    }
    world.subscribe(4, &["jobs"], None).unwrap();
    let mut picks: Vec<Pick> = (0..6).flat_map(|_| world.topics.audience("jobs", 1).picks).collect();
    assert_eq!(picks.iter().map(|pick| pick.connection.slot()).collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3]);
    assert_eq!(world.listeners("jobs"), [4]);
    let first = picks.remove(0);
    let second = world.topics.another(&first).unwrap();
    // Other messages take their turns meanwhile.
    world.topics.audience("jobs", 1);
    let third = world.topics.another(&second).unwrap();
    assert_eq!([&second, &third].map(|pick| pick.connection.slot()), [2, 3]);
    assert_eq!(world.topics.another(&third), None);
    assert_eq!(world.topics.groups("jobs"), HashMap::from([("workers".into(), 3)]));
    assert_eq!(world.topics.subscriber_count("jobs"), 4);
    (1..=3).for_each(|member| world.topics.leave(key(member)));
    assert!(world.topics.audience("jobs", 1).picks.is_empty() && world.topics.groups("jobs").is_empty());
    assert_eq!(world.topics.another(&first), None);
}

#[test]
fn a_group_of_one_name_gets_a_message_once_however_many_topics_fit() {
    let mut world = World::new();
    world.subscribe(1, &["jobs.a", "jobs.*"], Some("workers")).unwrap();
    assert_eq!(world.topics.audience("jobs.a", 1).picks.len(), 1);
}

#[test]
fn subscribing_again_changes_the_way_and_counts_once() {
    let mut world = World::with_limit(2);
    world.subscribe(1, &["a", "a"], None).unwrap();
    world.subscribe(1, &["a"], Some("g")).unwrap();
    assert_eq!((world.listeners("a"), world.topics.audience("a", 1).picks.len()), (vec![], 1));
    world.subscribe(1, &["a", "b"], None).unwrap();
    assert_eq!((world.listeners("a"), world.topics.audience("a", 1).picks.len()), (vec![1], 0));
    let error = world.subscribe(1, &["c"], None).unwrap_err();
    assert_eq!(error, TopicError::TooManySubscriptions { wanted: 3, most: 2 });
    assert!(world.listeners("c").is_empty());
}

#[test]
fn names_that_are_none_are_refused_and_change_nothing() {
    let mut world = World::new();
    for name in ["", " ", "a\nb", "a\u{7f}", &"x".repeat(513)] {
        assert!(world.subscribe(1, &["fine", name], None).is_err(), "{name:?}");
        assert!(world.subscribe(1, &["fine"], Some(name)).is_err(), "{name:?}");
    }
    assert_eq!(world.topics.subscriber_count("fine"), 0);
}

#[test]
fn an_acl_holds_from_now_on_and_for_what_is_there() {
    let mut world = World::new();
    world.subscribe(1, &["public.a", "secret.a"], None).unwrap();
    let acl = TopicAcl::new(vec!["public.*".into()], Vec::new()).unwrap();
    let connection = key(1);
    world.topics.set_acl(connection, acl, |change| world.lists.apply(connection, change));
    assert_eq!((world.listeners("public.a"), world.listeners("secret.a")), (vec![1], vec![]));
    assert_eq!(world.subscribe(1, &["public.b", "secret.b", "*"], None).unwrap(), ["public.b"]);
    assert_eq!(world.topics.busiest(10).0, 2);
}

#[test]
fn the_busiest_topics_come_first() {
    let mut world = World::new();
    world.subscribe(1, &["a", "b", "c"], None).unwrap();
    for (name, times) in [("a", 1), ("b", 3), ("nobody", 9)] {
        (0..times).for_each(|_| drop(world.topics.audience(name, 1)));
    }
    assert_eq!(world.topics.busiest(1), (3, vec![("b".into(), 3)]));
    assert_eq!(world.topics.busiest(9).1, [("b".into(), 3), ("a".into(), 1)]);
}

#[derive(Clone, Debug)]
enum Step {
    Subscribe(usize, String, Option<&'static str>),
    Unsubscribe(usize, String),
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let topic = || "[ab*?]{1,3}";
    let step = prop_oneof![
        3 => (0..5_usize, topic(), prop_oneof![Just(None), Just(Some("g"))])
            .prop_map(|(number, topic, group)| Step::Subscribe(number, topic, group)),
        1 => (0..5_usize, topic()).prop_map(|(number, topic)| Step::Unsubscribe(number, topic)),
        1 => (0..5_usize).prop_map(Step::Leave),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn whoever_listens_is_who_would_by_the_plain_definition(steps in steps(), name in "[ab]{1,3}") {
        let mut world = World::new();
        let mut plain: BTreeMap<(usize, String), Option<&str>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Subscribe(number, topic, group) => {
                    world.subscribe(number, &[&topic], group).unwrap();
                    plain.insert((number, topic), group);
                }
                Step::Unsubscribe(number, topic) => {
                    let had = plain.remove(&(number, topic.clone())).is_some();
                    prop_assert_eq!(world.unsubscribe(number, Some(&[&topic])), usize::from(had));
                }
                Step::Leave(number) => {
                    // A shard removes a closed connection from its lists by itself.
                    world.lists.0.values_mut().for_each(|list| { list.remove(&key(number)); });
                    world.topics.leave(key(number));
                    plain.retain(|(other, _), _| *other != number);
                }
            }
            let fits = |topic: &String| *topic == name || glob::is_pattern(topic) && glob::matches(topic, &name);
            let listening: BTreeSet<usize> = plain.iter()
                .filter(|((_, topic), group)| group.is_none() && fits(topic)).map(|((number, _), _)| *number).collect();
            prop_assert_eq!(world.listeners(&name).into_iter().collect::<BTreeSet<_>>(), listening);
            let has_group = plain.iter().any(|((_, topic), group)| group.is_some() && fits(topic));
            prop_assert_eq!(world.topics.audience(&name, 1).picks.len(), usize::from(has_group));
        }
        (0..5).for_each(|number| world.topics.leave(key(number)));
        prop_assert_eq!(world.topics.busiest(1), (0, vec![]));
    }
}

/// The changes that were reported to the links, in order.
#[derive(Default)]
struct Told(std::sync::Mutex<Vec<(String, bool)>>);

impl crate::links::Carrier for Told {
    fn publish(&self, _: &str, _: &[crate::links::Publication<'_>]) {}

    fn want(&self, topic: &str, wanted: bool) {
        lock(&self.0).push((topic.to_owned(), wanted));
    }

    fn audience(&self, _: &str) -> usize {
        1
    }
}

#[test]
fn the_links_are_told_of_the_first_subscriber_and_of_the_last_one_that_leaves() {
    let (links, told) = (Arc::new(Links::default()), Arc::new(Told::default()));
    let topics = Topics::new(SHARDS, 0, Arc::clone(&links));
    topics.subscribe(key(0), &["before"], None, |_| {}).unwrap();
    links.add(told.clone());
    assert_eq!(topics.wanted(), ["before".into()]);
    for number in 0..2 {
        topics.subscribe(key(number), &["a", "b.*"], None, |_| {}).unwrap();
    }
    topics.subscribe(key(2), &["a"], Some("group"), |_| {}).unwrap();
    topics.leave(key(0));
    topics.unsubscribe(key(1), None, |_| {});
    topics.leave(key(2));
    let told = std::mem::take(&mut *lock(&told.0));
    let told: Vec<_> = told.iter().map(|(topic, wanted)| (topic.as_str(), *wanted)).collect();
    assert_eq!(told, [("a", true), ("b.*", true), ("before", false), ("b.*", false), ("a", false)]);
    assert!(topics.wanted().is_empty() && links.audience("a") == 1);
}
