//! The HTTP service through which workers get trials, wait at the barrier and upload results.
//!
//! [`barrier`] is the state and its rules (pure), [`upload`] checks what workers send, [`server`] speaks HTTP and checks
//! the [`Token`] of each request. `measure` holds a [`Coordinator`] and waits on it without knowing HTTP.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bench_format::trial::Assignment;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use barrier::Barrier;
pub use token::{EmptyToken, Token};
pub use upload::Upload;

use crate::live::Live;

pub mod barrier;
pub mod server;
mod token;
pub mod upload;

/// State that the server's handlers share with [`Coordinator`].
#[derive(Clone, Debug)]
pub struct Shared {
    barrier: Arc<Mutex<Barrier>>,
    changed: watch::Sender<()>,
    token: Token,
    /// What a display shows; absent without one.
    live: Arc<OnceLock<Live>>,
}

impl Shared {
    /// Creates the state of a coordinator for one run; workers must present `token`.
    pub fn new(run: &str, token: Token) -> Self {
        let barrier = Arc::new(Mutex::new(Barrier::new(run)));
        Self { barrier, changed: watch::Sender::new(()), token, live: Arc::default() }
    }

    /// Calls `inspect` with the current state.
    fn inspect<T>(&self, inspect: impl FnOnce(&Barrier) -> T) -> T {
        inspect(&self.lock())
    }

    /// Changes the state and wakes all tasks that wait for a change.
    fn change<T>(&self, change: impl FnOnce(&mut Barrier) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_replace(());
        result
    }

    fn lock(&self) -> MutexGuard<'_, Barrier> {
        // No code panics while it holds the lock, and the state would be consistent if it did.
        self.barrier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running coordinator. Dropping it stops the server.
#[derive(Debug)]
pub struct Coordinator {
    shared: Shared,
    url: String,
    server: JoinHandle<()>,
}

impl Coordinator {
    /// Serves a run on a free port of the loopback interface, with a random token.
    ///
    /// # Errors
    /// An [`io::Error`] if no port can be bound, or the kernel gives no random bytes.
    pub async fn start(run: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Self::serve(listener, run, &url, Token::random()?))
    }

    /// Serves a run on a listener that workers reach at `url`; they must present `token`.
    pub fn serve(listener: TcpListener, run: &str, url: &str, token: Token) -> Self {
        let shared = Shared::new(run, token);
        let server = tokio::spawn(server::run(listener, shared.clone()));
        Self { shared, url: url.into(), server }
    }

    /// What a display shows of the trial that runs. From the first call on, workers' reports are taken.
    pub fn show(&self) -> Live {
        self.shared.live.get_or_init(Live::default).clone()
    }

    /// Calls `note` with what a display shows, if there is a display.
    pub(crate) fn shown(&self, note: impl FnOnce(&Live)) {
        if let Some(live) = self.shared.live.get() {
            note(live);
        }
    }

    /// The URL that workers use.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The token that workers must present. They get it in their environment, as `COORDINATOR_TOKEN`.
    pub fn token(&self) -> &Token {
        &self.shared.token
    }

    /// Starts a new run without workers and trials.
    pub fn begin(&self, run: &str) {
        self.shared.change(|barrier| *barrier = Barrier::new(run));
    }

    /// Forgets the registered workers, because `count` new processes replace them.
    pub fn expect_new_workers(&self, count: u32) {
        self.shared.change(|barrier| barrier.expect_new_workers(count));
    }

    /// Hands out a trial, one assignment per worker. The previous trial ends.
    pub fn offer(&self, assignments: Vec<Assignment>) {
        self.shared.change(|barrier| barrier.offer(assignments));
    }

    /// Tells workers how far the clock by which the service publishes is ahead of ours, in nanoseconds. To be called before
    /// the barrier is released.
    pub fn publisher_is_ahead(&self, ns: i64) {
        self.shared.change(|barrier| barrier.publisher_is_ahead(ns));
    }

    /// Releases the barrier: load starts at `start_at_unix_ns`, in nanoseconds since the Unix epoch.
    pub fn release(&self, start_at_unix_ns: u64) {
        self.shared.change(|barrier| barrier.release(start_at_unix_ns));
    }

    /// Announces that the service was read at the end of the window, so workers may close their connections.
    pub fn end_window(&self) {
        self.shared.change(Barrier::end_window);
    }

    /// Cancels the trial; its workers get the reason.
    pub fn abandon(&self, reason: &str) {
        self.shared.change(|barrier| barrier.abandon(reason));
    }

    /// Takes the uploads and ends the trial. Later uploads are refused.
    pub fn take_uploads(&self) -> Vec<Upload> {
        self.shared.change(Barrier::take_uploads)
    }

    /// Announces to the workers that the run is over.
    pub fn finish(&self) {
        self.shared.change(Barrier::finish);
    }

    /// Evaluates `query` on the current state.
    pub fn inspect<T>(&self, query: impl FnOnce(&Barrier) -> T) -> T {
        self.shared.inspect(query)
    }

    /// Waits until `reached` returns a value for the state.
    pub async fn wait_until<T>(&self, reached: impl Fn(&Barrier) -> Option<T>) -> T {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(reached) = self.shared.inspect(&reached) {
                return reached;
            }
            // The sender lives as long as `self.shared`, so this can't fail.
            let _ = changes.changed().await;
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.server.abort();
    }
}
