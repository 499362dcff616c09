//! The cluster port: accepts connections. The number of pending handshakes and their time are limited.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    counters::RefuseReason,
    join::{self, Refused},
    mesh::Mesh,
};

/// The most connections that haven't introduced themselves: by their hello, and by their proof if there is a secret. One
/// more closes the oldest one of the network that has the most.
const MAX_PENDING: usize = 64;
/// The pause after a failed accept, which is due to a lack of descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Accepts connections until the future is dropped.
pub(super) async fn serve(mesh: Arc<Mesh>, listener: TcpListener) {
    let mut pending: VecDeque<(IpAddr, AbortHandle)> = VecDeque::new();
    loop {
        let (stream, network) = match listener.accept().await {
            Ok((stream, remote)) => (stream, network(remote.ip())),
            Err(error) => {
                tracing::warn!(%error, "failed to accept on the cluster port");
                sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        pending.retain(|(_, handshake_task)| !handshake_task.is_finished());
        if pending.len() >= MAX_PENDING {
            let networks: Vec<IpAddr> = pending.iter().map(|(network, _)| *network).collect();
            pending.remove(makes_way(&networks)).inspect(|(_, handshake_task)| handshake_task.abort());
            mesh.counters.refuse(RefuseReason::Crowded);
        }
        pending.push_back((network, mesh.tasks.spawn(receive(Arc::clone(&mesh), stream)).abort_handle()));
    }
}

/// The network that counts as one origin of connections: an IPv4 address, or the first 64 bits of an IPv6 address,
/// which one machine can have all to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

/// Which of the connections, oldest first, makes way for a new one: the oldest one of the network that has the most.
/// So a flood from one network doesn't close connections of others.
fn makes_way(networks: &[IpAddr]) -> usize {
    let mut counts = HashMap::<_, usize>::new();
    networks.iter().for_each(|network| *counts.entry(network).or_default() += 1);
    let maximum = counts.values().copied().max().unwrap_or_default();
    networks.iter().position(|network| counts[network] == maximum).unwrap_or_default()
}

async fn receive(mesh: Arc<Mesh>, stream: TcpStream) {
    let late = |_| Err(Refused::new(RefuseReason::Timeout, "no hello within the handshake timeout"));
    let joined = timeout(mesh.config.timing.handshake, join::accepted(&mesh, stream)).await;
    if let Err(Refused { reason, detail }) = joined.unwrap_or_else(late) {
        mesh.counters.refuse(reason);
        tracing::debug!(reason = reason.label(), detail, "a connection to the cluster port was refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_from_one_network_makes_way_before_the_connections_of_others() {
        let of = |addresses: &[&str]| -> Vec<IpAddr> {
            addresses.iter().map(|address| network(address.parse().unwrap())).collect()
        };
        assert_eq!(makes_way(&of(&["10.0.0.1", "10.0.0.9", "10.0.0.2", "10.0.0.9"])), 1);
        assert_eq!(makes_way(&of(&["10.0.0.1", "2001:db8::1", "10.0.0.2", "2001:db8::2"])), 1);
        assert_eq!(makes_way(&of(&["10.0.0.1", "2001:db8::1", "2001:db8:0:1::1", "::ffff:10.0.0.1"])), 0);
        assert_eq!(makes_way(&of(&["10.0.0.1", "10.0.0.2"])), 0);
    }
}
