//! A fair share for each connection: one that floods waits, the others are served, and no one is disconnected for it.

mod client;

use std::{
    io::ErrorKind,
    time::{Duration, Instant},
};

use client::{Client, Received, assert_balanced, config, copied, drain, get, start, text_frame, until};
use wse_engine::{Config, InboundOverflow, Kind, RateLimit, Server, frame::Opcode};

const PING: &str = r#"{"t":"ping","p":{"timestamp":7}}"#;
const PONG: &str = r#"{"c":"WSE","t":"PONG","p":{"client_timestamp":7,"#;

/// Sends messages until the server takes no more: the socket has been full for a second.
fn fill(client: &mut Client) -> usize {
    let frames = text_frame(r#"{"t":"flood"}"#).repeat(1000);
    let mut stream = client.stream();
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut last) = (0, Instant::now());
    while last.elapsed() < Duration::from_secs(1) {
        // A partial write goes on where it stopped, so that the flood is one of whole messages.
        match std::io::Write::write(&mut stream, &frames[sent % frames.len()..]) {
            Ok(written) => (sent, last) = (sent + written, Instant::now()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("the flooder was disconnected: {error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    sent
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.prometheus_text();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn assert_answered(client: &mut Client) {
    client.send_text(PING);
    let pong = client.text();
    assert!(pong.starts_with(PONG), "{pong}");
    client.frame(true, Opcode::Ping, b"alive?");
    loop {
        match client.receive() {
            Received::Pong(payload) => return assert_eq!(payload, b"alive?"),
            Received::Text(_) => {}
            other => panic!("{other:?} instead of a pong"),
        }
    }
}

/// A server of one shard whose application stands still, with a flooder that has filled what it may.
fn flooded(config: Config) -> (Server, Client) {
    let server = start(Config { shards: Some(1), receive_buffer_bytes: 4096, ..config });
    let (mut flooder, _) = Client::ready(server.address());
    fill(&mut flooder);
    (server, flooder)
}

#[test]
fn bystanders_are_answered_and_heard_while_a_flooder_waits_and_the_application_stands_still() {
    let (server, flooder) =
        flooded(Config { max_inbound_queue_size: 2000, max_inbound_per_connection: 500, ..config() });
    assert_eq!(server.stats().messages.queued, 500);
    let mut bystanders: Vec<Client> = (0..20).map(|_| Client::ready(server.address()).0).collect();
    bystanders.iter_mut().for_each(assert_answered);
    for (number, bystander) in bystanders.iter_mut().enumerate() {
        bystander.send_text(&format!("bystander {number}"));
        assert_answered(bystander);
    }
    assert_eq!(server.stats().messages.queued, 520);
    let drained = drain(&server, 520);
    let heard = drained.iter().filter(|message| message.data.starts_with(b"bystander")).count();
    assert_eq!(heard, 20, "each waits for no more than the flooder's share");
    assert!(metric(&server, "service_connections_parked_total") > 0);
    assert!(server.stats().connections.closed.is_empty());
    drop(flooder);
}

#[test]
fn bystanders_are_heard_although_flooders_hold_the_whole_queue() {
    let (server, flooder) = flooded(Config { max_inbound_queue_size: 64, ..config() });
    let (mut other, _) = Client::ready(server.address());
    fill(&mut other);
    let held = server.inbound_queue_depth();
    assert!((64..=64 + 17).contains(&held), "{held}");
    let mut bystanders: Vec<Client> = (0..4).map(|_| Client::ready(server.address()).0).collect();
    for bystander in &mut bystanders {
        bystander.send_text("from a bystander");
        assert_answered(bystander);
    }
    assert_eq!(server.inbound_queue_depth(), held + 8, "a connect event and a message each");
    assert_answered(&mut bystanders[0]);
    assert!(metric(&server, "service_read_pauses_total") > 0);
    let heard = || copied(&server.drain_batch(held + 8, Duration::ZERO));
    assert_eq!(heard().iter().filter(|message| message.data == b"from a bystander").count(), 4);
    assert!(server.stats().connections.closed.is_empty());
    drop((flooder, other));
}

#[test]
fn a_parked_connection_s_own_pings_are_answered_and_its_messages_keep_their_order() {
    let server = start(Config { max_inbound_per_connection: 32, shards: Some(1), ..config() });
    let (mut client, _) = Client::ready(server.address());
    for number in 0..100 {
        client.send_text(&number.to_string());
    }
    until("parking", || metric(&server, "service_connections_parked_total") > 0);
    assert_answered(&mut client);
    for number in 100..200 {
        client.send_text(&number.to_string());
        // Between the parts of a message too.
        client.frame(false, Opcode::Text, b"in ");
        client.frame(true, Opcode::Ping, b"between");
        client.frame(true, Opcode::Continuation, b"parts");
        assert_eq!(client.receive(), Received::Pong(b"between".into()));
    }
    assert_answered(&mut client);
    assert_eq!(server.stats().messages.queued, 32);
    let texts: Vec<String> =
        drain(&server, 300).into_iter().map(|message| String::from_utf8(message.data).unwrap()).collect();
    let late = (100..200).flat_map(|number| [number.to_string(), "in parts".to_owned()]);
    let expected: Vec<String> = (0..100).map(|number| number.to_string()).chain(late).collect();
    assert_eq!(texts, expected);
    assert_balanced(&server);
}

#[test]
fn a_parked_client_that_closes_is_heard_to_the_end() {
    let server = start(Config { max_inbound_per_connection: 32, shards: Some(1), ..config() });
    let (mut client, _) = Client::ready(server.address());
    client.write(&(0..100).flat_map(|number| text_frame(&number.to_string())).collect::<Vec<u8>>());
    client.frame(true, Opcode::Close, &1000_u16.to_be_bytes());
    until("parking", || metric(&server, "service_connections_parked_total") > 0);
    assert_eq!(drain(&server, 100).last().unwrap().data, b"99");
    assert_eq!(client.close_code(), Some(1000));
    until("leaving", || server.connection_count() == 0);
    assert_balanced(&server);
}

#[test]
fn idle_bystanders_are_still_noticed_while_a_flooder_waits() {
    let timeouts = Config {
        ping_interval: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(400),
        max_inbound_queue_size: 64,
        ..config()
    };
    let (server, flooder) = flooded(timeouts);
    let (mut idle, _) = Client::ready(server.address());
    assert_eq!(idle.close_code(), Some(4408));
    until("closing", || server.stats().connections.closed.get("idle") == Some(&1));
    assert_eq!(server.connection_count(), 1, "the flooder isn't idle");
    drop(flooder);
}

#[test]
fn a_flooder_goes_on_where_it_stopped_and_nothing_is_lost() {
    let server = start(Config { max_inbound_per_connection: 100, ..config() });
    let (mut client, _) = Client::ready(server.address());
    let sender = std::thread::spawn(move || {
        for numbers in (0..20_000).collect::<Vec<u32>>().chunks(500) {
            client.write(&numbers.iter().flat_map(|number| text_frame(&number.to_string())).collect::<Vec<u8>>());
        }
        client
    });
    for (number, message) in drain(&server, 20_000).into_iter().enumerate() {
        assert_eq!(message.data, number.to_string().as_bytes());
    }
    drop(sender.join().unwrap());
    assert_balanced(&server);
}

/// Writes what each client's socket takes now, from where it stopped. Returns whether any took something.
fn push(clients: &mut [(Client, usize)], bytes: &[u8]) -> bool {
    let mut any = false;
    for (client, sent) in clients {
        match std::io::Write::write(&mut client.stream(), &bytes[*sent..]) {
            Ok(written) => (*sent, any) = (*sent + written, any || written > 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("a client was disconnected: {error}"),
        }
    }
    any
}

#[test]
fn large_messages_that_were_begun_wait_too_while_the_application_stands_still() {
    const CLIENTS: usize = 64;
    let message = vec![0; 256 << 10];
    let limits = Config {
        max_inbound_queue_bytes: 4 * message.len(),
        max_partial_bytes: 4 * message.len(),
        max_message_size: message.len(),
        shards: Some(1),
        ..config()
    };
    let server = start(limits);
    let (mut bystander, _) = Client::ready(server.address());
    let frame = wse_engine::receive::client_frame(true, Opcode::Binary, [1, 2, 3, 4], &message);
    let mut clients: Vec<(Client, usize)> = (0..CLIENTS).map(|_| (Client::ready(server.address()).0, 0)).collect();
    for (client, sent) in &mut clients {
        client.write(&frame[..100]);
        *sent = 100;
        client.stream().set_nonblocking(true).unwrap();
    }
    // The server has read the beginnings before it answers what is sent later.
    assert_answered(&mut bystander);
    until("a full queue", || {
        push(&mut clients, &frame);
        server.stats().messages.queued >= 4
    });
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_secs(1) {
        last = if push(&mut clients, &frame) { Instant::now() } else { last };
        assert_answered(&mut bystander);
    }
    // What fills the queue, and as many as may be read at once.
    let queued = server.stats().messages.queued;
    assert!((4..=4 + 4 + 1).contains(&queued), "{queued} of {CLIENTS} messages wait for the application");
    let mut heard = Vec::new();
    until("all messages", || {
        push(&mut clients, &frame);
        let drained = copied(&server.drain_batch(CLIENTS, Duration::ZERO));
        heard.extend(drained.into_iter().filter(|message| message.kind == Kind::Binary));
        heard.len() == CLIENTS
    });
    assert!(heard.iter().all(|heard| heard.data == message));
    assert_balanced(&server);
}

#[test]
fn with_drop_oldest_a_connection_loses_its_own_oldest_messages() {
    let policy = Config {
        inbound_overflow: InboundOverflow::DropOldest,
        max_inbound_per_connection: 160,
        shards: Some(1),
        ..config()
    };
    let server = start(policy);
    let (mut quiet, _) = Client::ready(server.address());
    quiet.send_text("first of all");
    until("arriving", || server.stats().messages.queued == 1);
    let (mut flooder, _) = Client::ready(server.address());
    flooder.write(&(0..10_000).flat_map(|number| text_frame(&number.to_string())).collect::<Vec<u8>>());
    until("arriving", || server.stats().messages.received == 10_001);
    assert_balanced(&server);
    let dropped = server.inbound_dropped_count() as usize;
    // Up to a sixteenth of the share is dropped at once.
    assert!((10_000 - 160..=10_000 - 150).contains(&dropped), "{dropped}");
    let kept = drain(&server, 10_001 - dropped);
    assert_eq!(kept[0].data, b"first of all");
    let numbers: Vec<String> = kept[1..].iter().map(|m| String::from_utf8(m.data.clone()).unwrap()).collect();
    assert_eq!(numbers, (dropped..10_000).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_balanced(&server);
}

#[test]
fn with_disconnect_a_connection_beyond_its_share_is_closed_and_the_others_stay() {
    let policy = Config {
        inbound_overflow: InboundOverflow::Disconnect,
        max_inbound_per_connection: 100,
        shards: Some(1),
        ..config()
    };
    let server = start(policy);
    let (mut bystander, _) = Client::ready(server.address());
    let (mut flooder, _) = Client::ready(server.address());
    flooder.write(&text_frame(r#"{"t":"flood"}"#).repeat(101));
    assert_eq!(flooder.close_code(), Some(1013));
    assert_answered(&mut bystander);
    let stats = server.stats();
    assert_eq!((stats.messages.queued, stats.messages.dropped.get("inbound_overflow")), (100, Some(&1)));
    until("leaving", || server.stats().connections.closed.get("overflow") == Some(&1));
    assert_balanced(&server);
}

#[test]
fn a_client_with_only_pings_is_not_disconnected_for_lack_of_room() {
    let policy = Config {
        inbound_overflow: InboundOverflow::Disconnect,
        max_inbound_per_connection: 1,
        shards: Some(1),
        ..config()
    };
    let server = start(policy);
    let (mut client, _) = Client::ready(server.address());
    client.send_text("the only one");
    (0..10).for_each(|_| assert_answered(&mut client));
    assert!(server.stats().connections.closed.is_empty());
}

#[test]
fn a_rate_limit_slows_a_client_down_and_loses_nothing() {
    let limit = RateLimit { capacity: 50.0, refill_per_second: 200.0 };
    let server = start(Config { inbound_rate_limit: Some(limit), shards: Some(1), ..config() });
    let started = Instant::now();
    let (mut client, _) = Client::ready(server.address());
    let (mut bystander, _) = Client::ready(server.address());
    client.write(&(0..250).flat_map(|number| text_frame(&number.to_string())).collect::<Vec<u8>>());
    until("waiting", || metric(&server, "service_connections_parked_total") > 0);
    assert_answered(&mut bystander);
    assert_answered(&mut client);
    let messages = drain(&server, 250);
    // 200 beyond the bucket, at 200 a second. Lateness makes it longer only.
    assert!(started.elapsed() >= Duration::from_millis(990), "{:?}", started.elapsed());
    assert!(messages.iter().enumerate().all(|(n, message)| message.data == n.to_string().as_bytes()));
    assert_balanced(&server);
}

#[test]
fn a_text_that_arrives_byte_by_byte_is_handed_over_whole_and_refused_at_its_first_bad_byte() {
    let server = start(Config { shards: Some(1), ..config() });
    let (mut client, _) = Client::ready(server.address());
    let text = "é€𝄞 ".repeat(300);
    for byte in text_frame(&text) {
        client.write(&[byte]);
    }
    // What follows is read as ever.
    client.send_text("after it");
    let messages = drain(&server, 2);
    assert_eq!((&messages[0].data[..], messages[0].kind), (text.as_bytes(), Kind::Raw));
    assert_eq!(messages[1].data, b"after it");
    let mut bad = text.into_bytes();
    bad[2000] = 0xFF;
    // No byte after the bad one is sent.
    let frame = wse_engine::receive::client_frame(true, Opcode::Text, [1, 2, 3, 4], &bad);
    for piece in frame[..8 + 2001].chunks(7) {
        client.write(piece);
        std::thread::yield_now();
    }
    assert_eq!(client.close_code(), Some(1007));
}

#[test]
fn the_metrics_have_the_counters_of_shares_and_standstills() {
    let metrics = Some((std::net::Ipv4Addr::LOCALHOST.into(), 0));
    let server = start(Config { metrics, ..config() });
    let (status, page) = get(server.metrics_address().unwrap(), "/metrics");
    assert_eq!(status, 200);
    for name in ["service_connections_parked_total 0", "service_application_standstills_total 0"] {
        assert!(page.contains(&format!("\n{name}\n")), "{page}");
    }
}
