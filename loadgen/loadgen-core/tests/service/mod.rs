//! A small WebSocket service for tests, with selectable behaviour. It counts what it receives on each connection.
//!
//! On connect it sends `ready <id>`. It replies to `n <number>` with `r <number>` and counts anything else as
//! unnumbered.

// Each test file uses only some of this.
#![allow(dead_code, unreachable_pub)]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bench_format::{
    plan::{Load, Message as PlanMessage},
    trial::{Assignment, TrialId},
};
use futures_util::{SinkExt, StreamExt};
use loadgen_core::workload::{Admission, Messages, Opcode, Outbox, Received, Workload};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
        protocol::{
            CloseFrame,
            frame::{
                Frame,
                coding::{Data, OpCode},
            },
        },
    },
};

/// How the service behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behaviour {
    /// Replies to each message once.
    Correct,
    /// Replies to no message.
    Silent,
    /// Replies to each message twice.
    RepliesTwice,
    /// Replies with another number.
    Wrong,
    /// Doesn't reply between two moments, counted from a connection's first message.
    Frozen(Duration, Duration),
    /// Closes with code 4300 after this number of messages.
    CloseAfter(u64),
    /// Refuses every upgrade with 403.
    Refuse,
    /// Refuses one upgrade in this number with 503.
    RefuseEvery(u64),
    /// Replies only to this number of messages of each connection.
    RepliesUpTo(u64),
    /// Never answers a Close frame.
    KeepsOpen,
    /// Sends only an error after the upgrade.
    Deny,
    /// Replies in fragments, with a ping between them.
    Fragments,
    /// Reads nothing for this time, then everything.
    LateReader(Duration),
}

/// What arrived on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    pub numbered: u64,
    pub sum: u64,
    pub unnumbered: u64,
    pub in_order: bool,
    pub closed_by_client: bool,
    pub pongs: u64,
}

pub struct Service {
    pub address: String,
    books: Arc<Mutex<HashMap<String, Book>>>,
    _runtime: Runtime,
}

impl Service {
    pub fn start(behaviour: Behaviour) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let books = Arc::new(Mutex::new(HashMap::new()));
        runtime.spawn(accept(listener, behaviour, Arc::clone(&books)));
        Self { address, books, _runtime: runtime }
    }

    /// The books, as soon as every connection is closed, or at a deadline.
    pub fn books(&self) -> HashMap<String, Book> {
        self.books.lock().unwrap().clone()
    }

    /// Counts the clients that have sent a Close frame.
    pub fn close_count(&self) -> impl Fn() -> usize + Send + 'static {
        let books = Arc::clone(&self.books);
        move || books.lock().unwrap().values().filter(|book| book.closed_by_client).count()
    }
}

async fn accept(listener: TcpListener, behaviour: Behaviour, books: Arc<Mutex<HashMap<String, Book>>>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let upgrades = Arc::new(AtomicU64::new(0));
    while let Ok((socket, _)) = listener.accept().await {
        let id = format!("c{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (books, upgrades) = (Arc::clone(&books), Arc::clone(&upgrades));
        tokio::spawn(async move {
            // A client that disconnects ends only its own task.
            let _ = serve(socket, id, behaviour, books, &upgrades).await;
        });
    }
}

#[expect(clippy::result_large_err, reason = "tungstenite's callback returns it")]
async fn serve(
    socket: TcpStream,
    id: String,
    behaviour: Behaviour,
    books: Arc<Mutex<HashMap<String, Book>>>,
    upgrades: &AtomicU64,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    socket.set_nodelay(true)?;
    let check = |_: &Request, response: Response| match behaviour {
        Behaviour::RefuseEvery(every) if (upgrades.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every) => {
            let mut refusal = ErrorResponse::new(None);
            *refusal.status_mut() = tokio_tungstenite::tungstenite::http::StatusCode::SERVICE_UNAVAILABLE;
            Err(refusal)
        }
        Behaviour::Refuse => {
            let mut refusal = ErrorResponse::new(None);
            *refusal.status_mut() = tokio_tungstenite::tungstenite::http::StatusCode::FORBIDDEN;
            Err(refusal)
        }
        _ => Ok(response),
    };
    let mut ws = accept_hdr_async(socket, check).await?;
    if behaviour == Behaviour::Deny {
        return ws.send(Message::text("denied bad_token")).await;
    }
    ws.send(Message::text(format!("ready {id}"))).await?;
    if let Behaviour::LateReader(pause) = behaviour {
        tokio::time::sleep(pause).await;
    }
    let mut book = Book { in_order: true, ..Book::default() };
    let mut first = None;
    while let Some(Ok(message)) = ws.next().await {
        match message {
            Message::Text(text) => match text.strip_prefix("n ") {
                Some(numbered) => {
                    let number: u64 = numbered.split(' ').next().unwrap().parse().unwrap();
                    book.in_order &= number == 1000 + book.numbered;
                    book.numbered += 1;
                    book.sum = book.sum.wrapping_add(number);
                    let since = first.get_or_insert_with(tokio::time::Instant::now).elapsed();
                    send_reply(&mut ws, behaviour, number, since, book.numbered).await?;
                }
                None => book.unnumbered += 1,
            },
            Message::Pong(_) => book.pongs += 1,
            Message::Close(_) => {
                book.closed_by_client = true;
                if behaviour == Behaviour::KeepsOpen {
                    books.lock().unwrap().insert(id.clone(), book.clone());
                    // The answer to the Close frame would be written by the next call on the WebSocket.
                    std::future::pending::<()>().await;
                }
            }
            _ => {}
        }
        books.lock().unwrap().insert(id.clone(), book.clone());
    }
    Ok(())
}

async fn send_reply(
    ws: &mut WebSocketStream<TcpStream>,
    behaviour: Behaviour,
    number: u64,
    since: Duration,
    count: u64,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    let reply = format!("r {number}");
    match behaviour {
        Behaviour::Correct | Behaviour::RefuseEvery(_) | Behaviour::KeepsOpen => ws.send(Message::text(reply)).await,
        Behaviour::RepliesUpTo(most) if count <= most => ws.send(Message::text(reply)).await,
        Behaviour::RepliesTwice => {
            ws.send(Message::text(reply.clone())).await?;
            ws.send(Message::text(reply)).await
        }
        Behaviour::Wrong => ws.send(Message::text(format!("r {}", number + 500))).await,
        Behaviour::Frozen(from, to) => {
            if since >= from && since < to {
                tokio::time::sleep(to - since).await;
            }
            ws.send(Message::text(reply)).await
        }
        Behaviour::CloseAfter(limit) if count == limit => {
            let frame = CloseFrame { code: 4300.into(), reason: "drain".into() };
            ws.close(Some(frame)).await
        }
        Behaviour::Fragments => {
            let (head, tail) = reply.split_at(3);
            let part = |text: &str, opcode, last| {
                Message::Frame(Frame::message(text.as_bytes().to_vec(), OpCode::Data(opcode), last))
            };
            ws.send(part(head, Data::Text, false)).await?;
            ws.send(Message::Frame(Frame::ping(b"are you there".to_vec()))).await?;
            ws.send(part("", Data::Continue, false)).await?;
            ws.send(part(tail, Data::Continue, true)).await
        }
        _ => Ok(()),
    }
}

/// The client's side of the same protocol.
pub struct Client {
    pub replies: bool,
}

pub struct Numbers(String);

impl Messages<()> for Numbers {
    fn message(&mut self, (): &(), sequence: u64, _unix_us: u64) -> (Opcode, &[u8]) {
        // Long enough for writes that end in the middle of a message.
        self.0 = format!("n {sequence} {}", "x".repeat(200));
        (Opcode::Text, self.0.as_bytes())
    }
}

impl Workload for Client {
    type Connection = ();
    type Messages = Numbers;

    fn path(&self) -> String {
        "/test".into()
    }
    fn headers(&self) -> Vec<(String, String)> {
        vec![("X-Test".into(), "yes".into())]
    }
    fn admit(&self, (): &mut (), _: Opcode, payload: &[u8], _: &mut Outbox) -> Admission {
        let text = std::str::from_utf8(payload).unwrap();
        match text.split_once(' ') {
            Some(("ready", id)) => Admission::Ready { connection_id: id.into() },
            Some(("denied", reason)) => Admission::Refused(reason.into()),
            _ => Admission::Waiting,
        }
    }
    fn first_message(&self) -> Option<&[u8]> {
        Some(b"hello")
    }
    fn keepalive(&self) -> Option<(Opcode, &[u8])> {
        Some((Opcode::Text, b"still here"))
    }
    fn messages(&self) -> Numbers {
        Numbers(String::new())
    }
    fn first_sequence(&self) -> u64 {
        1000
    }
    fn most_messages(&self) -> u64 {
        u64::MAX
    }
    fn expects_replies(&self) -> bool {
        self.replies
    }
    fn application_sums(&self) -> bool {
        true
    }
    fn classify(&self, _: Opcode, payload: &[u8]) -> Received {
        match std::str::from_utf8(payload).ok().and_then(|text| text.strip_prefix("r ")).map(str::parse) {
            Some(Ok(sequence)) => Received::Reply { sequence },
            Some(Err(_)) => Received::Wrong,
            None => Received::Other,
        }
    }
}

/// An assignment of one worker with a short window.
pub fn assignment(address: &str, connections: u32) -> Assignment {
    Assignment {
        run: "test".into(),
        trial: TrialId {
            service: bench_format::Name::from_static("test"),
            workload: bench_format::Name::from_static("test"),
            variant: bench_format::Name::from_static("standard"),
            tier: connections,
            process: 1,
            repeat: 1,
        },
        attempt: 1,
        worker: 0,
        workers: 1,
        address: address.into(),
        connections,
        first_connection: 0,
        seed: 7,
        load: Load::Closed { messages_per_connection: None, in_flight: 8 },
        message: PlanMessage::default(),
        warmup_ns: 50_000_000,
        window_ns: 300_000_000,
        drain_ns: 5_000_000_000,
        late_after_ns: None,
        keep_connections: false,
        settings: Default::default(),
        websocket: None,
        samples: false,
        protocol_check: false,
    }
}
