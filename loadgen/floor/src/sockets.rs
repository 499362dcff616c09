//! Sockets and events.
//!
//! The connecting side opens its sockets as the load generator does, so that the two differ only in their work.

pub use std::net::SocketAddr;
use std::{
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
};

use anyhow::{Context, bail};
use loadgen_core::{
    clock::monotonic_ns,
    connect::{self, Sources},
};
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, EventFlags},
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, accept_with, bind, getsockname, listen, socket_with,
        sockopt::{set_tcp_nodelay, socket_error},
    },
    time::Timespec,
};

/// Length of the listen queue. It exceeds any burst of connects, because a full queue costs a client seconds.
const BACKLOG: i32 = 65_535;
/// How long the kernel withholds a connection whose client sends nothing, in seconds.
const DEFER_SECONDS: libc::c_int = 3;
/// Attempts in flight while the connections are opened before a load.
const IN_FLIGHT: usize = 256;
/// Longest wait for all connections, or for a load that ends by itself, in nanoseconds.
pub const TIMEOUT_NS: u64 = 60_000_000_000;
/// Largest number of events that one call returns.
const EVENTS: usize = 256;

/// An epoll set and the events of its last wait.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The kernel's error if the set can't be created.
    pub fn new() -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("failed to create an epoll set")?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    /// Watches a socket; its events carry `index`.
    ///
    /// # Errors
    /// The kernel's error if the socket can't be watched.
    pub fn add(&self, socket: &OwnedFd, index: usize, flags: EventFlags) -> anyhow::Result<()> {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, socket, data, flags).context("failed to watch a socket")
    }

    /// Creates a set that watches these sockets; events carry the socket's position.
    ///
    /// # Errors
    /// The kernel's error if the set can't be created or a socket can't be watched.
    pub fn watching(sockets: &[OwnedFd], flags: EventFlags) -> anyhow::Result<Self> {
        let poll = Self::new()?;
        sockets.iter().enumerate().try_for_each(|(index, socket)| poll.add(socket, index, flags))?;
        Ok(poll)
    }

    /// Waits for events, until `until_ns` of the monotonic clock at the latest; returns their number.
    ///
    /// # Errors
    /// The kernel's error if waiting fails, other than by an interruption.
    #[inline]
    pub fn wait(&mut self, until_ns: u64) -> anyhow::Result<usize> {
        let wait_ns = until_ns.saturating_sub(monotonic_ns());
        self.collect_events(wait_ns)
    }

    /// Takes the events that are ready, without waiting; returns their number.
    ///
    /// # Errors
    /// The kernel's error if reading the events fails, other than by an interruption.
    #[inline]
    pub fn poll_ready(&mut self) -> anyhow::Result<usize> {
        self.collect_events(0)
    }

    fn collect_events(&mut self, wait_ns: u64) -> anyhow::Result<usize> {
        let timeout = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(errno) => Err(errno).context("failed to wait for events"),
        }
    }

    /// Index and flags of an event of the last wait.
    #[inline]
    pub fn event(&self, nth: usize) -> (usize, EventFlags) {
        let event = self.events[nth];
        (event.data.u64() as usize, event.flags)
    }
}

/// A listening socket on loopback, on a port that the kernel chose.
pub struct Listening {
    socket: OwnedFd,
    address: SocketAddr,
}

impl Listening {
    /// A listener for clients that wait to be accepted.
    ///
    /// # Errors
    /// The kernel's error if the socket can't be opened or bound.
    pub fn plain() -> anyhow::Result<Self> {
        Self::new(|_| Ok(()))
    }

    /// A listener for clients that send first: a connection is accepted when its first bytes have arrived.
    ///
    /// # Errors
    /// The kernel's error if the socket can't be opened or bound.
    pub fn deferred() -> anyhow::Result<Self> {
        Self::new(defer_accept)
    }

    fn new(prepare: impl FnOnce(&OwnedFd) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SOCKET_FLAGS, None)
            .context("failed to create a socket")?;
        // Accepted sockets inherit this option.
        set_tcp_nodelay(&socket, true).context("failed to turn Nagle's algorithm off")?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).context("failed to bind to 127.0.0.1")?;
        prepare(&socket)?;
        listen(&socket, BACKLOG).context("failed to listen on 127.0.0.1")?;
        let address = getsockname(&socket).context("failed to read the listener's address")?;
        let address = address.try_into().context("failed to understand the listener's address")?;
        Ok(Self { socket, address })
    }

    /// Address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The socket, to watch it.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Accepts the next connection; `None` if none waits.
    ///
    /// # Errors
    /// The kernel's error if the accept fails for another reason than a connection that was aborted.
    #[inline]
    pub fn accept(&self) -> anyhow::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SOCKET_FLAGS) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno).context("failed to accept a connection"),
        }
    }

    /// Waits for `count` connections and accepts them.
    ///
    /// # Errors
    /// An error if they don't arrive within [`TIMEOUT_NS`], or the kernel's error.
    pub fn accept_all(&self, count: u32) -> anyhow::Result<Vec<OwnedFd>> {
        let mut poll = Poll::new()?;
        poll.add(&self.socket, 0, EventFlags::IN)?;
        let deadline_ns = monotonic_ns() + TIMEOUT_NS;
        let mut accepted = Vec::with_capacity(count as usize);
        while accepted.len() < count as usize {
            if poll.wait(deadline_ns)? == 0 && monotonic_ns() >= deadline_ns {
                bail!("accepted {} of {count} connections in {} s", accepted.len(), TIMEOUT_NS / 1_000_000_000);
            }
            while accepted.len() < count as usize
                && let Some(socket) = self.accept()?
            {
                accepted.push(socket);
            }
        }
        Ok(accepted)
    }
}

const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn defer_accept(socket: &OwnedFd) -> anyhow::Result<()> {
    let seconds = DEFER_SECONDS;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the option is read from a live integer of
    // the size that is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context("failed to set TCP_DEFER_ACCEPT") }
}

/// The target of connections and their source addresses. One source address has about 28 000 ports.
pub struct Target(Sources, Option<usize>);

impl Target {
    /// Creates a target for an address.
    pub fn new(address: SocketAddr) -> Self {
        Self(Sources::new(address, &[]), None)
    }

    /// Sets the size of each connection's receive buffer, in bytes.
    pub fn holding(self, bytes: usize) -> Self {
        Self(self.0, Some(bytes))
    }

    /// Starts connection `index` without waiting for it.
    ///
    /// # Errors
    /// The kernel's error if the connection can't be started.
    #[inline]
    pub fn start(&self, index: usize) -> anyhow::Result<OwnedFd> {
        connect::start(self.0.target(), self.0.source(index as u32), self.1)
            .with_context(|| format!("failed to begin connection {index}"))
    }

    /// Opens `count` connections, with at most [`IN_FLIGHT`] attempts in flight, and returns their sockets.
    ///
    /// # Errors
    /// An error if a connection can't be opened within [`TIMEOUT_NS`].
    pub fn connect_all(&self, count: u32) -> anyhow::Result<Vec<OwnedFd>> {
        let mut poll = Poll::new()?;
        let deadline_ns = monotonic_ns() + TIMEOUT_NS;
        let mut sockets = Vec::with_capacity(count as usize);
        let mut open = 0;
        while open < count as usize {
            while sockets.len() < count as usize && sockets.len() < open + IN_FLIGHT {
                let socket = self.start(sockets.len())?;
                // Each socket is reported once.
                poll.add(&socket, sockets.len(), EventFlags::OUT | EventFlags::ONESHOT)?;
                sockets.push(socket);
            }
            let ready = poll.wait(deadline_ns)?;
            if ready == 0 && monotonic_ns() >= deadline_ns {
                bail!("opened {open} of {count} connections in {} s", TIMEOUT_NS / 1_000_000_000);
            }
            for nth in 0..ready {
                check_connected(&sockets[poll.event(nth).0])?;
                open += 1;
            }
        }
        Ok(sockets)
    }
}

/// Checks whether a connection that was started has been established.
///
/// # Errors
/// The kernel's error if it has not.
#[inline]
pub fn check_connected(socket: &OwnedFd) -> anyhow::Result<()> {
    match socket_error(socket).context("failed to read a socket's error")? {
        Ok(()) => Ok(()),
        Err(errno) => Err(errno).context("failed to connect"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_come_up_on_both_sides() {
        let listening = Listening::plain().unwrap();
        let target = Target::new(listening.address());
        let accepting = std::thread::spawn(move || listening.accept_all(300).unwrap().len());
        let opened = target.connect_all(300).unwrap();
        assert_eq!((opened.len(), accepting.join().unwrap()), (300, 300));
    }

    #[test]
    fn an_unreachable_service_is_an_error_with_a_reason() {
        let address = Listening::plain().unwrap().address();
        let error = format!("{:#}", Target::new(address).connect_all(1).unwrap_err());
        assert!(error.contains("failed to connect") && error.contains("refused"), "{error}");
    }

    #[test]
    fn events_name_their_socket_and_a_wait_ends_in_time() {
        let listening = Listening::plain().unwrap();
        let mut poll = Poll::new().unwrap();
        poll.add(listening.socket(), 7, EventFlags::IN).unwrap();
        let started_ns = monotonic_ns();
        assert_eq!((poll.poll_ready().unwrap(), poll.wait(started_ns + 2_000_000).unwrap()), (0, 0));
        assert!(monotonic_ns() >= started_ns + 2_000_000);
        let _client = Target::new(listening.address()).start(0).unwrap();
        assert_eq!(poll.wait(started_ns + TIMEOUT_NS).unwrap(), 1);
        assert_eq!(poll.event(0), (7, EventFlags::IN));
    }
}
