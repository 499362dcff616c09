//! Taking clients from the listener, a few per round.

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

/// Clients let in per round, so that a storm of them doesn't keep the others waiting.
const ACCEPTS_PER_ROUND: usize = 64;
/// How long to wait before accepting again when there are no descriptors left, in milliseconds.
const ACCEPT_RETRY_MILLIS: u64 = 50;
/// Descriptors that clients don't get: whoever asks for metrics is answered when clients have taken all the others.
const SPARE_DESCRIPTORS: u64 = 64;
/// What all send buffers together may come to, in bytes. The kernel's own choice is up to 4 MiB for each: a flood of
/// publications to some thousand clients fills its memory for TCP, and then it throws away what arrives.
const SEND_BUFFERS_BYTES: usize = 128 << 20;
/// Nor is one smaller than this, in bytes: several messages fit.
const LEAST_SEND_BUFFER: usize = 16 << 10;

/// The lowest descriptor that no client gets. The kernel gives out the lowest that is free.
pub(super) fn descriptor_ceiling() -> u64 {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    most - SPARE_DESCRIPTORS.min(most / 4)
}

impl Shard {
    pub(super) fn accept(&mut self) {
        let now = self.core.now_millis;
        if self.accept_retry_millis.is_some_and(|retry| retry <= now) {
            self.accept_retry_millis = None;
            self.is_accepting = true;
        }
        if !self.is_accepting || self.core.shared.inbound.held.flooded_by_events() {
            // An application that drains nothing gets no more clients either.
            self.accept_retry_millis =
                self.is_accepting.then_some(now + ACCEPT_RETRY_MILLIS).or(self.accept_retry_millis);
            self.is_accepting = false;
            return;
        }
        for _ in 0..ACCEPTS_PER_ROUND {
            let Some(listener) = &self.listener else { return };
            match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                // Whoever stands at the door makes way for who knocks.
                Ok(socket) if self.has_descriptor_for(&socket) || self.dismiss_oldest() => self.admit(socket),
                Ok(_) => {
                    self.core.counters.rejected[RejectReason::Full as usize] += 1;
                    return self.accept_later(now);
                }
                Err(rustix::io::Errno::AGAIN) => {
                    self.is_accepting = false;
                    return;
                }
                Err(rustix::io::Errno::MFILE) if self.dismiss_oldest() => {}
                Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOBUFS) => {
                    return self.accept_later(now);
                }
                // The client gave up in between.
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

    /// Where many clients are, each gets less than its listener would give it. It stays so, and nobody is cut off.
    fn bound_send_buffer(&self, socket: &OwnedFd) {
        let clients = self.core.shared.open.load(Ordering::Relaxed);
        let share = (SEND_BUFFERS_BYTES / clients.max(1)).max(LEAST_SEND_BUFFER);
        if share < self.core.shared.config.send_buffer_bytes {
            // What it can't be told it does without.
            let _ = set_socket_send_buffer_size(socket, share);
        }
    }

    /// Takes a fresh connection in. Its request is usually here already.
    fn admit(&mut self, socket: OwnedFd) {
        self.bound_send_buffer(&socket);
        let Ok(mut connection) = self.table.insert(socket, self.core.now_millis) else {
            self.core.counters.rejected[RejectReason::Full as usize] += 1;
            return;
        };
        let key = connection.key;
        let mut progress = self.core.open(&mut connection);
        if !matches!(progress, Progress::Gone(_)) && !self.register(&connection) {
            progress = Progress::Gone(CloseReason::Error);
        }
        if connection.has_input() {
            connection.is_listed = true;
            self.ready.push_back(key);
        }
        self.tending.watch_new(&connection, &self.core);
        let progress = self.meet(&mut connection, progress);
        self.settle(connection, progress);
        self.thin_out();
    }

    fn register(&self, connection: &Connection) -> bool {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(connection.key.as_u64());
        epoll::add(&self.epoll, &connection.socket, data, flags)
            .inspect_err(|error| tracing::warn!(%error, "failed to watch a connection"))
            .is_ok()
    }
}
