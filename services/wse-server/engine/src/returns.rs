//! What the application has released of each connection's messages, on its way back to the connection's shard.
//!
//! A shard counts what each connection has in the queue. A batch that is dropped reports here once per run of messages
//! of one connection, not per message, and wakes the shard when enough came back to read a parked connection again.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    limits::{Share, Waker},
    runs::Run,
};

#[derive(Default)]
struct Waiting {
    list: Vec<Run>,
    messages: usize,
    bytes: usize,
}

/// What one shard has to take back.
pub(crate) struct Returns {
    waiting: Mutex<Waiting>,
    /// Whether `waiting` has something, so that a round without returns takes no lock.
    any: AtomicBool,
    waker: Arc<Waker>,
    share: Share,
}

impl Returns {
    pub(crate) fn new(share: Share, waker: Arc<Waker>) -> Self {
        Self { waiting: Mutex::default(), any: AtomicBool::new(false), waker, share }
    }

    /// Adds what was released. Wakes the shard once a quarter of a share waits: a parked
    /// connection has more than three quarters of its share in the queue, so what it waits for always gets that far.
    fn put(&self, list: &[Run]) {
        let (messages, bytes) = list.iter().fold((0, 0), |sum, one| (sum.0 + one.messages, sum.1 + one.bytes));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.list.extend_from_slice(list);
        waiting.messages += messages;
        waiting.bytes += bytes;
        let is_enough = waiting.messages >= self.share.messages.div_ceil(4) || waiting.bytes >= self.share.bytes / 4;
        drop(waiting);
        self.any.store(true, Ordering::SeqCst);
        if is_enough {
            self.waker.wake();
        }
    }

    /// Moves what waits into `list`, which must be empty.
    pub(crate) fn take(&self, list: &mut Vec<Run>) {
        if !self.any.swap(false, Ordering::SeqCst) {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.list, list);
        (waiting.messages, waiting.bytes) = (0, 0);
    }
}

/// Reports what was counted to the shards of the connections. The messages of one shard follow each other in a batch.
pub(crate) fn give_back(list: &[Run], shards: &[Returns]) {
    for runs in list.chunk_by(|one, next| one.connection.shard() == next.connection.shard()) {
        shards[runs[0].connection.shard()].put(runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ConnectionKey;

    fn run(shard: u8, slot: usize, messages: usize, bytes: usize) -> Run {
        Run { connection: ConnectionKey::new(shard, 0, slot), messages, bytes }
    }

    fn shards(count: usize, messages: usize) -> Vec<Returns> {
        let share = Share { messages, bytes: 1 << 20 };
        (0..count).map(|_| Returns::new(share, Arc::new(Waker::new().unwrap()))).collect()
    }

    fn taken(returns: &Returns) -> Vec<Run> {
        let mut list = Vec::new();
        returns.take(&mut list);
        list
    }

    fn is_woken(returns: &Returns) -> bool {
        rustix::io::read(returns.waker.descriptor(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn runs_return_to_the_shards_of_their_connections() {
        let of_first = [run(0, 1, 2, 12), run(0, 2, 1, 1)];
        let of_second = [run(1, 3, 1, 2)];
        let shards = shards(2, 100);
        give_back(&[&of_first[..], &of_second].concat(), &shards);
        assert_eq!((taken(&shards[0]), taken(&shards[1])), (of_first.to_vec(), of_second.to_vec()));
        assert_eq!(taken(&shards[0]), []);
    }

    #[test]
    fn a_shard_is_woken_when_a_quarter_of_a_share_came_back() {
        let shards = shards(1, 8);
        give_back(&[run(0, 1, 1, 1)], &shards);
        assert!(!is_woken(&shards[0]));
        give_back(&[run(0, 1, 1, 1)], &shards);
        assert!(is_woken(&shards[0]));
    }
}
