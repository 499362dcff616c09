//! The life of connections from their upgrade to their close: limits, timeouts, slow clients, and a server that stops.

mod client;

use std::{
    collections::HashMap,
    io::Read,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use client::{Client, Received, assert_balanced, config, drain, start, until};
use service_contract::{ApplicationStats, ConnectionBooks, ServiceStats};
use wse_engine::{ApplicationSource, Config, Server, frame::Opcode};

fn metrics(server: &Server, path: &str) -> (u16, String) {
    client::get(server.metrics_address().unwrap(), path)
}

#[test]
fn a_thousand_connections_are_served_and_counted() {
    let server = start(config());
    let mut clients: Vec<_> = (0..1000).map(|_| Client::ready(server.address())).collect();
    assert_eq!((server.connection_count(), server.connections().len()), (1000, 1000));
    for (client, id) in &mut clients {
        client.send_text(id);
    }
    let drained = drain(&server, 1000);
    let ids: HashMap<u64, String> =
        drained.into_iter().map(|drained| (drained.connection, String::from_utf8(drained.data).unwrap())).collect();
    assert_eq!(ids.len(), 1000);
    server.broadcast_all(r#"{"t":"hello"}"#);
    for (client, id) in &mut clients {
        assert_eq!(client.text(), r#"{"c":"U","t":"hello"}"#);
        assert!(server.send_text(id, id));
        assert_eq!(client.text(), *id);
    }
    drop(clients);
    // Counters are published at the end of the round in which the last client left.
    until("leaving", || server.stats().connections.closed.values().sum::<u64>() == 1000);
    let stats = server.stats();
    assert_eq!((stats.connections.accepted, stats.connections.open), (1000, 0));
    // `server_ready`, the broadcast and the echo of each.
    assert_eq!(stats.messages.sent, 3000);
    assert_balanced(&server);
}

#[test]
fn reading_the_books_of_closed_connections_changes_nothing_and_a_cursor_selects_newer_ones() {
    let server = start(config());
    let (mut client, id) = Client::ready(server.address());
    client.send_text("one");
    client.send_text(r#"{"t":"ping"}"#);
    client.text();
    drop(client);
    until("leaving", || server.connection_count() == 0);
    // The counters are published at the end of the round that removed the connection.
    until("counting", || server.stats().connections.open == 0);
    let first = server.connection_books();
    let book = first.connections.iter().find(|book| book.id == id).unwrap();
    assert_eq!((book.open, book.received, book.consumed, book.dropped), (false, 2, 1, 0));
    assert_eq!(server.connection_books(), first, "another reader took nothing away");
    let cursor = first.cursor.unwrap();
    assert!(server.connection_books_since(&cursor).unwrap().connections.is_empty());

    let (client, second_id) = Client::ready(server.address());
    drop(client);
    until("counting", || server.stats().connections.closed.values().sum::<u64>() == 2);
    let later = server.connection_books_since(&cursor).unwrap().connections;
    assert_eq!(later.iter().map(|book| book.id.as_str()).collect::<Vec<_>>(), [second_id.as_str()]);
    assert_eq!(server.connection_books_since("1.0").unwrap().connections.len(), 2, "a cursor of another server");
    assert!(server.connection_books_since("yesterday").is_err());
    // The books of a server that has stopped can be read as often.
    server.stop();
    assert_eq!(server.connection_books_since(&cursor).unwrap().connections.len(), 1);
    assert_eq!(server.connection_books().connections.len(), 2);
}

#[test]
fn a_full_server_answers_503_until_a_client_disconnects() {
    let server = start(Config { max_connections: 2, ..config() });
    let (first, _) = Client::ready(server.address());
    let _second = Client::ready(server.address());
    let mut third = Client::tcp(server.address());
    let bearer = format!("Authorization: Bearer {}\r\n", client::token(&client::claims(), client::SECRET));
    third.write(client::request("/wse", &bearer).as_bytes());
    assert!(third.http().starts_with("HTTP/1.1 503 "));
    until("counting", || server.stats().connections.rejected.get("full") == Some(&1));
    drop(first);
    until("leaving", || server.connection_count() == 1);
    Client::ready(server.address());
}

#[test]
fn an_idle_connection_is_closed_with_4408_and_a_busy_one_is_not() {
    let (ping_interval, idle_timeout) = (Duration::from_millis(50), Duration::from_millis(400));
    let server = start(Config { ping_interval, idle_timeout, ..config() });
    let (mut idle, _) = Client::ready(server.address());
    let (mut busy, _) = Client::ready(server.address());
    busy.stream().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let started = Instant::now();
    while started.elapsed() < 2 * idle_timeout {
        busy.send_text("here");
        // A control frame doesn't count as activity.
        idle.try_write(&wse_engine::receive::client_frame(true, Opcode::Ping, [0; 4], b""));
        let mut some = [0; 4096];
        let _ = busy.stream().read(&mut some);
    }
    assert_eq!(idle.close_code(), Some(4408));
    drop(idle);
    until("leaving", || server.connection_count() == 1);
    until("counting", || server.stats().connections.closed.get("idle") == Some(&1));
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_delays_no_other_client() {
    let limit = 256 << 10;
    let ping_interval = Duration::from_millis(100);
    let server = start(Config { max_outbound_queue_bytes: limit, ping_interval, shards: Some(1), ..config() });
    let (mut slow, _) = Client::ready(server.address());
    let (mut other, _) = Client::ready(server.address());
    let payload = vec![b'x'; 64 << 10];
    let read = AtomicU64::new(0);
    let mut broadcasts = 0;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            loop {
                match other.receive() {
                    Received::Binary(_) => read.fetch_add(1, Ordering::SeqCst),
                    Received::Text(text) if text == "end" => return,
                    Received::Text(_) => 0,
                    unexpected => panic!("{unexpected:?}"),
                };
            }
        });
        let mut dropping_since = None;
        until("giving up", || {
            server.broadcast_all_bytes(&payload);
            broadcasts += 1;
            // The other client must be able to keep up.
            until("reading", || read.load(Ordering::SeqCst) == broadcasts);
            if dropping_since.is_none() && dropped(&server) > 0 {
                dropping_since = Some(Instant::now());
            }
            // Longer than two ticks with drops, and shorter than the two seconds in which the client must read the
            // Close frame.
            dropping_since.is_some_and(|since| since.elapsed() > 4 * ping_interval)
        });
        server.broadcast_all("end");
        reader.join().unwrap();
    });
    assert_eq!(read.into_inner(), broadcasts, "the reader got everything");
    assert!(dropped(&server) > 0);
    until("counting", || {
        server
            .prometheus_text()
            .lines()
            .any(|line| line.strip_prefix("wse_slow_consumer_drops_total ").is_some_and(|drops| drops != "0"))
    });
    // The frame that was partly written is completed, and then the Close frame gives the reason.
    assert_eq!(slow.close_code(), Some(1013));
    drop(slow);
    until("counting", || server.stats().connections.closed.get("slow_consumer") == Some(&1));
}

fn dropped(server: &Server) -> u64 {
    server.stats().messages.send_dropped.values().sum()
}

#[test]
fn stopping_closes_with_1001_and_loses_no_received_message() {
    let server = start(config());
    let mut clients: Vec<_> = (0..50).map(|_| Client::ready(server.address()).0).collect();
    for client in &mut clients {
        client.send_text("last");
    }
    until("arriving", || server.stats().messages.received == 50);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop());
        for client in &mut clients {
            assert_eq!(client.receive(), Received::Close(Some(1001), "server shutting down".into()));
            client.frame(true, Opcode::Close, &1001_u16.to_be_bytes());
        }
        stopping.join().unwrap();
    });
    assert!(!server.is_running());
    assert_eq!(drain(&server, 50).len(), 50);
    assert_eq!(server.stats().connections.closed, [("shutdown".to_owned(), 50)].into());
    assert_balanced(&server);
    let books = server.connection_books().connections;
    assert!(books.len() == 50 && books.iter().all(|book| book.received == 1 && !book.open));
    server.stop();
    assert!(TcpStream::connect(server.address()).is_err());
}

#[test]
fn stopping_does_not_wait_for_clients_without_a_close_reply() {
    let server = start(config());
    let (_silent, _) = Client::ready(server.address());
    let started = Instant::now();
    server.stop();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(1900) && took < Duration::from_secs(4), "{took:?}");
    assert!(server.drain_batch(10, Duration::from_secs(20)).len() > 1);
    assert!(server.drain_batch(10, Duration::from_secs(20)).is_empty(), "at once, because no message can arrive");
}

#[test]
fn the_application_can_close_a_connection() {
    let server = start(config());
    let (mut client, id) = Client::ready(server.address());
    assert!(server.disconnect(&id));
    assert_eq!(client.close_code(), Some(4000));
    client.frame(true, Opcode::Close, &4000_u16.to_be_bytes());
    assert_eq!(client.receive(), Received::Eof);
    until("counting", || server.stats().connections.closed.get("application") == Some(&1));
    assert!(!server.disconnect(&id));
}

struct Counted;

impl ApplicationSource for Counted {
    fn totals(&self) -> Option<ApplicationStats> {
        Some(ApplicationStats { delivered: 3, sequence_sum: 6, unnumbered: 1 })
    }

    fn connections(&self) -> HashMap<String, ApplicationStats> {
        HashMap::new()
    }
}

#[test]
fn the_metrics_port_serves_the_pages_of_the_contract() {
    let server = start(Config { metrics: Some((std::net::Ipv4Addr::LOCALHOST.into(), 0)), ..config() });
    server.set_application_stats(Arc::new(Counted));
    let (mut client, id) = Client::ready(server.address());
    client.send_text("one");
    drain(&server, 1);
    assert_eq!((metrics(&server, "/healthz").0, metrics(&server, "/readyz").0), (200, 200));
    let stats: ServiceStats = serde_json::from_str(&metrics(&server, "/stats").1).unwrap();
    assert_eq!((stats.service.as_str(), stats.messages.delivered), ("wse-server", 1));
    assert_eq!(stats.application.unwrap().sequence_sum, 6);
    let books: ConnectionBooks = serde_json::from_str(&metrics(&server, "/stats/connections").1).unwrap();
    assert_eq!((books.connections[0].id.as_str(), books.connections[0].received), (id.as_str(), 1));
    assert_eq!(books.cursor, None, "only readers that know cursors get one");
    let first: ConnectionBooks = serde_json::from_str(&metrics(&server, "/stats/connections?since=").1).unwrap();
    let since = format!("/stats/connections?since={}", first.cursor.unwrap());
    let again: ConnectionBooks = serde_json::from_str(&metrics(&server, &since).1).unwrap();
    assert_eq!(again.connections, first.connections, "the connection is open");
    let (status, arguments) = metrics(&server, "/stats/connections?since=x");
    assert!(status == 400 && arguments.starts_with("since is \"x\", which is not a cursor"), "{arguments}");
    let text = metrics(&server, "/metrics").1;
    for line in [
        "service_messages_received_total 1",
        "service_messages_delivered_total 1",
        "service_messages_dropped_total{reason=\"inbound_overflow\"} 0",
        "service_connections_open 1",
        "application_sequence_sum 6",
        "wse_connections 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert_eq!(metrics(&server, "/nothing").0, 404);
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let server = start(config());
    let error = Server::start(Config { port: server.address().port(), ..config() }).unwrap_err();
    assert_eq!(error.to_string(), format!("failed to listen on {}", server.address()));
}

#[test]
fn clients_that_send_no_request_do_not_block_other_readers() {
    let server = start(Config { metrics: Some((std::net::Ipv4Addr::LOCALHOST.into(), 0)), ..config() });
    let address = server.metrics_address().unwrap();
    let _idle: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(client::get(address, "/healthz").0, 200);
}
