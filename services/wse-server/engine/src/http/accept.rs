//! The connections of the metrics port: how many there are, how long each may take, and which descriptors are left for
//! them.
//!
//! Any process that reaches the port may open connections and send nothing. The oldest of these makes way for a new one,
//! so that a reader, which sends its request at once, always gets in.

use std::{
    collections::VecDeque,
    io::{Error, ErrorKind},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{sleep, timeout},
};

/// The most connections at a time; readers close theirs after one page.
pub(super) const MOST_CONNECTIONS: usize = 32;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may take in all: the application may be slow to report, and readers wait for 10 s.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Descriptors that the port keeps for the moment in which the process has no others.
const SPARE_DESCRIPTORS: usize = 4;
/// How long to wait before accepting again when no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections and serves `router` on them, for ever.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let mut spare = Spare::default();
    let mut connections = Connections::default();
    spare.fill(&listener);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.add(stream, router.clone());
                spare.fill(&listener);
            }
            // The kernel reports it even if no client waits. If one does, a spare descriptor, or else that of a connection
            // that is given up, is there for the next attempt.
            Err(error) if is_out_of_descriptors(&error) => {
                if has_client(&listener) && (spare.release() || connections.dismiss_oldest()) {
                    // Lets the task end that was given up.
                    tokio::task::yield_now().await;
                } else {
                    sleep(ACCEPT_PAUSE).await;
                }
            }
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "failed to accept on the metrics port");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether a client waits to be accepted.
fn has_client(listener: &TcpListener) -> bool {
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn is_out_of_descriptors(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Descriptors that are held for nothing else than to be closed when none is left.
#[derive(Default)]
struct Spare(Vec<OwnedFd>);

impl Spare {
    fn fill(&mut self, listener: &TcpListener) {
        while self.0.len() < SPARE_DESCRIPTORS {
            match rustix::io::fcntl_dupfd_cloexec(listener, 0) {
                Ok(descriptor) => self.0.push(descriptor),
                Err(_) => return,
            }
        }
    }

    /// Closes one. Returns false if there is none.
    fn release(&mut self) -> bool {
        self.0.pop().is_some()
    }
}

/// The open connections of the port, oldest first.
#[derive(Default)]
struct Connections(VecDeque<Open>);

struct Open {
    task: AbortHandle,
    /// Whether the client has sent its request.
    has_asked: Arc<AtomicBool>,
}

impl Connections {
    /// Serves a connection. If there are as many as there may be, one that has sent no request makes way; if all have
    /// sent theirs, the new connection is closed.
    fn add(&mut self, stream: TcpStream, router: Router) {
        self.0.retain(|open| !open.task.is_finished());
        if self.0.len() >= MOST_CONNECTIONS && !self.dismiss_oldest() {
            return;
        }
        let has_asked = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(timeout(CONNECTION_TIMEOUT, serve_one(stream, router, Arc::clone(&has_asked))));
        self.0.push_back(Open { task: task.abort_handle(), has_asked });
    }

    /// Closes the oldest connection that has sent no request. Returns false if there is none.
    fn dismiss_oldest(&mut self) -> bool {
        self.0.retain(|open| !open.task.is_finished());
        let Some(oldest) = self.0.iter().position(|open| !open.has_asked.load(Ordering::Relaxed)) else { return false };
        self.0.remove(oldest).is_some_and(|open| {
            open.task.abort();
            true
        })
    }
}

/// Answers one request and closes the connection.
async fn serve_one(stream: TcpStream, router: Router, has_asked: Arc<AtomicBool>) {
    let router = router.layer(axum::middleware::map_request(move |request: axum::extract::Request| {
        has_asked.store(true, Ordering::Relaxed);
        std::future::ready(request)
    }));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a reader of the metrics port left early, or sent no request in time");
    }
}
