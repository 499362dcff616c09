//! One WebSocket: reads messages, applies the flaw, sends replies when they are due.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{SinkExt, StreamExt};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        error::ProtocolError,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use crate::{
    config::Flaw,
    delay::Delays,
    ledger::Entry,
    protocol::{self, Kind},
    publisher::{Publication, Publisher},
    shared::Shared,
    wire::Wire,
};

/// How long the close handshake may take when this side closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a wrong reply adds to the ping's number.
const WRONG: i64 = 1_000_000_000;
/// How much later than others a reply comes that is out of order.
const REORDERED_BY: Duration = Duration::from_millis(50);

/// Why a connection ended: a reason of the contract.
type CloseReason = &'static str;

/// A reply that waits until it is due; ordered by that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueReply {
    due: Instant,
    /// When the ping was read.
    read_at: Instant,
    timestamp: i64,
}

/// One open WebSocket, with the replies that wait until they are due.
pub(crate) struct Connection {
    socket: WebSocketStream<Wire>,
    entry: Arc<Entry>,
    shared: Arc<Shared>,
    delays: Delays,
    /// Number of pings that were read.
    pings: u64,
    replies: BinaryHeap<Reverse<DueReply>>,
    /// Present when the service publishes.
    publications: Option<mpsc::UnboundedReceiver<Publication>>,
    client_closed: bool,
}

enum Event {
    Message(Option<Result<Message, Error>>),
    Due,
    Published(Publication),
    Stop,
}

impl Connection {
    pub(crate) fn new(socket: WebSocketStream<Wire>, entry: Arc<Entry>, shared: Arc<Shared>, delays: Delays) -> Self {
        let publications = shared.publisher.as_ref().map(Publisher::listen);
        let replies = BinaryHeap::new();
        Self { socket, entry, shared, delays, pings: 0, replies, publications, client_closed: false }
    }

    /// Serves the client until one side ends the connection.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) -> CloseReason {
        match self.serve(&mut stop).await {
            Ok(reason) => reason,
            Err(error) => self.fail(&error).await,
        }
    }

    async fn serve(&mut self, stop: &mut watch::Receiver<bool>) -> Result<CloseReason, Error> {
        loop {
            let due = self.replies.peek().map(|Reverse(reply)| reply.due);
            let event = tokio::select! {
                biased;
                () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => Event::Due,
                message = self.socket.next() => Event::Message(message),
                Some(publication) = published(&mut self.publications), if !self.client_closed => {
                    Event::Published(publication)
                }
                _ = stop.wait_for(|stop| *stop) => Event::Stop,
            };
            match event {
                Event::Message(Some(message)) => self.take(message?).await?,
                Event::Message(None) => return Ok(if self.client_closed { "client" } else { "eof" }),
                Event::Due => self.send_due_replies().await?,
                Event::Published(Publication::Send(text)) => self.send(text).await?,
                Event::Published(Publication::CountOnly) => self.entry.book().sent += 1,
                Event::Stop => return self.close_for_shutdown().await,
            }
        }
    }

    async fn take(&mut self, message: Message) -> Result<(), Error> {
        let read_at = Instant::now();
        match self.count(&message) {
            Some(Kind::Hello) => self.send(protocol::server_hello(&self.entry.id().to_string())).await,
            Some(Kind::Ping { timestamp }) => {
                let due = read_at + self.delays.next().unwrap_or_default() + self.shared.cold_delay();
                let replies = self.flawed(DueReply { due, read_at, timestamp });
                self.replies.extend(replies.map(Reverse));
                self.send_due_replies().await
            }
            _ => Ok(()),
        }
    }

    /// The replies to a ping: the reply as it should be, or what the flaw makes of it.
    fn flawed(&mut self, reply: DueReply) -> impl Iterator<Item = DueReply> + use<> {
        self.pings += 1;
        let is_flawed = self.pings.is_multiple_of(self.shared.config.every.get());
        let (copies, reply) = match self.shared.config.flaw {
            Flaw::ReplyLost if is_flawed => (0, reply),
            Flaw::RepliesEnd if self.pings > self.shared.config.every.get() => (0, reply),
            Flaw::ReplyTwice if is_flawed => (2, reply),
            Flaw::ReplyWrong if is_flawed => (1, DueReply { timestamp: reply.timestamp + WRONG, ..reply }),
            Flaw::ReplyReordered if is_flawed => (1, DueReply { due: reply.due + REORDERED_BY, ..reply }),
            _ => (1, reply),
        };
        std::iter::repeat_n(reply, copies)
    }

    /// Enters a message into the books; returns its kind, or `None` for control frames.
    fn count(&mut self, message: &Message) -> Option<Kind> {
        let kind = match message {
            Message::Text(text) => protocol::text_kind(text),
            Message::Binary(data) => protocol::binary_kind(data),
            Message::Close(_) => {
                self.client_closed = true;
                return None;
            }
            _ => return None,
        };
        self.entry.book().count(kind, |nth| self.shared.dispositions.decide(nth));
        Some(kind)
    }

    async fn send_due_replies(&mut self) -> Result<(), Error> {
        while let Some(Reverse(reply)) = self.replies.peek().copied() {
            if reply.due > Instant::now() {
                break;
            }
            self.replies.pop();
            self.send(protocol::pong(reply.timestamp)).await?;
            self.shared.record(reply.read_at.elapsed());
        }
        Ok(())
    }

    /// Writes one data message to the socket and counts it.
    pub(crate) async fn send(&mut self, text: impl Into<Utf8Bytes>) -> Result<(), Error> {
        self.socket.send(Message::text(text)).await?;
        self.entry.book().sent += 1;
        Ok(())
    }

    /// Closes with 1001 when the service stops, and still counts what the client had sent.
    async fn close_for_shutdown(&mut self) -> Result<CloseReason, Error> {
        self.socket.send(close(CloseCode::Away, "shutdown")).await?;
        let rest = async {
            while let Some(Ok(message)) = self.socket.next().await {
                self.count(&message);
            }
        };
        // A client that doesn't answer is left after the deadline.
        let _ = timeout(CLOSE_TIMEOUT, rest).await;
        Ok("shutdown")
    }

    /// Closes with the code of an error, as far as the client can still be reached.
    async fn fail(&mut self, error: &Error) -> CloseReason {
        let (reason, code) = reason(error);
        if let Some(code) = code {
            let closing = async {
                self.socket.send(close(code, reason)).await?;
                self.socket.close(None).await
            };
            let _ = timeout(CLOSE_TIMEOUT, closing).await;
        }
        reason
    }
}

/// The next publication; `None` when the service doesn't publish.
async fn published(publications: &mut Option<mpsc::UnboundedReceiver<Publication>>) -> Option<Publication> {
    publications.as_mut()?.recv().await
}

/// A Close frame with a code and a reason.
pub(crate) fn close(code: CloseCode, reason: &'static str) -> Message {
    Message::Close(Some(CloseFrame { code, reason: reason.into() }))
}

/// The reason by which an error is counted, and the close code for the client.
fn reason(error: &Error) -> (CloseReason, Option<CloseCode>) {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => ("client", None),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => ("eof", None),
        Error::Protocol(_) => ("protocol", Some(CloseCode::Protocol)),
        Error::Utf8(_) => ("utf8", Some(CloseCode::Invalid)),
        Error::Capacity(_) => ("too_big", Some(CloseCode::Size)),
        Error::Io(_) => ("eof", None),
        _ => ("error", None),
    }
}
