//! How far the workers of the current trial have come: ready, finished with their load, delivered.
//!
//! Each step is absent until all workers have reached it, and an error as soon as the trial is cancelled. `measure` waits
//! for these steps.

use std::time::Duration;

use tokio::time::Instant;

use super::{Barrier, Participant};

impl Barrier {
    /// Number of open connections, once all workers are ready; an error if one can't take part or the trial is
    /// cancelled.
    pub fn all_ready(&self) -> Option<Result<u64, String>> {
        let current = self.current.as_ref()?;
        if let Some(reason) = &current.abandoned {
            return Some(Err(reason.clone()));
        }
        let ready = || {
            current
                .participants
                .iter()
                .filter_map(|participant| participant.ready.as_ref().map(|ready| (participant, ready)))
        };
        if let Some((participant, problem)) =
            ready().find_map(|(participant, ready)| Some((participant, ready.problem.as_ref()?)))
        {
            return Some(Err(format!("worker {} can't take part: {problem}", participant.assignment.worker)));
        }
        (ready().count() == current.participants.len()).then(|| Ok(self.open()))
    }

    /// Number of open connections, once all workers have reported ready, including workers that opened none; an error
    /// if the trial is cancelled.
    pub fn all_reported(&self) -> Option<Result<u64, String>> {
        self.all(|participant| participant.ready.is_some()).map(|all| all.map(|()| self.open()))
    }

    /// Number of open connections of the workers that have reported.
    fn open(&self) -> u64 {
        let participants = self.current.iter().flat_map(|current| &current.participants);
        participants.filter_map(|participant| participant.ready.as_ref()).map(|ready| u64::from(ready.open)).sum()
    }

    /// Present once no worker has load left in the window; an error if the trial is cancelled.
    pub fn all_over(&self) -> Option<Result<(), String>> {
        self.all(|participant| participant.is_over || participant.upload.is_some())
    }

    /// Present once all workers have delivered a result; an error if the trial is cancelled.
    pub fn all_delivered(&self) -> Option<Result<(), String>> {
        self.all(|participant| participant.upload.is_some())
    }

    fn all(&self, condition: impl Fn(&Participant) -> bool) -> Option<Result<(), String>> {
        let current = self.current.as_ref()?;
        match &current.abandoned {
            Some(reason) => Some(Err(reason.clone())),
            None => current.participants.iter().all(condition).then_some(Ok(())),
        }
    }

    /// Indices of the workers that haven't delivered a result.
    pub fn not_delivered(&self) -> Vec<u32> {
        self.workers(|participant| participant.upload.is_none())
    }

    /// Indices of the workers that haven't reported ready.
    pub fn not_ready(&self) -> Vec<u32> {
        self.workers(|participant| participant.ready.is_none())
    }

    /// Indices of the workers that report their progress and have not done so for `longest`, though the window lasts.
    /// A worker that never reports, because there is no display, is none of them.
    pub fn silent(&self, longest: Duration, now: Instant) -> Vec<u32> {
        if self.current.as_ref().is_some_and(|current| current.window_read) {
            return Vec::new();
        }
        let lasts = |heard_at: Instant| now - heard_at >= longest;
        self.workers(|one| !one.is_over && one.upload.is_none() && one.heard_at.is_some_and(lasts))
    }

    fn workers(&self, condition: impl Fn(&Participant) -> bool) -> Vec<u32> {
        let participants = self.current.iter().flat_map(|current| &current.participants);
        participants.filter(|one| condition(one)).map(|one| one.assignment.worker).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bench_format::trial::{Assignment, DrainRelease, Ready, Release, WindowOver};
    use tokio::time::Instant;

    use crate::coordinator::{
        barrier::{Conflict, fixture::offered},
        upload::fixture::{assignment, progress, ready, trial, upload},
    };

    #[test]
    fn a_worker_that_reported_and_reports_no_more_is_silent_until_its_load_is_over() {
        let (mut barrier, start) = (offered(3), Instant::now());
        let silent = |barrier: &super::Barrier, seconds| {
            barrier.silent(Duration::from_secs(10), start + Duration::from_secs(seconds))
        };
        barrier.release(5);
        for worker in [0, 1] {
            barrier.takes_progress(worker, &progress(1), start).unwrap();
        }
        assert_eq!((silent(&barrier, 9), silent(&barrier, 10)), (vec![], vec![0, 1]), "worker 2 never reports");
        barrier.takes_progress(0, &progress(1), start + Duration::from_secs(5)).unwrap();
        assert_eq!(silent(&barrier, 10), [1]);
        barrier.window_over(1, &WindowOver { run: "run".into(), trial: trial(), attempt: 1 }).unwrap();
        assert_eq!((silent(&barrier, 14), silent(&barrier, 15)), (vec![], vec![0]));
        barrier.end_window();
        assert!(silent(&barrier, 99).is_empty(), "no one reports while it drains");
    }

    #[test]
    fn no_worker_starts_before_all_are_ready_and_released() {
        let mut barrier = offered(2);
        assert!(matches!(barrier.ready(0, ready(1)), Ok(Release::Wait)));
        assert_eq!((barrier.all_ready(), barrier.not_ready()), (None, vec![1]));
        assert!(matches!(barrier.ready(1, ready(1)), Ok(Release::Wait)));
        assert_eq!(barrier.all_ready(), Some(Ok(20)));
        barrier.release(7);
        for worker in [0, 1, 0] {
            assert!(matches!(barrier.ready(worker, ready(1)), Ok(Release::Start { start_at_unix_ns: 7, .. })));
        }
    }

    #[test]
    fn a_worker_that_cannot_take_part_reports_why() {
        let mut barrier = offered(2);
        barrier.ready(1, Ready { problem: Some("no ports".into()), ..ready(1) }).unwrap();
        assert_eq!(barrier.all_ready(), Some(Err("worker 1 can't take part: no ports".into())));
    }

    #[test]
    fn workers_keep_their_connections_until_the_service_was_read() {
        let over = |attempt| WindowOver { run: "run".into(), trial: trial(), attempt };
        let mut barrier = offered(2);
        assert!(matches!(barrier.window_over(0, &over(1)), Err(Conflict::NotStarted { .. })));
        barrier.release(5);
        for _ in 0..2 {
            assert_eq!((barrier.window_over(0, &over(1)), barrier.all_over()), (Ok(DrainRelease::Wait), None));
        }
        // A worker that doesn't report the end of its load has finished when its result arrives.
        barrier.deliver(1, upload(1, 1)).unwrap();
        assert_eq!(barrier.not_delivered(), [0]);
        assert_eq!((barrier.all_over(), barrier.drain_release(&over(1))), (Some(Ok(())), DrainRelease::Wait));
        barrier.end_window();
        assert_eq!((barrier.drain_release(&over(1)), barrier.all_delivered()), (DrainRelease::Drain, None));
        assert_eq!(barrier.window_over(0, &over(1)), Ok(DrainRelease::Drain));
        assert!(matches!(barrier.window_over(0, &over(2)), Err(Conflict::Trial { .. })));
        // The next trial starts from the beginning; a worker that still asks about this one isn't held.
        barrier.offer(vec![Assignment { attempt: 2, ..assignment(0, 2) }]);
        barrier.release(6);
        assert_eq!(
            (barrier.window_over(0, &over(2)), barrier.drain_release(&over(1))),
            (Ok(DrainRelease::Wait), DrainRelease::Drain)
        );
        barrier.abandon("a worker ended");
        assert_eq!(
            (barrier.drain_release(&over(2)), barrier.all_over()),
            (DrainRelease::Drain, Some(Err("a worker ended".into())))
        );
    }
}
