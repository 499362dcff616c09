//! Several servers with a real Redis between them: no publication arrives twice, each missing one is counted, and no
//! publisher stalls.

mod client;
#[path = "redis/publications.rs"]
mod publications;
#[path = "redis/server.rs"]
mod server;

use std::{
    collections::HashMap,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use client::{Client, config, start, until};
use publications::{
    assert_balanced, counted, dropped, end_marker, is_ascending, joined, joined_within, long_timeouts, settled,
    subscriber, tick, times, until_end_markers,
};
use serde_json::Value;
use server::{RedisProxy, RedisServer};
use wse_engine::{Config, Position, RecoveryConfig, RedisTiming, Server};

#[test]
fn two_publishers_and_two_subscribers_under_load_have_exact_books() {
    const COUNT: u64 = 20_000;
    let redis = RedisServer::start(&[]);
    // Publishers wait for the backlog of their server, so no publication is dropped.
    let config = || Config { max_publish_backlog_bytes: 1 << 20, ..config() };
    let servers: Vec<Server> = (0..4).map(|_| joined_within(config(), &redis.url(), long_timeouts())).collect();
    let mut clients = [
        subscriber(&servers[2], &["load", "loa?"]),
        subscriber(&servers[3], &["l*"]),
        subscriber(&servers[0], &["load"]),
    ];
    until("subscribing", || redis.interest() == (1, 2) && servers[1].topic_interest("load") == 2);
    let publish = |server: &Server, name: &str| {
        for from in (0..COUNT).step_by(50) {
            let texts: Vec<String> = (from..from + 49).map(|number| tick(name, number)).collect();
            server.broadcast_many("load", &texts);
            server.broadcast("load", &tick(name, from + 49));
            assert_balanced(&server.redis_stats().unwrap());
        }
        server.broadcast("load", &end_marker(name));
    };
    let got = thread::scope(|scope| {
        scope.spawn(|| publish(&servers[0], "a"));
        scope.spawn(|| publish(&servers[1], "b"));
        let readers = clients.each_mut().map(|client| scope.spawn(|| until_end_markers(client, 2)));
        readers.map(|reader| reader.join().unwrap())
    });
    for (client, got) in got.iter().enumerate() {
        for publisher in ["a", "b"] {
            let stats: Vec<_> = servers.iter().map(Server::redis_stats).collect();
            assert!(got[publisher].iter().copied().eq(0..COUNT), "client {client}, publisher {publisher}: {stats:?}");
        }
    }
    for (server, published, received) in
        [(0, COUNT + 1, COUNT + 1), (1, COUNT + 1, 0), (2, 0, 2 * COUNT + 2), (3, 0, 2 * COUNT + 2)]
    {
        settled(&servers[server]);
        let stats = counted(&servers[server], received);
        assert_eq!((stats.published, stats.sent), (published, published), "server {server}");
        let books = (stats.received, stats.delivered, stats.lost, stats.malformed);
        assert_eq!(books, (received, received, 0, 0), "server {server}");
    }
    // Each publication came once by the name and once by the pattern, and was delivered once.
    assert_eq!(servers[2].redis_stats().unwrap().duplicates, 2 * COUNT + 2);
}

#[test]
fn after_redis_is_killed_and_restarted_every_message_is_delivered_or_counted() {
    let mut redis = RedisServer::start(&[]);
    let (publisher, receiver) = (joined(config(), &redis.url()), joined(config(), &redis.url()));
    let mut client = subscriber(&receiver, &["a"]);
    until("subscribing", || publisher.topic_interest("a") == 1);
    let mut number = 0;
    let mut publish_for = |milliseconds: u64| {
        let over = Instant::now() + Duration::from_millis(milliseconds);
        while Instant::now() < over {
            publisher.broadcast("a", &tick("a", number));
            number += 1;
            thread::sleep(Duration::from_micros(200));
        }
    };
    for _ in 0..3 {
        publish_for(100);
        redis.kill();
        publish_for(200);
        redis.restart();
        until("connecting again", || publisher.redis_connected() && receiver.redis_connected());
        until("subscribing again", || publisher.topic_interest("a") == 1);
    }
    publish_for(50);
    publisher.broadcast("a", &end_marker("a"));
    let got = until_end_markers(&mut client, 1).remove("a").unwrap();
    let (out, into) = (settled(&publisher), counted(&receiver, got.len() as u64 + 1));
    assert!(is_ascending(&got));
    assert_eq!(out.published, number + 1);
    // Publications without a subscriber, because the receiver connected again later, are missing from its numbers too.
    let undelivered = dropped(&out, "unreachable") + dropped(&out, "unwanted");
    assert_eq!(out.sent + undelivered, into.received + into.lost, "{out:?} {into:?}");
    assert!(dropped(&out, "unreachable") > 0 && out.reconnects >= 3 && into.reconnects >= 3, "{out:?}");
    // The most recent of the dropped publications are in Redis.
    let stored: u64 = redis.command(&["LLEN", "wse:dlq:a"])[1..].parse().unwrap();
    assert!(stored > 0 && stored <= 1000, "{stored}");
}

#[test]
fn a_publication_resent_after_a_lost_reply_arrives_once() {
    let redis = RedisServer::start(&[]);
    let proxy = RedisProxy::to(redis.address());
    let publisher = joined_within(config(), &proxy.url(), long_timeouts());
    let receiver = joined_within(config(), &redis.url(), long_timeouts());
    let mut client = subscriber(&receiver, &["a"]);
    until("subscribing", || publisher.topic_interest("a") == 1);
    for round in 0..5_u64 {
        publisher.broadcast("a", &tick("a", round * 100));
        proxy.withhold();
        for number in round * 100 + 1..(round + 1) * 100 {
            publisher.broadcast("a", &tick("a", number));
        }
        // All of them have arrived, and the publisher has no confirmation.
        until("receiving", || receiver.redis_stats().unwrap().received == (round + 1) * 100);
        proxy.cut();
        until("connecting again", || proxy.connections() == 2 && publisher.redis_connected());
        settled(&publisher);
    }
    publisher.broadcast("a", &end_marker("a"));
    assert!(until_end_markers(&mut client, 1)["a"].iter().copied().eq(0..500));
    until("counting", || receiver.redis_stats().unwrap().received == 501);
    let (out, into) = (settled(&publisher), receiver.redis_stats().unwrap());
    assert_eq!((out.sent, out.dropped.len(), into.received, into.lost), (501, 0, 501, 0), "{out:?} {into:?}");
    assert!(into.duplicates >= 5 * 99, "{into:?}");
}

#[test]
fn a_paused_redis_stalls_neither_publishers_nor_subscribers_of_the_same_server() {
    let redis = RedisServer::start(&[]);
    let (publisher, receiver) = (joined(config(), &redis.url()), joined(config(), &redis.url()));
    let (mut local, mut remote) = (subscriber(&publisher, &["a"]), subscriber(&receiver, &["a"]));
    until("subscribing", || publisher.topic_interest("a") == 1);
    redis.pause();
    let started = Instant::now();
    for number in 0..10_000 {
        publisher.broadcast("a", &tick("a", number));
    }
    publisher.broadcast_local("a", &end_marker("a"));
    assert!(until_end_markers(&mut local, 1)["a"].iter().copied().eq(0..10_000));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let stats = settled(&publisher);
    assert_eq!((stats.published, dropped(&stats, "unreachable")), (10_000, 10_000), "{stats:?}");
    assert_eq!(publisher.dead_letters().len(), 1000);
    redis.resume();
    until("connecting again", || publisher.redis_connected() && receiver.redis_connected());
    until("subscribing again", || publisher.topic_interest("a") == 1);
    publisher.broadcast("a", &end_marker("a"));
    // Redis had read some of them when it resumed.
    let got = until_end_markers(&mut remote, 1).remove("a").unwrap_or_default();
    assert!(is_ascending(&got));
    counted(&receiver, got.len() as u64 + 1);
}

#[test]
fn a_full_queue_drops_and_counts_publications_and_keeps_the_last_as_dead_letters() {
    let mut redis = RedisServer::start(&[]);
    let config = Config { max_outbound_queue_bytes: 64 << 10, ..config() };
    let long_timeouts = RedisTiming { attempts: [Duration::from_secs(60); 2], ..times() };
    let publisher = joined_within(config, &redis.url(), long_timeouts);
    redis.kill();
    until("noticing", || !publisher.redis_connected());
    for number in 0..5_000 {
        publisher.broadcast("a", &tick("a", number));
        assert!(publisher.publish_backlog() <= 64 << 10, "{}", publisher.publish_backlog());
    }
    let stats = publisher.redis_stats().unwrap();
    assert_balanced(&stats);
    assert!(stats.queued > 100 && dropped(&stats, "queue_full") == 5_000 - stats.queued, "{stats:?}");
    let dead_letters = publisher.dead_letters();
    assert_eq!((dead_letters.len(), dead_letters[999].payload.as_str()), (1000, tick("a", 4_999).as_str()));
    assert!(dead_letters[0].error.contains("queue for Redis is full"));
    publisher.broadcast("a", &"x".repeat(17 << 20));
    assert_eq!(dropped(&publisher.redis_stats().unwrap(), "too_big"), 1);
    publisher.stop();
    let stats = publisher.redis_stats().unwrap();
    assert_balanced(&stats);
    assert_eq!((stats.queued, dropped(&stats, "stopped")), (0, 5_001 - 1 - dropped(&stats, "queue_full")));
    publisher.broadcast("a", "{}");
    assert_eq!(publisher.redis_stats().unwrap().published, 5_002);
}

#[test]
fn a_slow_subscriber_pauses_the_reading_from_redis_and_lost_messages_are_counted() {
    // Redis closes the connection of a subscriber with this many undelivered bytes.
    let redis = RedisServer::start(&["--client-output-buffer-limit", "pubsub 256kb 256kb 1"]);
    let publisher = joined_within(config(), &redis.url(), long_timeouts());
    let limited = Config { max_publish_backlog_bytes: 256 << 10, ..config() };
    let receiver = joined_within(limited, &redis.url(), long_timeouts());
    let mut client = subscriber(&receiver, &["a"]);
    until("subscribing", || publisher.topic_interest("a") == 1);
    let text = |number: u64| {
        format!(r#"{{"c":"U","t":"tick","p":{{"by":"a","seq":{number},"pad":"{}"}}}}"#, "x".repeat(10_000))
    };
    let mut number = 0;
    while publisher.topic_interest("a") == 1 {
        publisher.broadcast("a", &text(number));
        number += 1;
        assert!(receiver.publish_backlog() < 4 << 20, "{}", receiver.publish_backlog());
        assert!(number < 100_000, "Redis disconnects no subscriber");
    }
    settled(&publisher);
    let reader = thread::spawn(move || {
        let got = until_end_markers(&mut client, 1);
        (client, got)
    });
    until("subscribing again", || publisher.topic_interest("a") == 1 && receiver.publish_backlog() == 0);
    publisher.broadcast("a", &end_marker("a"));
    let (_client, got) = reader.join().unwrap();
    let (out, into) = (settled(&publisher), counted(&receiver, got["a"].len() as u64 + 1));
    assert!(is_ascending(&got["a"]) && into.lost > 0, "{into:?}");
    assert_eq!(out.sent + dropped(&out, "unwanted"), into.received + into.lost, "{out:?} {into:?}");
}

#[test]
fn a_publication_that_redis_refuses_becomes_a_dead_letter_and_others_are_unaffected() {
    let redis = RedisServer::start(&[]);
    redis.command(&["ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all", "resetchannels", "&wse:open*"]);
    let url = format!("redis://ann:secret@{}", redis.address());
    let (publisher, receiver) =
        (joined_within(config(), &url, long_timeouts()), joined_within(config(), &redis.url(), long_timeouts()));
    let mut client = subscriber(&receiver, &["open", "closed"]);
    until("subscribing", || publisher.topic_interest("open") == 1);
    for number in 0..10 {
        publisher.broadcast("closed", &tick("a", number));
        publisher.broadcast("open", &tick("b", number));
    }
    publisher.broadcast("open", &end_marker("b"));
    assert_eq!(until_end_markers(&mut client, 1), HashMap::from([("b".to_owned(), (0..10).collect())]));
    let stats = settled(&publisher);
    assert_eq!((stats.sent, dropped(&stats, "refused"), stats.publish_errors), (11, 10, 10));
    let dead_letters = publisher.dead_letters();
    assert!(dead_letters.len() == 10 && dead_letters[3].channel == "wse:closed", "{dead_letters:?}");
    assert!(dead_letters[3].payload == tick("a", 3) && dead_letters[3].error.starts_with("NOPERM"), "{dead_letters:?}");
    until("saving", || redis.command(&["LLEN", "wse:dlq:closed"]) == ":10");
    let mut listening = subscriber(&receiver, &["nothing"]);
    // Any server that may publish can replay the dead letters.
    assert_eq!(receiver.replay_dead_letters("closed", 4).unwrap(), 4);
    assert_eq!(receiver.replay_dead_letters("closed", 1000).unwrap(), 6);
    receiver.broadcast_local("closed", &end_marker("a"));
    receiver.broadcast_local("nothing", &end_marker("a"));
    until_end_markers(&mut listening, 1);
    until("replaying", || receiver.redis_stats().unwrap().delivered == 21);
    assert_eq!(redis.command(&["LLEN", "wse:dlq:closed"]), ":0");
}

#[test]
fn failing_connections_are_retried_ever_more_rarely_until_the_breaker_opens() {
    // No process listens behind the proxy, so it closes each connection.
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = RedisProxy::to(unused_address);
    let mut quick = times();
    quick.first_retry = Duration::from_millis(5);
    quick.longest_retry = Duration::from_millis(10);
    quick.breaker.failure_threshold = 4;
    quick.breaker.reset_timeout = Duration::from_secs(60);
    let server = start(config());
    server.connect_redis_within(&proxy.url(), quick).unwrap();
    // Two connections with four attempts each.
    until("trying", || proxy.accepted.load(Ordering::SeqCst) == 8);
    let published = Instant::now();
    server.broadcast("a", "{}");
    until("giving up", || server.redis_stats().unwrap().dead_letters == 1);
    assert!(published.elapsed() >= Duration::from_millis(60));
    assert_eq!(proxy.accepted.load(Ordering::SeqCst), 8);
    assert_eq!(server.topic_interest("a"), 0);
    assert!(server.replay_dead_letters("a", 1).unwrap_err().to_string().contains("no connection"));
    let stopping = Instant::now();
    server.stop();
    assert!(stopping.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_stopping_server_sends_its_queued_publications_to_redis() {
    let redis = RedisServer::start(&[]);
    let receiver = joined_within(config(), &redis.url(), long_timeouts());
    let mut client = subscriber(&receiver, &["a"]);
    until("subscribing", || redis.interest() == (1, 0));
    let publisher = joined_within(config(), &redis.url(), long_timeouts());
    for number in 0..5_000 {
        publisher.broadcast("a", &tick("a", number));
    }
    publisher.broadcast("a", &end_marker("a"));
    publisher.stop();
    let stats = publisher.redis_stats().unwrap();
    assert_eq!((stats.sent, stats.queued, stats.connected), (5_001, 0, 0), "{stats:?}");
    assert!(until_end_markers(&mut client, 1)["a"].iter().copied().eq(0..5_000));
}

#[test]
fn a_reconnected_client_recovers_publications_of_another_instance_unless_some_may_be_lost() {
    let mut redis = RedisServer::start(&[]);
    let recovery = |seconds| {
        let ttl = Duration::from_secs(seconds);
        Some(RecoveryConfig { ttl, ..RecoveryConfig::default() })
    };
    let publisher = joined(Config { recovery: recovery(300), ..config() }, &redis.url());
    let receiver = joined(Config { recovery: recovery(300), ..config() }, &redis.url());
    let position = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        let epoch = u32::from_str_radix(value["e"].as_str().unwrap(), 16).unwrap();
        Position { epoch, offset: value["o"].as_i64().unwrap() }
    };
    let mut client = subscriber(&receiver, &["a"]);
    until("subscribing", || publisher.topic_interest("a") == 1);
    publisher.broadcast("a", &tick("a", 0));
    let last = position(&client.text());
    drop(client);
    until("leaving", || receiver.connection_count() == 0);
    // There is no subscriber, and the publications are received all the same.
    publisher.broadcast_many("a", &[tick("a", 1), tick("a", 2)]);
    until("receiving", || receiver.redis_stats().unwrap().received == 3);
    let (mut client, id) = Client::ready(receiver.address());
    let back = receiver.subscribe_with_recovery(&id, &["a"], Some(last)).unwrap();
    assert!(back["a"].is_some_and(|recovered| recovered.recovered && recovered.count == 2), "{back:?}");
    assert!(client.text().contains(r#""seq":1}"#) && client.text().contains(r#""seq":2}"#));
    redis.kill();
    until("noticing", || !receiver.redis_connected() && !publisher.redis_connected());
    let (_client, id) = Client::ready(receiver.address());
    let back = receiver.subscribe_with_recovery(&id, &["a"], Some(last)).unwrap();
    assert!(back["a"].is_some_and(|recovered| !recovered.recovered), "{back:?}");
}

#[test]
fn subscriptions_from_before_redis_connected_apply_to_it() {
    let redis = RedisServer::start(&[]);
    let receiver = start(config());
    let topics: Vec<String> = (0..3_000).map(|number| format!("topic {number}")).collect();
    let topics: Vec<&str> = topics.iter().map(String::as_str).chain(["pattern *"]).collect();
    let mut client = subscriber(&receiver, &topics);
    receiver.connect_redis_within(&redis.url(), times()).unwrap();
    until("subscribing", || redis.interest() == (3_000, 1));
    assert_eq!(redis.command(&["PUBLISH", "wse:topic 2999", "one"]), ":1");
    assert_eq!(redis.command(&["PUBLISH", "wse:pattern x", "two"]), ":1");
    assert_eq!((client.text(), client.text()), ("one".into(), "two".into()));
    drop(client);
    until("unsubscribing", || redis.interest() == (0, 0));
}
