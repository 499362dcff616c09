//! Opens connections: addresses, sockets, and the WebSocket upgrade.
//!
//! This module opens sockets and checks the service's response. A load thread decides when each connection is
//! attempted.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use sha1::{Digest, Sha1};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    deflate::{DeflateOffer, Negotiated, Unacceptable},
    error::Error,
    schedule::splitmix64,
};

/// Send buffer of each connection, in bytes. It limits the data in flight, so that a flood on thousands of connections
/// doesn't fill the kernel's memory for TCP and the drain stays short.
pub const SEND_BUFFER: usize = 32 << 10;
/// An attempt fails if its connection isn't ready after this time.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// The GUID of the opening handshake (RFC 6455, section 1.3).
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Largest number of loopback source addresses: those of 127.0.0.0/8 without the network and the broadcast address.
const LOOPBACK_ADDRESSES: u64 = (1 << 24) - 2;
/// Largest upgrade response that is read, in bytes.
const LONGEST_RESPONSE: usize = 16 << 10;

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

/// An upgrade request, complete except for the key.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    before_key: String,
    after_key: String,
}

impl UpgradeRequest {
    /// Creates a request from the value of the `Host` header (`host:port`), a path, and headers beyond those of RFC
    /// 6455.
    pub fn new(host: &str, path: &str, headers: &[(String, String)]) -> Self {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        Self {
            before_key: format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
            ),
            after_key: format!("\r\n{headers}\r\n"),
        }
    }

    /// The bytes of the request with this key.
    pub fn bytes(&self, key: &str) -> Vec<u8> {
        self.bytes_offering(key, None)
    }

    /// The bytes of the request with this key, which offers compression.
    pub fn bytes_offering(&self, key: &str, deflate: Option<&DeflateOffer>) -> Vec<u8> {
        let offer =
            deflate.map(|offer| format!("\r\nSec-WebSocket-Extensions: {}", offer.header())).unwrap_or_default();
        [&self.before_key, key, &offer, &self.after_key].concat().into_bytes()
    }
}

/// Creates a key: 16 random bytes in base64, new for each attempt (RFC 6455, section 4.1).
pub fn key(random: &mut u64) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&splitmix64(random).to_ne_bytes());
    bytes[8..].copy_from_slice(&splitmix64(random).to_ne_bytes());
    STANDARD.encode(bytes)
}

/// The `Sec-WebSocket-Accept` value that belongs to a key (RFC 6455, section 4.2.2).
pub fn accept(key: &str) -> String {
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(ACCEPT_SUFFIX);
    STANDARD.encode(hash.finalize())
}

/// The state of the service's response to the upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// The response isn't complete yet.
    Incomplete,
    /// The protocol was switched.
    Done {
        /// Number of bytes before the first frame.
        length: usize,
        /// How messages may be compressed; absent if the service didn't accept that, or it wasn't offered.
        deflate: Option<Negotiated>,
    },
    /// The protocol was not switched; the reason is a key in results.
    Failed(String),
}

/// Checks an upgrade response against the key of its request, and the subprotocols and the compression that it offered.
pub fn check_upgrade(bytes: &[u8], key: &str, subprotocols: &[String], offer: Option<&DeflateOffer>) -> Upgrade {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Err(_) => Upgrade::Failed("upgrade_malformed".into()),
        Ok(httparse::Status::Partial) if bytes.len() > LONGEST_RESPONSE => Upgrade::Failed("upgrade_too_long".into()),
        Ok(httparse::Status::Partial) => Upgrade::Incomplete,
        Ok(httparse::Status::Complete(_)) if response.code != Some(101) => {
            Upgrade::Failed(format!("http_{}", response.code.unwrap_or(0)))
        }
        Ok(httparse::Status::Complete(length)) => {
            let header = |name: &str| {
                response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|h| h.value)
            };
            let upgraded = header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
            if !upgraded || header("sec-websocket-accept") != Some(accept(key).as_bytes()) {
                return Upgrade::Failed("upgrade_not_accepted".into());
            }
            let chosen = header("sec-websocket-protocol");
            let is_offered = |name: &[u8]| subprotocols.iter().any(|offered| offered.as_bytes() == name);
            let extensions: Vec<_> = response
                .headers
                .iter()
                .filter(|header| header.name.eq_ignore_ascii_case("sec-websocket-extensions"))
                .map(|header| header.value)
                .collect();
            if (!extensions.is_empty() && offer.is_none()) || chosen.is_some_and(|name| !is_offered(name)) {
                return Upgrade::Failed("upgrade_unasked".into());
            }
            if chosen.is_none() && !subprotocols.is_empty() {
                return Upgrade::Failed("subprotocol_refused".into());
            }
            // Several headers are one list (RFC 6455, section 9.1), of more extensions than the one that was offered.
            let accepted = offer.filter(|_| !extensions.is_empty()).map(|offer| offer.accept(&extensions.join(&b',')));
            match accepted.transpose() {
                Ok(deflate) => Upgrade::Done { length, deflate },
                Err(Unacceptable(reason)) => Upgrade::Failed(reason.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    fn sources(target: &str, addresses: &[IpAddr]) -> Sources {
        Sources { target: target.parse().unwrap(), ports_per_address: 100, addresses: addresses.to_owned() }
    }

    fn response(lines: &str) -> Vec<u8> {
        format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n").into_bytes()
    }

    fn accepted_response() -> Vec<u8> {
        response("Upgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n")
    }

    #[test]
    fn the_accept_value_is_that_of_the_rfc() {
        assert_eq!(accept(KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn an_upgrade_is_recognised_only_when_its_response_is_complete() {
        let response = accepted_response();
        for length in 0..response.len() {
            assert_eq!(check_upgrade(&response[..length], KEY, &[], None), Upgrade::Incomplete, "at {length}");
        }
        let with_frame = [&response[..], &[0x81, 0]].concat();
        assert_eq!(check_upgrade(&with_frame, KEY, &[], None), Upgrade::Done { length: response.len(), deflate: None });
    }

    #[test]
    fn a_refusal_names_its_status() {
        let refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(check_upgrade(refusal, KEY, &[], None), Upgrade::Failed("http_503".into()));
    }

    #[test]
    fn the_service_must_choose_one_of_the_offered_subprotocols() {
        let with = |line: &str, offered: &[&str]| {
            let lines = format!(
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n{line}"
            );
            let offered: Vec<String> = offered.iter().map(|name| (*name).to_owned()).collect();
            check_upgrade(&response(&lines), KEY, &offered, None)
        };
        let chosen = "Sec-WebSocket-Protocol: mqtt\r\n";
        assert!(matches!(with(chosen, &["v5", "mqtt"]), Upgrade::Done { .. }));
        assert_eq!(with(chosen, &["v5"]), Upgrade::Failed("upgrade_unasked".into()));
        assert_eq!(with(chosen, &[]), Upgrade::Failed("upgrade_unasked".into()));
        assert_eq!(with("", &["mqtt"]), Upgrade::Failed("subprotocol_refused".into()));
    }

    #[test]
    fn a_wrong_accept_value_is_not_an_upgrade() {
        assert_eq!(
            check_upgrade(&accepted_response(), "AAAAAAAAAAAAAAAAAAAAAA==", &[], None),
            Upgrade::Failed("upgrade_not_accepted".into())
        );
    }

    #[test]
    fn an_extension_that_was_not_offered_is_refused() {
        let lines = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
                     Sec-WebSocket-Extensions: permessage-deflate\r\n";
        assert_eq!(check_upgrade(&response(lines), KEY, &[], None), Upgrade::Failed("upgrade_unasked".into()));
    }

    #[test]
    fn compression_is_used_if_it_was_offered_and_accepted() {
        let offer = DeflateOffer { compress_sent: true, ..DeflateOffer::default() };
        let with = |line: &str| {
            let lines = format!(
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n{line}"
            );
            check_upgrade(&response(&lines), KEY, &[], Some(&offer))
        };
        assert!(matches!(with(""), Upgrade::Done { deflate: None, .. }));
        let accepted = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
        assert!(matches!(with(accepted), Upgrade::Done { deflate: Some(_), .. }));
        for wrong in [accepted.repeat(2), accepted.replace("deflate", "other"), "Sec-WebSocket-Extensions:\r\n".into()]
        {
            assert_eq!(with(&wrong), Upgrade::Failed("upgrade_deflate".into()), "{wrong:?}");
        }
        let request = UpgradeRequest::new("host:1", "/", &[]);
        let plain = String::from_utf8(request.bytes(KEY)).unwrap();
        let line = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
        let offering = String::from_utf8(request.bytes_offering(KEY, Some(&offer))).unwrap();
        assert_eq!(offering, format!("{}{line}\r\n", &plain[..plain.len() - 2]));
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

    #[test]
    fn keys_are_sixteen_fresh_bytes() {
        let mut random = 1;
        let keys = [key(&mut random), key(&mut random)];
        assert_ne!(keys[0], keys[1]);
        assert!(keys.iter().all(|key| STANDARD.decode(key).unwrap().len() == 16));
    }
}
