//! One link: writes what waits for the peer and reads what it sends, until either ends.

use std::{
    io::{self, ErrorKind, IoSlice},
    sync::Arc,
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    task::yield_now,
    time::{Instant, sleep_until, timeout},
};

use super::{
    counters::add,
    frame::{self, FrameError, Kind},
    hello::NUMBERS,
    intake::Intake,
    mesh::Mesh,
    peer::{Link, Peer},
    queue::Batch,
};
use crate::{lock::lock, publications::Publications};

/// How many bytes are read at once; a longer frame grows the buffer.
const READ_BYTES: usize = 128 << 10;
/// How many bytes of publications are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
enum StopReason {
    #[error("the peer closed the link")]
    Closed,
    #[error("the peer has left")]
    Left,
    #[error("the peer sent nothing for too long")]
    Silent,
    #[error("the peer read nothing for too long")]
    Stuck,
    #[error("another link replaced this one")]
    Retired,
    #[error("the link was cut: the peer was too far behind")]
    Cut,
    #[error("this instance is stopping")]
    Stopped,
    #[error("{0}")]
    Broken(io::Error),
    #[error("the peer sent {0}")]
    Malformed(FrameError),
}

/// Serves a link until it ends. `first` is written before anything else.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    mesh: Arc<Mesh>,
    peer: Arc<Peer>,
    link: Link,
    stream: S,
    first: Bytes,
) {
    let (reader, writer) = tokio::io::split(stream);
    let stop_reason = {
        let reading = read(&mesh, &peer, &link, reader);
        let writing = write(&mesh, &peer, &link, writer, first);
        tokio::pin!(reading);
        tokio::select! {
            stop_reason = &mut reading => stop_reason,
            stop_reason = writing => match stop_reason {
                // The rest of what the peer sent is read until it stops writing as well. Closing the socket earlier
                // would make the kernel discard what was written.
                stop_reason @ (StopReason::Retired | StopReason::Stopped) => timeout(mesh.config.timing.stop_timeout, reading).await.unwrap_or(stop_reason),
                stop_reason => stop_reason,
            },
            () = link.cut.cancelled() => StopReason::Cut,
        }
    };
    if matches!(stop_reason, StopReason::Malformed(_)) {
        add(&mesh.counters.malformed, 1);
    }
    mesh.ended(&peer, &link);
    tracing::info!(peer = peer.name(), instance = &*peer.instance, %stop_reason, "link closed");
}

async fn read<S: AsyncRead>(mesh: &Arc<Mesh>, peer: &Arc<Peer>, link: &Link, mut reader: ReadHalf<S>) -> StopReason {
    let mut arrivals = peer.arrivals.lock().await;
    let mut intake = Intake::new(Arc::clone(mesh), Arc::clone(peer), link);
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        loop {
            mesh.wait_for_room().await;
            let Some(shared) = mesh.shared.upgrade() else { return StopReason::Stopped };
            match intake.take(&shared, &buffer, &mut arrivals) {
                Ok(progress) if progress.has_left => return StopReason::Left,
                Ok(progress) if progress.used == 0 => break,
                Ok(progress) => {
                    buffer.advance(progress.used);
                    // More may be buffered: pings and other links get their turn before it.
                    yield_now().await;
                }
                Err(error) => return StopReason::Malformed(error),
            }
        }
        buffer.reserve(READ_BYTES);
        match timeout(mesh.config.timing.link_timeout, reader.read_buf(&mut buffer)).await {
            Err(_) => return StopReason::Silent,
            Ok(Ok(0)) => return StopReason::Closed,
            Ok(Ok(bytes)) => add(&mesh.counters.bytes_received, bytes as u64),
            Ok(Err(error)) => return StopReason::Broken(error),
        }
    }
}

async fn write<S: AsyncWrite>(
    mesh: &Mesh,
    peer: &Peer,
    link: &Link,
    mut writer: WriteHalf<S>,
    first: Bytes,
) -> StopReason {
    let mut parts = vec![first];
    let mut next_ping = Instant::now();
    loop {
        let is_stopping = mesh.stop.is_cancelled();
        let is_pinging = Instant::now() >= next_ping;
        let Some((batch, ping)) = take(peer, link, is_pinging) else {
            // Only the writing side is closed, so the peer reads everything that was written.
            let _ = writer.shutdown().await;
            return StopReason::Retired;
        };
        if is_pinging {
            next_ping = Instant::now() + mesh.config.timing.heartbeat;
        }
        let count = batch.count.filter(|_| link.capabilities & NUMBERS != 0);
        let is_done = batch.is_empty();
        let written = Written { bytes: batch.bytes(), publications: &mesh.publications };
        parts.extend(batch.control);
        parts.extend(count.map(|count| frame::encode(Kind::Count, 0, b"", &count.encode())));
        parts.extend(batch.chunks.into_iter().map(|chunk| chunk.bytes));
        parts.extend(ping);
        if is_stopping && is_done {
            parts.push(frame::encode(Kind::Shutdown, 0, b"", b""));
        }
        if parts.is_empty() {
            tokio::select! {
                () = peer.wake.notified() => {}
                () = sleep_until(next_ping) => {}
                () = link.retired.cancelled() => {}
                () = mesh.stop.cancelled() => {}
            }
            continue;
        }
        match write_all(mesh, &mut writer, &parts).await {
            Ok(()) => drop(written),
            Err(error) if error.kind() == ErrorKind::TimedOut => return StopReason::Stuck,
            Err(error) => return StopReason::Broken(error),
        }
        parts.clear();
        if is_stopping && is_done {
            let _ = writer.shutdown().await;
            return StopReason::Stopped;
        }
    }
}

/// What to write next, followed by a ping if one is due. `None` if another link has taken this one's place.
fn take(peer: &Peer, link: &Link, is_pinging: bool) -> Option<(Batch, Option<Bytes>)> {
    let mut queue = lock(&peer.queue);
    let batch = queue.take(link.id, WRITE_BYTES)?;
    let ping = is_pinging.then(|| {
        let has_numbers = link.capabilities & NUMBERS != 0;
        let payload = if has_numbers { queue.taken().encode() } else { Bytes::new() };
        frame::encode(Kind::Ping, 0, b"", &payload)
    });
    Some((batch, ping))
}

/// Publications that are being written. They count as backlog until this is dropped.
struct Written<'a> {
    bytes: usize,
    publications: &'a Publications,
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        self.publications.settle(self.bytes);
    }
}

/// Writes all parts, with as few writes as possible.
///
/// # Errors
/// The stream's error, or `TimedOut` if the peer takes nothing for `timing.link_timeout`.
async fn write_all<S: AsyncWrite>(mesh: &Mesh, writer: &mut WriteHalf<S>, parts: &[Bytes]) -> io::Result<()> {
    let stuck = |_| io::Error::from(ErrorKind::TimedOut);
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut remaining = &mut slices[..];
    // Skips empty slices in front, which would look like a write of zero bytes.
    IoSlice::advance_slices(&mut remaining, 0);
    while !remaining.is_empty() {
        let bytes =
            timeout(mesh.config.timing.link_timeout, writer.write_vectored(remaining)).await.map_err(stuck)??;
        if bytes == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        add(&mesh.counters.bytes_sent, bytes as u64);
        IoSlice::advance_slices(&mut remaining, bytes);
    }
    timeout(mesh.config.timing.link_timeout, writer.flush()).await.map_err(stuck)?
}
