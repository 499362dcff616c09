//! The results and raw rows that workers deliver after the start of a trial.
//!
//! Rows arrive before the result that they belong to, and a result ends the worker's part in the trial. The barrier keeps
//! the hash of each result, so that a repeated upload has no second effect.

use bench_format::trial::TrialId;

use super::{Barrier, Conflict};
use crate::coordinator::upload::Upload;

/// The trial that raw rows belong to. The rows themselves don't contain it.
#[derive(Clone, Debug)]
pub struct AttemptId {
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt.
    pub attempt: u32,
}

impl Barrier {
    /// Stores the result of a worker. Repeating the same upload has no effect.
    pub fn deliver(&mut self, worker: u32, upload: Upload) -> Result<(), Conflict> {
        let result = &upload.result;
        self.check_run(&result.run)?;
        if result.worker != worker {
            return Err(Conflict::WorkerNames { path: worker, body: result.worker });
        }
        let (trial, attempt) = (result.trial.clone(), result.attempt);
        let key = (trial.clone(), attempt, worker);
        match self.delivered.get(&key) {
            Some(digest) if *digest == upload.digest => return Ok(()),
            Some(_) => return Err(Conflict::SecondResult { worker, trial, attempt }),
            None => {}
        }
        let participant = self.participant(worker, &trial, attempt)?;
        let digest = upload.digest;
        participant.upload = Some(Upload { samples: participant.samples.take(), ..upload });
        self.delivered.insert(key, digest);
        Ok(())
    }

    /// Whether raw rows of a worker would be kept. It is asked before they are read.
    pub fn takes_samples(&mut self, worker: u32, of: &AttemptId) -> Result<(), Conflict> {
        self.check_run(&of.run)?;
        self.participant(worker, &of.trial, of.attempt).map(drop)
    }

    /// Stores the raw rows of a worker. They must come before its result; later rows have no effect.
    pub fn deliver_samples(&mut self, worker: u32, of: &AttemptId, samples: Vec<u8>) -> Result<(), Conflict> {
        self.check_run(&of.run)?;
        let participant = self.participant(worker, &of.trial, of.attempt)?;
        if participant.upload.is_none() {
            participant.samples = Some(samples);
        }
        Ok(())
    }

    /// Ends the trial and returns the uploads, in the order of the workers' indices.
    pub fn take_uploads(&mut self) -> Vec<Upload> {
        let participants = self.current.take().map(|current| current.participants).unwrap_or_default();
        participants.into_iter().filter_map(|participant| participant.upload).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::{
        barrier::fixture::offered,
        upload::fixture::{trial, upload},
    };

    #[test]
    fn the_same_result_twice_counts_once_and_another_one_is_refused() {
        let mut barrier = offered(2);
        barrier.release(5);
        barrier.deliver(0, upload(0, 1)).unwrap();
        barrier.deliver(0, upload(0, 1)).unwrap();
        let mut other = upload(0, 1);
        other.digest += 1;
        assert!(matches!(barrier.deliver(0, other), Err(Conflict::SecondResult { .. })));
        assert_eq!(barrier.all_delivered(), None);
        barrier.deliver(1, upload(1, 1)).unwrap();
        assert_eq!((barrier.all_delivered(), barrier.take_uploads().len()), (Some(Ok(())), 2));
        // The response was lost and the worker repeats the upload after the trial: it has no second effect.
        barrier.deliver(0, upload(0, 1)).unwrap();
    }

    #[test]
    fn a_late_result_is_refused_after_the_trial_was_closed() {
        let mut barrier = offered(1);
        barrier.release(5);
        assert!(barrier.take_uploads().is_empty());
        assert!(matches!(barrier.deliver(0, upload(0, 1)), Err(Conflict::Trial { .. })));
    }

    #[test]
    fn raw_rows_are_stored_with_their_result() {
        let of = |attempt| AttemptId { run: "run".into(), trial: trial(), attempt };
        let mut barrier = offered(1);
        let early = barrier.deliver_samples(0, &of(1), vec![1]);
        assert!(matches!(early, Err(Conflict::NotStarted { .. })));
        barrier.release(5);
        barrier.deliver_samples(0, &of(1), vec![1]).unwrap();
        barrier.deliver_samples(0, &of(1), vec![2]).unwrap();
        assert!(matches!(barrier.deliver_samples(0, &of(2), vec![3]), Err(Conflict::Trial { .. })));
        assert!(matches!(barrier.deliver_samples(1, &of(1), vec![3]), Err(Conflict::Worker { .. })));
        barrier.deliver(0, upload(0, 1)).unwrap();
        barrier.deliver_samples(0, &of(1), vec![4]).unwrap();
        assert_eq!(barrier.take_uploads()[0].samples, Some(vec![2]));
        assert!(matches!(barrier.deliver_samples(0, &of(1), vec![5]), Err(Conflict::Trial { .. })));
    }

    #[test]
    fn a_result_before_the_start_is_refused() {
        assert!(matches!(offered(1).deliver(0, upload(0, 1)), Err(Conflict::NotStarted { .. })));
    }

    #[test]
    fn a_result_under_another_workers_path_is_refused() {
        let mut barrier = offered(2);
        barrier.release(5);
        let description = barrier.deliver(0, upload(1, 1)).unwrap_err().to_string();
        assert_eq!(description, "the path names worker 0, the body names worker 1");
    }
}
