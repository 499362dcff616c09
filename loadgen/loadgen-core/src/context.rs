//! State that all sessions of one load thread share: buffers, counters, histograms and the pattern of the load.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc};

use bench_format::result::add_counts;

use crate::{
    connect::{UpgradeRequest, unread_each},
    deflate::Shared,
    frame::{Batch, Masks},
    live::{Counters, LiveCounts},
    outbox::Outbox,
    pattern::Pattern,
    phases::Phases,
    recorder::{Metric, Recorder},
    thread_plan::{Target, ThreadPlan},
    timers::Timers,
    turnover::TurnoverTally,
    workload::{Received, Workload},
};

/// Largest read, in bytes. Compared with 64 KiB, this size makes reading cheaper by a fifth.
const READ_BUFFER: usize = 256 << 10;

/// Message counters of one thread. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Messages due (open loop) or composed (closed loop).
    pub(crate) due: u64,
    /// Messages that were due inside the window.
    pub(crate) window_due: u64,
    /// Numbered messages that the socket accepted completely.
    pub(crate) sent: u64,
    /// Messages that were due but never handed to the socket completely.
    pub(crate) unsent: u64,
    /// First replies to a message.
    pub(crate) replies: u64,
    /// First replies that came after the objective's time.
    pub(crate) late: u64,
    /// Replies whose content is wrong.
    pub(crate) wrong: u64,
    /// Replies that came twice or that belong to no message.
    pub(crate) duplicates: u64,
    /// Replies that came out of order.
    pub(crate) reorders: u64,
    /// Write system calls that wrote at least a byte.
    pub(crate) writes: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    /// Published messages received, inside and outside the window.
    pub(crate) deliveries: u64,
    /// Published messages read inside the window.
    pub(crate) window_deliveries: u64,
    /// Reads inside the window that brought published messages.
    pub(crate) window_reads: u64,
    /// Bytes of the frames that those reads completed.
    pub(crate) window_bytes: u64,
}

/// Connection counters of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionTally {
    pub(crate) attempted: u64,
    /// Attempts that have neither succeeded nor failed yet.
    pub(crate) in_flight: u32,
    pub(crate) opened: u64,
    pub(crate) failed: BTreeMap<String, u64>,
    pub(crate) closed_early: BTreeMap<String, u64>,
    /// What was agreed on about compression, if it was offered, with the number of connections.
    pub(crate) extensions: BTreeMap<String, u64>,
    /// Time at which the last attempt succeeded or failed, in nanoseconds of the monotonic clock.
    pub(crate) last_outcome_ns: u64,
}

/// The state shared by the sessions of one load thread. The thread passes it to every call of a session.
pub(crate) struct Context<W: Workload> {
    pub(crate) workload: Arc<W>,
    pub(crate) messages: W::Messages,
    /// What the protocol keeps of each connection, by slot.
    pub(crate) protocol: Vec<W::Connection>,
    /// What the protocol wants to send, and what it read, while one message is handled.
    pub(crate) outbox: Outbox,
    pub(crate) received: Vec<Received>,
    /// Timers of connections that aren't ready yet.
    pub(crate) timers: Timers,
    pub(crate) upgrade: UpgradeRequest,
    /// The addresses of the service, as connections take them in turn.
    pub(crate) targets: Arc<[Target]>,
    pub(crate) epoll: OwnedFd,
    pub(crate) masks: Masks,
    pub(crate) batch: Batch,
    /// What compressed connections share; empty without them.
    pub(crate) deflate: Shared,
    /// Number of frames of each numbered message.
    pub(crate) frames_per_message: u64,
    /// Whether a numbered message may be something else than one plain frame.
    pub(crate) has_special_messages: bool,
    pub(crate) read_buffer: Vec<u8>,
    pub(crate) tally: Tally,
    pub(crate) connections: ConnectionTally,
    /// Present only if connections come and go under load.
    pub(crate) turnover: Option<Box<TurnoverTally>>,
    pub(crate) pattern: Pattern,
    /// Size of each socket's receive buffer in bytes; absent if the kernel chooses.
    pub(crate) receive_buffer: Option<usize>,
    /// Number of messages in each write.
    pub(crate) coalesce: u64,
    /// Wall clock minus monotonic clock, in nanoseconds.
    pub(crate) wall_offset_ns: i64,
    /// Reply time in nanoseconds above which a reply is late.
    pub(crate) late_after_ns: u64,
    /// Present from the start of the load.
    pub(crate) load: Option<LoadState>,
    /// Whether a flood is on: sockets that become writable get more messages.
    pub(crate) flooding: bool,
    /// Sequence number of the last message due in the window, if this thread publishes.
    pub(crate) last_of_window: Option<u64>,
    /// Connections of a ping-pong that haven't finished their messages.
    pub(crate) in_ping_pong: u32,
    /// Where the thread writes what it has done so far.
    pub(crate) live: Arc<LiveCounts>,
}

/// State that exists from the start of the load.
pub(crate) struct LoadState {
    pub(crate) phases: Phases,
    pub(crate) recorder: Recorder,
    /// The publisher's wall clock minus this machine's monotonic clock, in nanoseconds. Workers that publish do so by the
    /// coordinator's clock, a service by its own.
    pub(crate) publisher_offset_ns: i64,
}

impl<W: Workload> Context<W> {
    pub(crate) fn new(workload: Arc<W>, epoll: OwnedFd, seed: u64, plan: &ThreadPlan) -> Self {
        Self {
            messages: workload.messages(),
            protocol: (0..plan.connections).map(|_| W::Connection::default()).collect(),
            outbox: Outbox::default(),
            received: Vec::new(),
            timers: Timers::default(),
            upgrade: workload.shared_request(&plan.targets[0].host),
            targets: Arc::clone(&plan.targets),
            epoll,
            masks: Masks::new(seed),
            batch: Batch::default(),
            deflate: Shared::default(),
            frames_per_message: u64::from(workload.frames_per_message()),
            has_special_messages: workload.frames_per_message() > 1
                || workload.deflate().is_some_and(|offer| offer.compress_sent),
            read_buffer: vec![0; READ_BUFFER],
            tally: Tally::default(),
            connections: ConnectionTally::default(),
            turnover: plan.pattern.has_turnover().then(Box::default),
            pattern: plan.pattern,
            receive_buffer: plan.pattern.publishing().map(|_| unread_each(plan.connections)),
            coalesce: u64::from(plan.coalesce.max(1)),
            wall_offset_ns: plan.wall_offset_ns,
            late_after_ns: plan.late_after_ns,
            load: None,
            flooding: false,
            last_of_window: None,
            in_ping_pong: 0,
            live: Arc::clone(&plan.live),
            workload,
        }
    }

    /// Stores the counters for a display.
    #[cold]
    pub(crate) fn publish_counters(&self) {
        let (tally, connections) = (&self.tally, &self.connections);
        let closed_early: u64 = connections.closed_early.values().sum();
        let failed: u64 = connections.failed.values().sum();
        self.live.publish(&Counters {
            open: connections.opened
                - closed_early
                - self.turnover.as_ref().map_or(0, |turnover| turnover.counts.closed),
            due: tally.due,
            sent: tally.sent,
            answered: tally.replies + tally.deliveries,
            errors: failed + closed_early + tally.wrong + tally.unsent,
        });
    }

    /// Records how late the messages of one write, due at `due_ns`, are handled at `now_ns`.
    pub(crate) fn handled(&mut self, due_ns: u64, now_ns: u64) {
        if let Some(load) = &mut self.load
            && load.phases.in_window(due_ns)
        {
            load.recorder.record_n(Metric::Lateness, now_ns.saturating_sub(due_ns), self.coalesce, now_ns);
        }
    }

    /// Counts messages that are due.
    #[inline]
    pub(crate) fn count_due(&mut self, count: u64, due_ns: u64) {
        self.tally.due += count;
        if self.load.as_ref().is_some_and(|load| load.phases.in_window(due_ns)) {
            self.tally.window_due += count;
        }
    }

    /// Counts messages that were due and won't be sent.
    pub(crate) fn count_unsent(&mut self, count: u64, due_ns: u64) {
        self.count_due(count, due_ns);
        self.tally.unsent += count;
    }

    /// Whether the due time of each message is kept. In a flood, messages are due when the socket accepts them.
    #[inline]
    pub(crate) fn tracks_due(&self) -> bool {
        self.pattern != Pattern::Flood
    }

    /// Wall-clock time for a payload, in microseconds, computed without a system call.
    #[inline]
    pub(crate) fn unix_us(&self, monotonic_ns: u64) -> u64 {
        let offset_ns = match (self.pattern, &self.load) {
            // Receivers of other workers read it by the coordinator's clock.
            (Pattern::Fanout { .. }, Some(load)) => load.publisher_offset_ns,
            _ => self.wall_offset_ns,
        };
        monotonic_ns.wrapping_add_signed(offset_ns) / 1000
    }

    /// Counts an attempt that became a ready connection.
    pub(crate) fn opened(&mut self, now_ns: u64) {
        self.connections.opened += 1;
        self.attempt_ended(now_ns);
    }

    /// Counts an attempt that failed.
    pub(crate) fn failed(&mut self, reason: &str, now_ns: u64) {
        *self.connections.failed.entry(reason.to_owned()).or_default() += 1;
        self.attempt_ended(now_ns);
    }

    fn attempt_ended(&mut self, now_ns: u64) {
        self.connections.in_flight -= 1;
        self.connections.last_outcome_ns = now_ns;
    }

    /// Counts a ready connection that ended before the worker closed it.
    pub(crate) fn closed_early(&mut self, reason: &str) {
        *self.connections.closed_early.entry(reason.to_owned()).or_default() += 1;
    }
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.due += other.due;
        self.window_due += other.window_due;
        self.sent += other.sent;
        self.unsent += other.unsent;
        self.replies += other.replies;
        self.late += other.late;
        self.wrong += other.wrong;
        self.duplicates += other.duplicates;
        self.reorders += other.reorders;
        self.writes += other.writes;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.deliveries += other.deliveries;
        self.window_deliveries += other.window_deliveries;
        self.window_reads += other.window_reads;
        self.window_bytes += other.window_bytes;
    }
}

impl ConnectionTally {
    pub(crate) fn add(&mut self, other: ConnectionTally) {
        self.attempted += other.attempted;
        self.opened += other.opened;
        add_counts(&mut self.failed, &other.failed);
        add_counts(&mut self.closed_early, &other.closed_early);
        add_counts(&mut self.extensions, &other.extensions);
        self.last_outcome_ns = self.last_outcome_ns.max(other.last_outcome_ns);
    }
}
