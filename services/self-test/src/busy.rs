//! A thread that is busy for a while, rests, and is busy again, regardless of the load (flaw `busy`).

use std::{
    hint::black_box,
    io,
    sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// Steps of work between two looks at the clock.
const STEPS: u64 = 10_000;

/// The busy thread; it ends when this is dropped or stopped.
#[derive(Debug)]
pub(crate) struct BusyThread {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl BusyThread {
    /// Starts a thread that works for `busy` of CPU time, rests for `idle`, and starts again.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(busy: Duration, idle: Duration) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("busy".into()).spawn(move || {
            loop {
                let end = cpu_time() + busy;
                while cpu_time() < end {
                    (0..STEPS).for_each(|step| {
                        black_box(step);
                    });
                    if stopped.try_recv() != Err(TryRecvError::Empty) {
                        return;
                    }
                }
                if !idle.is_zero() && stopped.recv_timeout(idle) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread and waits for it.
    ///
    /// # Errors
    /// When the thread failed.
    pub(crate) fn stop(self) -> thread::Result<()> {
        drop(self.stop);
        self.thread.join()
    }
}

/// CPU time of this thread. By this clock, a quota that stops the thread makes a busy time longer and not smaller.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_ends_while_it_works_and_while_it_rests() {
        BusyThread::start(Duration::from_secs(3600), Duration::ZERO).unwrap().stop().unwrap();
        BusyThread::start(Duration::ZERO, Duration::from_secs(3600)).unwrap().stop().unwrap();
    }
}
