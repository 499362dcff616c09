//! Exchange of addresses: instances announce where they are reached, and the others dial there. From peers that don't
//! prove who they are, only addresses on this machine are taken.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    addresses,
    config::is_named_local,
    dial,
    frame::{self, Kind},
    host::split,
    mesh::Mesh,
    peer::Peer,
};
use crate::lock::lock;

impl Mesh {
    /// Starts to dial an address if it is new. Returns whether it is.
    pub(super) fn dial(self: &Arc<Self>, address: &str, is_configured: bool) -> bool {
        let is_new = lock(&self.addresses).add(address, is_configured);
        if is_new {
            self.tasks.spawn(dial::maintain_link(Arc::clone(self), address.to_owned()));
        }
        is_new
    }

    /// Handles a peer's announcement of its own address. With TLS it must be one of the names in the peer's certificate,
    /// so that no peer can keep this instance from dialling the address of another.
    pub(super) fn announced(self: &Arc<Self>, peer: &Arc<Peer>, address: &str) {
        if split(address).is_none() {
            return;
        }
        {
            let mut state = lock(&peer.state);
            if state.identity.as_ref().is_some_and(|identity| !identity.has_address(address)) {
                drop(state);
                return tracing::warn!(peer = peer.name(), address, "it announced an address of another certificate");
            }
            state.address = Some(address.to_owned());
        }
        // The claim comes before dialling, so that a peer that has a link isn't dialled.
        let is_new = self.takes(address) && lock(&self.addresses).add(address, false);
        lock(&self.addresses).record_claim(address, &peer.instance);
        if is_new {
            self.tasks.spawn(dial::maintain_link(Arc::clone(self), address.to_owned()));
            self.forward_addresses(&[address.to_owned()]);
        }
    }

    /// Handles a list of other instances' addresses from a peer.
    pub(super) fn add_addresses(self: &Arc<Self>, addresses: &[String]) {
        let is_new = |address: &&String| self.takes(address) && self.dial(address, false);
        let new_addresses: Vec<String> = addresses.iter().filter(is_new).cloned().collect();
        if !new_addresses.is_empty() {
            self.forward_addresses(&new_addresses);
        }
    }

    /// Whether this instance dials an address that a peer named: only if it announces its own.
    fn takes(&self, address: &str) -> bool {
        self.advertised.is_some() && (self.config.has_credential() || is_named_local(address))
    }

    fn forward_addresses(&self, new_addresses: &[String]) {
        let list = addresses::encode(new_addresses.iter().map(String::as_str));
        self.send_to_all(0, &frame::encode(Kind::Addresses, 0, b"", &list));
    }

    /// Sends the list of all known addresses to all peers again.
    pub(super) fn gossip(&self) {
        self.send_to_all(0, &self.address_frame());
    }

    /// Encodes the list of all known addresses of instances.
    pub(super) fn address_frame(&self) -> Bytes {
        let known: Vec<String> = self.peers().iter().filter_map(|peer| lock(&peer.state).address.clone()).collect();
        let addresses = self.advertised.iter().chain(&known).map(String::as_str);
        frame::encode(Kind::Addresses, 0, b"", &addresses::encode(addresses))
    }
}
