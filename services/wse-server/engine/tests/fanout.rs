//! From the application to many clients: topics, patterns, queue groups, and publishers that wait.

mod client;

use std::{
    collections::BTreeMap,
    io::Read,
    net::Shutdown,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use client::{Client, Received, SECRET, claims, config, start, token, until};
use serde_json::{Value, json};
use wse_engine::{Config, RecoveryConfig, Server, TopicAcl, TopicError};

fn clients(server: &Server, count: usize) -> Vec<(Client, String)> {
    (0..count).map(|_| Client::ready(server.address())).collect()
}

fn message(topic: &str, number: u64) -> String {
    format!(r#"{{"c":"U","t":"tick","p":{{"topic":"{topic}","seq":{number}}}}}"#)
}

fn number(text: &str) -> (String, u64) {
    let value: Value = serde_json::from_str(text).unwrap();
    (value["p"]["topic"].as_str().unwrap().to_owned(), value["p"]["seq"].as_u64().unwrap())
}

/// Reads what a client received until `marker`.
fn until_marker(client: &mut Client, marker: &str) -> Vec<(String, u64)> {
    let mut got = Vec::new();
    loop {
        match client.text() {
            text if text == marker => return got,
            text => got.push(number(&text)),
        }
    }
}

const MARKER: &str = r#"{"c":"U","t":"marker"}"#;

#[test]
fn subscribers_get_each_later_publication_once_and_in_order() {
    let server = start(config());
    let mut clients = clients(&server, 4);
    let ids: Vec<String> = clients.iter().map(|(_, id)| id.clone()).collect();
    server.broadcast("a.b", &message("early", 0));
    assert_eq!(server.subscribe(&ids[0], &["a.b"], None).unwrap(), ["a.b"]);
    assert_eq!(server.subscribe(&ids[1], &["a.*", "a.b"], None).unwrap(), ["a.*", "a.b"]);
    assert_eq!(server.subscribe(&ids[2], &["a.?"], None).unwrap(), ["a.?"]);
    assert_eq!((server.topic_subscriber_count("a.b"), server.topic_subscriber_count("a.*")), (2, 1));
    for n in 0..1000 {
        server.broadcast("a.b", &message("a.b", n));
        if n % 10 == 0 {
            server.broadcast("a.bb", &message("a.bb", n));
        }
    }
    server.broadcast_all(MARKER);
    let exact: Vec<_> = (0..1000).map(|n| ("a.b".to_owned(), n)).collect();
    assert_eq!(until_marker(&mut clients[0].0, MARKER), exact);
    let both = until_marker(&mut clients[1].0, MARKER);
    assert_eq!(both.len(), 1100);
    assert_eq!(both.iter().filter(|(topic, _)| topic == "a.b").cloned().collect::<Vec<_>>(), exact);
    assert_eq!(until_marker(&mut clients[2].0, MARKER), exact);
    assert_eq!(until_marker(&mut clients[3].0, MARKER), []);
    let text = server.prometheus_text();
    assert!(
        text.contains("\nwse_topics 3\n") && text.contains(r#"wse_topic_messages_total{topic="a.b"} 1000"#),
        "{text}"
    );
    until("writing", || server.publish_backlog() == 0);
}

#[test]
fn a_client_that_leaves_during_a_flood_was_sent_exactly_its_complete_messages() {
    let server = start(config());
    let (mut reader, id) = Client::ready(server.address());
    server.subscribe(&id, &["a"], None).unwrap();
    until("greeting", || server.stats().messages.sent == 1);
    let before = server.stats();
    let text = message("a", 1_000_000_000);
    let frame = text.len() + 2;
    let texts: Vec<&str> = (0..1000).map(|_| text.as_str()).collect();
    // More than the socket buffers hold, so that a write ends within a piece that joins many messages.
    (0..100).for_each(|_| server.broadcast_many("a", &texts));
    assert_eq!(reader.text(), text);
    drop(reader);
    until("leaving", || server.stats().connections.open == 0);
    let after = server.stats();
    let (sent, bytes) = (after.messages.sent - before.messages.sent, after.bytes.sent - before.bytes.sent);
    assert_eq!(sent, bytes / frame as u64);
    assert_eq!(sent + after.messages.send_dropped["disconnected"], 100_000);
    assert!(sent > 100 && sent < 50_000, "{sent} messages, {bytes} bytes");
}

#[test]
fn an_unsubscribed_or_closed_client_gets_no_message_and_holds_no_memory() {
    let server = start(config());
    let mut clients = clients(&server, 3);
    for (_, id) in &clients {
        server.subscribe(id, &["a", "b", "c.*"], None).unwrap();
    }
    assert_eq!(server.unsubscribe(&clients[0].1, Some(&["a", "unknown"])), 1);
    assert_eq!(server.unsubscribe(&clients[1].1, None), 3);
    assert_eq!(server.unsubscribe("unknown", None), 0);
    for topic in ["a", "b", "c.d"] {
        server.broadcast(topic, &message(topic, 1));
    }
    server.broadcast_all(MARKER);
    let topics = |client: &mut Client| -> Vec<String> {
        until_marker(client, MARKER).into_iter().map(|(topic, _)| topic).collect()
    };
    assert_eq!(topics(&mut clients[0].0), ["b", "c.d"]);
    assert_eq!(topics(&mut clients[1].0), [""; 0]);
    assert_eq!(topics(&mut clients[2].0), ["a", "b", "c.d"]);
    drop(clients);
    until("forgetting", || server.topic_subscriber_count("b") == 0 && server.topic_subscriber_count("c.*") == 0);
    assert!(server.prometheus_text().contains("\nwse_topics 0\n"));
}

#[test]
fn a_subscription_during_a_disconnect_is_removed_too() {
    let server = start(config());
    for _ in 0..50 {
        let (client, id) = Client::ready(server.address());
        client.stream().shutdown(Shutdown::Both).unwrap();
        // The command arrives before, while or after the shard notices the end of the connection.
        server.subscribe(&id, &["a", "*"], None).unwrap();
        server.set_topic_acl(&id, TopicAcl::new(vec!["a".into()], Vec::new()).unwrap());
    }
    until("forgetting", || server.prometheus_text().contains("\nwse_topics 0\n"));
    assert!(server.subscribe("unknown", &["a"], None).unwrap().is_empty());
}

#[test]
fn each_queue_group_gets_a_message_once_and_listeners_get_all() {
    let server = start(config());
    let mut clients = clients(&server, 6);
    for (index, (_, id)) in clients.iter().enumerate() {
        let group = ["one", "one", "one", "two", "two", ""][index];
        server.subscribe(id, &["jobs"], Some(group).filter(|group| !group.is_empty())).unwrap();
    }
    assert_eq!(
        server.queue_groups("jobs").into_iter().collect::<BTreeMap<_, _>>(),
        BTreeMap::from([("one".into(), 3), ("two".into(), 2)])
    );
    for n in 0..600 {
        server.broadcast("jobs", &message("jobs", n));
    }
    server.broadcast_all(MARKER);
    let got: Vec<Vec<u64>> = clients
        .iter_mut()
        .map(|(client, _)| until_marker(client, MARKER).into_iter().map(|(_, n)| n).collect())
        .collect();
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [200, 200, 200, 300, 300, 600]);
    for members in [&got[..3], &got[3..5], &got[5..]] {
        let mut together: Vec<u64> = members.concat();
        together.sort_unstable();
        assert_eq!(together, (0..600).collect::<Vec<_>>());
    }
}

#[test]
fn a_queue_group_message_goes_to_another_member_when_one_is_too_slow() {
    let server = start(Config { max_outbound_queue_bytes: 64 << 10, ..config() });
    let mut clients = clients(&server, 2);
    for (_, id) in &clients {
        server.subscribe(id, &["jobs"], Some("workers")).unwrap();
    }
    let (mut stalled_client, _) = clients.pop().unwrap();
    let (mut reader, _) = clients.pop().unwrap();
    let padding = "x".repeat(8 << 10);
    let total = 2000;
    let count = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut got = 0;
            while reader.text() != MARKER {
                got += 1;
            }
            got
        });
        for n in 0..total {
            server.broadcast("jobs", &format!(r#"{{"c":"U","t":"job","p":{{"seq":{n},"x":"{padding}"}}}}"#));
            // Less than both members together may have waiting, so that one of them always has room.
            until("reading", || server.publish_backlog() < 100 << 10);
        }
        until("reading", || server.publish_backlog() < 80 << 10);
        // A message that one shard passes to the other must not be overtaken by the marker. Each shard answers this
        // request after the commands before it.
        (0..2).for_each(|_| drop(server.connection_books()));
        server.broadcast_all(MARKER);
        reading.join().unwrap()
    });
    // The other member's socket and backlog hold some messages, which it reads now.
    assert!(count > total / 2 && count < total, "{count}");
    let mut late = 0;
    while count + late < total {
        assert!(matches!(stalled_client.receive(), Received::Text(text) if text.starts_with(r#"{"c":"U","t":"job""#)));
        late += 1;
    }
}

#[test]
fn messages_published_together_arrive_like_single_ones() {
    let server = start(Config { recovery: Some(RecoveryConfig::default()), ..config() });
    let mut clients = clients(&server, 3);
    server.subscribe(&clients[0].1, &["a"], None).unwrap();
    server.subscribe(&clients[1].1, &["a"], Some("g")).unwrap();
    server.subscribe(&clients[2].1, &["a"], Some("g")).unwrap();
    // More messages than are joined into one write.
    let texts: Vec<String> = (0..3000).map(|n| message("a", n)).collect();
    server.broadcast_many("a", &texts);
    server.broadcast_all_many(&["no JSON", r#"{"t":"x"}"#, MARKER]);
    let numbers = |client: &mut Client| {
        let mut texts = std::iter::from_fn(|| Some(client.text()).filter(|text| text != MARKER)).collect::<Vec<_>>();
        assert_eq!(texts.split_off(texts.len() - 2), ["no JSON", r#"{"c":"U","t":"x"}"#]);
        texts.iter().map(|text| serde_json::from_str::<Value>(text).unwrap()).collect::<Vec<_>>()
    };
    let all = numbers(&mut clients[0].0);
    let expected: Vec<_> = (0..3000).map(|n| (json!(n), json!(n))).collect();
    assert_eq!(all.iter().map(|it| (it["o"].clone(), it["p"]["seq"].clone())).collect::<Vec<_>>(), expected);
    let shares = [numbers(&mut clients[1].0), numbers(&mut clients[2].0)];
    assert_eq!(shares.each_ref().map(Vec::len), [1500, 1500]);
    assert_eq!(server.stats().messages.sent, 3000 + 3000 + 3 * 4);
}

#[test]
fn topic_rules_are_set_by_the_token_or_by_call() {
    let server = start(config());
    let mut claims = claims();
    claims["wse_topics"] = json!({"allow": ["public.*"], "deny": ["public.hidden"]});
    let cookie = format!("Cookie: access_token={}\r\n", token(&claims, SECRET));
    let mut client = Client::open_with(server.address(), "/wse", &cookie);
    let greeting: Value = serde_json::from_str(&client.text()).unwrap();
    let id = greeting["p"]["details"]["connection_id"].as_str().unwrap();
    assert_eq!(server.subscribe(id, &["public.a", "public.hidden", "secret", "*"], None).unwrap(), ["public.a"]);
    assert!(server.set_topic_acl(id, TopicAcl::new(vec!["secret".into()], Vec::new()).unwrap()));
    assert_eq!(server.subscribe(id, &["public.a", "secret"], None).unwrap(), ["secret"]);
    assert_eq!((server.topic_subscriber_count("public.a"), server.topic_subscriber_count("secret")), (0, 1));
    assert!(!server.set_topic_acl("unknown", TopicAcl::default()));
}

#[test]
fn a_connection_cannot_exceed_its_limit_of_subscriptions() {
    let server = start(Config { max_subscriptions_per_connection: 2, ..config() });
    let (_client, id) = Client::ready(server.address());
    server.subscribe(&id, &["a"], None).unwrap();
    let error = server.subscribe(&id, &["b", "c"], None).unwrap_err();
    assert_eq!(error, TopicError::TooManySubscriptions { requested: 3, maximum: 2 });
    assert_eq!(server.topic_subscriber_count("b"), 0);
}

#[test]
fn a_waiting_publisher_loses_no_message_with_slow_subscribers() {
    let limit = 256 << 10;
    let server = start(Config { max_publish_backlog_bytes: limit, ..config() });
    let mut clients = clients(&server, 3);
    for (_, id) in &clients {
        server.subscribe(id, &["a"], None).unwrap();
    }
    let total = 3000;
    let padding = "x".repeat(4 << 10);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, done, padding) = (&server, &done, &padding);
        scope.spawn(move || {
            for n in 0..total {
                server.broadcast("a", &format!(r#"{{"t":"tick","p":{{"topic":"a","seq":{n},"x":"{padding}"}}}}"#));
            }
            server.broadcast_all(MARKER);
            done.store(true, Ordering::SeqCst);
        });
        // The clients don't read, so the publisher stops when the socket buffers and the backlog are full.
        until("waiting", || server.publish_backlog() >= limit || done.load(Ordering::SeqCst));
        assert!(!done.load(Ordering::SeqCst));
        assert!(server.publish_backlog() < 3 * limit, "{}", server.publish_backlog());
        // All clients read at the same time, because the backlog shrinks only when all have received a message.
        for (client, _) in &mut clients {
            scope.spawn(move || {
                let got: Vec<u64> = until_marker(client, MARKER).into_iter().map(|(_, n)| n).collect();
                assert_eq!(got, (0..total).collect::<Vec<_>>());
            });
        }
    });
    assert!(server.stats().messages.send_dropped.is_empty());
}

#[test]
fn a_subscriber_that_never_reads_does_not_block_publishers_for_ever() {
    let server = start(Config {
        max_publish_backlog_bytes: 256 << 10,
        ping_interval: Duration::from_millis(100),
        idle_timeout: Duration::from_secs(60),
        ..config()
    });
    let (stalled_client, id) = Client::ready(server.address());
    server.subscribe(&id, &["a"], None).unwrap();
    let padding = "x".repeat(4 << 10);
    // Far more than the socket buffers hold.
    for _ in 0..10_000 {
        server.broadcast("a", &padding);
    }
    until("disconnecting", || server.connection_count() == 0);
    assert!(server.stats().messages.send_dropped["slow_consumer"] > 0);
    assert_eq!(server.stats().connections.closed.get("slow_consumer"), Some(&1));
    drop(stalled_client);
}

#[test]
fn stopping_releases_waiting_publishers() {
    let server = start(Config { max_publish_backlog_bytes: 64 << 10, ..config() });
    let (stalled_client, id) = Client::ready(server.address());
    server.subscribe(&id, &["a"], None).unwrap();
    std::thread::scope(|scope| {
        let server = &server;
        let publisher = scope.spawn(move || {
            let padding = "x".repeat(4 << 10);
            while server.is_running() {
                server.broadcast("a", &padding);
            }
        });
        until("waiting", || server.publish_backlog() >= 64 << 10);
        server.stop();
        publisher.join().unwrap();
    });
    drop(stalled_client);
    assert_eq!(server.publish_backlog(), 0);
}

#[test]
fn the_books_of_a_connection_count_what_was_sent_to_it() {
    let server = start(config());
    let (mut client, id) = Client::ready(server.address());
    server.subscribe(&id, &["a"], None).unwrap();
    (0..500).for_each(|n| server.broadcast("a", &message("a", n)));
    server.broadcast_all(MARKER);
    assert_eq!(until_marker(&mut client, MARKER).len(), 500);
    // Waits for the Close frame, so that nothing is in transit.
    assert!(server.disconnect(&id));
    assert_eq!(client.close_code(), Some(4000));
    client.stream().shutdown(Shutdown::Write).unwrap();
    let _ = client.stream().read(&mut [0; 16]);
    until("leaving", || server.connection_count() == 0);
    let books = server.connection_books().connections;
    // `server_ready`, the publications, and the marker.
    assert_eq!((books[0].sent, books[0].send_dropped), (Some(502), Some(0)));
}
