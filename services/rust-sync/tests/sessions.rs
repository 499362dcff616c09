//! The outcome of frames: batches, partials, errors, and the books.

mod service;

use std::{thread, time::Duration};

use service::{Frame, Gateway, Inference, Reply, audio, http, response};

const FAST: (&str, &str) = ("FLUSH_INTERVAL_MS", "100");

#[test]
fn frames_become_one_batch_and_one_partial() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[("FLUSH_INTERVAL_MS", "400")]);
    let mut client = gateway.session();
    client.audio(1..=5);
    let partial = client.message();
    assert_eq!(
        (&partial["type"], &partial["oldest_frame_seq"], &partial["newest_frame_seq"]),
        (&"partial".into(), &1.into(), &5.into())
    );
    let requests = inference.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body, (1..=5).flat_map(audio).collect::<Vec<u8>>());
    assert!(
        requests[0].head.starts_with("POST /infer HTTP/1.1\r\n") && requests[0].head.contains("x-cpu-passes: 4\r\n")
    );
    client.close(1000);
    assert_eq!((client.next(), client.next()), (Frame::Close(Some(1000), String::new()), Frame::End));
    let stats = gateway.stats_when(|stats| stats.connections.open == 0);
    assert_eq!((stats.messages.received, stats.messages.consumed, stats.messages.delivered), (6, 1, 5));
}

#[test]
fn covers_are_contiguous_however_frames_arrive() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[FAST]);
    let mut client = gateway.session();
    let (mut sent, mut covered) = (0, 0);
    while covered < 200 {
        if sent < 200 {
            client.audio(sent + 1..=sent + 10);
            sent += 10;
        }
        if sent % 40 == 0 {
            let partial = client.message();
            assert_eq!(partial["oldest_frame_seq"], covered + 1);
            covered = partial["newest_frame_seq"].as_u64().unwrap();
        }
    }
    let received: Vec<u8> = inference.requests().iter().flat_map(|request| request.body.clone()).collect();
    assert_eq!(received, (1..=200).flat_map(audio).collect::<Vec<u8>>());
}

#[test]
fn an_unavailable_inference_is_an_error_and_the_session_goes_on() {
    let inference = Inference::start(|request| match request.body[..2] == audio(1)[..2] {
        true => Reply::Send(http(503, "")),
        false => Reply::Send(response(&request.body)),
    });
    let gateway = Gateway::start(&inference.url, &[FAST]);
    let mut client = gateway.session();
    client.audio(1..=3);
    let error = client.message();
    assert_eq!(
        (&error["type"], &error["kind"], &error["inference_status"]),
        (&"error".into(), &"http_5xx".into(), &503.into())
    );
    client.audio(4..=4);
    assert_eq!(client.message()["oldest_frame_seq"], 4);
    assert_eq!(gateway.stats().messages.dropped["http_5xx"], 3);
}

/// The timer wheel's range begins where the thread last looked at it. A start message shortly before the end of a long rest
/// is for a time beyond that range.
#[test]
fn a_session_that_starts_after_a_long_rest_is_served() {
    let inference = Inference::correct();
    let gateway = Gateway::start(&inference.url, &[]);
    let mut client = gateway.connect();
    thread::sleep(Duration::from_millis(1900));
    client.text(r#"{"type":"start"}"#);
    client.audio(1..=3);
    assert_eq!(client.message()["newest_frame_seq"], 3);
}
