//! The quality of a shard's connections, computed on request. A survey of all of them takes several rounds, so that
//! traffic goes on meanwhile.

use std::{collections::VecDeque, os::fd::AsFd, sync::mpsc::SyncSender, time::Duration};

use super::{Core, Shard};
use crate::{
    connection::{Connection, Phase},
    key::ConnectionKey,
    quality::{Grades, Observed, Quality},
};

/// Connections that a survey examines per round; each costs one system call.
const SURVEYED_PER_ROUND: usize = 256;
/// Backlog limit that the score assumes for connections without a limit, in bytes.
const UNLIMITED_BACKLOG: usize = 16 << 20;

/// A walk over all connections, a few per round.
struct Survey {
    next_slot: usize,
    grades: Grades,
    reply: SyncSender<Grades>,
}

/// Surveys in progress, the oldest first.
#[derive(Default)]
pub(super) struct Surveys(VecDeque<Survey>);

impl Surveys {
    pub(super) fn begin(&mut self, reply: SyncSender<Grades>) {
        self.0.push_back(Survey { next_slot: 0, grades: Grades::default(), reply });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Shard {
    /// Continues the oldest survey.
    pub(super) fn survey(&mut self) {
        let Some(mut survey) = self.surveys.0.pop_front() else { return };
        let end = (survey.next_slot + SURVEYED_PER_ROUND).min(self.table.slots());
        for connection in self.table.range(survey.next_slot..end).filter(|connection| is_gradable(connection)) {
            survey.grades.count(self.core.grade_connection(connection).grade);
        }
        survey.next_slot = end;
        if end < self.table.slots() {
            self.surveys.0.push_front(survey);
        } else if let Err(error) = survey.reply.try_send(survey.grades) {
            tracing::debug!(%error, "the requester no longer waits for the grades");
        }
    }

    pub(super) fn reply_with_quality(&mut self, key: ConnectionKey, reply: &SyncSender<Option<Quality>>) {
        let connection = self.table.get_mut(key).filter(|connection| is_gradable(connection));
        if let Err(error) = reply.try_send(connection.map(|connection| self.core.grade_connection(connection))) {
            tracing::debug!(%error, "the requester no longer waits for the quality");
        }
    }
}

fn is_gradable(connection: &Connection) -> bool {
    connection.is_registered && connection.phase == Phase::Open
}

impl Core {
    fn grade_connection(&self, connection: &Connection) -> Quality {
        let limit = self.shared.config.max_outbound_queue_bytes;
        let (round_trip, jitter) = round_trip(&connection.socket).unzip();
        Quality::of(&Observed {
            sent: connection.sent,
            dropped: connection.send_dropped,
            backlog_bytes: connection.backlog.as_ref().map_or(0, |backlog| backlog.bytes()),
            backlog_limit: if limit > 0 { limit } else { UNLIMITED_BACKLOG },
            round_trip,
            jitter,
            allowance: self.shared.recipients.allowance(connection.key, self.shared.uptime_seconds()),
        })
    }
}

/// The kernel's smoothed round trip and its variation (`TCP_INFO`, from microseconds); `None` if there is no
/// measurement.
fn round_trip(socket: &impl AsFd) -> Option<(Duration, Duration)> {
    use std::os::fd::AsRawFd;

    // SAFETY: all fields are integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` is valid for writes of `length` bytes, and the descriptor is borrowed for the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    let micros = |micros: u32| Duration::from_micros(u64::from(micros));
    (result == 0 && info.tcpi_rtt > 0).then(|| (micros(info.tcpi_rtt), micros(info.tcpi_rttvar)))
}
