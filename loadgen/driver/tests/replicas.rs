//! A client of several replicas reads all of them, and adds up what they report.

use axum::{Json, Router, extract::RawQuery, http::StatusCode, routing::get};
use bench_format::{
    service::{ConnectionBook, ConnectionBooks, ServiceStats},
    trial_file::BookKeeping,
};
use driver::service_client::ServiceClient;
use tokio::net::TcpListener;

/// Serves a replica that has received `received` messages on one connection, and returns its address.
async fn replica(received: u64, version: &'static str, ready: StatusCode) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut stats = ServiceStats { version: version.into(), ..ServiceStats::default() };
    stats.messages.received = received;
    // The id repeats the query, so that a test sees the cursor that this replica got.
    let books = async move |RawQuery(query): RawQuery| {
        let id = format!("{received} {}", query.unwrap_or_default());
        let book = ConnectionBook { id, received, ..ConnectionBook::default() };
        Json(ConnectionBooks { connections: vec![book], cursor: Some(format!("c{received}")) })
    };
    let pages = Router::new()
        .route("/readyz", get(async move || ready))
        .route("/stats", get(async move || Json(stats)))
        .route("/stats/publisher", get(async || "{}"))
        .route("/stats/connections", get(books));
    tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
    address
}

#[tokio::test]
async fn counters_are_added_up_and_books_are_read_with_the_cursor_of_each() {
    let replicas = [replica(1, "v", StatusCode::OK).await, replica(2, "v", StatusCode::OK).await];
    let mut client = ServiceClient::new(&replicas.join(","));
    assert!(client.ready().await);
    assert_eq!(client.keeping().await, BookKeeping::Connections);
    assert_eq!(client.stats().await.unwrap().messages.received, 3);
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.extend(client.connections().await.unwrap().into_iter().map(|book| book.id));
    }
    assert_eq!(ids, ["1 since=", "2 since=", "1 since=c1", "2 since=c2"]);
}

#[tokio::test]
async fn replicas_are_ready_when_all_are() {
    let replicas = [replica(1, "v", StatusCode::OK).await, replica(2, "v", StatusCode::SERVICE_UNAVAILABLE).await];
    assert!(!ServiceClient::new(&replicas.join(",")).ready().await);
}

#[tokio::test]
async fn replicas_of_two_versions_are_not_read_as_one_service() {
    let replicas = [replica(1, "v", StatusCode::OK).await, replica(2, "w", StatusCode::OK).await];
    let error = ServiceClient::new(&replicas.join(",")).stats().await.unwrap_err().to_string();
    assert!(error.contains("not the same program"), "{error}");
}

#[tokio::test]
async fn a_replica_that_does_not_answer_is_named() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = ServiceClient::new(&format!("{},{gone}", replica(1, "v", StatusCode::OK).await));
    let error = client.stats().await.unwrap_err().to_string();
    assert!(error.contains(&gone.to_string()), "{error}");
}

#[tokio::test]
async fn what_each_replica_publishes_is_not_read() {
    let replicas = [replica(1, "v", StatusCode::OK).await, replica(2, "v", StatusCode::OK).await];
    let mut client = ServiceClient::new(&replicas.join(","));
    client.find_pages().await;
    assert_eq!(client.publisher().await.unwrap(), None);
}
