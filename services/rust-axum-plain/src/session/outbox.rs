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

#[cfg(test)]
mod tests {
    use futures::{FutureExt, SinkExt, Stream, StreamExt, channel::mpsc};

    use super::*;

    /// A socket that takes two messages at most, and what has left it.
    fn socket() -> (impl Sink<Message, Error = Error> + Unpin, impl Stream<Item = Message> + Unpin) {
        let (sender, receiver) = mpsc::channel(1);
        (sender.sink_map_err(Error::new), receiver)
    }

    #[test]
    fn messages_leave_in_order_and_none_is_lost_when_writing_is_interrupted() {
        let (mut socket, mut client) = socket();
        let mut outbox = Outbox::default();
        (0..5).for_each(|number| outbox.put(format!("{number}")).unwrap());
        let mut seen = vec![];
        for _ in 0..20 {
            // Each time the future is dropped where it waits.
            let _ = outbox.flush(&mut socket).now_or_never();
            seen.extend(client.next().now_or_never().flatten());
        }
        assert_eq!(seen, (0..5).map(|number| Message::from(format!("{number}"))).collect::<Vec<_>>());
        assert!(outbox.is_empty() && outbox.deadline().is_none());
    }

    #[test]
    fn no_more_than_64_kib_wait_and_the_close_frame_behind_them() {
        let mut outbox = Outbox::default();
        outbox.put("x".repeat(MAX_BYTES - 1)).unwrap();
        outbox.put("y".into()).unwrap();
        assert_eq!(outbox.put("z".into()), Err(SlowConsumer));
        outbox.put_last(Message::Close(None));
        let (mut socket, client) = socket();
        outbox.flush(&mut socket).now_or_never();
        drop(socket);
        let left: Vec<_> = client.collect().now_or_never().unwrap();
        assert_eq!(left.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_begins_again_with_each_message_that_the_client_takes() {
        let (mut socket, mut client) = socket();
        let mut outbox = Outbox::default();
        let begun = Instant::now();
        (0..4).for_each(|number| outbox.put(format!("{number}")).unwrap());
        assert_eq!(outbox.deadline(), Some(begun + PATIENCE));
        let _ = outbox.flush(&mut socket).now_or_never();
        tokio::time::advance(PATIENCE / 2).await;
        client.next().await.unwrap();
        let _ = outbox.flush(&mut socket).now_or_never();
        assert_eq!(outbox.deadline(), Some(begun + PATIENCE / 2 + PATIENCE));
    }
}
