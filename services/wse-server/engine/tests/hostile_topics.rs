//! Hostile clients of topics: many subscriptions, very long names, thousands of patterns, floods of presence changes.
//! Their cost is bounded, and no memory stays in use afterwards.

mod client;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use client::{Client, config, start, until};
use wse_engine::{Config, PresenceConfig, PresenceError, Server, TopicError};

/// A lock that keeps other tests of this process from running meanwhile, because memory is measured.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn subscribers(server: &Server, count: usize) -> Vec<(Client, String)> {
    (0..count).map(|_| Client::ready(server.address())).collect()
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn metrics_contain(server: &Server, line: &str) -> bool {
    server.prometheus_text().contains(&format!("\n{line}\n"))
}

#[test]
fn repeated_storms_of_100_000_topics_leave_nothing_behind_and_stall_no_client() {
    let _alone = alone();
    let server = start(config());
    let (mut bystander, id) = Client::ready(server.address());
    server.subscribe(&id, &["calm"], None).unwrap();
    let (_client, hostile) = Client::ready(server.address());
    let mut after_round = Vec::new();
    for round in 0..6 {
        for part in 0..100 {
            let names: Vec<String> = (0..1000).map(|n| format!("storm {round} {part} {n}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            assert_eq!(server.subscribe(&hostile, &names, None).unwrap().len(), 1000);
            let sent_at = Instant::now();
            server.broadcast("calm", "{}");
            assert_eq!(bystander.text(), "{}");
            assert!(sent_at.elapsed() < Duration::from_secs(5), "{:?}", sent_at.elapsed());
        }
        assert!(metrics_contain(&server, "wse_topics 100001"));
        assert_eq!(server.unsubscribe(&hostile, None), 100_000);
        assert!(metrics_contain(&server, "wse_topics 1"));
        // When the broadcast arrives, the shard has processed the changes before it.
        server.broadcast("calm", "{}");
        assert_eq!(bystander.text(), "{}");
        after_round.push(resident());
    }
    // Hash tables with much insertion and removal grow once more after the first round. Then their size is enough for
    // all later rounds.
    assert!(after_round[5] < after_round[2] + (16 << 20), "{after_round:?}");
    assert!(after_round[5] < 256 << 20, "{after_round:?}");
}

#[test]
fn the_limit_of_subscriptions_holds_in_every_storm() {
    let _alone = alone();
    let server = start(Config { max_subscriptions_per_connection: 100, ..config() });
    let clients = subscribers(&server, 2);
    let names: Vec<String> = (0..150).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (_, id) in &clients {
        let refused = server.subscribe(id, &names, None);
        assert_eq!(refused, Err(TopicError::TooManySubscriptions { requested: 150, maximum: 100 }));
        server.subscribe(id, &names[..100], None).unwrap();
        assert!(server.subscribe(id, &names[100..101], None).is_err());
        // Subscriptions that the connection already has don't count again.
        server.subscribe(id, &names[..100], None).unwrap();
    }
    assert!(metrics_contain(&server, "wse_topics 100"));
    drop(clients);
    until("forgetting", || metrics_contain(&server, "wse_topics 0"));
}

#[test]
fn oversized_and_invalid_names_refuse_the_complete_request() {
    let _alone = alone();
    let server = start(config());
    let (_client, id) = Client::ready(server.address());
    for bad in
        ["x".repeat(513), "é".repeat(257), "*".repeat(1 << 20), "a\nb".into(), "\0".into(), " ".into(), String::new()]
    {
        assert!(server.subscribe(&id, &["good", &bad], None).is_err());
        assert!(server.subscribe_with_recovery(&id, &["good", &bad], None).is_err());
    }
    assert!(server.subscribe(&id, &["good"], Some(&"g".repeat(513))).is_err());
    assert!(metrics_contain(&server, "wse_topics 0"));
    assert_eq!(server.subscribe(&id, &[&"x".repeat(512)], None).unwrap().len(), 1);
}

#[test]
fn thousands_of_slow_patterns_delay_publications_but_block_none() {
    let _alone = alone();
    let server = start(config());
    let mut clients = subscribers(&server, 2);
    let patterns: Vec<String> = (0..5000).map(|n| format!("{}{n}", "*a".repeat(24))).collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    server.subscribe(&clients[0].1, &patterns, None).unwrap();
    server.subscribe(&clients[1].1, &["*"], None).unwrap();
    let started = Instant::now();
    // Each pattern almost matches each of these names.
    for n in 0..10 {
        server.broadcast(&format!("{}b{n}", "a".repeat(60)), &n.to_string());
    }
    let unknown = started.elapsed();
    for n in 0..10 {
        assert_eq!(clients[1].0.text(), n.to_string());
    }
    assert!(unknown < Duration::from_secs(15), "{unknown:?}");
    // The matching patterns are cached for each name, so only the first publication to it is slow.
    let started = Instant::now();
    (0..10_000).for_each(|_| server.broadcast(&format!("{}b3", "a".repeat(60)), "again"));
    assert!(started.elapsed() < unknown.max(Duration::from_secs(2)), "{:?} {unknown:?}", started.elapsed());
    server.broadcast(&format!("{}77", "a".repeat(24)), "fits");
    assert_eq!(clients[0].0.text(), "fits");
}

#[test]
fn publishers_that_invent_names_take_no_memory() {
    let _alone = alone();
    let server = start(config());
    let (_client, id) = Client::ready(server.address());
    server.subscribe(&id, &["never *"], None).unwrap();
    let publish = |from: usize| (from..from + 100_000).for_each(|n| server.broadcast(&format!("invented {n}"), "{}"));
    publish(0);
    let before = resident();
    publish(100_000);
    assert!(resident() < before + (16 << 20), "{before} {}", resident());
}

#[test]
fn presence_is_bounded_by_members_and_data_and_removed_with_its_connections() {
    let _alone = alone();
    let presence = PresenceConfig { max_data_size: 64, max_members: 20 };
    let server = start(Config { presence: Some(presence), jwt: None, ..config() });
    let clients: Vec<Client> = (0..60).map(|_| Client::open_with(server.address(), "/wse", "")).collect();
    until("connecting", || server.connections().len() == 60);
    for id in server.connections() {
        server.subscribe_and_join(&id, &["room"], None, r#"{"s":0}"#).unwrap();
        assert!(server.presence_stats("room").0 <= 20);
    }
    assert_eq!(server.presence_stats("room"), (20, 20));
    let ids = server.connections();
    for n in 0..20_000 {
        server.update_presence(&ids[n % ids.len()], &format!(r#"{{"s":{n}}}"#)).unwrap();
    }
    let long = format!(r#""{}""#, "x".repeat(100));
    for data in [long.as_str(), "no json", "", "{\"a\":"] {
        assert!(server.update_presence(&ids[0], data).is_err(), "{data}");
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert!(matches!(
        server.update_presence(&ids[0], &deep),
        Err(PresenceError::TooLong { .. } | PresenceError::InvalidJson { .. })
    ));
    assert!(server.members("room").values().all(|member| member.data.get().len() <= 64));
    drop(clients);
    until("leaving", || server.presence_stats("room") == (0, 0) && metrics_contain(&server, "wse_presence_users 0"));
}
