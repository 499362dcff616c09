//! Failures of the inference, of clients, and at the start. Each frame is still covered, and the books still balance.

mod service;

use std::{
    collections::BTreeMap,
    io::Write,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use service::{Frame, Gateway, Inference, Reply, audio, http, metrics, response};

const FAST: (&str, &str) = ("FLUSH_INTERVAL_MS", "100");

/// An inference that handles its first request with `reply` and all later ones with a valid response.
fn first(reply: impl Fn(&[u8]) -> Reply + Send + Sync + 'static) -> Inference {
    let count = AtomicUsize::new(0);
    Inference::start(move |request| match count.fetch_add(1, Ordering::SeqCst) {
        0 => reply(&request.body),
        _ => Reply::Send(response(&request.body)),
    })
}

#[test]
fn every_failure_covers_its_frames_and_the_session_goes_on() {
    type ReplyTo = fn(&[u8]) -> Reply;
    let cases: [(ReplyTo, &str, &str, Option<u64>, bool); 9] = [
        (|_| Reply::Silence, "inference_request", "timeout", None, true),
        (|_| Reply::Close, "inference_request", "connection_reset", None, true),
        (|body| Reply::SendAndClose(response(body)[..20].into()), "inference_request", "connection_reset", None, true),
        (|_| Reply::Send(http(429, "")), "inference_request", "http_429", Some(429), true),
        (|_| Reply::Send(http(500, "x")), "inference_request", "http_5xx", Some(500), true),
        (|_| Reply::Send(http(404, "x")), "inference_request", "http_5xx", Some(404), false),
        (|_| Reply::Send(http(200, "{}")), "inference_response_parse", "parse_error", Some(200), false),
        (|body| Reply::Send(response(&body[640..])), "inference_response_parse", "parse_error", Some(200), false),
        (|_| Reply::Send(b"garbage\r\n\r\n".into()), "inference_response_parse", "parse_error", None, false),
    ];
    for (number, (reply, stage, kind, status, retryable)) in cases.into_iter().enumerate() {
        let inference = first(reply);
        let gateway = Gateway::start(&inference.url, &[FAST, ("INFERENCE_TIMEOUT_MS", "300")]);
        let mut client = gateway.session();
        client.audio(1..=2);
        let error = client.message();
        let reported = (error["stage"].as_str(), error["kind"].as_str(), error["inference_status"].as_u64());
        assert_eq!(reported, (Some(stage), Some(kind), status), "case {number}: {error}");
        assert_eq!(error["retryable"], retryable, "case {number}");
        assert_eq!((&error["oldest_frame_seq"], &error["newest_frame_seq"]), (&1.into(), &2.into()), "case {number}");
        client.audio(3..=3);
        assert_eq!(client.message()["oldest_frame_seq"], 3, "case {number}");
        let stats = gateway.stats();
        assert_eq!(stats.messages.dropped, BTreeMap::from([(kind.to_owned(), 2)]), "case {number}");
        assert_eq!(stats.inference.unwrap().failed, BTreeMap::from([(kind.to_owned(), 1)]), "case {number}");
    }
}

#[test]
fn a_port_without_listener_is_an_error_at_once() {
    // The port was bound and released, so no process listens on it.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let gateway = Gateway::start(&format!("http://127.0.0.1:{port}"), &[FAST]);
    let mut client = gateway.session();
    client.audio([1]);
    let error = client.message();
    assert_eq!((&error["kind"], &error["retryable"]), (&"connection_reset".into(), &true.into()));
    assert!(error["inference_elapsed_ms"].as_f64().unwrap() < 1000.0, "{error}");
}

#[test]
fn a_stale_connection_is_replaced_without_an_error() {
    let inference = Inference::start(|request| Reply::SendAndClose(response(&request.body)));
    let gateway = Gateway::start(&inference.url, &[FAST]);
    let mut client = gateway.session();
    for seq in 1..=3 {
        client.audio([seq]);
        assert_eq!(client.message()["type"], "partial");
    }
    assert_eq!(gateway.stats().inference.unwrap().failed, BTreeMap::new());
}

#[test]
fn a_kept_alive_connection_that_is_reset_is_tried_again_once() {
    // The second request on a connection is dropped with the connection, as if it had been idle for too long.
    let inference = Inference::start(|request| match request.body[..2] == audio(2)[..2] && request.connection == 0 {
        true => Reply::Close,
        false => Reply::Send(response(&request.body)),
    });
    let gateway = Gateway::start(&inference.url, &[FAST, ("INFERENCE_HTTP_CLIENTS", "1")]);
    let mut client = gateway.session();
    for seq in 1..=3 {
        client.audio([seq]);
        assert_eq!(client.message()["type"], "partial", "frame {seq}");
    }
    let connections: Vec<usize> = inference.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 1, 1]);
}

#[test]
fn requests_wait_for_a_connection_and_all_are_answered() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[FAST, ("INFERENCE_HTTP_CLIENTS", "2")]);
    let mut clients: Vec<_> = (0..50).map(|_| gateway.session()).collect();
    clients.iter_mut().for_each(|client| client.audio(1..=3));
    for client in &mut clients {
        assert_eq!(client.message()["newest_frame_seq"], 3);
    }
    assert!(inference.connections.load(Ordering::SeqCst) <= 2);
}

#[test]
fn a_session_has_one_request_in_flight_and_audio_waits() {
    let inference = first(|_| Reply::Silence);
    let gateway = Gateway::start(&inference.url, &[FAST, ("INFERENCE_TIMEOUT_MS", "600")]);
    let mut client = gateway.session();
    client.audio([1]);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 1);
    client.audio(2..=4);
    let stats = gateway.stats_when(|stats| stats.inference.as_ref().unwrap().ticks_skipped >= 2);
    assert_eq!((stats.inference.unwrap().requests, inference.requests().len()), (1, 1));
    assert_eq!(client.message()["kind"], "timeout");
    let partial = client.message();
    assert_eq!((&partial["oldest_frame_seq"], &partial["frames"]), (&2.into(), &3.into()));
    let reported = metrics(&gateway.get("/metrics").1);
    assert_eq!(reported["service_inference_in_flight_per_connection_max"], 1.0);
    assert!(reported[r#"service_flush_ticks_total{outcome="skipped"}"#] >= 2.0);
}

#[test]
fn audio_beyond_the_limit_is_dropped_oldest_first_and_reported_in_order() {
    let inference = first(|_| Reply::Silence);
    let settings = [FAST, ("INFERENCE_TIMEOUT_MS", "500"), ("MAX_BUFFERED_FRAMES", "10")];
    let gateway = Gateway::start(&inference.url, &settings);
    let mut client = gateway.session();
    client.audio(1..=5);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 1);
    client.audio(6..=30);
    let stats = gateway.stats_when(|stats| stats.messages.received == 31);
    assert_eq!((stats.messages.dropped["overflow"], stats.messages.queued), (15, 15));
    assert_eq!(stats.inference.unwrap().buffered_bytes, 15 * 640);
    let covers: Vec<_> = (0..3).map(|_| client.message()).collect();
    let reported: Vec<_> = covers
        .iter()
        .map(|span| (span["kind"].as_str(), span["oldest_frame_seq"].as_u64(), span["newest_frame_seq"].as_u64()))
        .collect();
    assert_eq!(
        reported,
        [(Some("timeout"), Some(1), Some(5)), (Some("overflow"), Some(6), Some(20)), (None, Some(21), Some(30))]
    );
}

#[test]
fn a_client_that_does_not_read_is_closed() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[FAST]);
    let mut client = gateway.session();
    let pings: Vec<u8> = (0..2000).flat_map(|_| service::frame(0x89, &[7; 125])).collect();
    client.stream.set_nonblocking(true).unwrap();
    // Pongs fill the kernel's buffers, and then the gateway's own.
    let closed = || gateway.stats().connections.closed;
    let mut at = 0;
    while closed().is_empty() {
        match client.stream.write(&pings[at..]) {
            Ok(written) => at = (at + written) % pings.len(),
            // The gateway reads only a few times per second.
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    assert_eq!(closed(), BTreeMap::from([("slow_consumer".to_owned(), 1)]));
}

#[test]
fn a_client_that_leaves_is_booked_with_what_it_left_behind() {
    let inference = Inference::start(|_| Reply::Silence);
    let gateway = Gateway::start(&inference.url, &[FAST, ("INFERENCE_TIMEOUT_MS", "3600000")]);
    let (mut polite, mut rude) = (gateway.session(), gateway.session());
    polite.audio([1]);
    rude.audio([1]);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 2);
    polite.audio(2..=4);
    gateway.stats_when(|stats| stats.messages.received == 7);
    polite.close(1000);
    assert_eq!(polite.next(), Frame::Close(Some(1000), String::new()));
    drop(rude);
    let stats = gateway.stats_when(|stats| stats.connections.open == 0);
    assert_eq!(stats.connections.closed, BTreeMap::from([("client".to_owned(), 1), ("eof".to_owned(), 1)]));
    assert_eq!((stats.messages.dropped["closed"], stats.messages.queued), (5, 0));
    let inference = stats.inference.unwrap();
    assert_eq!((inference.abandoned, inference.in_flight), (2, 0));
    // This happens long before the requests' timeout.
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().buffered_bytes == 0);
}

#[test]
fn stopping_flushes_once_more_and_closes_with_1001() {
    let inference = Inference::correct();
    let mut gateway = Gateway::start(&inference.url, &[("FLUSH_INTERVAL_MS", "60000")]);
    let (mut session, mut waiting) = (gateway.session(), gateway.connect());
    session.audio(1..=3);
    gateway.stats_when(|stats| stats.messages.received == 4);
    gateway.terminate();
    assert_eq!(session.message()["newest_frame_seq"], 3);
    let going = Frame::Close(Some(1001), "going away".into());
    assert_eq!((session.next(), session.next()), (Frame::Close(Some(1001), "going away".into()), Frame::End));
    assert_eq!(waiting.next(), going);
    drop((session, waiting));
    assert!(gateway.wait().success());
}

#[test]
fn stopping_does_not_wait_for_an_inference_that_is_silent() {
    let inference = Inference::start(|_| Reply::Silence);
    let mut gateway = Gateway::start(&inference.url, &[FAST, ("INFERENCE_TIMEOUT_MS", "60000")]);
    let mut client = gateway.session();
    client.audio([1]);
    gateway.stats_when(|stats| stats.inference.as_ref().unwrap().in_flight == 1);
    gateway.terminate();
    assert_eq!(client.next(), Frame::Close(Some(1001), "going away".into()));
    drop(client);
    assert!(gateway.wait().success());
}

#[test]
fn more_than_may_connect_are_refused_and_let_in_later() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[("MAX_CONNECTIONS", "1")]);
    let mut first = gateway.connect();
    let upgrade = "GET /ws/stt HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert_eq!(service::exchange(&gateway.started.address, upgrade).0, 503);
    first.close(1000);
    assert_eq!((first.next(), first.next()), (Frame::Close(Some(1000), String::new()), Frame::End));
    gateway.connect();
    assert_eq!(gateway.stats().connections.rejected, BTreeMap::from([("full".to_owned(), 1)]));
}

#[test]
fn the_ports_answer_as_the_contract_requires() {
    let gateway = Gateway::start("http://127.0.0.1:9", &[]);
    let port = &gateway.started.address;
    assert_eq!(service::get(port, "/health"), (200, r#"{"ok":true,"runtime":"rust-sync"}"#.into()));
    assert_eq!((service::get(port, "/other").0, service::get(port, "/ws/stt").0), (404, 426));
    assert_eq!(service::exchange(port, "POST /health HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").0, 405);
    assert_eq!((gateway.get("/healthz").0, gateway.get("/readyz").0), (200, 200));
    assert_eq!((gateway.get("/stats/connections").0, gateway.get("/").0), (404, 404));
    assert!(metrics(&gateway.get("/metrics").1)["service_process_resident_bytes"] > 0.0);
}

#[test]
fn many_sessions_on_several_threads_are_all_served() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[FAST, ("WORKER_THREADS", "3"), ("FLUSH_PHASE_JITTER_MS", "100")]);
    let mut clients: Vec<_> = (0..300).map(|_| gateway.session()).collect();
    for seqs in [1..=4, 5..=9] {
        clients.iter_mut().for_each(|client| client.audio(seqs.clone()));
        for client in &mut clients {
            while client.message()["newest_frame_seq"] != *seqs.end() {}
        }
    }
    let stats = gateway.stats();
    assert_eq!((stats.messages.delivered, stats.messages.consumed), (2700, 300));
}

#[test]
fn settings_that_make_no_sense_end_the_program_and_are_named() {
    for (name, value) in
        [("PORT", "99999"), ("CPU_PASSES", "0"), ("INFERENCE_URL", "localhost"), ("FLUSH_INTERVAL_MS", "-5")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_rust-sync")).env(name, value).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains(value), "{name}: {message}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _held = Arc::new(std::net::TcpListener::bind(taken).unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_rust-sync")).env("PORT", taken.port().to_string()).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains(&taken.to_string()));
}
