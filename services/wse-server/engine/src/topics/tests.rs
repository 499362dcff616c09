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
    fn apply(&mut self, connection: ConnectionKey, change: SubscriptionChange) {
        match change {
            SubscriptionChange::Subscribed(id) => assert!(self.0.entry(id).or_default().insert(connection)),
            SubscriptionChange::Registered => {}
            SubscriptionChange::Unsubscribed(id) => assert!(self.0.entry(id).or_default().remove(&connection)),
        }
    }

    fn of(&self, audience: &Audience) -> BTreeSet<ConnectionKey> {
        audience.topics.iter().flat_map(|id| self.0.get(id).into_iter().flatten().copied()).collect()
    }
}

struct TopicsFixture {
    topics: Topics,
    lists: Lists,
}

impl TopicsFixture {
    fn new() -> Self {
        Self::with_limit(0)
    }

    fn with_limit(maximum: usize) -> Self {
        Self { topics: Topics::new(SHARDS, maximum, Arc::default()), lists: Lists::default() }
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
fn a_message_reaches_each_subscriber_once_by_name_or_by_pattern() {
    let mut fixture = TopicsFixture::new();
    assert_eq!(fixture.topics.audience("a.b", 1), Audience::default());
    fixture.subscribe(1, &["a.b", "a.*"], None).unwrap();
    fixture.subscribe(2, &["a.?"], None).unwrap();
    fixture.subscribe(3, &["a.c"], None).unwrap();
    assert_eq!(fixture.listeners("a.b"), [1, 2]);
    assert_eq!(fixture.topics.audience("a.b", 1).shards, [1, 2]);
    assert_eq!(fixture.listeners("a.c"), [1, 2, 3]);
    assert_eq!(fixture.listeners("a.bb"), [1]);
    assert!(fixture.listeners("b").is_empty());
    // A new subscription to a pattern invalidates the cached match of a name.
    fixture.subscribe(4, &["*"], None).unwrap();
    assert_eq!(fixture.listeners("a.b"), [1, 2, 4]);
    assert_eq!(fixture.unsubscribe(1, None), 2);
    assert_eq!((fixture.topics.subscriber_count("a.b"), fixture.topics.subscriber_count("a.?")), (0, 1));
    fixture.topics.leave(key(2));
    assert_eq!(fixture.topics.subscriber_count("a.?"), 0);
}

#[test]
fn a_name_that_looks_like_a_pattern_is_not_the_exact_topic_of_a_publication() {
    let mut fixture = TopicsFixture::new();
    fixture.subscribe(1, &["a.*"], None).unwrap();
    // The text of a pattern matches the pattern itself, once.
    assert_eq!(fixture.topics.audience("a.*", 1).topics.len(), 1);
}

#[test]
fn a_queue_group_picks_its_members_in_turn_and_tries_each_once() {
    let mut fixture = TopicsFixture::new();
    for member in 1..=3 {
        fixture.subscribe(member, &["jobs"], Some("workers")).unwrap();
    }
    fixture.subscribe(4, &["jobs"], None).unwrap();
    let mut picks: Vec<Pick> = (0..6).flat_map(|_| fixture.topics.audience("jobs", 1).picks).collect();
    assert_eq!(picks.iter().map(|pick| pick.connection.slot()).collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3]);
    assert_eq!(fixture.listeners("jobs"), [4]);
    let first = picks.remove(0);
    let second = fixture.topics.next_pick(&first).unwrap();
    // Other messages take their turns meanwhile.
    fixture.topics.audience("jobs", 1);
    let third = fixture.topics.next_pick(&second).unwrap();
    assert_eq!([&second, &third].map(|pick| pick.connection.slot()), [2, 3]);
    assert_eq!(fixture.topics.next_pick(&third), None);
    assert_eq!(fixture.topics.groups("jobs"), HashMap::from([("workers".into(), 3)]));
    assert_eq!(fixture.topics.subscriber_count("jobs"), 4);
    (1..=3).for_each(|member| fixture.topics.leave(key(member)));
    assert!(fixture.topics.audience("jobs", 1).picks.is_empty() && fixture.topics.groups("jobs").is_empty());
    assert_eq!(fixture.topics.next_pick(&first), None);
}

#[test]
fn a_queue_group_gets_a_message_once_even_if_several_of_its_topics_match() {
    let mut fixture = TopicsFixture::new();
    fixture.subscribe(1, &["jobs.a", "jobs.*"], Some("workers")).unwrap();
    assert_eq!(fixture.topics.audience("jobs.a", 1).picks.len(), 1);
}

#[test]
fn subscribing_again_changes_the_group_and_counts_once() {
    let mut fixture = TopicsFixture::with_limit(2);
    fixture.subscribe(1, &["a", "a"], None).unwrap();
    fixture.subscribe(1, &["a"], Some("g")).unwrap();
    assert_eq!((fixture.listeners("a"), fixture.topics.audience("a", 1).picks.len()), (vec![], 1));
    fixture.subscribe(1, &["a", "b"], None).unwrap();
    assert_eq!((fixture.listeners("a"), fixture.topics.audience("a", 1).picks.len()), (vec![1], 0));
    let error = fixture.subscribe(1, &["c"], None).unwrap_err();
    assert_eq!(error, TopicError::TooManySubscriptions { requested: 3, maximum: 2 });
    assert!(fixture.listeners("c").is_empty());
}

#[test]
fn invalid_names_are_refused_and_change_nothing() {
    let mut fixture = TopicsFixture::new();
    for name in ["", " ", "a\nb", "a\u{7f}", &"x".repeat(513)] {
        assert!(fixture.subscribe(1, &["fine", name], None).is_err(), "{name:?}");
        assert!(fixture.subscribe(1, &["fine"], Some(name)).is_err(), "{name:?}");
    }
    assert_eq!(fixture.topics.subscriber_count("fine"), 0);
}

#[test]
fn an_acl_applies_to_new_and_existing_subscriptions() {
    let mut fixture = TopicsFixture::new();
    fixture.subscribe(1, &["public.a", "secret.a"], None).unwrap();
    let acl = TopicAcl::new(vec!["public.*".into()], Vec::new()).unwrap();
    let connection = key(1);
    fixture.topics.set_acl(connection, acl, |change| fixture.lists.apply(connection, change));
    assert_eq!((fixture.listeners("public.a"), fixture.listeners("secret.a")), (vec![1], vec![]));
    assert_eq!(fixture.subscribe(1, &["public.b", "secret.b", "*"], None).unwrap(), ["public.b"]);
    assert_eq!(fixture.topics.busiest(10).0, 2);
}

#[test]
fn the_busiest_topics_come_first() {
    let mut fixture = TopicsFixture::new();
    fixture.subscribe(1, &["a", "b", "c"], None).unwrap();
    for (name, times) in [("a", 1), ("b", 3), ("unsubscribed", 9)] {
        (0..times).for_each(|_| drop(fixture.topics.audience(name, 1)));
    }
    assert_eq!(fixture.topics.busiest(1), (3, vec![("b".into(), 3)]));
    assert_eq!(fixture.topics.busiest(9).1, [("b".into(), 3), ("a".into(), 1)]);
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
    fn subscribers_match_the_plain_definition(steps in steps(), name in "[ab]{1,3}") {
        let mut fixture = TopicsFixture::new();
        let mut plain: BTreeMap<(usize, String), Option<&str>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Subscribe(number, topic, group) => {
                    fixture.subscribe(number, &[&topic], group).unwrap();
                    plain.insert((number, topic), group);
                }
                Step::Unsubscribe(number, topic) => {
                    let had = plain.remove(&(number, topic.clone())).is_some();
                    prop_assert_eq!(fixture.unsubscribe(number, Some(&[&topic])), usize::from(had));
                }
                Step::Leave(number) => {
                    // A shard removes a closed connection from its lists by itself.
                    fixture.lists.0.values_mut().for_each(|list| { list.remove(&key(number)); });
                    fixture.topics.leave(key(number));
                    plain.retain(|(other, _), _| *other != number);
                }
            }
            let fits = |topic: &String| *topic == name || glob::is_pattern(topic) && glob::matches(topic, &name);
            let listening: BTreeSet<usize> = plain.iter()
                .filter(|((_, topic), group)| group.is_none() && fits(topic)).map(|((number, _), _)| *number).collect();
            prop_assert_eq!(fixture.listeners(&name).into_iter().collect::<BTreeSet<_>>(), listening);
            let has_group = plain.iter().any(|((_, topic), group)| group.is_some() && fits(topic));
            prop_assert_eq!(fixture.topics.audience(&name, 1).picks.len(), usize::from(has_group));
        }
        (0..5).for_each(|number| fixture.topics.leave(key(number)));
        prop_assert_eq!(fixture.topics.busiest(1), (0, vec![]));
    }
}

/// The changes that were reported to the links, in order.
#[derive(Default)]
struct ReportedChanges(std::sync::Mutex<Vec<(String, bool)>>);

impl crate::links::Carrier for ReportedChanges {
    fn publish(&self, _: &str, _: &[crate::links::Publication<'_>]) {}

    fn set_interest(&self, topic: &str, requested: bool) {
        lock(&self.0).push((topic.to_owned(), requested));
    }

    fn audience(&self, _: &str) -> usize {
        1
    }
}

#[test]
fn the_links_are_notified_of_the_first_and_the_last_subscriber() {
    let (links, reported) = (Arc::new(Links::default()), Arc::new(ReportedChanges::default()));
    let topics = Topics::new(SHARDS, 0, Arc::clone(&links));
    topics.subscribe(key(0), &["before"], None, |_| {}).unwrap();
    links.add(reported.clone());
    assert_eq!(topics.requested(), ["before".into()]);
    for number in 0..2 {
        topics.subscribe(key(number), &["a", "b.*"], None, |_| {}).unwrap();
    }
    topics.subscribe(key(2), &["a"], Some("group"), |_| {}).unwrap();
    topics.leave(key(0));
    topics.unsubscribe(key(1), None, |_| {});
    topics.leave(key(2));
    let reported = std::mem::take(&mut *lock(&reported.0));
    let reported: Vec<_> = reported.iter().map(|(topic, requested)| (topic.as_str(), *requested)).collect();
    assert_eq!(reported, [("a", true), ("b.*", true), ("before", false), ("b.*", false), ("a", false)]);
    assert!(topics.requested().is_empty() && links.audience("a") == 1);
}

#[test]
fn publishers_do_not_wait_while_a_connection_s_topics_are_compared_with_its_rules() {
    use std::sync::atomic::AtomicBool;

    let topics = Topics::new(SHARDS, 0, Arc::default());
    let rules = vec![format!("{}*", "a?".repeat(250)); 6];
    topics.set_acl(key(1), TopicAcl::new(rules, Vec::new()).unwrap(), |_| {});
    let requested: Vec<String> = (0..20).map(|number| format!("{}{number}", "a*".repeat(245))).collect();
    let (is_comparing, has_compared) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            is_comparing.store(true, Ordering::SeqCst);
            let requested: Vec<&str> = requested.iter().map(String::as_str).collect();
            assert_eq!(topics.subscribe(key(1), &requested, None, |_| {}), Ok(Vec::new()));
            has_compared.store(true, Ordering::SeqCst);
        });
        while !is_comparing.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // The first ones may come before the comparison takes a lock.
        let mut meanwhile = 0;
        while !has_compared.load(Ordering::SeqCst) {
            topics.audience("news", 1);
            meanwhile += 1;
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(meanwhile > 10, "{meanwhile} publications during the comparison");
    });
}
