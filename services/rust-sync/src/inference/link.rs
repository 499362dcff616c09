//! One keep-alive connection to the inference, and the state of the exchange on it.

use std::{
    io::{IoSlice, Write as _},
    net::SocketAddr,
    ops::Range,
    os::fd::OwnedFd,
};

use rustix::{
    event::epoll,
    io::Errno,
    net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt},
};

use super::{Settings, response};
use crate::{
    protocol::messages::{Failure, Kind},
    session::Request,
};

/// A connection to the inference.
pub(super) struct Link {
    socket: OwnedFd,
    /// Whether an exchange has succeeded on this connection; only then can it be stale.
    is_proven: bool,
    head: Vec<u8>,
    /// Number of bytes of head and audio that were written.
    sent: usize,
    /// The received part of an incomplete response.
    response_bytes: Vec<u8>,
}

/// The state of an exchange after an attempt to advance it.
pub(super) enum Progress {
    /// The exchange waits for an event from epoll.
    Waiting,
    /// The peer had closed the idle connection before it read the request; another connection may be tried.
    Stale,
    /// The exchange failed; no other connection is tried.
    Failed(Failure),
    /// The response is complete; its body is at `body` in the buffer.
    Completed { status: u16, body: Range<usize>, reusable: bool },
}

impl Link {
    /// Starts to connect, for this request. The socket is registered with epoll under `key`, edge-triggered.
    pub(super) fn dial(
        epoll: &OwnedFd,
        key: u64,
        address: SocketAddr,
        settings: &Settings,
        request: &Request,
    ) -> rustix::io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let events = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(epoll, &socket, epoll::EventData::new_u64(key), events)?;
        let mut link =
            Self { socket, is_proven: false, head: Vec::with_capacity(192), sent: 0, response_bytes: Vec::new() };
        link.prepare(settings, request);
        Ok(link)
    }

    /// Starts a request on an idle connection.
    pub(super) fn start(&mut self, settings: &Settings, request: &Request) -> Progress {
        self.prepare(settings, request);
        match self.send(request.batch.audio()) {
            Ok(()) => Progress::Waiting,
            Err(error) => self.failure("send to", error),
        }
    }

    fn prepare(&mut self, settings: &Settings, request: &Request) {
        self.sent = 0;
        self.response_bytes.clear();
        self.head.clear();
        let Settings { authority, cpu_passes, .. } = settings;
        let length = request.batch.audio().len();
        write!(
            self.head,
            "POST /infer HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/octet-stream\r\n\
             x-cpu-passes: {cpu_passes}\r\nContent-Length: {length}\r\n\r\n"
        )
        .expect("memory takes all bytes");
    }

    /// Sends and receives as much as possible without blocking.
    pub(super) fn advance(&mut self, request: &Request, buffer: &mut [u8]) -> Progress {
        let sending = self.send(request.batch.audio());
        match self.receive(buffer) {
            // A response that arrived before sending failed takes precedence over the failure.
            Ok(Progress::Waiting) => match sending {
                Ok(()) => Progress::Waiting,
                Err(error) => self.failure("send to", error),
            },
            Ok(progress) => progress,
            Err(error) => self.failure("receive from", sending.err().unwrap_or(error)),
        }
    }

    /// Whether an idle connection may be reused. If it is readable, the peer has closed it or violates the protocol.
    pub(super) fn is_quiet(&self) -> bool {
        rustix::net::recv(&self.socket, &mut [0_u8; 1], RecvFlags::PEEK) == Err(Errno::AGAIN)
    }

    fn failure(&self, step: &str, error: Errno) -> Progress {
        if self.is_proven && self.response_bytes.is_empty() {
            return Progress::Stale;
        }
        let message = format!("failed to {step} the inference: {}", std::io::Error::from(error));
        Progress::Failed(Failure::new(Kind::ConnectionReset, message))
    }

    fn send(&mut self, audio: &[u8]) -> Result<(), Errno> {
        let total = self.head.len() + audio.len();
        while self.sent < total {
            let head = &self.head[self.sent.min(self.head.len())..];
            let rest = &audio[self.sent.saturating_sub(self.head.len())..];
            let parts = [IoSlice::new(head), IoSlice::new(rest)];
            let mut no_control_data = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.socket, &parts, &mut no_control_data, SendFlags::NOSIGNAL) {
                Ok(sent) => self.sent += sent,
                // A socket that is not connected yet returns the same error; an event follows.
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Progress, Errno> {
        loop {
            let held = self.response_bytes.len();
            let room = &mut buffer[held..];
            let read = match rustix::net::recv(&self.socket, &mut *room, RecvFlags::empty()) {
                Ok((0, _)) => return Err(Errno::CONNRESET),
                Ok((read, _)) => read,
                Err(Errno::AGAIN) => return Ok(Progress::Waiting),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            buffer[..held].copy_from_slice(&self.response_bytes);
            let bytes = &buffer[..held + read];
            match response::parse(bytes) {
                Ok(None) => self.response_bytes.extend_from_slice(&bytes[held..]),
                Ok(Some(head)) => return Ok(self.complete(head, bytes.len())),
                Err(message) => return Ok(Progress::Failed(Failure::new(Kind::ParseError, message))),
            }
        }
    }

    fn complete(&mut self, response: response::Response, received: usize) -> Progress {
        // After a response before the end of the request, or with bytes behind the response, the connection's state is
        // unknown.
        let is_clean = received == response.body.end && self.sent > self.head.len();
        self.is_proven = true;
        Progress::Completed { status: response.status, body: response.body, reusable: response.keeps_alive && is_clean }
    }
}
