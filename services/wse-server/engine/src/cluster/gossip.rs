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
    pub(super) fn dial(self: &Arc<Self>, address: &str, is_given: bool) -> bool {
        let is_news = lock(&self.addresses).add(address, is_given);
        if is_news {
            self.tasks.spawn(dial::keep_linked(Arc::clone(self), address.to_owned()));
        }
        is_news
    }

    /// Handles a peer's announcement of its own address.
    pub(super) fn announced(self: &Arc<Self>, peer: &Arc<Peer>, address: &str) {
        if split(address).is_none() {
            return;
        }
        lock(&peer.state).address = Some(address.to_owned());
        // The claim comes before dialling, so that a peer that has a link isn't dialled.
        let is_news = self.gossips() && lock(&self.addresses).add(address, false);
        lock(&self.addresses).claimed(address, &peer.instance);
        if is_news {
            self.tasks.spawn(dial::keep_linked(Arc::clone(self), address.to_owned()));
            self.pass_on(&[address.to_owned()]);
        }
    }

    /// Handles a list of other instances' addresses from a peer.
    pub(super) fn heard_of(self: &Arc<Self>, addresses: &[String]) {
        if !self.gossips() {
            return;
        }
        let news: Vec<String> = addresses.iter().filter(|address| self.dial(address, false)).cloned().collect();
        if !news.is_empty() {
            self.pass_on(&news);
        }
    }

    /// Whether this instance uses addresses from others: only if it announces its own.
    fn gossips(&self) -> bool {
        self.advertised.is_some()
    }

    fn pass_on(&self, news: &[String]) {
        let list = addresses::encode(news.iter().map(String::as_str));
        self.tell_all(0, &frame::encode(Kind::Addresses, 0, b"", &list));
    }

    /// Sends the list of all known addresses to all peers again.
    pub(super) fn gossip(&self) {
        self.tell_all(0, &self.directory());
    }
}
