//! A minimal WSE client, and a reader of the metrics port.

use std::{
    io::{Read, Write},
    net::TcpStream as StdStream,
    time::Duration,
};

use clap::Parser;
use futures_util::{SinkExt, StreamExt};
use self_test_service::{Config, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;
use service_contract::{ConnectionBook, ConnectionBooks, ServiceStats, Started};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest, http::HeaderValue, protocol::CloseFrame},
};

/// Longest wait for anything that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts the service in this process.
pub(crate) async fn service(flags: &[&str]) -> Service {
    Service::start(Config::parse_from(["self-test-service"].iter().chain(flags))).await.unwrap()
}

/// An open connection to the service.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    /// The id from `server_ready`.
    pub(crate) id: String,
}

impl Client {
    pub(crate) async fn open(started: &Started) -> Self {
        let mut socket = upgrade(started, None).await.unwrap();
        let ready = next_json(&mut socket).await;
        assert_eq!(ready["t"], "server_ready");
        let id = ready["p"]["details"]["connection_id"].as_str().unwrap().to_owned();
        Self { socket, id }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Sends messages numbered from 1 to `last`.
    pub(crate) async fn send_numbered(&mut self, last: u64) {
        for number in 1..=last {
            self.socket.feed(Message::text(format!(r#"{{"p":{{"seq":{number}}},"t":"trade"}}"#))).await.unwrap();
        }
        self.socket.flush().await.unwrap();
    }

    pub(crate) async fn json(&mut self) -> Value {
        next_json(&mut self.socket).await
    }

    /// The server's Close frame; messages before it are skipped.
    pub(crate) async fn close_frame(&mut self) -> Option<CloseFrame> {
        let close_received = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Close(frame))) => return frame,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                }
            }
        };
        timeout(TIMEOUT, close_received).await.expect("the server closes the connection")
    }

    /// The service's book of this connection.
    pub(crate) fn book(&self, started: &Started) -> ConnectionBook {
        let books: ConnectionBooks = get_json(&started.metrics_address, "/stats/connections");
        books.connections.into_iter().find(|book| book.id == self.id).expect("the service knows this connection")
    }
}

/// Opens a connection with a token, or without one.
pub(crate) async fn upgrade(started: &Started, token: Option<&str>) -> Result<WebSocketStream<TcpStream>, Error> {
    let mut request = format!("ws://{}/wse?protocol_version=1", started.address).into_client_request()?;
    if let Some(token) = token {
        let cookie = HeaderValue::from_str(&format!("access_token={token}")).unwrap();
        request.headers_mut().insert("cookie", cookie);
    }
    let stream = TcpStream::connect(&started.address).await?;
    // Without it the second small message waits for the acknowledgement of the first: 40 ms on Linux.
    stream.set_nodelay(true)?;
    Ok(client_async(request, stream).await?.0)
}

pub(crate) async fn next_json(socket: &mut WebSocketStream<TcpStream>) -> Value {
    let message = timeout(TIMEOUT, socket.next()).await.expect("a message arrives").unwrap().unwrap();
    serde_json::from_str(message.to_text().unwrap()).unwrap()
}

/// A GET on the metrics port: status and body. Blocks, so tests that use it have several threads.
pub(crate) fn get(metrics_address: &str, path: &str) -> (u16, String) {
    let mut stream = StdStream::connect(metrics_address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn get_json<T: DeserializeOwned>(metrics_address: &str, path: &str) -> T {
    let (status, body) = get(metrics_address, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

pub(crate) fn stats(started: &Started) -> ServiceStats {
    get_json(&started.metrics_address, "/stats")
}

/// Polls `/stats` until it satisfies a condition.
pub(crate) async fn stats_when(started: &Started, condition: impl Fn(&ServiceStats) -> bool) -> ServiceStats {
    let started_at = tokio::time::Instant::now();
    loop {
        let stats = stats(started);
        if condition(&stats) {
            return stats;
        }
        assert!(started_at.elapsed() < TIMEOUT, "still {stats:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
