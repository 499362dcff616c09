//! Opens connections: addresses, sockets, and the WebSocket upgrade (`upgrade`). A load thread decides when each
//! connection is attempted.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

pub use self::upgrade::{Upgrade, UpgradeRequest, accept, check_upgrade, key};
use crate::error::Error;

mod upgrade;

/// Send buffer of each connection, in bytes. It limits the data in flight, so that a flood on thousands of connections
/// doesn't fill the kernel's memory for TCP and the drain stays short.
pub const SEND_BUFFER: usize = 32 << 10;
/// An attempt fails if its connection isn't ready after this time.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// Largest number of loopback source addresses: those of 127.0.0.0/8 without the network and the broadcast address.
const LOOPBACK_ADDRESSES: u64 = (1 << 24) - 2;

/// Resolves `host:port` to one address, preferably IPv4.
///
/// # Errors
/// [`Error::Resolve`] if there is no address.
pub fn resolve(address: &str) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Resolve { address: address.to_owned(), source };
    let all: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
    let first = all.iter().find(|address| address.is_ipv4()).or(all.first());
    first.copied().ok_or_else(|| failed(io::Error::new(io::ErrorKind::NotFound, "no address")))
}

/// Chooses the source address of each connection.
#[derive(Clone, Debug)]
pub struct Sources {
    target: SocketAddr,
    ports_per_address: u32,
    /// Source addresses on this machine, used in order. Empty means that the kernel chooses.
    addresses: Vec<IpAddr>,
}

impl Sources {
    /// Creates the sources for a target, with the kernel's range of local ports and these addresses of this machine.
    /// Without addresses, the kernel chooses.
    pub fn new(target: SocketAddr, addresses: &[IpAddr]) -> Self {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        // Where other addresses are free to use, each is left before the kernel's search for a free port becomes slow.
        let is_spare = addresses.is_empty() && has_spare_addresses(target.ip());
        let ports_per_address = if is_spare { fast_ports(&range) } else { usable_ports(&range) };
        Self { target, ports_per_address, addresses: addresses.to_owned() }
    }

    /// Address of the service.
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// Number of ports used on each source address.
    pub fn ports_per_address(&self) -> u32 {
        self.ports_per_address
    }

    /// Largest number of connections to the target for which there are ports.
    pub fn most_connections(&self) -> u64 {
        let addresses = match (self.addresses.len(), self.target.ip()) {
            (0, ip) if has_spare_addresses(ip) => LOOPBACK_ADDRESSES,
            (given, _) => given.max(1) as u64,
        };
        addresses * u64::from(self.ports_per_address)
    }

    /// Number of source addresses that this number of connections uses.
    pub fn addresses_for(&self, connections: u32) -> u32 {
        let needed = connections.div_ceil(self.ports_per_address).max(1);
        u64::from(needed).min(self.most_connections() / u64::from(self.ports_per_address)) as u32
    }

    /// Source address of connection `index`; `None` if the kernel chooses. Without given addresses, only a loopback
    /// target has others: all of 127.0.0.0/8.
    pub fn source(&self, index: u32) -> Option<SocketAddr> {
        let nth = index / self.ports_per_address;
        match (self.addresses.last(), self.target.ip()) {
            // Beyond the ports of the last address, the kernel reports that none is free, which is counted.
            (Some(last), _) => Some(SocketAddr::new(*self.addresses.get(nth as usize).unwrap_or(last), 0)),
            (None, ip) if has_spare_addresses(ip) && nth > 0 => {
                Some(SocketAddr::from((Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + nth), 0)))
            }
            _ => None,
        }
    }
}

/// Checks that connections can start from an address, that is, that it belongs to this machine.
///
/// # Errors
/// The kernel's error if it can't be bound.
pub fn check_source(address: IpAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(SocketAddr::new(address, 0)), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(address, 0).into())
}

/// Whether load may start from any address of the target's network. All of 127.0.0.0/8 belongs to this machine.
fn has_spare_addresses(target: IpAddr) -> bool {
    matches!(target, IpAddr::V4(ip) if ip.is_loopback())
}

/// Nine tenths of the port range: other programs need ports, too, and the search for a free one is slow near the end.
fn usable_ports(range: &str) -> u32 {
    let mut bounds = range.split_whitespace().filter_map(|bound| bound.parse::<u32>().ok());
    let (first, last) = (bounds.next().unwrap_or(32_768), bounds.next().unwrap_or(60_999));
    (last.saturating_sub(first) * 9 / 10).max(1)
}

/// Half of the usable ports. The kernel tries the ports of one parity before those of the other
/// (`__inet_hash_connect`), so that from the half on, every connect passes all taken ports, which costs a few hundred
/// microseconds each time.
fn fast_ports(range: &str) -> u32 {
    (usable_ports(range) / 2).max(1)
}

/// Unread data in the kernel over all connections of a thread, in bytes. By default it is up to 32 MiB per connection:
/// a flood would fill the machine's memory, and its age would be the age of these buffers.
const UNREAD: usize = 64 << 20;
/// Bounds of the receive buffer of one connection, in bytes. Below the first, reads become small; the second is two
/// reads.
const UNREAD_EACH: (usize, usize) = (32 << 10, 512 << 10);

/// Size of the receive buffer of each of `connections` receiving connections, in bytes.
pub fn unread_each(connections: u32) -> usize {
    (UNREAD / (connections as usize).max(1)).clamp(UNREAD_EACH.0, UNREAD_EACH.1)
}

/// Starts a connection without waiting for it. `receive_buffer` is the size of its receive buffer in bytes; without it,
/// the kernel chooses.
///
/// # Errors
/// The kernel's error; [`reason`] gives its name in results.
pub fn start(target: SocketAddr, source: Option<SocketAddr>, receive_buffer: Option<usize>) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // Always set: with Nagle's algorithm a small message waits for the acknowledgement of the previous one.
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    if let Some(bytes) = receive_buffer {
        // Set before the connect, because the handshake negotiates the window scale.
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(source) = source {
        bind_address_no_port(&socket)?;
        socket.bind(&source.into())?;
    }
    match socket.connect(&target.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Lets the kernel choose the port at connect, when it knows the target: one port can then serve several targets.
fn bind_address_no_port(socket: &Socket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option's value is a live c_int of the stated length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The short name of the kernel's error; a key in results.
pub fn reason(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => "refused",
        Some(libc::ECONNRESET | libc::EPIPE) => "reset",
        Some(libc::ETIMEDOUT) => "timeout",
        Some(libc::EMFILE | libc::ENFILE) => "no_descriptors",
        Some(libc::EADDRNOTAVAIL) => "no_ports",
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => "unreachable",
        Some(libc::ENOMEM | libc::ENOBUFS) => "no_memory",
        // The certificate or the bytes of TLS were refused.
        Some(libc::EPROTO) => "tls",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(target: &str, addresses: &[IpAddr]) -> Sources {
        Sources { target: target.parse().unwrap(), ports_per_address: 100, addresses: addresses.to_owned() }
    }

    #[test]
    fn loopback_gets_another_source_address_when_the_ports_run_out() {
        let sources = sources("127.0.0.1:9", &[]);
        assert_eq!(sources.source(99), None);
        assert_eq!(sources.source(100), Some("127.0.0.2:0".parse().unwrap()));
        assert_eq!(sources.source(25_600), Some("127.0.1.1:0".parse().unwrap()));
        assert_eq!([1, 100, 101].map(|connections| sources.addresses_for(connections)), [1, 1, 2]);
        let remote = self::sources("192.0.2.1:9", &[]);
        assert_eq!((remote.source(25_600), remote.most_connections()), (None, 100));
        assert_eq!(remote.addresses_for(25_600), 1);
    }

    #[test]
    fn given_addresses_are_used_in_order_and_the_last_for_all_further_connections() {
        let [first, second]: [IpAddr; 2] = ["127.0.0.5", "127.0.0.9"].map(|address| address.parse().unwrap());
        let sources = sources("127.0.0.1:9", &[first, second]);
        let used = [0, 99, 100, 200].map(|index| sources.source(index).unwrap().ip());
        assert_eq!(used, [first, first, second, second]);
        assert_eq!((sources.most_connections(), sources.addresses_for(5000)), (200, 2));
    }

    #[test]
    fn an_address_of_another_machine_is_not_a_source() {
        assert!(check_source("127.0.0.7".parse().unwrap()).is_ok());
        assert_eq!(check_source("192.0.2.1".parse().unwrap()).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn the_port_range_is_read_as_the_kernel_writes_it() {
        assert_eq!(usable_ports("1024\t65535\n"), 58_059);
        assert_eq!(usable_ports(""), 25_407);
        assert_eq!((fast_ports(""), fast_ports("5 5")), (12_703, 1));
    }
}
