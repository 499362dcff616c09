//! The outbox: messages that wait to be written to a client, limited in bytes and in time.

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

/// Payload bytes that may wait for a client, from the contract.
const MAX_BYTES: usize = 64 << 10;
/// Time without progress after which a client counts as slow, from the contract.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Error: too many bytes wait because the client doesn't read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlowConsumer;

/// The queue of messages for one client.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Message>,
    /// Payload in the queue, in bytes.
    queued: usize,
    /// Payload of the message that the socket has not fully taken, in bytes.
    partly_written: usize,
    /// Time of the last progress: when the last message was written completely, or when the queue became non-empty.
    /// `None` while nothing waits.
    progress_at: Option<Instant>,
}

impl Outbox {
    /// Queues a text message.
    ///
    /// # Errors
    /// When more than [`MAX_BYTES`] would wait.
    pub(super) fn push(&mut self, text: String) -> Result<(), SlowConsumer> {
        if self.queued + self.partly_written + text.len() > MAX_BYTES {
            return Err(SlowConsumer);
        }
        self.queued += text.len();
        self.push_last(Message::from(text));
        Ok(())
    }

    /// Queues a message without regard to the limit; for the Close frame.
    pub(super) fn push_last(&mut self, message: Message) {
        self.queue.push_back(message);
        self.progress_at.get_or_insert_with(Instant::now);
    }

    /// Whether all messages were written.
    pub(super) fn is_empty(&self) -> bool {
        self.progress_at.is_none()
    }

    /// When the client counts as slow unless it makes progress; `None` if nothing waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.progress_at.map(|progress_at| progress_at + STALL_TIMEOUT)
    }

    /// Writes until the queue is empty. Cancel safe: what is not written when the future is dropped stays in the
    /// outbox.
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
            // Ready once the previous message is written completely.
            ready!(Pin::new(&mut *socket).poll_ready(context))?;
            if self.partly_written > 0 {
                self.partly_written = 0;
                self.progress_at = Some(Instant::now());
            }
            let Some(message) = self.queue.pop_front() else { break };
            self.partly_written = text_bytes(&message);
            self.queued -= self.partly_written;
            Pin::new(&mut *socket).start_send(message)?;
        }
        ready!(Pin::new(socket).poll_flush(context))?;
        self.progress_at = None;
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

    /// A socket that takes at most two messages, and the stream of messages written to it.
    fn socket() -> (impl Sink<Message, Error = Error> + Unpin, impl Stream<Item = Message> + Unpin) {
        let (sender, receiver) = mpsc::channel(1);
        (sender.sink_map_err(Error::new), receiver)
    }

    #[test]
    fn messages_leave_in_order_and_none_is_lost_when_writing_is_interrupted() {
        let (mut socket, mut client) = socket();
        let mut outbox = Outbox::default();
        (0..5).for_each(|number| outbox.push(format!("{number}")).unwrap());
        let mut received = vec![];
        for _ in 0..20 {
            // Polls once and drops the future, wherever it waits.
            let _ = outbox.flush(&mut socket).now_or_never();
            received.extend(client.next().now_or_never().flatten());
        }
        assert_eq!(received, (0..5).map(|number| Message::from(format!("{number}"))).collect::<Vec<_>>());
        assert!(outbox.is_empty() && outbox.deadline().is_none());
    }

    #[test]
    fn no_more_than_64_kib_wait_and_the_close_frame_behind_them() {
        let mut outbox = Outbox::default();
        outbox.push("x".repeat(MAX_BYTES - 1)).unwrap();
        outbox.push("y".into()).unwrap();
        assert_eq!(outbox.push("z".into()), Err(SlowConsumer));
        outbox.push_last(Message::Close(None));
        let (mut socket, client) = socket();
        outbox.flush(&mut socket).now_or_never();
        drop(socket);
        let messages: Vec<_> = client.collect().now_or_never().unwrap();
        assert_eq!(messages.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_stall_timeout_begins_again_with_each_message_that_the_client_takes() {
        let (mut socket, mut client) = socket();
        let mut outbox = Outbox::default();
        let started = Instant::now();
        (0..4).for_each(|number| outbox.push(format!("{number}")).unwrap());
        assert_eq!(outbox.deadline(), Some(started + STALL_TIMEOUT));
        let _ = outbox.flush(&mut socket).now_or_never();
        tokio::time::advance(STALL_TIMEOUT / 2).await;
        client.next().await.unwrap();
        let _ = outbox.flush(&mut socket).now_or_never();
        assert_eq!(outbox.deadline(), Some(started + STALL_TIMEOUT / 2 + STALL_TIMEOUT));
    }
}
