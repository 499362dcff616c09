//! Accepts clients from the listener, a few per round.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::atomic::Ordering,
};

use rustix::{
    event::epoll,
    net::{SocketFlags, accept_with, sockopt::set_socket_send_buffer_size},
    process::{Resource, getrlimit},
};

use super::{Shard, read::Progress};
use crate::{
    connection::Connection,
    stats::{CloseReason, RejectReason},
};

/// Clients accepted per round, so that a storm of them doesn't keep the other connections waiting.
const ACCEPTS_PER_ROUND: usize = 64;
/// How long to wait before accepting again when no descriptors are left, in milliseconds.
const ACCEPT_RETRY_MILLIS: u64 = 50;
/// Descriptors reserved for other uses, so that requests for metrics are still served when clients have all the others.
const SPARE_DESCRIPTORS: u64 = 64;
/// What all send buffers together may take, in bytes. The kernel would give up to 4 MiB to each: publications to some
/// thousand clients would then fill its memory for TCP, and it would drop inbound packets.
const SEND_BUFFERS_BYTES: usize = 128 << 20;
/// The smallest send buffer, in bytes; several messages fit into it.
const MIN_SEND_BUFFER: usize = 16 << 10;

/// The lowest descriptor that no client gets. The kernel always assigns the lowest free one.
pub(super) fn descriptor_ceiling() -> u64 {
    let maximum = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    maximum - SPARE_DESCRIPTORS.min(maximum / 4)
}

impl Shard {
    pub(super) fn accept(&mut self) {
        let now = self.core.now_millis;
        if self.accept_retry_millis.is_some_and(|retry| retry <= now) {
            self.accept_retry_millis = None;
            self.is_accepting = true;
        }
        if !self.is_accepting || self.core.shared.inbound.usage.is_over_event_limit() {
            // An application that drains nothing gets no more clients.
            self.accept_retry_millis =
                self.is_accepting.then_some(now + ACCEPT_RETRY_MILLIS).or(self.accept_retry_millis);
            self.is_accepting = false;
            return;
        }
        for _ in 0..ACCEPTS_PER_ROUND {
            let Some(listener) = &self.listener else { return };
            match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                // If no descriptor is left for the client, the oldest pending handshake makes way for it.
                Ok(socket) if self.has_descriptor_for(&socket) || self.drop_oldest_handshake() => self.admit(socket),
                Ok(_) => {
                    self.core.counters.rejected[RejectReason::Full as usize] += 1;
                    return self.accept_later(now);
                }
                Err(rustix::io::Errno::AGAIN) => {
                    self.is_accepting = false;
                    return;
                }
                Err(rustix::io::Errno::MFILE) if self.drop_oldest_handshake() => {}
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOBUFS) => {
                    return self.accept_later(now);
                }
                // The client aborted the connection before it was accepted.
                Err(_) => {}
            }
        }
    }

    fn has_descriptor_for(&self, socket: &OwnedFd) -> bool {
        (socket.as_raw_fd() as u64) < self.descriptor_ceiling
    }

    fn accept_later(&mut self, now: u64) {
        tracing::warn!("no descriptors left for another connection");
        self.is_accepting = false;
        self.accept_retry_millis = Some(now + ACCEPT_RETRY_MILLIS);
    }

    /// With many clients, gives the socket a smaller send buffer than the listener's setting. The size is set once, and
    /// no client is disconnected because of it.
    fn bound_send_buffer(&self, socket: &OwnedFd) {
        let clients = self.core.shared.open.load(Ordering::Relaxed);
        let share = (SEND_BUFFERS_BYTES / clients.max(1)).max(MIN_SEND_BUFFER);
        if share < self.core.shared.config.send_buffer_bytes {
            // If the kernel refuses, the socket keeps its size.
            let _ = set_socket_send_buffer_size(socket, share);
        }
    }

    /// Adds a new connection and reads its request, which has usually arrived already.
    fn admit(&mut self, socket: OwnedFd) {
        self.bound_send_buffer(&socket);
        let Ok(mut connection) = self.table.insert(socket, self.core.now_millis) else {
            self.core.counters.rejected[RejectReason::Full as usize] += 1;
            return;
        };
        let key = connection.key;
        let mut progress = self.core.open(&mut connection);
        if !matches!(progress, Progress::Closed(_)) && !self.register(&connection) {
            progress = Progress::Closed(CloseReason::Error);
        }
        if connection.has_input() {
            connection.is_queued = true;
            self.ready.push_back(key);
        }
        self.timers.watch_new(&connection, &self.core);
        let progress = self.track_handshake(&mut connection, progress);
        self.settle(connection, progress);
        self.enforce_handshake_limit();
    }

    fn register(&self, connection: &Connection) -> bool {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(connection.key.as_u64());
        epoll::add(&self.epoll, &connection.socket, data, flags)
            .inspect_err(|error| tracing::warn!(%error, "failed to watch a connection"))
            .is_ok()
    }
}
