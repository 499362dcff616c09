//! Processes that end during a trial: whether that is a result, an interruption, or a failure.

use std::time::Duration;

use bench_format::pod::Pod;
use tokio::time::{Instant, sleep};

use super::{Error, Measured, WATCH_INTERVAL, silence};
use crate::stage::{Cause, Ended, Stage};

/// The outcome of a trial, once it is known how its processes ended. A result counts only if no other program interfered
/// until the end.
pub(super) async fn confirmed<S: Stage>(stage: &mut S, measured: Result<Measured, Error>) -> Result<Measured, Error> {
    let unexplained = is_unexplained(&measured);
    let noticed = if unexplained { noticed(stage).await } else { None };
    let ended = match noticed {
        Some(ended) => Some(ended),
        None => stage.confirm().await,
    };
    let ended = match ended {
        None if unexplained => silent(stage).await,
        ended => ended,
    };
    match (measured, ended) {
        (_, Some(Ended { cause: Cause::Outside, description })) => Err(Error::Interrupted(description)),
        // Before the load, the end of the service says nothing about it.
        (Err(Error::Read(error)), _) => Err(error.into()),
        (_, Some(Ended { cause: Cause::Service(cause), description })) if unexplained => {
            Err(Error::Crashed { cause, description })
        }
        (measured, _) => measured,
    }
}

/// Converts the end of a process under load to an error.
pub(super) fn aborted(ended: Ended) -> Error {
    match ended.cause {
        Cause::Outside => Error::Interrupted(ended.description),
        Cause::Service(cause) => Error::Crashed { cause, description: ended.description },
        Cause::Itself => Error::Aborted(ended.description),
    }
}

/// The error for workers that run and aren't heard of, which says nothing about the service.
pub(super) fn cut_off(workers: &[u32], pods: &[Pod], step: &str, waited: Duration) -> Error {
    let (workers, seconds) = (silence::named(workers, pods), waited.as_secs());
    Error::Interrupted(format!("{workers} did not {step} within {seconds} s; the node may be lost or cut off"))
}

/// Whether the end of a process may be the cause of what a trial lacks.
fn is_unexplained(measured: &Result<Measured, Error>) -> bool {
    match measured {
        Ok(measured) => measured.service.readings.after.is_none(),
        Err(Error::Crashed { .. } | Error::Interrupted(_)) => false,
        Err(_) => true,
    }
}

/// The end of a process, which may show later than its effects.
async fn noticed<S: Stage>(stage: &mut S) -> Option<Ended> {
    let deadline = Instant::now() + stage.notice_time();
    while Instant::now() < deadline {
        if let Some(ended) = stage.service_ended().or_else(|| stage.worker_ended()) {
            return Some(ended);
        }
        sleep(WATCH_INTERVAL).await;
    }
    None
}

/// The end of a trial whose service runs on another machine that does not answer. The cluster may still call it ready.
async fn silent<S: Stage>(stage: &S) -> Option<Ended> {
    if !stage.has_remote_workers() {
        return None;
    }
    let error = stage.service_usage().await.err()?;
    Some(silence::of_service(&error, &stage.pods()))
}

#[cfg(test)]
mod tests {
    use bench_format::run::CrashCause;

    use super::*;
    use crate::stage::{self, Shares, Usage};

    /// Processes of which the service's end shows some time after it happened.
    struct Late {
        shows_at: Instant,
        cause: Cause,
    }

    impl Late {
        fn after(milliseconds: u64, cause: Cause) -> Self {
            Self { shows_at: Instant::now() + Duration::from_millis(milliseconds), cause }
        }
    }

    impl Stage for Late {
        async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
            Ok(None)
        }
        fn service_ended(&mut self) -> Option<Ended> {
            let ended = Ended { description: "pod p ended".into(), cause: self.cause };
            (Instant::now() >= self.shows_at).then_some(ended)
        }
        fn worker_ended(&mut self) -> Option<Ended> {
            None
        }
        async fn confirm(&mut self) -> Option<Ended> {
            self.service_ended()
        }
        fn notice_time(&self) -> Duration {
            Duration::from_secs(5)
        }
        fn shares(&self) -> Shares {
            Shares { worker_cpus: 1.0, shared_with_service: false, isolation: None, shared_with_inference: None }
        }
    }

    async fn outcome(milliseconds: u64, cause: Cause, error: Error) -> Error {
        confirmed(&mut Late::after(milliseconds, cause), Err(error)).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_crash_that_shows_after_the_connections_broke_is_the_reason() {
        let broken = || Error::Aborted("worker 0: all connections broke".into());
        let oom = Cause::Service(CrashCause::ServiceOom);
        let found = outcome(1500, oom, broken()).await;
        assert!(matches!(found, Error::Crashed { cause: CrashCause::ServiceOom, .. }), "{found}");
        assert_eq!(found.to_string(), "service_oom: pod p ended");
        assert!(matches!(outcome(6000, oom, broken()).await, Error::Aborted(_)), "it shows too late");
        assert!(matches!(outcome(1500, Cause::Outside, broken()).await, Error::Interrupted(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_ended_before_the_load_has_no_verdict() {
        let unread = stage::Error::Interrupted("gone".into());
        let error = Error::Read(crate::readings::Error::Usage(unread));
        assert!(matches!(outcome(0, Cause::Service(CrashCause::ServiceCrashed), error).await, Error::Read(_)));
    }
}
