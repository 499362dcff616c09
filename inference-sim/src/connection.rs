//! Accepts connections from a deep backlog and serves each in its own task, as HTTP/1.1 or HTTP/2 (prior knowledge),
//! depending on the client's first bytes. A task runs until its connection ends or the simulator stops.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, Version},
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

use crate::routes::{Reset, Simulator};

/// Length of the listen queue; gateways open thousands of connections at once.
const BACKLOG: i32 = 8192;
/// Concurrent requests on one HTTP/2 connection. Gateways send the requests of thousands of sessions over a few
/// connections.
const MAX_STREAMS: u32 = 16_384;
/// Flow-control window of a stream, in bytes: the largest body.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// Flow-control window of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// Largest HTTP/2 frame, in bytes; a second of audio fits into one.
const FRAME_SIZE: u32 = 64 * 1024;
/// Pause after a failed accept, for example because no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Opens a listening socket.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts connections until the task is dropped.
pub(crate) async fn accept(
    listener: &TcpListener,
    router: Router,
    simulator: Arc<Simulator>,
    graceful: &GracefulShutdown,
) {
    let http = http();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                eprintln!("failed to accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Fails only if the socket is closed, which the first read reports.
        let _ = stream.set_nodelay(true);
        let reset = Arc::new(AtomicBool::new(false));
        let stream = Resettable { stream, reset: reset.clone() };
        let router = TowerToHyperService::new(router.clone());
        let service = service_fn(move |request| respond(router.clone(), request, reset.clone()));
        let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        let simulator = simulator.clone();
        tokio::spawn(async move {
            simulator.metrics.accepted.fetch_add(1, Relaxed);
            simulator.metrics.open.fetch_add(1, Relaxed);
            // Errors of a client's connection don't concern the simulator.
            let _ = connection.await;
            simulator.metrics.open.fetch_sub(1, Relaxed);
        });
    }
}

fn http() -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    // No time-out, because a client's connection pool may keep idle connections.
    http.http1().timer(TokioTimer::new()).header_read_timeout(None);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_SIZE);
    http
}

/// The router's response. If a reset was drawn, it is an error, which ends the connection or the stream.
async fn respond(
    router: TowerToHyperService<Router>,
    request: Request<Incoming>,
    reset: Arc<AtomicBool>,
) -> Result<Response<Body>, InjectedReset> {
    let version = request.version();
    let response = match hyper::service::Service::call(&router, request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    match response.extensions().get::<Reset>() {
        None => Ok(response),
        Some(Reset) => {
            // With HTTP/2, only the stream is reset, because other requests share the connection.
            reset.store(version < Version::HTTP_2, Relaxed);
            Err(InjectedReset)
        }
    }
}

/// The error that makes hyper end a connection or a stream.
#[derive(Debug)]
struct InjectedReset;

impl std::fmt::Display for InjectedReset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a reset fault was injected for this request")
    }
}

impl std::error::Error for InjectedReset {}

/// A stream that, if `reset` is set, ends with a TCP reset instead of an end of file.
struct Resettable {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.reset.load(Relaxed) {
            // Closing a socket with a linger time of 0 sends a reset. Setting it fails only if the socket is closed.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.reset.load(Relaxed) {
            // An end of file before the reset would hide the reset from the client.
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.stream).poll_shutdown(context),
        }
    }
}
