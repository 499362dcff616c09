//! The bytes that wait to be written to a client: bounded, except with the flaw `unbounded-outbox`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use super::config::Flaw;

/// Most bytes that may wait. A single message may be longer.
const MAX_BYTES: usize = 64 << 10;
/// Longest duration of one write before the client counts as slow.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last bytes may take to be written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The client reads too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowConsumer;

/// A queue of bytes, and the task that writes them.
#[derive(Debug)]
pub struct Outbox {
    queue: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    sent: Arc<AtomicU64>,
    stuck: watch::Receiver<bool>,
    writer: JoinHandle<()>,
    flaw: Flaw,
}

impl Outbox {
    /// Creates an outbox that writes to `io`.
    pub fn new(mut io: impl AsyncWrite + Unpin + Send + 'static, flaw: Flaw) -> Self {
        let (queue, mut queued) = mpsc::unbounded_channel::<Vec<u8>>();
        let (waiting, sent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let (report_stuck, stuck) = watch::channel(false);
        let (waits, counts) = (waiting.clone(), sent.clone());
        let writer = tokio::spawn(async move {
            while let Some(bytes) = queued.recv().await {
                let limit = if flaw == Flaw::UnboundedOutbox { Duration::from_secs(3600) } else { WRITE_TIMEOUT };
                match timeout(limit, io.write_all(&bytes)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => {
                        let _ = report_stuck.send(true);
                        return;
                    }
                }
                waits.fetch_sub(bytes.len(), Ordering::AcqRel);
                counts.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            // The client may be gone already.
            let _ = io.shutdown().await;
        });
        Self { queue, waiting, sent, stuck, writer, flaw }
    }

    /// Appends bytes to the queue.
    ///
    /// # Errors
    /// When too many bytes wait.
    pub fn push(&self, bytes: Vec<u8>) -> Result<(), SlowConsumer> {
        let waiting = self.waiting.fetch_add(bytes.len(), Ordering::AcqRel);
        if waiting > 0 && waiting + bytes.len() > MAX_BYTES && self.flaw != Flaw::UnboundedOutbox {
            self.waiting.fetch_sub(bytes.len(), Ordering::AcqRel);
            return Err(SlowConsumer);
        }
        // Fails when the writer has ended; the reader then notices the end of the connection.
        let _ = self.queue.send(bytes);
        Ok(())
    }

    /// Waits until a write takes too long; never returns otherwise.
    pub async fn stuck(&mut self) {
        if self.stuck.wait_for(|stuck| *stuck).await.is_err() {
            std::future::pending().await
        }
    }

    /// Number of bytes written so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Appends the last bytes and closes the writing side, within at most a second.
    pub async fn finish(self, last: Option<Vec<u8>>) {
        if let Some(last) = last {
            let _ = self.queue.send(last);
        }
        drop(self.queue);
        let abort = self.writer.abort_handle();
        if timeout(CLOSE_TIMEOUT, self.writer).await.is_err() {
            abort.abort();
        }
    }
}
