//! The client follows the books of closed connections by the service's cursor, and does without one.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::{RawQuery, State},
    routing::get,
};
use bench_format::service::{ConnectionBook, ConnectionBooks};
use driver::service_client::ServiceClient;
use tokio::net::TcpListener;

/// The queries that a service got.
type Queries = Arc<Mutex<Vec<String>>>;

/// Answers with one book, and with the number of the request as the cursor.
async fn with_cursor(State(queries): State<Queries>, RawQuery(query): RawQuery) -> Json<ConnectionBooks> {
    let mut queries = queries.lock().unwrap();
    queries.push(query.unwrap_or_default());
    let cursor = Some(queries.len().to_string());
    let id = format!("book {}", queries.len());
    Json(ConnectionBooks { connections: vec![ConnectionBook { id, ..ConnectionBook::default() }], cursor })
}

async fn without_cursor(State(queries): State<Queries>, RawQuery(query): RawQuery) -> Json<ConnectionBooks> {
    queries.lock().unwrap().push(query.unwrap_or_default());
    Json(ConnectionBooks::default())
}

/// A client of a service with this page, and the queries that the service gets.
async fn client(pages: Router<Queries>) -> (ServiceClient, Queries) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let queries = Queries::default();
    let pages = pages.with_state(Arc::clone(&queries));
    tokio::spawn(async move { axum::serve(listener, pages).await.unwrap() });
    (ServiceClient::of_url(&url), queries)
}

#[tokio::test]
async fn each_reading_begins_where_the_last_one_ended() {
    let (mut client, queries) = client(Router::new().route("/stats/connections", get(with_cursor))).await;
    for reading in 1..=3 {
        assert_eq!(client.connections().await.unwrap()[0].id, format!("book {reading}"));
    }
    assert_eq!(*queries.lock().unwrap(), ["since=", "since=1", "since=2"]);
}

#[tokio::test]
async fn a_service_without_cursors_is_read_as_well() {
    let (mut client, queries) = client(Router::new().route("/stats/connections", get(without_cursor))).await;
    for _ in 0..2 {
        assert!(client.connections().await.unwrap().is_empty());
    }
    assert_eq!(*queries.lock().unwrap(), ["since=", "since="]);
}
