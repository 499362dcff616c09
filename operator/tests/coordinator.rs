//! Tests of the coordinator over HTTP, with workers in the test itself: barrier, repeated, missing and late requests,
//! and requests without the token.

use std::time::Duration;

use bench_format::{
    plan::{Load, Message},
    trial::{Assignment, Clock, Next, Progress, Release, TrialId},
};
use driver::{
    clock::unix_ns,
    coordinator::{Coordinator, Token, barrier::Barrier},
};
use fakes::worker::{Worker, client, client_with, empty_result, progress, ready};
use reqwest::{Client, StatusCode};
use serde_json::Value;

mod fakes;

fn assignment(worker: u32, workers: u32) -> Assignment {
    let trial = TrialId {
        service: bench_format::Name::from_static("honest"),
        workload: bench_format::Name::from_static("throughput"),
        variant: bench_format::Name::from_static("standard"),
        tier: 4,
        process: 1,
        repeat: 1,
    };
    Assignment {
        run: "r".into(),
        trial,
        attempt: 1,
        worker,
        workers,
        address: "127.0.0.1:9".into(),
        connections: 2,
        first_connection: worker * 2,
        seed: 1,
        load: Load::Closed { messages_per_connection: None, in_flight: 1 },
        message: Message::default(),
        warmup_ns: 0,
        window_ns: 1,
        drain_ns: 1,
        late_after_ns: None,
        keep_connections: false,
        settings: Default::default(),
        websocket: None,
        samples: false,
        protocol_check: true,
    }
}

fn worker(coordinator: &Coordinator, index: u32) -> Worker {
    Worker { coordinator: coordinator.url(), index, token: coordinator.token().reveal().into() }
}

/// A coordinator that offers a trial for this number of workers, and the workers.
async fn offered(workers: u32) -> (Coordinator, Vec<Worker>, Client) {
    let coordinator = Coordinator::start("r").await.unwrap();
    coordinator.expect_new_workers(workers);
    coordinator.offer((0..workers).map(|worker| assignment(worker, workers)).collect());
    let http = client_with(coordinator.token().reveal());
    let all = (0..workers).map(|index| worker(&coordinator, index)).collect();
    (coordinator, all, http)
}

async fn error_message(response: reqwest::Response, status: StatusCode) -> String {
    assert_eq!(response.status(), status);
    response.json::<Value>().await.unwrap()["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn all_workers_get_one_start_once_all_are_ready() {
    let (coordinator, workers, http) = offered(2).await;
    let release = async {
        let open = coordinator.wait_until(Barrier::all_ready).await;
        coordinator.release(77);
        open
    };
    let (first, second) = (assignment(0, 2), assignment(1, 2));
    let (open, a, b) = tokio::join!(release, workers[0].ready(&http, &first), workers[1].ready(&http, &second));
    assert_eq!((open, a, b), (Ok(4), 77, 77));
}

#[tokio::test]
async fn a_request_waits_for_the_next_trial() {
    let coordinator = Coordinator::start("r").await.unwrap();
    let worker = worker(&coordinator, 0);
    let http = client_with(&worker.token);
    assert!(matches!(worker.next(&http, 1).await, Next::Wait));
    let later = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        coordinator.offer(vec![assignment(0, 1)]);
    };
    let (next, ()) = tokio::join!(worker.next(&http, 20_000), later);
    assert!(matches!(next, Next::Trial(trial) if trial == assignment(0, 1)));
}

#[tokio::test]
async fn a_missing_worker_leaves_the_others_waiting() {
    let (coordinator, workers, http) = offered(2).await;
    let url = format!("{}/v1/workers/0/ready?wait_ms=20", coordinator.url());
    let response: Release = http.post(url).json(&ready(&assignment(0, 2))).send().await.unwrap().json().await.unwrap();
    assert!(matches!(response, Release::Wait));
    assert_eq!(coordinator.inspect(Barrier::not_ready), [1]);
    coordinator.abandon("worker 1 is missing");
    let url = format!("{}/v1/workers/0/ready", coordinator.url());
    let response: Release = http.post(url).json(&ready(&assignment(0, 2))).send().await.unwrap().json().await.unwrap();
    assert!(matches!(response, Release::Abandoned { reason } if reason == "worker 1 is missing"));
    assert!(matches!(workers[1].next(&http, 1).await, Next::Wait));
}

#[tokio::test]
async fn a_repeated_upload_counts_once_and_a_late_one_is_refused() {
    let (coordinator, workers, http) = offered(2).await;
    coordinator.release(1);
    let result = empty_result(&assignment(0, 2), 1);
    for _ in 0..2 {
        assert_eq!(workers[0].deliver(&http, &result).await.status(), StatusCode::NO_CONTENT);
    }
    assert_eq!(coordinator.inspect(Barrier::all_delivered), None);
    assert_eq!(coordinator.take_uploads().len(), 1);
    let late = workers[1].deliver(&http, &empty_result(&assignment(1, 2), 1)).await;
    let error_message = error_message(late, StatusCode::CONFLICT).await;
    assert!(error_message.ends_with("is not running; request the next step"), "{error_message}");
    // The response to the first upload may have been lost, so repeating it must succeed.
    assert_eq!(workers[0].deliver(&http, &result).await.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_result_of_another_run_is_refused_with_the_reason() {
    let (coordinator, workers, http) = offered(1).await;
    coordinator.release(1);
    let mut result = empty_result(&assignment(0, 1), 1);
    result.run = "yesterday".into();
    let error_message = error_message(workers[0].deliver(&http, &result).await, StatusCode::CONFLICT).await;
    assert_eq!(error_message, "run \"yesterday\" is not served here; this is the coordinator of run \"r\"");
}

#[tokio::test]
async fn a_body_that_is_not_a_result_is_refused_with_the_reason() {
    let (coordinator, _workers, http) = offered(1).await;
    let url = format!("{}/v1/workers/0/result", coordinator.url());
    let error_message = error_message(http.put(url).body("{}").send().await.unwrap(), StatusCode::BAD_REQUEST).await;
    assert!(error_message.contains("missing field"), "{error_message}");
}

#[tokio::test]
async fn an_upload_of_samples_names_its_trial_in_the_address() {
    let (coordinator, workers, http) = offered(1).await;
    let trial = assignment(0, 1).trial;
    let put = |trial: String| {
        let url = format!("{}/v1/workers/0/samples", workers[0].coordinator);
        http.put(url).query(&[("run", "r"), ("trial", &trial), ("attempt", "1")]).body(vec![40, 181, 47, 253]).send()
    };
    coordinator.release(1);
    assert_eq!(put(trial.to_string()).await.unwrap().status(), StatusCode::NO_CONTENT);
    let error_message = error_message(put("nothing".into()).await.unwrap(), StatusCode::BAD_REQUEST).await;
    assert!(error_message.contains("\"nothing\" names no trial"), "{error_message}");
    workers[0].deliver(&http, &empty_result(&assignment(0, 1), 0)).await;
    assert_eq!(coordinator.take_uploads()[0].samples.as_deref(), Some(&[40, 181, 47, 253][..]));
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let (coordinator, _workers, http) = offered(1).await;
    let url = format!("{}/v1/workers", coordinator.url());
    let response = http.post(url).header("content-type", "application/json").body(vec![b' '; 65 * 1024]).send().await;
    assert_eq!(response.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_waiting_worker_is_notified_of_the_end_of_the_run() {
    let (coordinator, workers, http) = offered(1).await;
    coordinator.release(1);
    let result = empty_result(&assignment(0, 1), 1);
    assert!(workers[0].deliver(&http, &result).await.status().is_success());
    let end = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        coordinator.finish();
    };
    let (next, ()) = tokio::join!(workers[0].next(&http, 20_000), end);
    assert!(matches!(next, Next::Finished));
}

#[tokio::test]
async fn workers_read_the_coordinators_clock() {
    let coordinator = Coordinator::start("r").await.unwrap();
    let before = unix_ns();
    let http = client_with(coordinator.token().reveal());
    let clock: Clock = http.get(format!("{}/v1/clock", coordinator.url())).send().await.unwrap().json().await.unwrap();
    assert!((before..=unix_ns()).contains(&clock.unix_ns));
}

#[tokio::test]
async fn a_coordinator_with_a_token_refuses_requests_without_it() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/v1/clock", listener.local_addr().unwrap());
    let _coordinator = Coordinator::serve(listener, "r", "http://other:8080", Token::new("the token").unwrap());
    let with = |authorization: Option<&'static str>| {
        let request = client().get(&url);
        authorization.map_or(client().get(&url), |value| request.header("authorization", value)).send()
    };
    let refused = [
        (None, "no token; send"),
        (Some("Basic dXNlcg=="), "is not a bearer token"),
        (Some("Bearer another"), "not the one of this coordinator"),
    ];
    for (authorization, expected) in refused {
        let error_message = error_message(with(authorization).await.unwrap(), StatusCode::UNAUTHORIZED).await;
        assert!(error_message.contains(expected) && error_message.contains("COORDINATOR_TOKEN"), "{error_message}");
    }
    assert_eq!(with(Some("Bearer the token")).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn the_coordinator_of_a_local_run_refuses_requests_without_its_token() {
    let (coordinator, workers, http) = offered(1).await;
    let url = |path: &str| format!("{}/v1/{path}", coordinator.url());
    let unauthenticated = [
        client().get(url("workers/0/next?wait_ms=0")),
        client().get(url("clock")),
        client().post(url("workers")).json(&serde_json::json!({})),
        client().post(url("workers/0/progress")).json(&progress(&assignment(0, 1))),
        client().put(url("workers/0/result")).json(&empty_result(&assignment(0, 1), 1)),
    ];
    for request in unauthenticated {
        assert_eq!(request.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    }
    assert!(matches!(workers[0].next(&http, 0).await, Next::Trial(_)));
}

#[tokio::test]
async fn progress_is_taken_only_where_it_is_shown_and_only_under_load() {
    let (coordinator, workers, http) = offered(2).await;
    let reported = progress(&assignment(0, 2));
    let text = error_message(workers[0].progress(&http, &reported).await, StatusCode::NOT_FOUND).await;
    assert_eq!(text, "there is no display; report no more in this trial");
    let live = coordinator.show();
    let text = error_message(workers[0].progress(&http, &reported).await, StatusCode::CONFLICT).await;
    assert!(text.ends_with("has not started; report ready first"), "{text}");
    coordinator.release(1);
    assert_eq!(workers[0].progress(&http, &reported).await.status(), StatusCode::NO_CONTENT);
    assert!(live.trial().is_none(), "no trial is measured");
    let third = worker(&coordinator, 2);
    let text = error_message(third.progress(&http, &reported).await, StatusCode::CONFLICT).await;
    assert!(text.contains("has no worker 2; it has 2 workers"), "{text}");
    let other = Progress { run: "other".into(), ..reported.clone() };
    let text = error_message(workers[0].progress(&http, &other).await, StatusCode::CONFLICT).await;
    assert!(text.contains("run \"other\" is not served here"), "{text}");
}

#[tokio::test]
async fn progress_is_bounded() {
    let (coordinator, workers, http) = offered(1).await;
    let _live = coordinator.show();
    coordinator.release(1);
    let with = |latencies: Vec<(u32, u64)>| Progress { latencies, ..progress(&assignment(0, 1)) };
    let most = (0..bench_format::buckets::BUCKETS as u32).map(|bucket| (bucket, u64::MAX)).collect();
    assert_eq!(workers[0].progress(&http, &with(most)).await.status(), StatusCode::NO_CONTENT);
    for latencies in [vec![(4000, 1)], vec![(2, 1), (1, 1)], vec![(1, 1), (1, 1)]] {
        let text = error_message(workers[0].progress(&http, &with(latencies)).await, StatusCode::BAD_REQUEST).await;
        assert!(text.starts_with("the latencies are not those of at most"), "{text}");
    }
    let large = with((0..20_000).map(|bucket| (bucket, 1)).collect());
    assert_eq!(workers[0].progress(&http, &large).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_worker_outside_the_plan_is_refused_and_one_that_registers_too_early_retries() {
    let coordinator = Coordinator::start("r").await.unwrap();
    let http = client_with(coordinator.token().reveal());
    let body = serde_json::json!({"worker": 2, "pid": 1, "program": "p", "workloads": {}});
    let register = async || http.post(format!("{}/v1/workers", coordinator.url())).json(&body).send().await.unwrap();
    assert_eq!(register().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    coordinator.expect_new_workers(2);
    let error_message = error_message(register().await, StatusCode::CONFLICT).await;
    assert_eq!(error_message, "worker 2 is not expected; 2 workers are, counted from 0");
}

/// Sends the head of an upload whose body never comes, and returns the status line of the response.
async fn status_without_body(coordinator: &Coordinator, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let authority = coordinator.url().replace("http://", "");
    let mut stream = tokio::net::TcpStream::connect(&authority).await.unwrap();
    let token = coordinator.token().reveal();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {token}\r\nContent-Length: 200000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    String::from_utf8(status.into()).unwrap()
}

#[tokio::test]
async fn raw_rows_that_nobody_waits_for_are_refused_before_their_body_is_read() {
    let (coordinator, ..) = offered(1).await;
    coordinator.release(1);
    let trial = assignment(0, 1).trial.to_string().replace('/', "%2F");
    for (worker, run, trial, attempt, status) in [
        (0, "other", trial.as_str(), 1, "409"),
        (0, "r", trial.as_str(), 2, "409"),
        (7, "r", trial.as_str(), 1, "409"),
        (0, "r", "..%2F..%2Fx", 1, "400"),
    ] {
        let path = format!("/v1/workers/{worker}/samples?run={run}&trial={trial}&attempt={attempt}");
        assert_eq!(status_without_body(&coordinator, &path).await, format!("HTTP/1.1 {status}"), "{path}");
    }
    assert_eq!(status_without_body(&coordinator, "/v1/workers/7/result").await, "HTTP/1.1 409");
}

#[tokio::test]
async fn a_client_whose_large_upload_is_refused_reads_the_reason() {
    let (coordinator, workers, http) = offered(1).await;
    let trial = assignment(0, 1).trial.to_string();
    let put = http.put(format!("{}/v1/workers/0/samples", workers[0].coordinator));
    let query = [("run", "r"), ("trial", &trial), ("attempt", "1")];
    let refused = put.query(&query).body(vec![0; 32 << 20]).send().await.unwrap();
    assert!(error_message(refused, StatusCode::CONFLICT).await.contains("has not started"));
    drop(coordinator);
}

#[tokio::test]
async fn a_histogram_named_like_a_path_is_refused() {
    let (coordinator, _, http) = offered(1).await;
    coordinator.release(1);
    let result = serde_json::to_string(&empty_result(&assignment(0, 1), 1)).unwrap();
    for name in ["../../../escaped", "/tmp/x", ".."] {
        let body = result.replace("delay_ns", name);
        assert_ne!(body, result);
        let put = http.put(format!("{}/v1/workers/0/result", coordinator.url())).body(body).send().await.unwrap();
        let error_message = error_message(put, StatusCode::BAD_REQUEST).await;
        assert!(error_message.contains(&format!("{name:?} is not a name")), "{error_message}");
    }
}

#[tokio::test]
async fn a_replaced_worker_with_the_same_process_id_ends_the_trial() {
    let (coordinator, workers, http) = offered(2).await;
    let register = async |started_at_unix_ns: u64| {
        let url = format!("{}/v1/workers", coordinator.url());
        let body = serde_json::json!({"worker": 0, "pid": 1, "started_at_unix_ns": started_at_unix_ns, "program": "p", "workloads": {}});
        http.post(url).json(&body).send().await.unwrap().error_for_status().unwrap();
    };
    register(7).await;
    let url = format!("{}/v1/workers/0/ready?wait_ms=0", coordinator.url());
    http.post(&url).json(&ready(&assignment(0, 2))).send().await.unwrap();
    register(7).await;
    assert!(
        coordinator.inspect(Barrier::all_ready).is_none(),
        "registering the same worker again counts as a replacement"
    );
    register(8).await;
    let reason = coordinator.inspect(Barrier::all_ready).unwrap().unwrap_err();
    assert_eq!(reason, "worker 0 was replaced by another process 1 in the middle of the trial");
    drop(workers);
}
