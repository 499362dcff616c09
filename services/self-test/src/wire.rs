//! A socket that counts the bytes that pass through it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Bytes of a connection since its upgrade.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Bytes read from the socket.
    pub(crate) received: AtomicU64,
    /// Bytes written to the socket.
    pub(crate) sent: AtomicU64,
}

impl Traffic {
    /// Resets the counters after the handshake, whose bytes don't count.
    pub(crate) fn restart(&self) {
        self.received.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
    }
}

/// A TCP stream that counts its bytes.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, traffic: Arc::default() }
    }

    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.traffic.received.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.traffic.sent.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
