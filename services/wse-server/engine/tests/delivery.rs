//! From clients to the application: no message is lost without being counted, order is kept, and the counters agree.

mod client;

use std::{collections::HashMap, time::Duration};

use client::{Client, Received, assert_balanced, config, copied, drain, start, text_frame, until};
use wse_engine::{Config, Delivery, InboundOverflow, Kind, Server};

/// Sends numbered messages to a server over several connections, each with its own thread.
fn flood(server: &Server, connections: usize, messages: u64) -> Vec<std::thread::JoinHandle<(Client, String)>> {
    let address = server.address();
    let flood = move || {
        let (mut client, id) = Client::ready(address);
        let numbers: Vec<u64> = (1..=messages).collect();
        for numbers in numbers.chunks(64) {
            let frames: Vec<u8> =
                numbers.iter().flat_map(|n| text_frame(&format!(r#"{{"t":"n","seq":{n}}}"#))).collect();
            client.write(&frames);
        }
        (client, id)
    };
    (0..connections).map(|_| std::thread::spawn(flood)).collect()
}

fn number(data: &[u8]) -> u64 {
    let text = std::str::from_utf8(data).unwrap();
    text.trim_start_matches(r#"{"t":"n","seq":"#).trim_end_matches('}').parse().unwrap()
}

#[test]
fn backpressure_loses_nothing_and_keeps_each_connection_s_order() {
    // The inbox and the sockets hold far less than is sent.
    let server = start(Config { max_inbound_queue_size: 500, receive_buffer_bytes: 4096, ..config() });
    let (connections, messages) = (8, 20_000);
    let clients = flood(&server, connections, messages);
    let mut last: HashMap<u64, u64> = HashMap::new();
    for drained in drain(&server, connections * messages as usize) {
        let last = last.entry(drained.connection).or_default();
        *last += 1;
        assert_eq!(number(&drained.data), *last);
    }
    assert!(last.len() == connections && last.values().all(|last| *last == messages));
    for client in clients {
        client.join().unwrap();
    }
    assert_balanced(&server);
    assert!(server.stats().messages.dropped.is_empty());
    assert!(
        server
            .prometheus_text()
            .lines()
            .any(|line| line.starts_with("service_read_pauses_total") && !line.ends_with(" 0"))
    );
}

#[test]
fn messages_wait_while_the_application_holds_batches_and_arrive_when_it_drops_them() {
    let server = start(Config { max_inbound_queue_size: 100, shards: Some(1), ..config() });
    let clients = flood(&server, 1, 1000);
    let mut batches = Vec::new();
    let mut count = 0;
    until("filling", || {
        batches.push(server.drain_batch(1000, Duration::ZERO));
        count = batches.iter().map(wse_engine::Batch::len).sum();
        count >= 100
    });
    // The connect event, and at most one message that arrived with the last read.
    let more = server.drain_batch(1000, Duration::from_millis(200));
    assert!(count + more.len() <= 102, "{count} and {}", more.len());
    drop((batches, more));
    assert!(!drain(&server, 1).is_empty());
    drop(server);
    for client in clients {
        // The thread of a client whose connection the server closed panics, as expected.
        drop(client.join());
    }
}

#[test]
fn a_client_faster_than_the_application_is_read_only_a_few_reads_ahead() {
    let server = start(Config { max_inbound_queue_size: 64, shards: Some(1), ..config() });
    let (mut client, _) = Client::ready(server.address());
    let frame = text_frame(&format!(r#"{{"pad":"{}"}}"#, "x".repeat(1000)));
    let (messages, size) = (20_000, frame.len());
    let sender = std::thread::spawn(move || {
        // Each write is longer than one read of the server.
        (0..messages / 1000).for_each(|_| client.write(&frame.repeat(1000)));
        client
    });
    let (mut delivered, mut furthest) = (0, 0);
    while delivered < messages {
        let batch = server.drain_batch(1000, Duration::from_millis(500));
        assert!(!batch.is_empty(), "it stopped reading after {delivered} of {messages}");
        delivered += batch.iter().filter(|message| message.kind.is_message()).count();
        furthest = furthest.max((server.stats().bytes.received as usize).saturating_sub(delivered * size));
    }
    // One read, the rest of the previous one, and the queued messages.
    assert!(furthest < 1 << 20, "{furthest} bytes ahead");
    drop(sender.join().unwrap());
}

#[test]
fn a_server_configured_to_drop_counts_each_dropped_message() {
    let server = start(Config {
        max_inbound_queue_size: 1000,
        inbound_overflow: InboundOverflow::Drop,
        shards: Some(1),
        ..config()
    });
    let messages = 5000;
    let clients: Vec<_> = flood(&server, 2, messages).into_iter().map(|client| client.join().unwrap()).collect();
    until("receiving", || server.stats().messages.received == 2 * messages);
    assert_balanced(&server);
    // Two of the thousand entries are connect events, unless one arrived when the queue was full: events are never
    // dropped. The second client may have come then, with its reserve of 16 messages.
    let queued = server.stats().messages.queued;
    assert!((998..=999 + 16).contains(&queued), "{queued}");
    assert_eq!(server.inbound_dropped_count(), 2 * messages - queued);
    let by_connection = server.connection_books().connections;
    assert_eq!(by_connection.iter().map(|book| book.dropped).sum::<u64>(), 2 * messages - queued);
    assert!(by_connection.iter().all(|book| book.received == messages && book.open));
    drain(&server, queued as usize);
    for (mut client, _) in clients {
        client.send_text("room again");
    }
    assert!(drain(&server, 2).iter().all(|drained| drained.data == b"room again"));
    assert_balanced(&server);
}

#[test]
fn a_server_without_an_application_counts_what_it_discards() {
    let server = start(Config { delivery: Delivery::Discard, ..config() });
    let clients: Vec<_> = flood(&server, 2, 3000).into_iter().map(|client| client.join().unwrap()).collect();
    until("discarding", || server.stats().messages.dropped.get("discarded") == Some(&6000));
    assert!(server.drain_batch(10, Duration::ZERO).is_empty());
    assert_balanced(&server);
    assert!(server.connection_books().connections.iter().all(|book| book.dropped == 3000));
    drop(clients);
}

#[test]
fn pings_and_client_hellos_are_consumed_and_answered_in_order() {
    let server = start(config());
    let (mut client, _) = Client::ready(server.address());
    let pings: Vec<u8> =
        (1..=100).flat_map(|n| text_frame(&format!(r#"{{"t":"ping","p":{{"timestamp":{n}}}}}"#))).collect();
    client.write(&pings);
    client.send_text(r#"{"t":"PONG"}"#);
    client.send_text("for the application");
    for n in 1..=100 {
        let Received::Text(pong) = client.receive() else { panic!("no text") };
        let expected = format!(r#"{{"c":"WSE","t":"PONG","p":{{"client_timestamp":{n},"#);
        assert!(pong.starts_with(&expected), "{pong}");
    }
    assert_eq!(drain(&server, 1)[0].data, b"for the application");
    let messages = server.stats().messages;
    assert_eq!((messages.received, messages.consumed, messages.delivered), (102, 101, 1));
}

#[test]
fn a_connection_is_reported_from_connect_to_disconnect() {
    let server = start(config());
    let (mut client, id) = Client::ready(server.address());
    client.send_text("only");
    until("arriving", || server.inbound_queue_depth() == 2);
    drop(client);
    until("leaving", || server.inbound_queue_depth() == 3);
    let batch = server.drain_batch(10, Duration::ZERO);
    let received_entries = copied(&batch);
    assert_eq!(
        received_entries.iter().map(|d| d.kind).collect::<Vec<_>>(),
        [Kind::AuthConnect, Kind::Raw, Kind::Disconnect]
    );
    assert_eq!(
        (received_entries[0].data.as_slice(), received_entries[0].message_type.as_deref()),
        (&b"bench-user"[..], Some(id.as_str()))
    );
    assert_eq!(received_entries[2].message_type.as_deref(), Some(id.as_str()));
    // The key is known until the batch with its disconnect event is dropped.
    let key = batch.get(2).unwrap().connection;
    assert_eq!(server.connection_id(key).as_deref(), Some(id.as_str()));
    drop(batch);
    assert_eq!(server.connection_id(key), None);
    assert!(!server.send_text(&id, "too late"));
}

#[test]
fn without_tokens_the_application_gets_the_cookies_and_sends_the_first_message() {
    let server = start(Config { jwt: None, ..config() });
    let mut client = Client::open_with(server.address(), "/", "Cookie: session=1\r\nCookie: b=2\r\n");
    let batch = server.drain_batch(10, Duration::from_secs(10));
    let connect = batch.get(0).unwrap();
    assert_eq!((connect.kind, connect.data), (Kind::Connect, &b"session=1; b=2"[..]));
    assert!(server.send_text(connect.message_type.unwrap(), "welcome"));
    assert_eq!(client.receive(), Received::Text("welcome".into()));
}

#[test]
fn a_drain_waits_for_the_first_message_respects_its_limit_and_can_be_woken() {
    let server = start(Config { shards: Some(1), ..config() });
    let (mut client, _) = Client::ready(server.address());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.drain_batch(1, Duration::from_secs(20)));
        assert_eq!(copied(&waiting.join().unwrap())[0].kind, Kind::AuthConnect);
        let waiting = scope.spawn(|| server.drain_batch(10, Duration::from_secs(20)));
        client.send_text("first");
        assert_eq!(waiting.join().unwrap().len(), 1);
        let woken = scope.spawn(|| server.drain_batch(10, Duration::from_secs(20)));
        server.wake_drain();
        assert!(woken.join().unwrap().is_empty());
    });
    client.write(&["a", "b", "c"].map(text_frame).concat());
    until("arriving", || server.inbound_queue_depth() == 3);
    let sizes = [2, 2, 2].map(|limit| server.drain_batch(limit, Duration::ZERO).len());
    assert_eq!(sizes, [2, 1, 0]);
}

#[test]
fn a_batch_is_the_same_by_index_by_iteration_and_by_segment() {
    let server = start(config());
    let clients: Vec<_> = flood(&server, 4, 500).into_iter().map(|client| client.join().unwrap()).collect();
    until("arriving", || server.inbound_queue_depth() == 2004);
    let batch = server.drain_batch(10_000, Duration::ZERO);
    assert_eq!((batch.len(), batch.iter().count(), batch.get(2004)), (2004, 2004, None));
    let by_segment = batch.segments().iter().flat_map(|segment| segment.entries.iter().map(|e| segment.message(e)));
    for (index, (one, other)) in batch.iter().zip(by_segment).enumerate() {
        assert_eq!((Some(one), one), (batch.get(index), other));
    }
    drop(clients);
}
