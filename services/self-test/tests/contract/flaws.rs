//! Each flaw shows as it should, and nothing else is wrong.

use std::time::{Duration, Instant};

use bench_format::histogram::{Histogram, Recorder};
use futures_util::{SinkExt, StreamExt};
use service_contract::{PublisherStats, ServiceStats, Started};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Client, get_json, service, stats_when};

/// Sends 100 messages on each of two connections; returns the counters of the service and of the connections.
async fn flood(flags: &[&str]) -> (ServiceStats, [service_contract::ConnectionBook; 2]) {
    let service = service(flags).await;
    let started = service.started();
    let (mut first, mut second) = (Client::open(&started).await, Client::open(&started).await);
    first.send_numbered(100).await;
    stats_when(&started, |stats| stats.messages.received == 100).await;
    second.send_numbered(100).await;
    let stats = stats_when(&started, |stats| stats.messages.received == 200).await;
    let books = [first.book(&started), second.book(&started)];
    service.stop().await.unwrap();
    (stats, books)
}

fn sum(stats: &ServiceStats) -> u64 {
    stats.application.unwrap().sequence_sum
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flaw_drop_loses_one_in_k_and_counts_it() {
    let (stats, [first, second]) = flood(&["--flaw", "drop", "--every", "40"]).await;
    assert_eq!((stats.messages.delivered, stats.messages.dropped["self_test"]), (195, 5));
    // Messages 40 and 80 of the first connection; 120, 160 and 200 are messages 20, 60 and 100 of the second.
    assert_eq!(sum(&stats), 5050 - 120 + 5050 - 180);
    assert_eq!((first.dropped, second.dropped), (2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flaw_silent_drop_loses_one_in_k_uncounted() {
    let (stats, [first, second]) = flood(&["--flaw", "silent-drop", "--every", "40"]).await;
    assert_eq!((stats.messages.delivered, stats.messages.dropped.len(), stats.messages.consumed), (195, 0, 0));
    assert_eq!((first.dropped, second.dropped), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flaw_liar_changes_only_one_sequence_sum() {
    let (stats, [first, second]) = flood(&["--flaw", "liar", "--every", "40"]).await;
    assert_eq!((stats.messages.delivered, stats.messages.dropped.len()), (200, 0));
    assert_eq!(stats.application.unwrap().delivered, 200);
    assert_eq!(sum(&stats), 5050 - 40 + 5050);
    let sums = [first, second].map(|book| book.application.unwrap().sequence_sum);
    assert_eq!(sums, [5050 - 40, 5050]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flaw_null_counts_frames_and_discards_them() {
    let (stats, [first, _]) = flood(&["--flaw", "null"]).await;
    assert_eq!((stats.messages.delivered, stats.messages.dropped["discarded"]), (0, 200));
    assert_eq!((stats.application, first.application, first.dropped), (None, None, 100));
    assert!(stats.bytes.received > 200 * 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_discarding_gateway_answers_control_frames_and_close() {
    let service = service(&["--flaw", "null"]).await;
    let started = service.started();
    let (mut leaving, mut staying) = (Client::open(&started).await, Client::open(&started).await);
    staying.socket.send(Message::Ping("hello".into())).await.unwrap();
    leaving.socket.close(None).await.unwrap();
    leaving.close_frame().await;
    stats_when(&started, |stats| stats.connections.closed.get("client") == Some(&1)).await;
    let stop = tokio::spawn(service.stop());
    assert_eq!(staying.close_frame().await.map(|frame| u16::from(frame.code)), Some(1001));
    stop.await.unwrap().unwrap();
}

/// The time of each of `pings` on one connection from its sending to its reply, shortest first.
async fn ping(started: &Started, pings: u64) -> Vec<Duration> {
    let mut client = Client::open(started).await;
    let mut sent = Vec::new();
    for number in 0..pings {
        sent.push(Some(Instant::now()));
        client.send(&format!(r#"{{"p":{{"timestamp":{number}}},"t":"ping"}}"#)).await;
    }
    let mut durations = Vec::new();
    for _ in 0..pings {
        let number = client.json().await["p"]["client_timestamp"].as_u64().unwrap();
        let sent = sent[number as usize].take().expect("each ping is answered once");
        durations.push(sent.elapsed());
    }
    durations.sort();
    durations
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_replies_take_as_long_as_the_service_recorded() {
    let service = service(&["--flaw", "delay", "--delay-ms", "100", "--tail-ms", "20"]).await;
    let started = service.started();
    let durations = ping(&started, 200).await;
    let recorded: Histogram = get_json(&started.metrics_address, "/recorded");
    let recorded = Recorder::decode(&recorded).unwrap();
    assert_eq!(recorded.count(), 200);
    for (quantile, observed) in [(0.0, durations[0]), (0.5, durations[99]), (1.0, durations[199])] {
        let expected = recorded.values().value_at_quantile(quantile) as f64 / 1e9;
        let difference = (observed.as_secs_f64() - expected).abs();
        assert!(
            difference < 0.02 * expected + 0.02,
            "quantile {quantile}: {observed:?} observed, {expected} s recorded"
        );
    }
    assert!(durations[0] >= Duration::from_millis(100));
    assert!(durations[199] > durations[0] + Duration::from_millis(40), "replies are spread: {durations:?}");
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_without_token_check_admits_every_client() {
    let service = service(&["--flaw", "gullible", "--secret", "a secret that no client here knows"]).await;
    let started = service.started();
    let mut client_without_token = Client::open(&started).await;
    client_without_token.send_numbered(100).await;
    let stats = stats_when(&started, |stats| stats.messages.received == 100).await;
    assert_eq!((stats.messages.delivered, sum(&stats), stats.connections.rejected.len()), (100, 5050, 0));
    service.stop().await.unwrap();
}

/// The numbers that two subscribers of a publisher receive until one of them has `number`, and the service's count of
/// sent messages.
async fn published(flaw: &str, number: u64) -> ([Vec<u64>; 2], u64) {
    let service = service(&["--flaw", flaw, "--every", "10", "--rate", "2000"]).await;
    let started = service.started();
    let mut received = [Vec::new(), Vec::new()];
    let mut clients = [Client::open(&started).await, Client::open(&started).await];
    for (client, received) in clients.iter_mut().zip(&mut received) {
        while received.last() < Some(&number) {
            let message = client.json().await;
            assert_eq!(message["t"], "fanout_tick");
            received.push(message["p"]["seq"].as_u64().unwrap());
        }
    }
    for client in &mut clients {
        client.socket.close(None).await.unwrap();
        while let Some(Ok(_)) = client.socket.next().await {}
    }
    let stats = stats_when(&started, |stats| stats.connections.open == 0).await;
    service.stop().await.unwrap();
    (received, stats.messages.sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_sends_every_number_to_every_subscriber_and_reports_it() {
    let service = service(&["--flaw", "publisher", "--rate", "1000"]).await;
    let started = service.started();
    let publisher = || -> PublisherStats { get_json(&started.metrics_address, "/stats/publisher") };
    assert_eq!((publisher().published, publisher().rate_per_second), (0, Some(1000.0)));
    let mut client = Client::open(&started).await;
    let first = client.json().await["p"]["seq"].as_u64().unwrap();
    assert_eq!(client.json().await["p"]["seq"], first + 1);
    assert!(publisher().last_sequence > Some(first));
    service.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silently_dropping_publisher_omits_one_in_k_for_every_subscriber() {
    let (received, _) = published("publisher-silent-drop", 50).await;
    for numbers in received {
        assert!(numbers.iter().all(|number| number % 10 != 9), "{numbers:?}");
        assert!(numbers.len() as u64 >= (numbers.last().unwrap() - numbers[0]) * 9 / 10, "{numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_lies_counts_undelivered_messages_as_sent() {
    let (received, sent) = published("publisher-liar", 200).await;
    assert!(received.iter().flatten().all(|number| number % 10 != 9), "{received:?}");
    // Two server_ready messages, and for each ten numbers one that wasn't sent.
    let expected: u64 = received.iter().map(|numbers| 1 + numbers.last().unwrap() - numbers[0] + 1).sum();
    let received_count: u64 = received.iter().map(|numbers| 1 + numbers.len() as u64).sum();
    assert!(sent >= expected && expected > received_count, "{sent} against {expected} and {received_count}");
}
