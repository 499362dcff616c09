//! Finds the metrics port of a service that runs on this machine and that `ladder` did not start.
//!
//! `/proc` lists which process listens at the service's address, and at which other ports. The metrics port is the one
//! of these that responds to `/stats`. Only loopback addresses and processes of this user can be inspected.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    time::Duration,
};

use procfs::{
    net::{TcpState, tcp, tcp6},
    process::{FDTarget, Process, all_processes},
};
use tokio::time::timeout;

use driver::service_client::ServiceClient;

/// Longest wait for the response of a port, which may not speak HTTP at all.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A listening TCP socket, with its inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listening {
    address: SocketAddr,
    inode: u64,
}

/// Finds the metrics port of the service at `host:port`.
///
/// # Errors
/// The reason as text, when the address is not a loopback address, the process can't be inspected, or none of its ports
/// responds to `/stats`.
pub async fn find(authority: &str) -> Result<String, String> {
    let mut resolved = authority.to_socket_addrs().map_err(|error| format!("{authority}: {error}"))?;
    let address = resolved.find(|address| address.ip().is_loopback());
    let address = address.ok_or_else(|| format!("{authority} is not a loopback address of this machine"))?;
    let others = other_addresses(address, &listening()?)?;
    for other in &others {
        let response = timeout(RESPONSE_TIMEOUT, ServiceClient::new(&other.to_string()).stats()).await;
        if response.is_ok_and(|stats| stats.is_ok()) {
            return Ok(other.to_string());
        }
    }
    let list: Vec<String> = others.iter().map(SocketAddr::to_string).collect();
    Err(format!("none of the other ports of its process serves /stats as the contract requires ({})", list.join(", ")))
}

/// The other addresses at which the process behind `address` listens.
fn other_addresses(address: SocketAddr, all: &[Listening]) -> Result<BTreeSet<SocketAddr>, String> {
    let is_at_address = |one: &&Listening| one.address == address || is_wildcard_of(one.address, address);
    let target_inodes: BTreeSet<u64> = all.iter().filter(is_at_address).map(|one| one.inode).collect();
    if target_inodes.is_empty() {
        return Err(format!("no process listens at {address}"));
    }
    let processes = all_processes().map_err(|error| format!("failed to list processes: {error}"))?;
    let owned = processes.flatten().map(|process| sockets(&process)).find(|own| !own.is_disjoint(&target_inodes));
    let owned = owned.ok_or_else(|| format!("the process that listens at {address} is another user's"))?;
    let others = all.iter().filter(|one| owned.contains(&one.inode) && !target_inodes.contains(&one.inode));
    Ok(others.map(|one| reachable(one.address)).collect())
}

/// All listening sockets of this network namespace.
fn listening() -> Result<Vec<Listening>, String> {
    let failed = |error| format!("failed to read which sockets listen: {error}");
    let mut entries = tcp().map_err(failed)?;
    // A kernel without IPv6 has no such file.
    entries.extend(tcp6().unwrap_or_default());
    let listens = entries.into_iter().filter(|entry| entry.state == TcpState::Listen);
    Ok(listens.map(|entry| Listening { address: entry.local_address, inode: entry.inode }).collect())
}

/// The sockets that a process has open; empty where this user may not inspect it.
fn sockets(process: &Process) -> BTreeSet<u64> {
    let open = process.fd().into_iter().flatten().flatten();
    let inode = |target| if let FDTarget::Socket(inode) = target { Some(inode) } else { None };
    open.filter_map(|fd| inode(fd.target)).collect()
}

/// Whether a socket that listens on all addresses accepts connections to this one.
fn is_wildcard_of(listens: SocketAddr, address: SocketAddr) -> bool {
    let accepts_family = listens.is_ipv6() || address.is_ipv4();
    listens.ip().is_unspecified() && listens.port() == address.port() && accepts_family
}

/// An address at which a socket that listens on all addresses can be reached.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn other_listeners_of_a_process_are_found() {
        let [first, second] = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let wildcard = TcpListener::bind("0.0.0.0:0").unwrap();
        let address = first.local_addr().unwrap();
        let others = other_addresses(address, &listening().unwrap()).unwrap();
        assert!(others.contains(&second.local_addr().unwrap()) && !others.contains(&address), "{others:?}");
        assert!(others.contains(&SocketAddr::from(([127, 0, 0, 1], wildcard.local_addr().unwrap().port()))));
        let through_wildcard = SocketAddr::from(([127, 0, 0, 1], wildcard.local_addr().unwrap().port()));
        assert!(other_addresses(through_wildcard, &listening().unwrap()).unwrap().contains(&address));
    }

    #[test]
    fn an_address_without_listener_is_named() {
        let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(other_addresses(unused, &[]).unwrap_err(), format!("no process listens at {unused}"));
    }

    #[tokio::test]
    async fn a_process_of_another_machine_cannot_be_inspected() {
        let reason = find("192.0.2.1:80").await.unwrap_err();
        assert_eq!(reason, "192.0.2.1:80 is not a loopback address of this machine");
    }
}
