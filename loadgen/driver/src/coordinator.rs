//! The HTTP service through which workers get trials, wait at the barrier and upload results.
//!
//! [`barrier`] is the state and its rules (pure), [`upload`] checks what workers send, [`server`] speaks HTTP (behind a
//! token where one is asked for). The climb holds a [`Coordinator`] and waits on it; it knows nothing of HTTP.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bench_format::trial::Assignment;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use barrier::Barrier;
pub use upload::Upload;

pub mod barrier;
pub mod server;
mod token;
pub mod upload;

/// What the server's handlers and the climb share.
#[derive(Clone, Debug)]
pub struct Shared {
    barrier: Arc<Mutex<Barrier>>,
    changed: watch::Sender<()>,
    token: Option<Arc<str>>,
}

impl Shared {
    /// State of a coordinator that serves one run.
    pub fn new(run: &str, token: Option<&str>) -> Self {
        let barrier = Arc::new(Mutex::new(Barrier::new(run)));
        Self { barrier, changed: watch::Sender::new(()), token: token.map(Arc::from) }
    }

    /// Looks at the state.
    fn look<T>(&self, look: impl FnOnce(&Barrier) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the state and wakes everyone who waits for a change.
    fn change<T>(&self, change: impl FnOnce(&mut Barrier) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_replace(());
        result
    }

    fn lock(&self) -> MutexGuard<'_, Barrier> {
        // Nothing panics while it holds the lock; if it did, the state would still be whole.
        self.barrier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running coordinator; dropping it ends it.
#[derive(Debug)]
pub struct Coordinator {
    shared: Shared,
    url: String,
    server: JoinHandle<io::Result<()>>,
}

impl Coordinator {
    /// Serves a run on a free port of the loopback interface.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(run: &str) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok(Self::serve(listener, run, &url, None))
    }

    /// Serves a run on a listener, to workers that know it by `url` and show the token.
    pub fn serve(listener: TcpListener, run: &str, url: &str, token: Option<&str>) -> Self {
        let shared = Shared::new(run, token);
        let server = tokio::spawn(server::run(listener, shared.clone()));
        Self { shared, url: url.into(), server }
    }

    /// Where workers find it.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Begins a run anew, with no worker and no trial.
    pub fn begin(&self, run: &str) {
        self.shared.change(|barrier| *barrier = Barrier::new(run));
    }

    /// Forgets the workers: those that come next are new processes.
    pub fn expect_new_workers(&self) {
        self.shared.change(Barrier::expect_new_workers);
    }

    /// Hands a trial out, one assignment per worker; ends the one before.
    pub fn offer(&self, assignments: Vec<Assignment>) {
        self.shared.change(|barrier| barrier.offer(assignments));
    }

    /// Releases the barrier.
    pub fn release(&self, start_at_unix_ns: u64) {
        self.shared.change(|barrier| barrier.release(start_at_unix_ns));
    }

    /// The service was read at the end of the window: workers may part from it.
    pub fn end_window(&self) {
        self.shared.change(Barrier::end_window);
    }

    /// Calls the trial off.
    pub fn abandon(&self, reason: &str) {
        self.shared.change(|barrier| barrier.abandon(reason));
    }

    /// Takes what was uploaded and ends the trial; what comes later is refused.
    pub fn take_uploads(&self) -> Vec<Upload> {
        self.shared.change(Barrier::take_uploads)
    }

    /// Tells workers that the run is over.
    pub fn finish(&self) {
        self.shared.change(Barrier::finish);
    }

    /// Asks the state a question.
    pub fn ask<T>(&self, question: impl FnOnce(&Barrier) -> T) -> T {
        self.shared.look(question)
    }

    /// Waits until a question to the state has an answer.
    pub async fn wait_until<T>(&self, answer: impl Fn(&Barrier) -> Option<T>) -> T {
        let mut changes = self.shared.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(answer) = self.shared.look(&answer) {
                return answer;
            }
            // The sender lives in `self.shared`, so it can't be gone.
            let _ = changes.changed().await;
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.server.abort();
    }
}
