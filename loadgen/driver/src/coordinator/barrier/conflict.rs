//! The requests that a coordinator refuses because they don't fit the state of the run, with the message for the worker.

use bench_format::trial::TrialId;

/// A request that doesn't fit the state of the run; HTTP status 409.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The request belongs to another run.
    #[error("run \"{found}\" is not served here; this is the coordinator of run \"{run}\"")]
    Run {
        /// Id of the run in the request.
        found: String,
        /// Id of the run that is served.
        run: String,
    },
    /// The request belongs to a trial or an attempt that isn't under way.
    #[error("trial {trial} (attempt {attempt}) is not running; request the next step")]
    Trial {
        /// Id of the trial in the request.
        trial: TrialId,
        /// Number of the attempt in the request.
        attempt: u32,
    },
    /// The trial has no worker with this index.
    #[error("trial {trial} has no worker {worker}; it has {workers} workers, counted from 0")]
    Worker {
        /// Index of the worker in the request.
        worker: u32,
        /// Id of the trial.
        trial: TrialId,
        /// Number of workers of the trial.
        workers: usize,
    },
    /// A worker registers under an index that no worker of the plan has. HTTP status 503 while none is expected, so that
    /// the worker asks again.
    #[error("worker {worker} is not expected; {expected} workers are, counted from 0")]
    Unexpected {
        /// Index of the worker in the request.
        worker: u32,
        /// Number of workers that are expected; 0 before the run starts any.
        expected: u32,
    },
    /// The path and the body name different workers.
    #[error("the path names worker {path}, the body names worker {body}")]
    WorkerNames {
        /// Index of the worker in the path.
        path: u32,
        /// Index of the worker in the body.
        body: u32,
    },
    /// The worker has delivered a different result before.
    #[error("worker {worker} has delivered another result for trial {trial} (attempt {attempt}) before")]
    SecondResult {
        /// Index of the worker.
        worker: u32,
        /// Id of the trial.
        trial: TrialId,
        /// Number of the attempt.
        attempt: u32,
    },
    /// The result belongs to a trial that hasn't started.
    #[error("trial {trial} (attempt {attempt}) has not started; report ready first")]
    NotStarted {
        /// Id of the trial.
        trial: TrialId,
        /// Number of the attempt.
        attempt: u32,
    },
}
