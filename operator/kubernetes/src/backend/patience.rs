//! How long something that is to come is waited for: until the deadline, but less for a trouble that hardly ever comes right.

use std::time::Duration;

use operator::backend::Error;
use tokio::time::{Instant, timeout_at};

use super::Kubernetes;
use crate::{
    seen::Seen,
    trouble::{Outlook, Trouble},
};

/// How long a trouble that hardly ever comes right is given.
const DOUBTFUL: Duration = Duration::from_secs(30);

/// What a look at the cluster showed.
pub(super) enum Look<T> {
    /// What was waited for.
    Done(T),
    /// Somebody else changed what it needs.
    Interrupted(String),
    /// It isn't there, and why.
    NotYet(Trouble),
}

impl Kubernetes {
    /// Looks at every change until it is there, or isn't worth waiting for.
    pub(super) async fn await_patiently<T>(&self, name: &str, look: impl Fn(&Seen) -> Look<T>) -> Result<T, Error> {
        let not_ready = |reason: String| Error::NotReady { name: name.into(), reason, log: String::new() };
        let deadline = Instant::now() + self.start_deadline;
        let mut doubted_at: Option<Instant> = None;
        let mut changes = self.seen.changes();
        loop {
            changes.mark_unchanged();
            let now = Instant::now();
            let trouble = match look(&self.seen) {
                Look::Done(answer) => return Ok(answer),
                Look::Interrupted(words) => return Err(Error::Interrupted(words)),
                Look::NotYet(trouble) => trouble,
            };
            doubted_at = (trouble.outlook == Outlook::Doubtful).then(|| doubted_at.unwrap_or(now));
            let given_up = doubted_at.is_some_and(|at| now >= at + DOUBTFUL) || trouble.outlook == Outlook::Hopeless;
            if given_up {
                return Err(not_ready(trouble.words));
            }
            if now >= deadline {
                return Err(not_ready(format!("{} (waited {} s)", trouble.words, self.start_deadline.as_secs())));
            }
            let until = doubted_at.map_or(deadline, |at| deadline.min(at + DOUBTFUL));
            // Time being up is looked at as a change is.
            let _ = timeout_at(until, changes.changed()).await;
        }
    }
}
