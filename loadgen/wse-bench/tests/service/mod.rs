//! A minimal WSE service for tests, with counters on a metrics port and a selectable flaw.

// Each test file uses only a part of this module.
#![allow(dead_code, unreachable_pub)]

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Json, Router, extract::State, routing::get};
use bench_format::service::{ApplicationStats, ConnectionBook, ConnectionBooks, ServiceStats};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        Error, Message,
        handshake::server::{ErrorResponse, Request, Response},
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

/// Signs the tokens that are accepted.
pub const SECRET: &str = "a-secret-of-this-test-and-no-other";

/// The way in which the service of a test breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// Every tenth ping is not answered.
    ForgetsPings,
    /// Every tenth trade is discarded but counted as delivered.
    FalseCounts,
    /// Every token is accepted.
    TakesEveryToken,
    /// Each connection is closed at its first ping.
    DropsAfterAPing,
    /// With this many connections open, more are refused with HTTP status 503.
    Full(u64),
}

#[derive(Default)]
struct Books {
    connections: HashMap<String, ConnectionBook>,
    delivered: u64,
    /// The first two bytes of the binary messages, which are their formats.
    prefixes: std::collections::BTreeSet<[u8; 2]>,
    refused: u64,
    /// Connections that were accepted.
    accepted: u64,
    /// Connections that are open or about to be.
    open: u64,
    /// Ids of the connections that count towards `Full`; those that are being refused don't.
    admitted: HashSet<String>,
    /// Addresses that connections came from.
    sources: HashSet<IpAddr>,
}

type Shared = Arc<Mutex<Books>>;

pub struct Service {
    pub port: u16,
    pub stats_url: String,
    books: Shared,
    _runtime: Runtime,
}

impl Service {
    pub fn start(flaw: Flaw) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (sockets, metrics) = (bind(), bind());
        let port = sockets.local_addr().unwrap().port();
        let stats_url = format!("http://{}", metrics.local_addr().unwrap());
        let books = Shared::default();
        let app = Router::new()
            .route("/stats", get(stats))
            .route("/stats/connections", get(connections))
            .with_state(Arc::clone(&books));
        runtime.spawn(async move { axum::serve(metrics, app).await.unwrap() });
        runtime.spawn(accept(sockets, flaw, Arc::clone(&books)));
        Self { port, stats_url, books, _runtime: runtime }
    }

    /// The prefixes of the binary messages that arrived.
    pub fn prefixes(&self) -> Vec<String> {
        self.books.lock().unwrap().prefixes.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// The addresses that connections came from.
    pub fn sources(&self) -> HashSet<IpAddr> {
        self.books.lock().unwrap().sources.clone()
    }

    /// Number of connections without a validly signed token.
    pub fn refused(&self) -> u64 {
        self.books.lock().unwrap().refused
    }
}

async fn stats(State(books): State<Shared>) -> Json<ServiceStats> {
    let books = books.lock().unwrap();
    let mut stats = ServiceStats::default();
    let mut application = ApplicationStats::default();
    for book in books.connections.values() {
        stats.messages.received += book.received;
        stats.messages.consumed += book.consumed;
        application.sequence_sum = application.sequence_sum.wrapping_add(book.application.unwrap().sequence_sum);
    }
    (stats.connections.accepted, stats.connections.open) = (books.accepted, books.open);
    stats.messages.delivered = books.delivered;
    application.delivered = books.delivered;
    stats.application = Some(application);
    Json(stats)
}

async fn connections(State(books): State<Shared>) -> Json<ConnectionBooks> {
    let books = books.lock().unwrap();
    Json(ConnectionBooks { connections: books.connections.values().cloned().collect(), cursor: None })
}

async fn accept(listener: TcpListener, flaw: Flaw, books: Shared) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    while let Ok((socket, source)) = listener.accept().await {
        let id = format!("c{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let books = Arc::clone(&books);
        tokio::spawn(async move {
            {
                let mut books = books.lock().unwrap();
                books.open += 1;
                books.sources.insert(source.ip());
            }
            // A client that closes its connection ends only its own task.
            let _ = serve(socket, id.clone(), flaw, Arc::clone(&books)).await;
            let mut books = books.lock().unwrap();
            books.admitted.remove(&id);
            books.open -= 1;
        });
    }
}

async fn serve(socket: TcpStream, id: String, flaw: Flaw, books: Shared) -> Result<(), Error> {
    socket.set_nodelay(true)?;
    let mut admitted = false;
    #[expect(clippy::result_large_err, reason = "tungstenite's callback returns it")]
    let check = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let cookie = request.headers().get("cookie").and_then(|value| value.to_str().ok()).unwrap_or_default();
        admitted = is_signed(cookie.strip_prefix("access_token=").unwrap_or_default());
        let mut books = books.lock().unwrap();
        match flaw {
            Flaw::Full(most) if books.admitted.len() as u64 == most => {
                Err(Response::builder().status(503).body(None).unwrap())
            }
            _ => {
                books.admitted.insert(id.clone());
                Ok(response)
            }
        }
    };
    let mut ws = accept_hdr_async(socket, check).await?;
    if !admitted && flaw != Flaw::TakesEveryToken {
        books.lock().unwrap().refused += 1;
        let error = serde_json::json!({"c": "WSE", "t": "error", "p": {"code": "AUTH_FAILED"}, "v": 1});
        ws.send(Message::text(error.to_string())).await?;
        return ws.close(Some(CloseFrame { code: CloseCode::from(4401), reason: "".into() })).await;
    }
    books.lock().unwrap().accepted += 1;
    let ready = serde_json::json!({"c": "WSE", "t": "server_ready", "p": {"details": {"connection_id": id}}, "v": 1});
    ws.send(Message::text(ready.to_string())).await?;
    let mut session = Session::new(&id, flaw);
    while let Some(Ok(message)) = ws.next().await {
        let reply = match &message {
            Message::Text(text) => session.text(text, &books),
            Message::Binary(bytes) => {
                session.binary(bytes, &books);
                None
            }
            _ => None,
        };
        books.lock().unwrap().connections.insert(id.clone(), session.book.clone());
        if flaw == Flaw::DropsAfterAPing && session.pings > 0 {
            return ws.close(None).await;
        }
        if let Some(reply) = reply {
            ws.send(Message::text(reply)).await?;
        }
    }
    Ok(())
}

/// State of one connection.
struct Session {
    flaw: Flaw,
    book: ConnectionBook,
    pings: u64,
    trades: u64,
}

impl Session {
    fn new(id: &str, flaw: Flaw) -> Self {
        let application = Some(ApplicationStats::default());
        let book = ConnectionBook { id: id.to_owned(), open: true, application, ..ConnectionBook::default() };
        Self { flaw, book, pings: 0, trades: 0 }
    }

    /// Handles a text message; returns the reply, if there is one.
    fn text(&mut self, text: &str, books: &Shared) -> Option<String> {
        let value: Value = serde_json::from_str(text).unwrap();
        self.book.received += 1;
        match value["t"].as_str() {
            Some("ping") => {
                self.book.consumed += 1;
                self.pings += 1;
                let echo = &value["p"]["timestamp"];
                let pong = format!(
                    r#"{{"c":"WSE","t":"PONG","p":{{"client_timestamp":{echo},"server_timestamp":{echo},"latency":0}},"v":1}}"#
                );
                (self.flaw != Flaw::ForgetsPings || !self.pings.is_multiple_of(10)).then_some(pong)
            }
            Some("trade_update") => {
                self.trades += 1;
                let number = value["p"]["seq"].as_u64().unwrap();
                deliver(&mut self.book, number, self.flaw == Flaw::FalseCounts && self.trades.is_multiple_of(10));
                books.lock().unwrap().delivered += 1;
                None
            }
            _ => {
                self.book.consumed += 1;
                None
            }
        }
    }

    fn binary(&mut self, bytes: &[u8], books: &Shared) {
        self.book.received += 1;
        deliver(&mut self.book, number_in(bytes), false);
        let mut books = books.lock().unwrap();
        books.prefixes.insert([bytes[0], bytes[1]]);
        books.delivered += 1;
    }
}

fn deliver(book: &mut ConnectionBook, number: u64, is_false: bool) {
    let application = book.application.as_mut().unwrap();
    application.delivered += 1;
    application.sequence_sum = application.sequence_sum.wrapping_add(if is_false { 0 } else { number });
}

/// The sequence number of a message with the prefix `M:` or `C:`.
fn number_in(bytes: &[u8]) -> u64 {
    let value: Value = match &bytes[..2] {
        b"M:" => rmp_serde::from_slice(&bytes[2..]).unwrap(),
        b"C:" => serde_json::from_reader(flate2::read::ZlibDecoder::new(&bytes[2..])).unwrap(),
        other => panic!("unknown prefix {other:?}"),
    };
    value["p"]["seq"].as_u64().unwrap()
}

fn is_signed(token: &str) -> bool {
    let mut validation = jsonwebtoken::Validation::default();
    validation.set_audience(&["wse-bench"]);
    let key = jsonwebtoken::DecodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::decode::<Value>(token, &key, &validation).is_ok()
}
