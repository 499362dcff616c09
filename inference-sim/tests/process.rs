//! Starts the simulator as a process and uses it as gateways do: results, limits, faults, timing and shutdown, over
//! HTTP/1.1 and HTTP/2.

mod service;

use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::Request;
use service::{Connection, NO_DELAY, Service, TIMEOUT, VERSIONS, Version, frame};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

/// The result for one audio frame.
const FRAME: &str = r#"{"rms":2425.5023191083533,"zero_crossings":7,"checksum":1745339397,"samples":1280,"transcript":"now","audio_bytes":640}"#;
/// The result for one second of audio, 50 frames.
const SECOND: &str = r#"{"rms":5699.347243325326,"zero_crossings":111,"checksum":1244816517,"samples":64000,"transcript":"now","audio_bytes":32000}"#;

/// One second of audio, 50 frames.
fn second() -> Vec<u8> {
    (1..=50).flat_map(|sequence| frame(0, sequence)).collect()
}

/// Waits until a counter of the service has this value.
async fn until(service: &Service, name: &str, value: f64) {
    let started_at = Instant::now();
    while service.counter(name).await != value {
        assert!(started_at.elapsed() < TIMEOUT, "{name} never reaches {value}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn both_http_versions_return_the_protocols_results_on_one_port() {
    let service = Service::start(NO_DELAY);
    for version in VERSIONS {
        let mut connection = service.connect(version).await;
        for (body, passes, response_text) in [
            (frame(0, 1), "4", FRAME.to_owned()),
            (frame(0, 1), "not a number, so the default of four", FRAME.to_owned()),
            (second(), "4", SECOND.to_owned()),
            (frame(0, 1), "2", FRAME.replace(":7", ":3").replace("1745339397", "1595346885").replace("1280", "640")),
        ] {
            let reply = connection.infer(&body, passes).await.expect("a response arrives");
            assert_eq!(
                (reply.status, std::str::from_utf8(&reply.body)),
                (200, Ok(response_text.as_str())),
                "{version:?}"
            );
            assert_eq!(reply.content_length, Some(response_text.len().to_string()));
        }
    }
    assert_eq!(service.counter("inference_requests_total{version=\"1.1\"}").await, 4.0);
    assert_eq!(service.counter("inference_requests_total{version=\"2\"}").await, 4.0);
}

#[tokio::test]
async fn concurrent_requests_each_get_their_own_result() {
    let service = Service::start("--model-delay-ms=30");
    let Connection::Http2(sender) = service.connect(Version::Http2).await else { unreachable!("HTTP/2 was requested") };
    let requests = (1..=64).map(|frames: u64| {
        let mut connection = Connection::Http2(sender.clone());
        let body: Vec<u8> = (1..=frames).flat_map(|sequence| frame(0, sequence)).collect();
        tokio::spawn(async move { (frames, connection.infer(&body, "4").await.expect("a response arrives")) })
    });
    for request in requests.collect::<Vec<_>>() {
        let (frames, reply) = request.await.expect("the request doesn't panic");
        let body: Vec<u8> = (1..=frames).flat_map(|sequence| frame(0, sequence)).collect();
        let audio = inference_sim::Audio::new(&body).expect("frames are whole samples");
        let expected = serde_json::to_vec(&inference_sim::infer(audio, 4)).expect("a result can be serialized");
        assert_eq!(reply.body, expected, "{frames} frames");
    }
    let (batches, requests) = ("inference_compute_batches_total", "inference_compute_requests_total");
    assert!(service.counter(batches).await < service.counter(requests).await, "no requests were computed in one batch");
}

#[tokio::test]
async fn a_request_with_an_upgrade_to_http2_gets_its_response_over_http1() {
    let service = Service::start(NO_DELAY);
    let mut stream = TcpStream::connect(&service.address).await.expect("the service listens");
    let head = "POST /infer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 640\r\n\r\n";
    stream.write_all(&[head.as_bytes(), &frame(0, 1)].concat()).await.expect("the service reads");
    let mut response_text = Vec::new();
    while !response_text.ends_with(b"}") {
        assert_ne!(
            stream.read_buf(&mut response_text).await.expect("the service responds"),
            0,
            "closed after {response_text:?}"
        );
    }
    let response_text = String::from_utf8(response_text).expect("the output is text");
    assert!(response_text.starts_with("HTTP/1.1 200 OK\r\n") && response_text.ends_with(FRAME), "{response_text}");
}

#[tokio::test]
async fn audio_that_cannot_be_computed_is_refused_and_the_connection_continues() {
    let service = Service::start(NO_DELAY);
    for version in VERSIONS {
        let mut connection = service.connect(version).await;
        let odd = connection.infer(&[1, 2, 3], "4").await.expect("a response arrives");
        assert_eq!((odd.status, &odd.body[..]), (400, &b"body length must be even (i16 PCM)"[..]));
        let costly = connection.infer(&frame(0, 1), "4000000000").await.expect("a response arrives");
        assert_eq!(costly.status, 400);
        assert!(String::from_utf8_lossy(&costly.body).contains("4000000000 passes over 320 samples"), "{costly:?}");
        let empty = connection.infer(&[], "4").await.expect("a response arrives");
        let silence =
            r#"{"rms":0.0,"zero_crossings":0,"checksum":2166136261,"samples":0,"transcript":"right","audio_bytes":0}"#;
        assert_eq!((empty.status, &empty.body[..]), (200, silence.as_bytes()));
        let empty_with_many_passes = connection.infer(&[], "4294967295").await.expect("a response arrives");
        assert_eq!((empty_with_many_passes.status, &empty_with_many_passes.body[..]), (200, silence.as_bytes()));
    }
    assert_eq!(service.counter("inference_refused_total").await, 4.0);
}

#[tokio::test]
async fn two_mebibytes_are_accepted_and_one_sample_more_is_refused() {
    let service = Service::start(NO_DELAY);
    let largest = vec![0; 2 * 1024 * 1024];
    let mut connection = service.connect(Version::Http1).await;
    assert_eq!(connection.infer(&largest, "1").await.expect("a response arrives").status, 200);
    let more = [&largest[..], &[0, 0]].concat();
    assert_eq!(connection.infer(&more, "1").await.expect("a response arrives").status, 413);
}

#[tokio::test]
async fn health_pages_respond_and_unknown_paths_and_methods_are_refused() {
    let service = Service::start("");
    assert_eq!(service.get("/health").await, (200, "ok".into()));
    assert_eq!(service.get("/healthz").await.0, 200);
    assert_eq!(service.get("/readyz").await.0, 200);
    assert_eq!(service.get("/infer").await.0, 405);
    assert_eq!(service.get("/nowhere").await.0, 404);
}

/// The status codes of the first 40 responses. They depend on the random numbers and on no clock.
async fn statuses(flags: &str) -> Vec<u16> {
    let service = Service::start(&format!("{NO_DELAY} --fault-status=503:0.3,429:0.2 {flags}"));
    let mut connection = service.connect(Version::Http1).await;
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(connection.infer(&frame(0, 1), "1").await.expect("a response arrives").status);
    }
    statuses
}

#[tokio::test]
async fn faults_repeat_with_the_seed_and_differ_without() {
    let first = statuses("--model-seed=7").await;
    assert_eq!(first, statuses("--model-seed=7").await);
    assert_ne!(first, statuses("--model-seed=8").await);
    assert!([200, 429, 503].iter().all(|status| first.contains(status)), "{first:?}");
}

#[tokio::test]
async fn no_response_is_earlier_than_the_latency_model_even_after_a_restart() {
    use clap::Parser;
    let flags = ["--model-seed=11", "--model-delay-ms=5", "--model-jitter-sigma=1"];
    let model = inference_sim::Model::new(&inference_sim::Config::parse_from(["test"].iter().chain(&flags)));
    for _restart in 0..2 {
        let service = Service::start(&flags.join(" "));
        let mut connection = service.connect(Version::Http1).await;
        for number in 0..20 {
            let reply = connection.infer(&frame(0, 1), "4").await.expect("a response arrives");
            assert!(reply.after >= model.latency(number), "request {number} after {:?}", reply.after);
        }
    }
}

#[tokio::test]
async fn requests_beyond_the_permits_wait_for_earlier_ones() {
    let delay = Duration::from_millis(40);
    let service = Service::start(
        "--model-max-concurrent=1 --model-delay-ms=40 --model-jitter-sigma=0 --model-longtail-prob=0 \
         --model-batch-wait-max-ms=0",
    );
    let Connection::Http2(sender) = service.connect(Version::Http2).await else { unreachable!("HTTP/2 was requested") };
    let started_at = Instant::now();
    let requests: Vec<_> = (0..4)
        .map(|_| {
            let mut connection = Connection::Http2(sender.clone());
            tokio::spawn(async move { connection.infer(&frame(0, 1), "4").await })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.expect("the request doesn't panic").expect("a response arrives").status, 200);
    }
    assert!(started_at.elapsed() >= 4 * delay, "all four after {:?}", started_at.elapsed());
}

#[tokio::test]
async fn a_reset_breaks_the_connection_or_the_stream() {
    let service = Service::start(&format!("{NO_DELAY} --fault-reset=1"));
    let mut stream = TcpStream::connect(&service.address).await.expect("the service listens");
    let head = b"POST /infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab";
    stream.write_all(head).await.expect("the service reads");
    let error = stream.read(&mut [0; 100]).await.expect_err("a reset is not the end of the stream");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    let mut connection = service.connect(Version::Http2).await;
    for _stream in 0..2 {
        assert!(connection.infer(&frame(0, 1), "4").await.is_err());
    }
    assert_eq!(service.counter("inference_faults_total{kind=\"reset\"}").await, 3.0);
}

#[tokio::test]
async fn faults_of_bodies_change_them_as_configured() {
    let malformed = Service::start(&format!("{NO_DELAY} --fault-malformed=1"));
    let unknown = Service::start(&format!("{NO_DELAY} --fault-unknown-field=1"));
    for version in VERSIONS {
        let reply = malformed.connect(version).await.infer(&frame(0, 1), "4").await.expect("a response arrives");
        assert!(
            reply.status == 200 && !reply.body.is_empty() && FRAME.as_bytes().starts_with(&reply.body),
            "{reply:?}"
        );
        assert!(serde_json::from_slice::<serde_json::Value>(&reply.body).is_err());
        let reply = unknown.connect(version).await.infer(&frame(0, 1), "4").await.expect("a response arrives");
        let body = FRAME.replace('}', r#","fault":true}"#);
        assert_eq!((reply.status, &reply.body[..]), (200, body.as_bytes()));
    }
}

#[tokio::test]
async fn a_slow_body_arrives_complete_but_late() {
    let service = Service::start(&format!("{NO_DELAY} --fault-slow-body=1:300"));
    for version in VERSIONS {
        let reply = service.connect(version).await.infer(&frame(0, 1), "4").await.expect("a response arrives");
        assert_eq!(reply.body, FRAME);
        assert_eq!(reply.content_length, Some(FRAME.len().to_string()));
        assert!(reply.after >= Duration::from_millis(290), "{reply:?}");
    }
}

#[tokio::test]
async fn a_stall_delays_the_response() {
    let service = Service::start(&format!("{NO_DELAY} --fault-stall=1:250"));
    let reply = service.connect(Version::Http1).await.infer(&frame(0, 1), "4").await.expect("a response arrives");
    assert!(reply.body == FRAME && reply.after >= Duration::from_millis(250), "{reply:?}");
}

#[tokio::test]
async fn an_endless_stall_ends_with_the_connection_and_counts_as_abandoned() {
    let service = Service::start(&format!("{NO_DELAY} --fault-stall=1:never --model-max-concurrent=1"));
    for (version, abandoned) in VERSIONS.into_iter().zip([1.0, 2.0]) {
        let mut connection = service.connect(version).await;
        let body = frame(0, 1);
        let stalled = connection.infer(&body, "4");
        assert!(timeout(Duration::from_millis(50), stalled).await.is_err(), "a response arrived");
        drop(connection);
        until(&service, "inference_abandoned_total", abandoned).await;
    }
    assert_eq!(service.counter("inference_in_flight").await, 0.0);
}

#[tokio::test]
async fn requests_in_flight_finish_after_the_signal_to_stop() {
    for version in VERSIONS {
        let mut service = Service::start("--model-delay-ms=300");
        let mut connection = service.connect(version).await;
        let request = tokio::spawn(async move { connection.infer(&frame(0, 1), "4").await });
        until(&service, "inference_in_flight", 1.0).await;
        service.terminate();
        let reply = request.await.expect("the request doesn't panic").expect("a response arrives");
        assert_eq!((reply.status, &reply.body[..]), (200, FRAME.as_bytes()));
        assert_eq!(service.exit_code().await, Some(0));
    }
}

#[tokio::test]
async fn a_stopping_service_is_not_ready_and_accepts_no_connection() {
    let mut service = Service::start(&format!("{NO_DELAY} --fault-stall=1:never"));
    let mut stalled = service.connect(Version::Http1).await;
    let mut other = service.connect(Version::Http2).await;
    let request = tokio::spawn(async move { stalled.infer(&frame(0, 1), "4").await });
    until(&service, "inference_in_flight", 1.0).await;
    let ready = || Request::get("http://inference/readyz").body(Full::default()).expect("a plain request");
    assert_eq!(other.send(ready()).await.expect("a response arrives").status, 200);
    service.terminate();
    let started_at = Instant::now();
    while TcpStream::connect(&service.address).await.is_ok() {
        assert!(started_at.elapsed() < TIMEOUT, "the service still accepts connections");
        sleep(Duration::from_millis(5)).await;
    }
    // The drain has a deadline, at which the stalled request is dropped.
    assert_eq!(service.exit_code().await, Some(0));
    assert!(request.await.expect("the request doesn't panic").is_err());
}

#[test]
fn a_port_in_use_is_named_in_the_error() {
    let in_use = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = in_use.local_addr().expect("the listener is bound").port().to_string();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_inference-sim"))
        .args(["--port", &port])
        .output()
        .expect("the program was built");
    let text = String::from_utf8(output.stderr).expect("the output is text");
    assert!(!output.status.success() && text.contains(&port), "{text}");
}
