//! Exchange of addresses: instances announce where they are reached, and the others dial there.

use std::sync::Arc;

use super::{
    addresses,
    config::split,
    dial,
    frame::{self, Kind},
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

    /// Handles a peer's announcement of its own address.
    pub(super) fn announced(self: &Arc<Self>, peer: &Arc<Peer>, address: &str) {
        if split(address).is_none() {
            return;
        }
        lock(&peer.state).address = Some(address.to_owned());
        // The claim comes before dialling, so that a peer that has a link isn't dialled.
        let is_new = self.is_gossiping() && lock(&self.addresses).add(address, false);
        lock(&self.addresses).record_claim(address, &peer.instance);
        if is_new {
            self.tasks.spawn(dial::maintain_link(Arc::clone(self), address.to_owned()));
            self.forward_addresses(&[address.to_owned()]);
        }
    }

    /// Handles a list of other instances' addresses from a peer.
    pub(super) fn add_addresses(self: &Arc<Self>, addresses: &[String]) {
        if !self.is_gossiping() {
            return;
        }
        let new_addresses: Vec<String> =
            addresses.iter().filter(|address| self.dial(address, false)).cloned().collect();
        if !new_addresses.is_empty() {
            self.forward_addresses(&new_addresses);
        }
    }

    /// Whether this instance uses addresses from others: only if it announces its own.
    fn is_gossiping(&self) -> bool {
        self.advertised.is_some()
    }

    fn forward_addresses(&self, new_addresses: &[String]) {
        let list = addresses::encode(new_addresses.iter().map(String::as_str));
        self.send_to_all(0, &frame::encode(Kind::Addresses, 0, b"", &list));
    }

    /// Sends the list of all known addresses to all peers again.
    pub(super) fn gossip(&self) {
        self.send_to_all(0, &self.address_frame());
    }
}
