//! What a client hasn't taken yet, within bounds.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Error, extract::ws::Message};
use futures_util::Sink;
use tokio::time::Instant;

/// Bytes that may wait for a client that doesn't read.
const MAX_BYTES: usize = 64 << 10;
/// How long a client may take nothing while something waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that doesn't read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlowConsumer;

/// Messages that wait for the socket.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Message>,
    /// Payload of the queue, in bytes.
    queued: usize,
    /// Payload that the socket has taken only in part, in bytes.
    blocked: usize,
    /// Since when nothing was written whole, while something waits.
    since: Option<Instant>,
}

impl Outbox {
    /// Adds a text.
    ///
    /// # Errors
    /// When too much waits already.
    pub(super) fn put(&mut self, text: String) -> Result<(), SlowConsumer> {
        if self.queued + self.blocked + text.len() > MAX_BYTES {
            return Err(SlowConsumer);
        }
        self.queued += text.len();
        self.put_last(Message::from(text));
        Ok(())
    }

    /// Adds a message, whatever waits.
    pub(super) fn put_last(&mut self, message: Message) {
        self.queue.push_back(message);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// When the client will have taken nothing for too long, if something waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.map(|since| since + PATIENCE)
    }

    /// Writes until nothing waits. What isn't written when the future is dropped goes on to wait.
    ///
    /// # Errors
    /// When the socket fails.
    pub(super) async fn flush(
        &mut self,
        socket: &mut (impl Sink<Message, Error = Error> + Unpin),
    ) -> Result<(), Error> {
        poll_fn(|context| self.poll_flush(context, socket)).await
    }

    fn poll_flush<S>(&mut self, context: &mut Context<'_>, socket: &mut S) -> Poll<Result<(), Error>>
    where
        S: Sink<Message, Error = Error> + Unpin,
    {
        loop {
            // Ready when all that it was given before is written.
            ready!(Pin::new(&mut *socket).poll_ready(context))?;
            if self.blocked > 0 {
                self.blocked = 0;
                self.since = Some(Instant::now());
            }
            let Some(message) = self.queue.pop_front() else { break };
            self.blocked = text_bytes(&message);
            self.queued -= self.blocked;
            Pin::new(&mut *socket).start_send(message)?;
        }
        ready!(Pin::new(socket).poll_flush(context))?;
        self.since = None;
        Poll::Ready(Ok(()))
    }
}

fn text_bytes(message: &Message) -> usize {
    if let Message::Text(text) = message { text.len() } else { 0 }
}
