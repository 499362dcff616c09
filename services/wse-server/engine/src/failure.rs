//! Threads that ended while they were needed. A server that has lost one says so and admits no more clients, because
//! the clients of a lost shard, and publishers to them, would wait in vain.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
};

/// What the server has lost, with the reasons. Nothing that was lost comes back.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    shard: OnceLock<String>,
    metrics: OnceLock<String>,
}

impl Failures {
    /// Notes that a shard has ended. The first reason is kept.
    pub(crate) fn lose_shard(&self, index: usize, reason: &str) {
        let _ = self.shard.set(format!("shard {index} has ended: {reason}"));
    }

    /// Notes that the thread of the metrics port has ended.
    pub(crate) fn lose_metrics(&self, reason: &str) {
        let _ = self.metrics.set(format!("the metrics port has ended: {reason}"));
    }

    /// Why the server can't serve all its clients.
    pub(crate) fn shard(&self) -> Option<&str> {
        self.shard.get().map(String::as_str)
    }

    /// What is lost, the worst first.
    pub(crate) fn any(&self) -> Option<&str> {
        self.shard().or_else(|| self.metrics.get().map(String::as_str))
    }
}

/// Runs the work of a thread. Returns why it ended if it panicked or failed.
pub(crate) fn outcome(work: impl FnOnce() -> std::io::Result<()>) -> Option<String> {
    // Nothing of the work is used after a panic except what threads share, whose locks expect it.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(format!("it panicked: {}", message(&*panic))),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_or_fails_says_why() {
        assert_eq!(outcome(|| Ok(())), None);
        assert_eq!(outcome(|| Err(std::io::Error::other("no epoll"))).as_deref(), Some("no epoll"));
        assert_eq!(outcome(|| panic!("at {}", 7)).as_deref(), Some("it panicked: at 7"));
    }

    #[test]
    fn a_lost_shard_is_told_before_a_lost_metrics_port() {
        let failures = Failures::default();
        assert_eq!(failures.any(), None);
        failures.lose_metrics("x");
        assert_eq!((failures.shard(), failures.any()), (None, Some("the metrics port has ended: x")));
        failures.lose_shard(1, "y");
        failures.lose_shard(2, "z");
        assert_eq!(failures.any(), Some("shard 1 has ended: y"));
    }
}
